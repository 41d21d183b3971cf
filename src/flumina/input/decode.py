"""Rows into checked batches of events, a part at once or chunk by chunk.

Every mistake in the data is an :class:`~flumina.errors.InputError` with the stream, the part, the row and the column.
However a part is cut into chunks, the events and the error are the same::

    decode(chunk 1) + decode(chunk 2) + ...  =  decode(the whole part)
    the error                                =  the one of a column's type, else the one with the lowest row

With somebody who takes rows that can't be read, these are put aside, and the others keep their numbers::

    rows in  =  events + rows put aside
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flumina.errors import InputError
from flumina.input.dead_letters import RejectedRows
from flumina.input.stream import Stream
from flumina.input.validation import faults
from flumina.model.batch import Batch
from flumina.model.nulls import first_forbidden, holds_not_null, nullable
from flumina.model.order import Ints
from flumina.model.schema import cast, same_kind, timestamp_type, type_name
from flumina.model.tag import Tag

_PLAIN = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}

OnBadRows = Callable[[RejectedRows], None]
"""Takes rows that can't be read."""


@dataclass(frozen=True)
class Part:
    """One part of a stream as checked events, of so many rows; ``ts_type`` is None if no timestamp tells."""

    stream: Stream
    rank: int
    number: int
    batch: Batch
    rows: int
    ts_type: pa.DataType | None


def decode(
    stream: Stream, rank: int, number: int, table: pa.Table, names: Sequence[str], aside: OnBadRows | None = None
) -> Part:
    """The rows of one part as a batch, everything checked."""
    decoder = Decoder(stream, rank, number, names, aside)
    decoder.check_schema(table.schema)
    table = table.select(stream.columns).combine_chunks()
    for name, column in zip(table.column_names, table.columns, strict=True):
        if column.num_chunks > 1:  # Arrow can't hold that much text in one array
            message = "the column is too large for one part"
            raise decoder.error("PART_TOO_LARGE", message, name, hint="cut it into parts")
    arrays = [column.chunk(0) if column.num_chunks else pa.array([], column.type) for column in table.columns]
    batch = decoder.decode(pa.record_batch(arrays, schema=table.schema))
    if not stream.sorted and len(batch):
        batch = Batch.merge([batch])
    return Part(stream, rank, number, batch, decoder.rows, decoder.ts_type)


