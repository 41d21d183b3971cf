"""Decode rows into validated batches of events, by part or chunk.

Every mistake in the data is an :class:`~flumina.errors.InputError` with the stream, the part, the row and the column.
The events and the error do not depend on how a part is divided into chunks::

    decode(chunk 1) + decode(chunk 2) + ...  =  decode(the whole part)
    the error                                =  the one of a column's type, else the one with the lowest row

With a handler for bad rows, these become dead letters, and the others keep their numbers::

    rows in  =  events + bad rows
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flumina.errors import InputError
from flumina.input.casting import castable
from flumina.input.dead_letters import RejectedRows
from flumina.input.stream import Stream
from flumina.input.validation import PLAIN, Validated, validate
from flumina.model.batch import Batch
from flumina.model.order import Ints
from flumina.model.schema import same_kind, timestamp_type, type_name

OnBadRows = Callable[[RejectedRows], None]
"""A handler for rows that can't be processed."""


@dataclass(frozen=True)
class Part:
    """One part of a stream as validated events; ``ts_type`` is None without timestamps."""

    stream: Stream
    rank: int
    number: int
    batch: Batch
    rows: int
    ts_type: pa.DataType | None


def decode(
    stream: Stream, rank: int, number: int, table: pa.Table, names: Sequence[str], on_bad_rows: OnBadRows | None = None
) -> Part:
    """Return the rows of one part as a validated batch."""
    decoder = Decoder(stream, rank, number, names, on_bad_rows)
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
    """Decodes one part of a stream chunk by chunk; counts rows and compares times across chunks.

    Bad rows go to ``on_bad_rows``; without it they are an error. Rows of a sorted stream that are out of order are
    always an error: no single row is at fault.
    """

    def __init__(
        self, stream: Stream, rank: int, number: int, names: Sequence[str], on_bad_rows: OnBadRows | None = None
    ) -> None:
        self.stream = stream
        self.rank = rank
        self.number = number
        self.names = tuple(names)
        self.on_bad_rows = on_bad_rows
        self.rows = 0
        self.ts_type: pa.DataType | None = None
        self._last: tuple[int, int] | None = None
        self._schema: pa.Schema | None = None

    @property
    def columns(self) -> list[str]:
        """The columns that are read."""
        return self.stream.columns

    def check_schema(self, schema: pa.Schema) -> None:
        """Raise if columns are missing or of the wrong type, whatever their rows hold."""
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
                message = f"a tag column holds single values, got {tags}"
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
        if not pa.types.is_null(ts):  # a column of nulls only has no type
            self.ts_type = kind

    def decode(self, chunk: pa.RecordBatch) -> Batch:
        """Return the events of the next rows; for a stream that is not sorted, in the order of the rows.

        Where there is no column of sequence numbers, they are the numbers of the rows in the part.
        """
        if self._schema is None or not chunk.schema.equals(self._schema):
            known = self.ts_type
            self.check_schema(chunk.schema)
            assert known in (None, self.ts_type), "a source keeps the types of its columns"
            self._schema = chunk.schema
        validated = validate(self.stream, chunk)
        bad = validated.faults.faults
        if bad and self.on_bad_rows is None:
            raise self._first_error(chunk, validated)
        batch = validated.batch(self.rank, self.names, self.rows)
        if self.stream.sorted and (error := self._disorder(batch.ts, batch.seq, validated.good)) is not None:
            raise error
        if bad and self.on_bad_rows is not None:
            self.on_bad_rows(self._refused(chunk, validated))
        self.rows += chunk.num_rows
        if len(batch):
            self._last = int(batch.ts[-1]), int(batch.seq[-1])
        return batch

    def _first_error(self, chunk: pa.RecordBatch, validated: Validated) -> InputError:
        """Return the error with the lowest row; that a row is not in order comes before what else is wrong with it."""
        found = validated.faults.first()
        assert found is not None
        row, which = found
        if self.stream.sorted:
            upto = row + (which >= validated.order_faults)
            ts, seq = validated.ts[:upto], validated.seq
            seq = np.arange(self.rows, self.rows + upto) if seq is None else seq[:upto]
            if (error := self._disorder(ts, seq)) is not None:
                return error
        fault = validated.faults.faults[which]
        return self.error(fault.condition, fault.at(chunk, row), fault.column, row)

    def _refused(self, chunk: pa.RecordBatch, validated: Validated) -> RejectedRows:
        """Return the rows with a fault, each with its reason and position."""
        fault_of, faults = validated.faults.fault_of, validated.faults.faults
        bad = np.flatnonzero(fault_of >= 0)
        table = pa.Table.from_batches([chunk]).select(self.stream.columns)
        for place, column in enumerate(table.schema):
            if column.type in PLAIN:
                table = table.set_column(place, column.name, table.column(place).cast(PLAIN[column.type]))
        found = [faults[which] for which in fault_of[bad].tolist()]
        where = [self.stream.file(self.number)] * len(bad), [self.number] * len(bad), (self.rows + bad).tolist()
        return RejectedRows(self.stream.name, table.take(pa.array(bad)), found, *where)

    def batches(self, chunks: Iterable[pa.RecordBatch], size: int) -> Iterator[Batch]:
        """Yield non-empty batches in O; a stream that is not sorted is read as a whole first."""
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
        """Return the error for a mistake in this part; ``row`` counts the rows of the chunk."""
        if row is not None and hint is None:
            hint = 'repair the data, or have such rows put aside with bad_rows="dead-letter"'
        file = self.stream.file(self.number)
        if file is not None:
            message += f" (in {file})"
        at = None if row is None else self.rows + row
        return InputError(
            condition, message, stream=self.stream.name, part=self.number, row=at, column=column, hint=hint
        )

    def _required(self, schema: pa.Schema, name: str, what: str) -> pa.DataType:
        """Return the type of a required column."""
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

    def _disorder(self, ts: Ints, seq: Ints, rows: Ints | None = None) -> InputError | None:
        """Return the error of the first row out of order, in the chunk or after the one before, if any.

        ``rows`` are the numbers of these rows in the chunk (None: from 0 on).
        """
        if not len(ts):
            return None
        last_ts, last_seq = self._last or (int(ts[0]), int(seq[0]))
        row = _first(ts[0] < last_ts, ts[1:] < ts[:-1])
        again = None  # without a column, sequence numbers are positions, which only grow
        if self.stream.seq is not None:
            again = _first(ts[0] == last_ts and seq[0] < last_seq, (ts[1:] == ts[:-1]) & (seq[1:] < seq[:-1]))
        if again is not None and (row is None or again < row):
            before = seq[again - 1] if again else last_seq
            message = f"the sequence number {seq[again]} comes after {before} at the timestamp {ts[again]}"
            condition, column, row = "DECREASING_SEQ", str(self.stream.seq), again
        elif row is not None:
            message = f"the timestamp {ts[row]} comes after {ts[row - 1] if row else last_ts}"
            condition, column = "DECREASING_TIMESTAMP", self.stream.ts
        else:
            return None
        hint = "declare the stream with sorted=False to have it sorted"
        return self.error(condition, message, column, row if rows is None else int(rows[row]), hint)


def _first(row_0: bool, others: npt.NDArray[np.bool_]) -> int | None:  # noqa: FBT001 -- one column, given in two pieces
    """Return the first true row, given row 0 and all others separately."""
    if row_0:
        return 0
    return int(others.argmax()) + 1 if others.any() else None


def _widens(found: pa.DataType, declared: pa.DataType) -> bool:
    """Return whether every value of one type fits the other, or the cast finds the ones that do not."""
    if found == declared or pa.types.is_null(found):
        return True
    if pa.types.is_nested(declared):
        return _has_shape(found, declared)
    sized = pa.types.is_integer(found) or pa.types.is_floating(found)
    return same_kind(found, declared) and (not sized or bool(found.bit_width <= declared.bit_width))


def _has_shape(found: pa.DataType, declared: pa.DataType) -> bool:
    """Return whether a nested type has the declared fields by name; the cast checks their values."""
    if pa.types.is_null(found) or not pa.types.is_nested(declared):
        return pa.types.is_null(found) or (not pa.types.is_nested(found) and castable(found, declared))
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
