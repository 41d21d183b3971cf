"""Validate the rows of a micro-batch, once: events that pass are not validated again, in this batch or a later one.

A row is a heartbeat, an event, one that does not fit its declaration, or one that comes too late::

    rows in  =  heartbeats + events + bad rows + late rows
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flumina.input.casting import Mask
from flumina.input.event_table import to_table
from flumina.input.stream import Stream
from flumina.input.validation import Fault, RowFaults, validate
from flumina.input.watermarks import NOTHING, Heartbeats, Seen, WatermarkPolicy
from flumina.model.order import Ints
from flumina.model.schema import shown_span, shown_time, timestamp_type

PLACE, ROW = "\0place", "\0row"
"""Columns of ours: the file of the row (or its partition), and the row there."""

LATE = "LATE"
_FURTHEST = 2**62
"""Timestamps are smaller than this, and larger than its negative: there is room for delays and for the ends of time."""


@dataclass(frozen=True)
class ValidatedRows:
    """The rows of one stream, sorted out.

    ``events`` have the columns of :mod:`flumina.input.event_table`, :data:`PLACE` and :data:`ROW`; ``bad`` are rows as
    they came, and ``fault_of`` says for each what is wrong with it, by its number in ``faults``.
    """

    rows: int
    events: pa.Table
    bad: pa.Table
    fault_of: Ints
    faults: tuple[Fault, ...]
    heartbeats: int
    seen: Seen
    digest: int = 0
    """The same for the same rows, in whatever order unless that matters, and hardly ever for others."""
    files: Callable[[], Mapping[int, str]] = dict
    """Asks for the files that places are, where they are known: for people who look for a row."""

    @property
    def late(self) -> int:
        """How many rows came too late."""
        return sum(int((self.fault_of == n).sum()) for n, fault in enumerate(self.faults) if fault.condition == LATE)


class RowValidator:
    """Validates one stream; rows up to the timestamp ``done`` have been processed, and others come too late."""

    def __init__(self, stream: Stream, policy: WatermarkPolicy, done: int = NOTHING) -> None:
        self.stream, self.policy, self.done = stream, policy, done

    def validate(self, table: pa.Table) -> ValidatedRows:
        """Sort out rows, which have the columns of the stream, :data:`PLACE` and :data:`ROW`."""
        table = table.combine_chunks()  # several pieces are left only of more text than Arrow has in one array
        pieces = table.to_batches() or [pa.record_batch([pa.nulls(0, f.type) for f in table.schema], table.schema)]
        return _together([self._validate(piece) for piece in pieces])

    def _validate(self, rows: pa.RecordBatch) -> ValidatedRows:
        beats = self._beats(rows)
        found = validate(self.stream, rows, lambda ts, faults: self._events(rows, ts, beats, faults))
        good = np.arange(rows.num_rows) if found.good is None else found.good
        bad = np.flatnonzero(found.faults.fault_of >= 0)
        beating = found.faults.good if beats is None else found.faults.good & beats
        batch = found.batch(0, [self.stream.name])
        events = to_table(batch, sequenced=self.stream.seq is not None)
        for name in (PLACE, ROW):
            events = events.append_column(name, rows.column(name).take(pa.array(good)))
        return ValidatedRows(
            rows.num_rows,
            events,
            pa.Table.from_batches([rows]).take(pa.array(bad)),
            found.faults.fault_of[bad],
            tuple(found.faults.faults),
            0 if beats is None else int(beating.sum()),
            Seen(_highest(batch.ts), NOTHING if beats is None else _highest(found.ts[beating])),
        )

    def _beats(self, rows: pa.RecordBatch) -> Mask | None:
        """Which rows are heartbeats; None: they are none of the policy's."""
        if not isinstance(self.policy, Heartbeats):
            return None
        column = rows.column(self.policy.column)
        found = pc.fill_null(pc.equal(column, pa.scalar(self.policy.value).cast(column.type)), False)  # noqa: FBT003
        mask: Mask = found.to_numpy(zero_copy_only=False)
        return mask

    def _events(self, rows: pa.RecordBatch, ts: Ints, beats: Mask | None, faults: RowFaults) -> Mask | None:
        """Record timestamps that are out of range or too late; gives the rows that should be events."""
        message = f"the timestamp is not between -{_FURTHEST} and {_FURTHEST}"
        faults.add((ts >= _FURTHEST) | (ts <= -_FURTHEST), Fault("TIMESTAMP_RANGE", self.stream.ts, message))
        events = None if beats is None else ~beats
        if self.done != NOTHING:
            late = (ts <= self.done) & faults.good
            late = late if events is None else late & events
            if late.any():
                kind = timestamp_type(rows.schema.field(self.stream.ts).type)
                behind = self.done - int(ts[late].min())
                message = (
                    f"the timestamp lies at or before {shown_time(self.done, kind)}, up to which everything has been "
                    f"processed; late rows of this batch lie up to {shown_span(behind, kind)} before it"
                )
                faults.add(late, Fault(LATE, self.stream.ts, message))
        return events


def _together(pieces: Sequence[ValidatedRows]) -> ValidatedRows:
    """The pieces of a batch as one."""
    if len(pieces) == 1:
        return pieces[0]
    starts = np.cumsum([0, *(len(piece.faults) for piece in pieces)])
    return ValidatedRows(
        sum(piece.rows for piece in pieces),
        pa.concat_tables([piece.events for piece in pieces]),
        pa.concat_tables([piece.bad for piece in pieces]),
        np.concatenate([piece.fault_of + start for piece, start in zip(pieces, starts[:-1], strict=True)]),
        tuple(fault for piece in pieces for fault in piece.faults),
        sum(piece.heartbeats for piece in pieces),
        reduce(Seen.and_then, (piece.seen for piece in pieces)),
    )


def _highest(ts: Ints) -> int:
    return int(ts.max()) if len(ts) else NOTHING
