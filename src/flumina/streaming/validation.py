"""Validate each row of a micro-batch once, and sort it into one of four kinds.

Events that pass are not validated again, in this batch or a later one. A row is a heartbeat, an event, a bad row, which
does not fit its declaration, or a late row, at or before the batch watermark of an earlier batch::

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
from flumina.input.watermark_policy import NOTHING, Heartbeats, Seen, WatermarkPolicy
from flumina.model.order import Ints
from flumina.model.schema import shown_span, shown_time, timestamp_type

PLACE, ROW = "\0place", "\0row"
"""Added columns: the file of the row (or its partition), and the number of the row in it."""

LATE = "LATE"
_FURTHEST = 2**62
"""The bound of the absolute value of timestamps: beyond it is room for delays, ``NOTHING`` and ``EVERYTHING``."""


@dataclass(frozen=True)
class ValidatedRows:
    """Validated rows of one stream in a batch.

    ``events`` have the columns of :mod:`flumina.input.event_table`, :data:`PLACE` and :data:`ROW`; ``bad`` are the
    bad and late rows with the columns of the input, and ``fault_of`` has for each the index of its fault in ``faults``.
    """

    rows: int
    events: pa.Table
    bad: pa.Table
    fault_of: Ints
    faults: tuple[Fault, ...]
    heartbeats: int
    seen: Seen
    digest: int = 0
    """Hash of the rows; it depends on their order only where results do."""
    files: Callable[[], Mapping[int, str]] = dict
    """Returns the file of each place, where it is known; called for error messages and dead letters only."""

    @property
    def late(self) -> int:
        """Return the number of late rows."""
        return sum(int((self.fault_of == n).sum()) for n, fault in enumerate(self.faults) if fault.condition == LATE)


class RowValidator:
    """Validates the rows of one stream; rows at or before the timestamp ``done`` are late."""

    def __init__(self, stream: Stream, policy: WatermarkPolicy, done: int = NOTHING) -> None:
        self.stream, self.policy, self.done = stream, policy, done

    def validate(self, table: pa.Table) -> ValidatedRows:
        """Validate rows, which have the columns of the stream, :data:`PLACE` and :data:`ROW`."""
        table = table.combine_chunks()  # several chunks remain only where text exceeds the size of one Arrow array
        chunks = table.to_batches() or [pa.record_batch([pa.nulls(0, f.type) for f in table.schema], table.schema)]
        return _concatenate([self._validate(chunk) for chunk in chunks])

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
        """Return a mask of the heartbeats; None if the policy has no heartbeats."""
        if not isinstance(self.policy, Heartbeats):
            return None
        column = rows.column(self.policy.column)
        found = pc.fill_null(pc.equal(column, pa.scalar(self.policy.value).cast(column.type)), False)  # noqa: FBT003
        mask: Mask = found.to_numpy(zero_copy_only=False)
        return mask

    def _events(self, rows: pa.RecordBatch, ts: Ints, beats: Mask | None, faults: RowFaults) -> Mask | None:
        """Record timestamps that are out of range or late; return a mask of the rows that are not heartbeats."""
        message = f"the timestamp is not between -{_FURTHEST} and {_FURTHEST}"
        faults.add((ts >= _FURTHEST) | (ts <= -_FURTHEST), Fault("TIMESTAMP_RANGE", self.stream.ts, message))
        events = None if beats is None else ~beats
        if self.done != NOTHING:
            late = (ts <= self.done) & faults.good
            late = late if events is None else late & events
            if late.any():
                kind = timestamp_type(rows.schema.field(self.stream.ts).type)
                earlier = self.done - int(ts[late].min())
                message = (
                    f"the timestamp lies at or before {shown_time(self.done, kind)}, up to which everything has been "
                    f"processed; late rows of this batch lie up to {shown_span(earlier, kind)} before it"
                )
                faults.add(late, Fault(LATE, self.stream.ts, message))
        return events


def _concatenate(chunks: Sequence[ValidatedRows]) -> ValidatedRows:
    """Return the validated chunks of a batch as one."""
    if len(chunks) == 1:
        return chunks[0]
    starts = np.cumsum([0, *(len(chunk.faults) for chunk in chunks)])
    return ValidatedRows(
        sum(chunk.rows for chunk in chunks),
        pa.concat_tables([chunk.events for chunk in chunks]),
        pa.concat_tables([chunk.bad for chunk in chunks]),
        np.concatenate([chunk.fault_of + start for chunk, start in zip(chunks, starts[:-1], strict=True)]),
        tuple(fault for chunk in chunks for fault in chunk.faults),
        sum(chunk.heartbeats for chunk in chunks),
        reduce(Seen.and_then, (chunk.seen for chunk in chunks)),
    )


def _highest(ts: Ints) -> int:
    return int(ts.max()) if len(ts) else NOTHING