class Decoder:
    """One part of a stream, decoded chunk after chunk: rows are counted, and times compared, across chunks.

    Rows that can't be read go ``aside``, or are an error if nobody takes them. That rows of a sorted stream are not in
    order is always an error: no row by itself is to blame.
    """

    def __init__(
        self, stream: Stream, rank: int, number: int, names: Sequence[str], aside: OnBadRows | None = None
    ) -> None:
        self.stream = stream
        self.rank = rank
        self.number = number
        self.names = tuple(names)
        self.aside = aside
        self.rows = 0
        self.ts_type: pa.DataType | None = None
        self._last: tuple[int, int] | None = None
        self._schema: pa.Schema | None = None
        self._kept: Ints | None = None
        """Which rows of the chunk are decoded; None: all."""
        self._views: dict[str, pa.DataType] = {}
        """Columns that Arrow can't take rows of, and types of which it can."""

    def check_schema(self, schema: pa.Schema) -> None:
        """Raise what is wrong with the columns whatever their rows hold; chunks may lack what the stream ignores."""
        stream = self.stream
        ts = self._required(schema, stream.ts, "the timestamps")
        kind = timestamp_type(ts)
        if kind is None:
            message = f"timestamps are integers, timestamps or dates, got {ts}"
            raise self.error("TIMESTAMP_TYPE", message, stream.ts)
        if stream.seq is not None:
            seq = self._required(schema, stream.seq, "sequence numbers")
            if not pa.types.is_integer(seq) and not pa.types.is_null(seq):
                raise self.error("COLUMN_TYPE", f"sequence numbers are integers, got {seq}", stream.seq)
        if stream.tag_column is not None:
            tags = self._required(schema, stream.tag_column, "the tags")
            if pa.types.is_nested(tags):
                message = f"tags are told apart by single values, got {tags}"
                raise self.error("COLUMN_TYPE", message, stream.tag_column)
        for tag in stream.tags:
            for declared in tag.schema:
                name = stream.column_of(declared.name)
                what = f"{declared.name!r} of tag {tag.name!r}"
                found = self._required(schema, name, what)
                if not _widens(found, declared.type):
                    raise self.error(
                        "COLUMN_TYPE",
                        f"the column is {type_name(found)}, but {what} is declared {type_name(declared.type)}",
                        name,
                        hint="change the declaration, or cast the column in the data",
                    )
        if not pa.types.is_null(ts):  # of nothing but nulls nobody can tell
            self.ts_type = kind

    def decode(self, chunk: pa.RecordBatch) -> Batch:
        """The next rows as a batch; for a stream that is not sorted, in the order of the rows.

        Where there is no column of sequence numbers, they are the numbers of the rows in the part.
        """
        if self._schema is None or not chunk.schema.equals(self._schema):
            known = self.ts_type
            self.check_schema(chunk.schema)
            assert known in (None, self.ts_type), "a source keeps the types of its columns"
            self._schema = chunk.schema
            self._views = {f.name: _PLAIN[f.type] for f in chunk.schema if f.type in _PLAIN}
        for name, plain in self._views.items():
            chunk = chunk.set_column(chunk.schema.get_field_index(name), name, chunk.column(name).cast(plain))
        try:
            batch = self._decode(chunk)
        except InputError as error:
            if self.aside is None or error.row is None:
                raise self._first_error(chunk, error) from None
            batch = self._decode_good(chunk, self.aside)
        self._kept = None
        self.rows += chunk.num_rows
        if len(batch):
            self._last = int(batch.ts[-1]), int(batch.seq[-1])
        return batch

    def _decode_good(self, chunk: pa.RecordBatch, aside: OnBadRows) -> Batch:
        """The rows that can be read; the others go aside."""
        table = pa.Table.from_batches([chunk]).select(self.stream.columns)
        marks = faults(self.stream, table)
        self._kept = np.flatnonzero(marks.good)
        good = chunk.take(pa.array(self._kept))
        try:
            batch = self._decode(good)
        except InputError as error:  # they are not in order
            raise self._first_error(good, error) from None
        bad = np.flatnonzero(~marks.good)
        assert len(batch) + len(bad) == chunk.num_rows, "a row is an event, or put aside"
        found = [marks.faults[which] for which in marks.fault_of[bad].tolist()]
        where = [self.stream.file(self.number)] * len(bad), [self.number] * len(bad), (self.rows + bad).tolist()
        aside(RejectedRows(self.stream.name, table.take(pa.array(bad)), found, *where))
        return batch

    def batches(self, chunks: Iterable[pa.RecordBatch], size: int) -> Iterator[Batch]:
        """All chunks as batches in O, none of them empty: if the stream is not sorted, after all have been read."""
        decoded = (batch for chunk in chunks if len(batch := self.decode(chunk)))
        if self.stream.sorted:
            yield from decoded
            return
        if not (batches := list(decoded)):
            return
        try:
            merged = Batch.merge(batches)
        except pa.ArrowInvalid as error:  # Arrow can't hold that much text in one array
            message = f"the part is too large to be sorted: {error}"
            raise self.error("PART_TOO_LARGE", message, self.stream.ts, hint="cut it into parts") from None
        del batches
        for start in range(0, len(merged), size):
            yield merged.slice(start, start + size)

    def error(
        self, condition: str, message: str, column: str, row: int | None = None, hint: str | None = None
    ) -> InputError:
        """A mistake in this part; ``row`` counts the rows of the chunk that are decoded."""
        at = None if row is None else self.rows + (row if self._kept is None else int(self._kept[row]))
        if row is not None and hint is None:
            hint = 'repair the data, or have such rows put aside with bad_rows="dead-letter"'
        file = self.stream.file(self.number)
        if file is not None:
            message += f" (in {file})"
        return InputError(
            condition, message, stream=self.stream.name, part=self.number, row=at, column=column, hint=hint
        )

    def _first_error(self, chunk: pa.RecordBatch, error: InputError) -> InputError:
        """Checks go column by column; of what they find in this chunk, the error with the lowest row."""
        while error.row is not None and error.row > self.rows:
            before = error.row - self.rows
            if self._kept is not None:
                before = int(np.searchsorted(self._kept, before))
            try:
                self._decode(chunk.slice(0, before))
            except InputError as earlier:
                error = earlier
            else:
                break
        return error

    def _required(self, schema: pa.Schema, name: str, what: str) -> pa.DataType:
        """The type of a column that must be there."""
        indices = schema.get_all_field_indices(name)
        if len(indices) > 1:
            raise self.error("DUPLICATE_COLUMN", "the column stands twice in the data", name)
        if not indices:
            raise self.error(
                "MISSING_COLUMN",
                f"there is no such column, which should hold {what}; there are {schema.names}",
                name,
                hint="rename= maps declared columns to columns of the data; ts= and seq= name theirs",
            )
        type_ = schema.field(indices[0]).type
        return type_.value_type if pa.types.is_dictionary(type_) else type_

    def _decode(self, chunk: pa.RecordBatch) -> Batch:
        ts = self.timestamps(_column(chunk, self.stream.ts))
        if self.stream.seq is None:
            seq = self.rows + (np.arange(len(ts)) if self._kept is None else self._kept[: len(ts)])
        else:
            seq = self._integers(_column(chunk, self.stream.seq), self.stream.seq, "NULL_SEQ", "the sequence number")
        if self.stream.sorted:
            self._check_sorted(ts, seq)
        return self._batch(chunk, ts, seq)

    def timestamps(self, column: pa.Array) -> Ints:
        """Values of the timestamp column as O compares them."""
        name, type_ = self.stream.ts, column.type
        if pa.types.is_timestamp(type_) or pa.types.is_date(type_):
            self._check_nulls(column, name, "NULL_TIMESTAMP", "the timestamp is null")
            assert self.ts_type is not None
            column = self._cast(column, self.ts_type, name).cast(pa.int64())
        return self._integers(column, name, "NULL_TIMESTAMP", "the timestamp")

    def _integers(self, column: pa.Array, name: str, condition: str, what: str) -> Ints:
        self._check_nulls(column, name, condition, f"{what} is null")
        numbers: Ints = self._cast(column, pa.int64(), name).to_numpy()
        return numbers

    def _check_sorted(self, ts: Ints, seq: Ints) -> None:
        """Within the chunk, and against the last row of the one before."""
        if not len(ts):
            return
        hint = "declare the stream with sorted=False to have it sorted"
        last_ts, last_seq = self._last or (int(ts[0]), int(seq[0]))
        row = _first(ts[0] < last_ts, ts[1:] < ts[:-1])
        if row is not None:
            message = f"the timestamp {ts[row]} comes after {ts[row - 1] if row else last_ts}"
            raise self.error("DECREASING_TIMESTAMP", message, self.stream.ts, row, hint)
        if self.stream.seq is None:
            return  # positions only grow
        row = _first(ts[0] == last_ts and seq[0] < last_seq, (ts[1:] == ts[:-1]) & (seq[1:] < seq[:-1]))
        if row is not None:
            before = seq[row - 1] if row else last_seq
            message = f"the sequence number {seq[row]} comes after {before} at the timestamp {ts[row]}"
            raise self.error("DECREASING_SEQ", message, self.stream.seq, row, hint)

    def _check_nulls(self, column: pa.Array, name: str, condition: str, message: str, rows: Ints | None = None) -> None:
        if column.null_count:
            row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
            raise self.error(condition, message, name, row if rows is None else int(rows[row]))

    def _batch(self, chunk: pa.RecordBatch, ts: Ints, seq: Ints) -> Batch:
        """The events: one table a tag, and for several tags which event lies in which."""
        rank = np.broadcast_to(np.int64(self.rank), len(ts))
        if isinstance(self.stream.tag, Tag):
            tag = self.stream.tag
            return Batch((tag,), (self._tag_table(chunk, tag, None),), ts, rank, seq, self.names)
        tags = self.stream.tags
        table_of = self._tag_codes(chunk)
        row_of = np.empty(len(ts), np.int64)
        tables = []
        for which, tag in enumerate(tags):
            rows = np.flatnonzero(table_of == which)
            row_of[rows] = np.arange(len(rows))
            tables.append(self._tag_table(chunk, tag, rows))
        if len(tags) == 1:
            return Batch(tags, tuple(tables), ts, rank, seq, self.names)
        return Batch(tags, tuple(tables), ts, rank, seq, self.names, table_of, row_of)

    def _tag_codes(self, chunk: pa.RecordBatch) -> Ints:
        """For each row the number of its tag among the stream's tags."""
        assert isinstance(self.stream.tag, Mapping)
        name = str(self.stream.tag_column)
        column = _column(chunk, name)
        self._check_nulls(column, name, "NULL_TAG", "the tag is null")
        encoded = column.dictionary_encode()
        indices = encoded.indices.to_numpy(zero_copy_only=False)
        tags = list(self.stream.tags)
        codes = []
        for code, value in enumerate(encoded.dictionary.to_pylist()):
            tag = self.stream.tag.get(value)
            if tag is None:
                row = int(np.flatnonzero(indices == code)[0])
                known = list(self.stream.tag)
                raise self.error("UNKNOWN_TAG", f"{value!r} is none of the declared tags {known}", name, row)
            codes.append(tags.index(tag))
        return np.array(codes, np.int64)[indices] if codes else np.empty(0, np.int64)

    def _tag_table(self, chunk: pa.RecordBatch, tag: Tag, rows: Ints | None) -> pa.RecordBatch:
        """The declared columns of one tag, at these rows."""
        if not len(tag.schema):
            count = chunk.num_rows if rows is None else len(rows)
            return pa.RecordBatch.from_struct_array(pa.array([{}] * count, pa.struct([])))
        arrays = []
        for declared in tag.schema:
            name = self.stream.column_of(declared.name)
            column = _column(chunk, name)
            if rows is not None:
                column = column.take(pa.array(rows))
            array = self._cast(column, declared.type, name, rows)
            if tag.key is not None and declared.name == tag.key.name:
                self._check_nulls(array, name, "NULL_KEY", f"the key of tag {tag.name!r} is null", rows)
                self._check_finite(array, tag, name, rows)
            elif not declared.nullable:
                self._check_nulls(array, name, "NULL_VALUE", "the value is null, but declared NOT NULL", rows)
            self._check_inside(array, declared.type, name, rows)
            arrays.append(array)
        return pa.record_batch(arrays, schema=tag.schema)

    def _check_inside(self, array: pa.Array, declared: pa.DataType, name: str, rows: Ints | None) -> None:
        """Nothing inside is null that is declared NOT NULL there."""
        found = first_forbidden(array, declared)
        if found is not None:
            row, inside = found
            message = f"{inside} of the value is null, but declared NOT NULL: {array[row].as_py()!r}"
            raise self.error("NULL_VALUE", message, name, row if rows is None else int(rows[row]))

    def _check_finite(self, keys: pa.Array, tag: Tag, name: str, rows: Ints | None) -> None:
        """Keys of a tag with ``keys=`` are among those."""
        if tag.finite_keys is None:
            return
        outside = np.flatnonzero(~tag.universe.mask(keys))
        if len(outside):
            row = int(outside[0])
            raise self.error(
                "UNKNOWN_KEY",
                f"the key {keys[row].as_py()!r} is none of the declared keys of tag {tag.name!r}",
                name,
                row if rows is None else int(rows[row]),
            )

    def _cast(self, column: pa.Array, wanted: pa.DataType, name: str, rows: Ints | None = None) -> pa.Array:
        if column.type == wanted:
            return column
        try:
            return cast(column, wanted)
        except pa.ArrowException:
            pass
        if holds_not_null(wanted):  # Arrow refuses what is null within a null too
            array = self._cast(column, nullable(wanted), name, rows)
            self._check_inside(array, wanted, name, rows)
            return pa.array(array.to_pylist(), wanted)
        found = _first_uncastable(column, wanted)
        if found is None:
            raise self.error("COLUMN_TYPE", f"{column.type} can't be read as {type_name(wanted)}", name)
        row, said = found
        at = row if rows is None else int(rows[row])
        raise self.error("COLUMN_TYPE", f"not a {type_name(wanted)}: {said}", name, at)


