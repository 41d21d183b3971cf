"""Tells rows that can be processed from those that can't, a whole column at a time.

A row is a heartbeat, an event, or one that does not fit its declaration; of a bad row the first thing that is wrong is
told. What passes here is what :class:`~flumina.decode.Decoder` takes::

    rows in  =  heartbeats + events + bad rows + late rows
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from flumina.decode import timestamp_type
from flumina.events import Tag
from flumina.nulls import forbidden, holds_not_null, nullable
from flumina.order import Ints
from flumina.schema import type_name
from flumina.streaming.frontier import NOTHING, Heartbeats, Policy, Seen
from flumina.streams import Stream

TS, PLACE, ROW = "\0ts", "\0place", "\0row"
"""Columns of ours: the timestamp as O compares it, the file of the row (or its partition), and the row there."""

LATE = "LATE"
_FURTHEST = 2**62
"""Timestamps are smaller than this, and larger than its negative: there is room for delays and for the ends of time."""

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Fault:
    """What is wrong with some rows."""

    condition: str
    column: str
    message: str


@dataclass(frozen=True)
class Sifted:
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


class Sieve:
    """The checks for one stream; rows up to the timestamp ``done`` have been processed, and others come too late."""

    def __init__(self, stream: Stream, policy: Policy, done: int = NOTHING) -> None:
        self.stream, self.policy, self.done = stream, policy, done

    def sift(self, table: pa.Table) -> Sifted:
        """Sort out rows, which have the columns of the stream, :data:`PLACE` and :data:`ROW`."""
        marks = _Marks(len(table))
        beats = self._beats(table)
        ts = self._timestamps(table, marks)
        events = ~beats
        if self.done != NOTHING:
            late = events & (ts <= self.done) & marks.good
            if late.any():
                behind = self.done - int(ts[late].min())
                message = (
                    f"the timestamp lies at or before {self.done}, up to which everything has been processed; "
                    f"late rows of this batch lie up to {behind:,} before it"
                )
                marks.add(late, Fault(LATE, self.stream.ts, message))
        if self.stream.seq is not None:
            missing = events & _nulls(table.column(self.stream.seq))
            marks.add(missing, Fault("NULL_SEQ", self.stream.seq, "the sequence number is null"))
        self._tags(table, events, marks)
        good = marks.good & events
        beating = beats & marks.good
        kept = table.filter(pa.array(good)).append_column(TS, pa.array(ts[good]))
        bad = np.flatnonzero(~marks.good)
        seen = Seen(_highest(ts[good]), _highest(ts[beating]))
        return Sifted(
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
        return _mask(found)

    def _timestamps(self, table: pa.Table, marks: _Marks) -> Ints:
        """Timestamps as whole numbers, 0 where there is none."""
        name = self.stream.ts
        column = table.column(name)
        marks.add(_nulls(column), Fault("NULL_TIMESTAMP", name, "the timestamp is null"))
        kind = timestamp_type(column.type)
        cast, failed = _cast(column, kind)
        marks.add(failed, Fault("COLUMN_TYPE", name, f"not a {type_name(kind)}"))
        ts: Ints = pc.fill_null(cast.cast(pa.int64()), 0).to_numpy()
        outside = (ts >= _FURTHEST) | (ts <= -_FURTHEST)
        marks.add(outside, Fault("TIMESTAMP_RANGE", name, f"the timestamp is not between -{_FURTHEST} and {_FURTHEST}"))
        return ts

    def _tags(self, table: pa.Table, events: Mask, marks: _Marks) -> None:
        if isinstance(self.stream.tag, Tag):
            self._columns(table, self.stream.tag, events, marks)
            return
        assert isinstance(self.stream.tag, Mapping)
        name = str(self.stream.tag_column)
        column = table.column(name)
        marks.add(events & _nulls(column), Fault("NULL_TAG", name, "the tag is null"))
        codes = tag_codes(self.stream, column)
        marks.add(events & (codes < 0), Fault("UNKNOWN_TAG", name, f"the tag is none of {list(self.stream.tag)}"))
        for code, tag in enumerate(self.stream.tags):
            self._columns(table, tag, events & (codes == code), marks)

    def _columns(self, table: pa.Table, tag: Tag, mine: Mask, marks: _Marks) -> None:
        """The declared columns of one tag, at its rows."""
        rows = np.flatnonzero(mine)
        if not len(rows):
            return
        for declared in tag.schema:
            name = self.stream.column_of(declared.name)
            column = _decoded(table.column(name))
            if len(rows) < len(column):
                column = column.take(pa.array(rows))
            column, failed = _cast(column, nullable(declared.type))  # what is null inside is told apart below
            marks.add_at(rows[failed], Fault("COLUMN_TYPE", name, f"not a {type_name(declared.type)}"))
            if tag.key is not None and declared.name == tag.key.name:
                empty = Fault("NULL_KEY", name, f"the key of tag {tag.name!r} is null")
                marks.add_at(rows[_nulls(column)], empty)
                if tag.finite_keys is not None:
                    outside = ~tag.universe.mask(column.combine_chunks()) & ~_nulls(column)
                    strange = f"the key is none of the declared keys of tag {tag.name!r}"
                    marks.add_at(rows[outside], Fault("UNKNOWN_KEY", name, strange))
            elif not declared.nullable:
                marks.add_at(
                    rows[_nulls(column)], Fault("NULL_VALUE", name, "the value is null, but declared NOT NULL")
                )
            if holds_not_null(declared.type):
                for inside, at in forbidden(column.combine_chunks(), declared.type):
                    empty = Fault("NULL_VALUE", name, f"{inside} of the value is null, but declared NOT NULL")
                    marks.add_at(rows[at], empty)


def tag_codes(stream: Stream, column: pa.ChunkedArray) -> Ints:
    """For each value of a stream's tag column the number of its tag; -1 where it is null or none of them."""
    assert isinstance(stream.tag, Mapping)
    encoded = _decoded(column).combine_chunks().dictionary_encode()
    tags = list(stream.tags)
    found = [tags.index(stream.tag[v]) if v in stream.tag else -1 for v in encoded.dictionary.to_pylist()]
    indices: Ints = pc.fill_null(encoded.indices, len(found)).to_numpy().astype(np.int64)
    return np.array([*found, -1], np.int64)[indices]


