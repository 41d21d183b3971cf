"""Declared input streams, and turning their rows into checked batches of events.

Every mistake in the data is an :class:`~flumina.errors.InputError` with the stream, the part, the row and the column.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa

from flumina.batch import Batch
from flumina.errors import InputError, UsageError
from flumina.events import Tag, user_line
from flumina.order import Ints
from flumina.schema import BadValueError, column, same_kind, type_name

TIMESTAMP = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True)
class Stream:
    """One input: a name, the tag (or tags) of its events, and its data in one or more parts.

    ``data``        an Arrow table, a pandas DataFrame, a list of tables or DataFrames (one a part), a dict of columns,
                    or a list of dicts. Engines take more: DataFrames of Spark, files, generators.
    ``tag``         the tag of all its events; or a dict from values of ``tag_column`` to tags
    ``ts``, ``seq`` the timestamp column, and the column that orders events with equal timestamps, if there is one
    ``rename``      the column that holds a declared column, where the names differ: ``{"page": "page_id"}``
    ``sorted``      timestamps never decrease within a part, and that is checked; if False, parts are sorted

    The order in which streams are given is their rank: of two events with equal timestamps, the one of the earlier
    stream comes first.
    """

    name: str
    tag: Tag | Mapping[Any, Tag]
    data: Any = field(repr=False)
    ts: str = "ts"
    seq: str | None = None
    tag_column: str | None = None
    rename: Mapping[str, str] = field(default_factory=dict)
    sorted: bool = True
    where: str = field(default_factory=lambda: user_line(2), repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse declarations that can't be meant."""
        if not isinstance(self.name, str) or not self.name:
            raise UsageError("STREAM_NAME", f"a stream needs a name, got {self.name!r} at {self.where}")
        if isinstance(self.tag, Tag) == (self.tag_column is not None):
            raise UsageError(
                "STREAM_TAGS",
                f"stream {self.name!r}: give one tag, or tag_column= and a dict from its values to tags",
            )
        if not isinstance(self.tag, Tag) and not (
            isinstance(self.tag, Mapping) and self.tag and all(isinstance(tag, Tag) for tag in self.tag.values())
        ):
            raise UsageError("STREAM_TAGS", f"stream {self.name!r}: tag= is no dict from values to tags: {self.tag!r}")
        for option in ("ts", "seq", "tag_column"):
            name = getattr(self, option)
            if not isinstance(name, str) and not (name is None and option != "ts"):
                raise UsageError(
                    "STREAM_COLUMN", f"stream {self.name!r}: {option}= is the name of a column, got {name!r}"
                )
        if not isinstance(self.rename, Mapping) or not all(isinstance(name, str) for name in self.rename.values()):
            message = f"stream {self.name!r}: rename= is a dict from declared columns to columns, got {self.rename!r}"
            raise UsageError("RENAME", message, hint="leave it out if no names differ")
        unknown = set(self.rename) - {f.name for tag in self.tags for f in tag.schema}
        if unknown:
            raise UsageError(
                "RENAME", f"stream {self.name!r}: rename names no declared column: {sorted(map(str, unknown))}"
            )

    @property
    def tags(self) -> tuple[Tag, ...]:
        """The tags of this stream's events."""
        return (self.tag,) if isinstance(self.tag, Tag) else tuple(dict.fromkeys(self.tag.values()))

    def column_of(self, declared: str) -> str:
        """The input column that holds a declared column."""
        return self.rename.get(declared, declared)

    def parts(self) -> list[pa.Table]:
        """The data as Arrow tables, one a part."""
        data = self.data
        if isinstance(data, pa.Table | pa.RecordBatch):
            data = [data]
        elif isinstance(data, Mapping):
            data = [self._from_columns(data)]
        elif _is_pandas(data):
            data = [self._from_pandas(data, 0)]
        elif isinstance(data, Sequence) and not isinstance(data, str) and all(isinstance(d, Mapping) for d in data):
            data = [self._from_rows(data)]
        elif isinstance(data, Sequence):
            data = [self._from_pandas(d, part) if _is_pandas(d) else d for part, d in enumerate(data)]
        if not (isinstance(data, Sequence) and all(isinstance(d, pa.Table | pa.RecordBatch) for d in data)):
            raise UsageError(
                "STREAM_DATA",
                f"stream {self.name!r}: data is a {type(self.data).__name__}",
                hint="give an Arrow table, a DataFrame, a list of those (parts), a dict of columns or a list of dicts",
            )
        return [pa.Table.from_batches([d]) if isinstance(d, pa.RecordBatch) else d for d in data]

    def _types(self) -> dict[str, pa.DataType | None]:
        """The columns that are looked at, and the types of those that are declared."""
        names = (self.ts, *(name for name in (self.seq, self.tag_column) if name is not None))
        declared = {self.column_of(f.name): f.type for tag in self.tags for f in tag.schema}
        return {**dict.fromkeys(names), **declared}

    def _from_rows(self, rows: Sequence[Mapping[str, object]]) -> pa.Table:
        if not rows:
            return pa.table({name: pa.array([], type_) for name, type_ in self._types().items()})
        names = dict.fromkeys(name for row in rows for name in row)
        return self._from_columns({name: [row.get(name) for row in rows] for name in names})

    def _from_pandas(self, frame: Any, part: int) -> pa.Table:  # noqa: ANN401 -- pandas is not needed for anything else
        for name in frame.columns:
            if list(frame.columns).count(name) > 1:
                raise self._error("DUPLICATE_COLUMN", "the column stands twice in the data", str(name), part=part)
        return self._from_columns({name: frame[name] for name in frame.columns}, part)

    def _from_columns(self, data: Mapping[str, Any], part: int = 0) -> pa.Table:
        """Columns by name. In lists the declared types decide, so that Python's ints can be any integer column."""
        types = self._types()
        arrays = {name: self._array(name, values, types[name], part) for name, values in data.items() if name in types}
        count = max(map(len, arrays.values()), default=0)
        for name, array in arrays.items():
            if len(array) != count:
                message = f"the column has {len(array)} rows, but others have {count}"
                raise self._error("COLUMN_LENGTH", message, name, part=part)
        # What is not declared is not looked at, but its name may help to understand what is missing.
        return pa.table({str(name): arrays[name] if name in arrays else pa.nulls(count) for name in data})

    def _array(
        self,
        name: str,
        values: Any,  # noqa: ANN401
        type_: pa.DataType | None,
        part: int,
    ) -> pa.Array | pa.ChunkedArray:
        if isinstance(values, pa.Array | pa.ChunkedArray):
            return values
        if isinstance(values, str | bytes) or not isinstance(values, Iterable):
            raise self._error("COLUMN_TYPE", f"a column is a list or an array, got {values!r}", name, part=part)
        if type_ is None and (isinstance(values, list | tuple) or str(getattr(values, "dtype", "")) == "object"):
            self._check_zones(name, values, part)
        if not isinstance(values, list | tuple):
            try:
                return pa.array(values)
            except (pa.ArrowException, TypeError, ValueError):
                values = list(values)
        try:
            return column(values, type_)
        except BadValueError as error:
            wanted = "value like those before it" if type_ is None else type_name(type_)
            raise self._error("COLUMN_TYPE", f"{error.value!r} is no {wanted}", name, error.index, part=part) from None

    def _check_zones(self, name: str, values: Iterable[object], part: int) -> None:
        """Arrow would take times without a zone for UTC, or drop the zone, as the first one has it."""
        first = None
        for row, value in enumerate(values):
            if isinstance(value, datetime) and value == value:  # noqa: PLR0124 -- pandas' NaT is a datetime
                aware = value.utcoffset() is not None
                if first is None:
                    first = aware
                if aware != first:
                    message = f"{value!r} has {'a' if aware else 'no'} time zone, unlike those before it"
                    raise self._error("TIMESTAMP_TYPE", message, name, row, part=part)

    def _error(self, condition: str, message: str, column: str, row: int | None = None, *, part: int = 0) -> InputError:
        return InputError(condition, message, stream=self.name, part=part, row=row, column=column)


