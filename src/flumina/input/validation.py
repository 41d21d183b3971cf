"""What is wrong with rows, told a whole column at a time, and for all of them.

:class:`~flumina.input.decode.Decoder` stops at the first row that does not fit its declaration; this finds every one.
The two agree: a row has no fault here if and only if the decoder takes it. Of a bad row the first thing that is wrong
is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from flumina.input.stream import Stream
from flumina.model.nulls import forbidden, holds_not_null, nullable
from flumina.model.order import Ints
from flumina.model.schema import cast, timestamp_type, type_name
from flumina.model.tag import Tag

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Fault:
    """What is wrong with some rows."""

    condition: str
    column: str
    message: str


class Marks:
    """For each row the number of what is wrong with it, -1 if nothing is; the first mark counts."""

    def __init__(self, rows: int) -> None:
        self.fault_of: Ints = np.full(rows, -1, np.int64)
        self.faults: list[Fault] = []

    @property
    def good(self) -> Mask:
        """Which rows have no mark."""
        return self.fault_of < 0

    def add(self, mask: Mask, fault: Fault) -> None:
        """Mark the rows of a mask."""
        self.add_at(np.flatnonzero(mask), fault)

    def add_at(self, rows: Ints, fault: Fault) -> None:
        """Mark rows by their numbers."""
        new = rows[self.fault_of[rows] < 0]
        if len(new):
            self.fault_of[new] = len(self.faults)
            self.faults.append(fault)


def faults(stream: Stream, table: pa.Table) -> Marks:
    """What is wrong with the rows of a stream, all of which should be events."""
    marks = Marks(len(table))
    mark_timestamps(stream, table, marks)
    mark_events(stream, table, np.ones(len(table), bool), marks)
    return marks


def mark_timestamps(stream: Stream, table: pa.Table, marks: Marks) -> Ints:
    """Mark the rows whose timestamp can't be read; gives them as whole numbers, 0 where there is none."""
    name = stream.ts
    column = _decoded(table.column(name))
    marks.add(_nulls(column), Fault("NULL_TIMESTAMP", name, "the timestamp is null"))
    kind = timestamp_type(column.type)
    found, failed = _cast(column, kind)
    marks.add(failed, Fault("COLUMN_TYPE", name, f"not a {type_name(kind)}"))
    ts: Ints = pc.fill_null(found.cast(pa.int64()), 0).to_numpy()
    return ts


def mark_events(stream: Stream, table: pa.Table, events: Mask, marks: Marks) -> None:
    """Mark those of these rows that can't be read as events: sequence number, tag, and the columns of the tag."""
    if stream.seq is not None:
        column = _decoded(table.column(stream.seq))
        marks.add(events & _nulls(column), Fault("NULL_SEQ", stream.seq, "the sequence number is null"))
        _, failed = _cast(column, pa.int64())
        marks.add(events & failed, Fault("COLUMN_TYPE", stream.seq, f"not a {type_name(pa.int64())}"))
    if isinstance(stream.tag, Tag):
        _mark_columns(stream, table, stream.tag, events, marks)
        return
    assert isinstance(stream.tag, Mapping)
    name = str(stream.tag_column)
    column = table.column(name)
    marks.add(events & _nulls(_decoded(column)), Fault("NULL_TAG", name, "the tag is null"))
    codes = tag_codes(stream, column)
    marks.add(events & (codes < 0), Fault("UNKNOWN_TAG", name, f"the tag is none of {list(stream.tag)}"))
    for code, tag in enumerate(stream.tags):
        _mark_columns(stream, table, tag, events & (codes == code), marks)


def _mark_columns(stream: Stream, table: pa.Table, tag: Tag, mine: Mask, marks: Marks) -> None:
    """The declared columns of one tag, at its rows."""
    rows = np.flatnonzero(mine)
    if not len(rows):
        return
    for declared in tag.schema:
        name = stream.column_of(declared.name)
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
            marks.add_at(rows[_nulls(column)], Fault("NULL_VALUE", name, "the value is null, but declared NOT NULL"))
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


def mask_of(column: pa.ChunkedArray) -> Mask:
    """A column of truth values as a mask; what is null is not true."""
    found: Mask = pc.fill_null(column, False).to_numpy(zero_copy_only=False)  # noqa: FBT003 -- Arrow's own signature
    return found


def _nulls(column: pa.ChunkedArray) -> Mask:
    return mask_of(column.is_null()) if column.null_count else np.zeros(len(column), bool)


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _cast(column: pa.ChunkedArray, wanted: pa.DataType | None) -> tuple[pa.ChunkedArray, Mask]:
    """A column as another type, null where a value does not fit, and the places where that is so."""
    failed = np.zeros(len(column), bool)
    if wanted is None or column.type == wanted:
        return column, failed
    try:
        return cast(column, wanted), failed
    except pa.ArrowException:
        pass
    pieces = list(_halved(column.combine_chunks(), wanted, 0, failed))
    return pa.chunked_array(pieces, wanted), failed


def _halved(array: pa.Array, wanted: pa.DataType, start: int, failed: Mask) -> list[pa.Array]:
    """Cast by halves, so that few bad values among many cost little."""
    try:
        return [cast(array, wanted)]
    except pa.ArrowException:
        if len(array) == 1:
            failed[start] = True
            return [pa.nulls(1, wanted)]
    middle = len(array) // 2
    left = _halved(array.slice(0, middle), wanted, start, failed)
    return left + _halved(array.slice(middle), wanted, start + middle, failed)
