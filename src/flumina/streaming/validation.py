"""Tells rows that can be processed from those that can't, a whole column at a time.

A row is a heartbeat, an event, or one that does not fit its declaration; of a bad row the first thing that is wrong is
told. What passes here is what :class:`~flumina.input.decode.Decoder` takes::

    rows in  =  heartbeats + events + bad rows + late rows
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flumina.input.stream import Stream
from flumina.input.validation import Fault, Marks, Mask, mark_events, mark_timestamps, mask_of
from flumina.input.watermarks import NOTHING, Heartbeats, Seen, WatermarkPolicy
from flumina.model.order import Ints
from flumina.model.schema import shown_span, shown_time, timestamp_type

TS, PLACE, ROW = "\0ts", "\0place", "\0row"
"""Columns of ours: the timestamp as O compares it, the file of the row (or its partition), and the row there."""

LATE = "LATE"
_FURTHEST = 2**62
"""Timestamps are smaller than this, and larger than its negative: there is room for delays and for the ends of time."""


@dataclass(frozen=True)
class ValidatedRows:
    """The rows of one stream, sorted out.

    ``events`` have the columns that the stream looks at, and :data:`TS`, :data:`PLACE` and :data:`ROW`; ``bad`` are
    rows as they came, and ``fault_of`` says for each what is wrong with it, by its number in ``faults``.
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
    """The checks for one stream; rows up to the timestamp ``done`` have been processed, and others come too late."""

    def __init__(self, stream: Stream, policy: WatermarkPolicy, done: int = NOTHING) -> None:
        self.stream, self.policy, self.done = stream, policy, done

    def sift(self, table: pa.Table) -> ValidatedRows:
        """Sort out rows, which have the columns of the stream, :data:`PLACE` and :data:`ROW`."""
        marks = Marks(len(table))
        beats = self._beats(table)
        ts = self._timestamps(table, marks)
        events = ~beats
        if self.done != NOTHING:
            late = events & (ts <= self.done) & marks.good
            if late.any():
                kind = timestamp_type(table.schema.field(self.stream.ts).type)
                behind = self.done - int(ts[late].min())
                message = (
                    f"the timestamp lies at or before {shown_time(self.done, kind)}, up to which everything has been "
                    f"processed; late rows of this batch lie up to {shown_span(behind, kind)} before it"
                )
                marks.add(late, Fault(LATE, self.stream.ts, message))
        mark_events(self.stream, table, events, marks)
        good = marks.good & events
        beating = beats & marks.good
        kept = table.filter(pa.array(good)).append_column(TS, pa.array(ts[good]))
        bad = np.flatnonzero(~marks.good)
        seen = Seen(_highest(ts[good]), _highest(ts[beating]))
        return ValidatedRows(
            len(table),
            kept.select([*self.stream.columns, TS, PLACE, ROW]),
            table.take(pa.array(bad)),
            marks.fault_of[bad],
            tuple(marks.faults),
            int(beating.sum()),
            seen,
        )

    def _beats(self, table: pa.Table) -> Mask:
        """Which rows are heartbeats."""
        if not isinstance(self.policy, Heartbeats):
            return np.zeros(len(table), bool)
        column = table.column(self.policy.column)
        found = pc.equal(column, pa.scalar(self.policy.value).cast(column.type))
        return mask_of(found)

    def _timestamps(self, table: pa.Table, marks: Marks) -> Ints:
        """Timestamps as whole numbers, 0 where there is none."""
        ts = mark_timestamps(self.stream, table, marks)
        outside = (ts >= _FURTHEST) | (ts <= -_FURTHEST)
        told = f"the timestamp is not between -{_FURTHEST} and {_FURTHEST}"
        marks.add(outside, Fault("TIMESTAMP_RANGE", self.stream.ts, told))
        return ts


def _highest(ts: Ints) -> int:
    return int(ts.max()) if len(ts) else NOTHING