def _is_pandas(data: object) -> bool:
    return type(data).__module__.partition(".")[0] == "pandas" and hasattr(data, "columns")


@dataclass(frozen=True)
class Part:
    """One part of a stream as checked events."""

    stream: Stream
    rank: int
    number: int
    batch: Batch
    ts_type: pa.DataType


def decode(stream: Stream, rank: int, number: int, table: pa.Table, names: Sequence[str]) -> Part:
    """The rows of one part as a batch, everything checked."""
    return _Decoder(stream, rank, number, table.combine_chunks(), tuple(names)).decode()


@dataclass(frozen=True)
class _Decoder:
    stream: Stream
    rank: int
    number: int
    table: pa.Table
    names: tuple[str, ...]

    def decode(self) -> Part:
        column = self.required(self.stream.ts, "the timestamps")
        ts, ts_type = self.timestamps(column)
        seq = np.arange(len(ts)) if self.stream.seq is None else self.sequence(self.stream.seq)
        if self.stream.sorted:
            self.check_sorted(ts, seq)
        batch = self.batch(ts, seq)
        if not self.stream.sorted and len(batch):
            batch = Batch.merge([batch])
        return Part(self.stream, self.rank, self.number, batch, ts_type)

    def error(
        self, condition: str, message: str, column: str, row: int | None = None, hint: str | None = None
    ) -> InputError:
        return InputError(
            condition, message, stream=self.stream.name, part=self.number, row=row, column=column, hint=hint
        )

    def required(self, name: str, what: str) -> pa.Array:
        """A column that must be there, as one array."""
        if len(self.table.schema.get_all_field_indices(name)) > 1:
            raise self.error("DUPLICATE_COLUMN", "the column stands twice in the data", name)
        if name not in self.table.column_names:
            raise self.error(
                "MISSING_COLUMN",
                f"there is no such column, which should hold {what}; there are {self.table.column_names}",
                name,
                hint="rename= maps declared columns to columns of the data; ts= and seq= name theirs",
            )
        column = self.table.column(name)
        if column.num_chunks == 0:
            return pa.array([], column.type)
        if column.num_chunks > 1:  # Arrow can't hold that much text in one array
            raise self.error("PART_TOO_LARGE", "the column is too large for one part", name, hint="cut it into parts")
        array = column.chunk(0)
        return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array

    def timestamps(self, column: pa.Array) -> tuple[Ints, pa.DataType]:
        name = self.stream.ts
        self.check_nulls(column, name, "NULL_TIMESTAMP", "the timestamp is null")
        if pa.types.is_timestamp(column.type):
            zone = TIMESTAMP if column.type.tz else pa.timestamp("us")
            return self.cast(column, zone, name).cast(pa.int64()).to_numpy(), zone
        if pa.types.is_date(column.type):
            return self.cast(column, pa.timestamp("us"), name).cast(pa.int64()).to_numpy(), pa.timestamp("us")
        if pa.types.is_integer(column.type) or (pa.types.is_null(column.type) and not len(column)):
            return self.cast(column, pa.int64(), name).to_numpy(), pa.int64()
        raise self.error("TIMESTAMP_TYPE", f"timestamps are integers, timestamps or dates, got {column.type}", name)

    def sequence(self, name: str) -> Ints:
        column = self.required(name, "sequence numbers")
        if not pa.types.is_integer(column.type):
            raise self.error("COLUMN_TYPE", f"sequence numbers are integers, got {column.type}", name)
        self.check_nulls(column, name, "NULL_SEQ", "the sequence number is null")
        numbers: Ints = self.cast(column, pa.int64(), name).to_numpy()
        return numbers

    def check_sorted(self, ts: Ints, seq: Ints) -> None:
        falls = np.flatnonzero(ts[1:] < ts[:-1])
        if len(falls):
            row = int(falls[0]) + 1
            raise self.error(
                "DECREASING_TIMESTAMP",
                f"the timestamp {ts[row]} comes after {ts[row - 1]}",
                self.stream.ts,
                row,
                hint="declare the stream with sorted=False to have it sorted",
            )
        falls = np.flatnonzero((ts[1:] == ts[:-1]) & (seq[1:] < seq[:-1]))
        if len(falls):
            row = int(falls[0]) + 1
            raise self.error(
                "DECREASING_SEQ",
                f"the sequence number {seq[row]} comes after {seq[row - 1]} at the timestamp {ts[row]}",
                str(self.stream.seq),
                row,
                hint="declare the stream with sorted=False to have it sorted",
            )

    def check_nulls(self, column: pa.Array, name: str, condition: str, message: str, rows: Ints | None = None) -> None:
        if column.null_count:
            row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
            raise self.error(condition, message, name, row if rows is None else int(rows[row]))

    def batch(self, ts: Ints, seq: Ints) -> Batch:
        """The events: one table a tag, and for several tags which event lies in which."""
        rank = np.broadcast_to(np.int64(self.rank), len(ts))
        if isinstance(self.stream.tag, Tag):
            tag = self.stream.tag
            return Batch((tag,), (self.tag_table(tag, None),), ts, rank, seq, self.names)
        tags = self.stream.tags
        table_of = self.tag_codes()
        row_of = np.empty(len(ts), np.int64)
        tables = []
        for which, tag in enumerate(tags):
            rows = np.flatnonzero(table_of == which)
            row_of[rows] = np.arange(len(rows))
            tables.append(self.tag_table(tag, rows))
        if len(tags) == 1:
            return Batch(tags, tuple(tables), ts, rank, seq, self.names)
        return Batch(tags, tuple(tables), ts, rank, seq, self.names, table_of, row_of)

    def tag_codes(self) -> Ints:
        """For each row the number of its tag among the stream's tags."""
        assert isinstance(self.stream.tag, Mapping)
        name = str(self.stream.tag_column)
        column = self.required(name, "the tags")
        self.check_nulls(column, name, "NULL_TAG", "the tag is null")
        if pa.types.is_nested(column.type):
            raise self.error("COLUMN_TYPE", f"tags are told apart by single values, got {column.type}", name)
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

    def tag_table(self, tag: Tag, rows: Ints | None) -> pa.RecordBatch:
        """The declared columns of one tag, at these rows."""
        count = self.table.num_rows if rows is None else len(rows)
        if not len(tag.schema):
            return pa.RecordBatch.from_struct_array(pa.array([{}] * count, pa.struct([])))
        arrays = []
        for declared in tag.schema:
            name = self.stream.column_of(declared.name)
            what = f"{declared.name!r} of tag {tag.name!r}"
            column = self.required(name, what)
            self.check_type(column.type, declared.type, name, what)
            if rows is not None:
                column = column.take(pa.array(rows))
            array = self.cast(column, declared.type, name, rows)
            if tag.key is not None and declared.name == tag.key.name:
                self.check_nulls(array, name, "NULL_KEY", f"the key of tag {tag.name!r} is null", rows)
                self.check_finite(array, tag, name, rows)
            elif not declared.nullable:
                self.check_nulls(array, name, "NULL_VALUE", "the value is null, but declared NOT NULL", rows)
            arrays.append(array)
        return pa.record_batch(arrays, schema=tag.schema)

    def check_finite(self, keys: pa.Array, tag: Tag, name: str, rows: Ints | None) -> None:
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

    def check_type(self, found: pa.DataType, declared: pa.DataType, name: str, what: str) -> None:
        if not _widens(found, declared):
            raise self.error(
                "COLUMN_TYPE",
                f"the column is {type_name(found)}, but {what} is declared {type_name(declared)}",
                name,
                hint="change the declaration, or cast the column in the data",
            )

    def cast(self, column: pa.Array, wanted: pa.DataType, name: str, rows: Ints | None = None) -> pa.Array:
        if column.type == wanted:
            return column
        try:
            return column.cast(wanted)
        except pa.ArrowException:
            pass
        for row in range(len(column)):
            try:
                column.slice(row, 1).cast(wanted)
            except pa.ArrowException as error:
                at = row if rows is None else int(rows[row])
                raise self.error("COLUMN_TYPE", f"not a {type_name(wanted)}: {error}", name, at) from None
        raise self.error("COLUMN_TYPE", f"{column.type} can't be read as {type_name(wanted)}", name)


def _widens(found: pa.DataType, declared: pa.DataType) -> bool:
    """Whether every value of the one type is a value of the other (or the cast says which is not)."""
    if found == declared or pa.types.is_null(found) or pa.types.is_nested(declared):
        return True
    sized = pa.types.is_integer(found) or pa.types.is_floating(found)
    return same_kind(found, declared) and (not sized or bool(found.bit_width <= declared.bit_width))
