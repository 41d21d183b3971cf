"""Validate rows against their stream's declaration: one pass finds events and faults.

A row is an event if and only if it has no fault: both come from the same reading of each column. Of several faults of a
row, the one that is found first counts: timestamp, sequence number, tag, then the columns in the order of their
declaration. The caller decides what faults mean: the first of them is an error, or their rows become dead letters::

    rows in  =  events + rows with a fault  (+ rows that the caller's screen drops)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flumina.input.casting import Mask, cast_valid
from flumina.input.stream import Stream
from flumina.model.batch import Batch, no_columns
from flumina.model.nulls import as_declared, forbidden, nullable
from flumina.model.order import Ints
from flumina.model.schema import cast, timestamp_type, type_name
from flumina.model.tag import Tag

PLAIN = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
"""Types whose rows Arrow can't take, and types that replace them."""


@dataclass(frozen=True)
class Fault:
    """A fault of some rows; ``explain`` gives the message for one value, a column of one row."""

    condition: str
    column: str
    message: str
    explain: Callable[[pa.Array], str] | None = field(default=None, repr=False, compare=False)

    def at(self, rows: pa.RecordBatch | pa.Table, row: int) -> str:
        """Return the message for one row, with the bad value where Python can hold it."""
        if self.explain is None:
            return self.message
        value = rows.column(self.column).slice(row, 1)
        try:
            return self.explain(_plain(value.combine_chunks() if isinstance(value, pa.ChunkedArray) else value))
        except (OverflowError, ValueError):  # Python has no such value: a year 300,000, bytes that are not UTF-8
            return self.message


class RowFaults:
    """For each row of a chunk the number of its first fault, -1 if it has none."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.faults: list[Fault] = []
        self._fault_of: Ints | None = None

    @property
    def fault_of(self) -> Ints:
        """For each row the number of its fault in ``faults``, or -1."""
        return np.full(self.rows, -1, np.int64) if self._fault_of is None else self._fault_of

    @property
    def good(self) -> Mask:
        """Which rows have no fault."""
        return self.fault_of < 0

    def add(self, mask: Mask, fault: Fault) -> None:
        """Record a fault of the rows of a mask."""
        self.add_at(np.flatnonzero(mask), fault)

    def add_at(self, rows: Ints, fault: Fault) -> None:
        """Record a fault of rows given by their numbers; it counts where there was none before."""
        if not len(rows):
            return
        if self._fault_of is None:
            self._fault_of = self.fault_of
        new = rows[self._fault_of[rows] < 0]
        if len(new):
            self._fault_of[new] = len(self.faults)
            self.faults.append(fault)

    def first(self) -> tuple[int, int] | None:
        """Return the lowest row with a fault and the number of that fault, None if all rows are good."""
        if not self.faults:
            return None
        row = int((self.fault_of >= 0).argmax())
        return row, int(self.fault_of[row])


Screen = Callable[[Ints, RowFaults], Mask | None]
"""A screen: reads timestamps, may add faults, and returns which rows should be events (None: all)."""


@dataclass(frozen=True)
class Validated:
    """The rows of a chunk after validation.

    ``ts`` and ``seq`` have an entry for each row (0 where there is none; ``seq`` is None without such a column).
    ``order_faults`` is how many of the faults concern these two: rows with other faults still have a place in O.
    """

    stream: Stream
    faults: RowFaults
    ts: Ints
    seq: Ints | None
    order_faults: int
    good: Ints | None
    """The rows that are events; None: all."""
    codes: Ints | None
    """For each row the number of its tag; None for a stream of one tag."""
    rows: Sequence[Ints | None]
    """For each tag of the stream its rows; None: all."""
    columns: Sequence[Sequence[pa.Array]]
    """For each tag its declared columns at these rows, null where a value does not fit."""

    def batch(self, rank: int, names: Sequence[str], first: int = 0) -> Batch:
        """Return the events; without a column of sequence numbers, they are row numbers from ``first`` on."""
        ts, codes, rows = self.ts, self.codes, self.rows
        seq = np.arange(first, first + len(ts)) if self.seq is None else self.seq
        keep: Mask | None = None
        if self.good is not None:
            keep = np.zeros(len(ts), bool)
            keep[self.good] = True
            ts, seq = ts[self.good], seq[self.good]
            if codes is not None:
                codes = codes[self.good]
                rows = [np.flatnonzero(codes == which) for which in range(len(rows))]
        tables = [
            _table(tag, columns, len(self.ts) if mine is None else len(mine), _at(keep, mine))
            for tag, columns, mine in zip(self.stream.tags, self.columns, self.rows, strict=True)
        ]
        return Batch.of_tables(self.stream.tags, tables, codes, rows, ts, rank, seq, names)


def validate(stream: Stream, chunk: pa.RecordBatch, screen: Screen | None = None) -> Validated:
    """Read the columns of a chunk as the stream declares them, and find the faults of its rows.

    The chunk has the columns of the stream, of types that fit it (:meth:`flumina.input.decode.Decoder.check_schema`).
    """
    faults = RowFaults(chunk.num_rows)
    ts = _timestamps(stream, chunk, faults)
    events = None if screen is None else screen(ts, faults)
    seq = None if stream.seq is None else _sequence_numbers(stream.seq, chunk, events, faults)
    order_faults = len(faults.faults)
    codes = None if isinstance(stream.tag, Tag) else _known_tags(stream, chunk, events, faults)
    rows = [_rows_of(which, codes, events) for which in range(len(stream.tags))]
    columns = [_columns(stream, chunk, tag, mine, faults) for tag, mine in zip(stream.tags, rows, strict=True)]
    good: Ints | None = None
    if faults.faults or events is not None:
        good = np.flatnonzero(faults.good if events is None else faults.good & events)
    return Validated(stream, faults, ts, seq, order_faults, good, codes, rows, columns)


def tag_codes(stream: Stream, column: pa.Array) -> Ints:
    """Return for each value of a stream's tag column the number of its tag; -1 where it is null or none of them."""
    assert isinstance(stream.tag, Mapping)
    encoded = _plain(column).dictionary_encode()
    tags = list(stream.tags)
    found = [tags.index(stream.tag[v]) if v in stream.tag else -1 for v in encoded.dictionary.to_pylist()]
    indices = encoded.indices
    if indices.null_count:
        indices = pc.fill_null(indices, len(found))
    codes: Ints = np.array([*found, -1], np.int64)[indices.to_numpy()]
    return codes