class _Marks:
    """For each row the number of what is wrong with it, -1 if nothing is; the first mark counts."""

    def __init__(self, rows: int) -> None:
        self.fault_of: Ints = np.full(rows, -1, np.int64)
        self.faults: list[Fault] = []

    @property
    def good(self) -> Mask:
        return self.fault_of < 0

    def add(self, mask: Mask, fault: Fault) -> None:
        self.add_at(np.flatnonzero(mask), fault)

    def add_at(self, rows: Ints, fault: Fault) -> None:
        new = rows[self.fault_of[rows] < 0]
        if len(new):
            self.fault_of[new] = len(self.faults)
            self.faults.append(fault)


def _highest(ts: Ints) -> int:
    return int(ts.max()) if len(ts) else NOTHING


def _nulls(column: pa.ChunkedArray) -> Mask:
    return _mask(column.is_null()) if column.null_count else np.zeros(len(column), bool)


def _mask(column: pa.ChunkedArray) -> Mask:
    found: Mask = pc.fill_null(column, False).to_numpy(zero_copy_only=False)  # noqa: FBT003 -- Arrow's own signature
    return found


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _cast(column: pa.ChunkedArray, wanted: pa.DataType | None) -> tuple[pa.ChunkedArray, Mask]:
    """A column as another type, null where a value does not fit, and the places where that is so."""
    failed = np.zeros(len(column), bool)
    if wanted is None or column.type == wanted:
        return column, failed
    try:
        return column.cast(wanted), failed
    except pa.ArrowException:
        pass
    pieces = list(_halved(column.combine_chunks(), wanted, 0, failed))
    return pa.chunked_array(pieces, wanted), failed


def _halved(array: pa.Array, wanted: pa.DataType, start: int, failed: Mask) -> list[pa.Array]:
    """Cast by halves, so that few bad values among many cost little."""
    try:
        return [array.cast(wanted)]
    except pa.ArrowException:
        if len(array) == 1:
            failed[start] = True
            return [pa.nulls(1, wanted)]
    middle = len(array) // 2
    left = _halved(array.slice(0, middle), wanted, start, failed)
    return left + _halved(array.slice(middle), wanted, start + middle, failed)