def _first_uncastable(column: pa.Array, wanted: pa.DataType) -> tuple[int, pa.ArrowException] | None:
    """The first row of a column that can't be cast, and what Arrow says of it; None if it is no matter of rows."""
    good, bad = 0, len(column)  # rows before the one can be cast; of those from there to the other, one can't
    said: pa.ArrowException | None = None
    while good < bad and (said is None or bad - good > 1):
        middle = good + max(1, (bad - good) // 2)
        try:
            cast(column.slice(good, middle - good), wanted)
            good = middle
        except pa.ArrowException as error:
            bad, said = middle, error
    return None if said is None else (good, said)


def _first(row_0: bool, others: npt.NDArray[np.bool_]) -> int | None:  # noqa: FBT001 -- one column, given in two pieces
    """The first row of which something holds, given for row 0 and for all others."""
    if row_0:
        return 0
    return int(others.argmax()) + 1 if others.any() else None


def _column(chunk: pa.RecordBatch, name: str) -> pa.Array:
    array = chunk.column(name)
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _widens(found: pa.DataType, declared: pa.DataType) -> bool:
    """Whether every value of the one type is a value of the other (or the cast says which is not)."""
    if found == declared or pa.types.is_null(found):
        return True
    if pa.types.is_nested(declared):
        return _has_shape(found, declared)
    sized = pa.types.is_integer(found) or pa.types.is_floating(found)
    return same_kind(found, declared) and (not sized or bool(found.bit_width <= declared.bit_width))


def _has_shape(found: pa.DataType, declared: pa.DataType) -> bool:
    """Whether a nested type has what is declared, by the names of fields; whether values fit, the cast says of each."""
    if pa.types.is_null(found) or not pa.types.is_nested(declared):
        return pa.types.is_null(found) or not pa.types.is_nested(found)
    if pa.types.is_struct(declared):
        return pa.types.is_struct(found) and all(
            found.get_field_index(field.name) >= 0 and _has_shape(found.field(field.name).type, field.type)
            for field in declared
        )
    if pa.types.is_map(declared):
        pairs = (
            ((found.key_type, declared.key_type), (found.item_type, declared.item_type))
            if pa.types.is_map(found)
            else ()
        )
        return bool(pairs) and all(_has_shape(*pair) for pair in pairs)
    is_list = not pa.types.is_struct(found) and not pa.types.is_map(found) and hasattr(found, "value_type")
    return is_list and not pa.types.is_dictionary(found) and _has_shape(found.value_type, declared.value_type)