def tag_rows(stream: Stream, chunk: pa.RecordBatch) -> list[tuple[Tag, Ints | None]]:
    """Return for each tag of a stream its rows, None for all of them."""
    if isinstance(stream.tag, Tag):
        return [(stream.tag, None)]
    codes = tag_codes(stream, chunk.column(str(stream.tag_column)))
    return [(tag, np.flatnonzero(codes == which)) for which, tag in enumerate(stream.tags)]


def read_timestamps(column: pa.Array) -> tuple[pa.Array, Mask | None]:
    """Read a column of timestamps as whole numbers, null where one does not fit, and say where that is so."""
    column = _plain(column)
    kind = timestamp_type(column.type)
    assert kind is not None, "the schema was checked"
    found, failed = cast_valid(column, kind)
    return found.cast(pa.int64()), failed


def read_column(stream: Stream, chunk: pa.RecordBatch, declared: pa.Field, rows: Ints | None) -> pa.Array:
    """Read a declared column at these rows, null where a value does not fit."""
    return _read(chunk, stream.column_of(declared.name), declared.type, rows)[0]


def _timestamps(stream: Stream, chunk: pa.RecordBatch, faults: RowFaults) -> Ints:
    name, column = stream.ts, _plain(chunk.column(stream.ts))
    found, failed = read_timestamps(column)
    if column.null_count:
        faults.add(_mask(column.is_null()), Fault("NULL_TIMESTAMP", name, "the timestamp is null"))
    if failed is not None:
        faults.add(failed, _misfit(name, timestamp_type(column.type)))
    return _filled(found)


def _sequence_numbers(name: str, chunk: pa.RecordBatch, events: Mask | None, faults: RowFaults) -> Ints:
    column = _plain(chunk.column(name))
    found, failed = cast_valid(column, pa.int64())
    if column.null_count:
        fault = Fault("NULL_SEQ", name, "the sequence number is null")
        faults.add(_among(events, _mask(column.is_null())), fault)
    if failed is not None:
        faults.add(_among(events, failed), _misfit(name, pa.int64()))
    return _filled(found)


def _known_tags(stream: Stream, chunk: pa.RecordBatch, events: Mask | None, faults: RowFaults) -> Ints:
    """Return the number of each row's tag, and record rows without one."""
    assert isinstance(stream.tag, Mapping)
    name = str(stream.tag_column)
    column, known = _plain(chunk.column(name)), list(stream.tag)
    codes = tag_codes(stream, column)
    if column.null_count:
        faults.add(_among(events, _mask(column.is_null())), Fault("NULL_TAG", name, "the tag is null"))
    if len(codes) and codes.min() < 0:

        def explain(value: pa.Array) -> str:
            return f"{value[0].as_py()!r} is none of the declared tags {known}"

        faults.add(_among(events, codes < 0), Fault("UNKNOWN_TAG", name, f"the tag is none of {known}", explain))
    return codes


def _rows_of(which: int, codes: Ints | None, events: Mask | None) -> Ints | None:
    """Return the rows that should be events of a tag, None for all rows."""
    if codes is None:
        return None if events is None else np.flatnonzero(events)
    return np.flatnonzero(_among(events, codes == which))


def _columns(stream: Stream, chunk: pa.RecordBatch, tag: Tag, rows: Ints | None, faults: RowFaults) -> list[pa.Array]:
    """Read the declared columns of one tag at its rows."""

    def add(places: Ints, fault: Fault) -> None:
        faults.add_at(places if rows is None else rows[places], fault)

    found = []
    for declared in tag.schema:
        name = stream.column_of(declared.name)
        array, failed = _read(chunk, name, declared.type, rows)
        found.append(array)
        if failed is not None:
            add(np.flatnonzero(failed), _misfit(name, declared.type))
        if tag.key is not None and declared.name == tag.key.name:
            _check_keys(array, tag, name, add)
        elif not declared.nullable and array.null_count:
            fault = Fault("NULL_VALUE", name, "the value is null, but declared NOT NULL")
            add(np.flatnonzero(_mask(array.is_null())), fault)
        for inside, places in forbidden(array, declared.type):
            message = f"{inside} of the value is null, but declared NOT NULL"
            add(places, Fault("NULL_VALUE", name, message, partial(_with_value, f"{message}: %s", declared.type)))
    return found


def _check_keys(keys: pa.Array, tag: Tag, name: str, add: Callable[[Ints, Fault], None]) -> None:
    assert tag.key is not None
    if keys.null_count:
        add(np.flatnonzero(_mask(keys.is_null())), Fault("NULL_KEY", name, f"the key of tag {tag.name!r} is null"))
    if tag.finite_keys is not None:
        rest = f"is none of the declared keys of tag {tag.name!r}"
        outside = np.flatnonzero(~tag.universe.mask(keys))
        explain = partial(_with_value, f"the key %s {rest}", tag.key.type)
        add(outside, Fault("UNKNOWN_KEY", name, f"the key {rest}", explain))


def _with_value(template: str, type_: pa.DataType, value: pa.Array) -> str:
    """Put a value, in its declared type, into a message."""
    found = value if value.type == type_ else cast(value, nullable(type_))
    return template.replace("%s", repr(found[0].as_py()), 1)


def _misfit(column: str, target: pa.DataType | None) -> Fault:
    """Return the fault of values that do not fit a type; Arrow's error explains one value."""
    assert target is not None
    message = f"not a {type_name(target)}"

    def explain(value: pa.Array) -> str:
        try:
            cast(value, nullable(target))
        except pa.ArrowException as said:
            return f"{message}: {said}"
        return message

    return Fault("COLUMN_TYPE", column, message, explain)


def _read(chunk: pa.RecordBatch, name: str, target: pa.DataType, rows: Ints | None) -> tuple[pa.Array, Mask | None]:
    """Read a column at these rows; nulls inside, where declared NOT NULL, are left as they are."""
    column = _plain(chunk.column(name))
    if rows is not None:
        column = column.take(pa.array(rows))
    return (column, None) if column.type == target else cast_valid(column, nullable(target))


def _at(keep: Mask | None, rows: Ints | None) -> Mask | None:
    """Return which of the rows of a tag are kept; None: all."""
    return keep if keep is None or rows is None else keep[rows]


def _table(tag: Tag, columns: Sequence[pa.Array], count: int, keep: Mask | None) -> pa.RecordBatch:
    """Make the table of a tag from its columns of so many rows; None keeps all of them."""
    if keep is not None:
        chosen = np.flatnonzero(keep)
        if len(chosen) < count:
            columns, count = [column.take(pa.array(chosen)) for column in columns], len(chosen)
    if not columns:
        return no_columns(count)
    arrays = [as_declared(array, declared.type) for array, declared in zip(columns, tag.schema, strict=True)]
    return pa.record_batch(arrays, schema=tag.schema)


def _plain(column: pa.Array) -> pa.Array:
    """Return a column without a dictionary, of a type that Arrow can take rows of."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column.cast(PLAIN[column.type]) if column.type in PLAIN else column


def _filled(numbers: pa.Array) -> Ints:
    found: Ints = (pc.fill_null(numbers, 0) if numbers.null_count else numbers).to_numpy()
    return found


def _mask(truths: pa.Array) -> Mask:
    found: Mask = truths.to_numpy(zero_copy_only=False)
    return found


def _among(events: Mask | None, mask: Mask) -> Mask:
    return mask if events is None else events & mask
