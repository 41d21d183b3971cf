"""Define the source protocol, with tables in memory and generators.

A source has parts; a part is read in chunks, any number of times, always with the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flumina.errors import FluminaError, InputError, UsageError
from flumina.input.conversion import Converter
from flumina.model.order import Ints
from flumina.program.definition import RAISED, user_error

CHUNK_ROWS = 131_072
"""Rows decoded at once: enough to make the cost of a chunk negligible, few enough for the cache."""

_SMALL = CHUNK_ROWS // 8


@runtime_checkable
class Source(Protocol):
    """The rows of one stream, in parts."""

    @property
    def parts(self) -> int:
        """How many parts there are."""

    def schema(self, part: int) -> pa.Schema | None:
        """Return the columns of a part; None if unknown (a generator without rows)."""

    def rows(self, part: int) -> int | None:
        """Return how many rows a part has, if that is known without reading them."""

    def chunks(self, part: int, columns: Sequence[str], size: int = CHUNK_ROWS) -> Iterator[pa.RecordBatch]:
        """Return the rows of a part, at most ``size`` at once, with the columns among these that exist."""

    def sample(self, part: int, columns: Sequence[str], rows: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Return about this many rows, spread over the part as far as possible without reading it all.

        Chunks come in order, each with the number of its first row.
        """

    def bounds(self, part: int, column: str) -> pa.Array | None:
        """Return the lowest and the highest value of a column, if known without reading it."""

    def read(self, part: int) -> pa.Table:
        """Return all rows of a part."""


@dataclass(frozen=True)
class InMemoryTables:
    """Tables in memory, one for each part."""

    tables: Sequence[pa.Table]

    @property
    def parts(self) -> int:
        """How many parts there are."""
        return len(self.tables)

    def schema(self, part: int) -> pa.Schema:
        """Return the columns of a part."""
        return self.tables[part].schema

    def rows(self, part: int) -> int:
        """Return how many rows a part has."""
        return int(self.tables[part].num_rows)

    def chunks(self, part: int, columns: Sequence[str], size: int = CHUNK_ROWS) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part without a copy, unless the table consists of many small pieces."""
        table = self.tables[part].select([name for name in self.schema(part).names if name in columns])
        pieces = max((column.num_chunks for column in table.columns), default=0)
        if pieces <= 1 or table.num_rows >= pieces * min(_SMALL, size):
            yield from table.to_batches(size)
            return
        for start in range(0, table.num_rows, size):
            yield from table.slice(start, size).combine_chunks().to_batches()

    def sample(self, part: int, columns: Sequence[str], rows: int) -> Iterator[tuple[int, pa.RecordBatch]]:  # noqa: ARG002
        """Return all rows: they are in memory."""
        return numbered(self.chunks(part, columns))

    def bounds(self, part: int, column: str) -> None:
        """Return None: no statistics available."""

    def read(self, part: int) -> pa.Table:
        """Return all rows of a part."""
        return self.tables[part]


@dataclass(frozen=True)
class GeneratorSource:
    """Events that a function makes, for ``Stream(data=...)``.

    ``function(part)`` yields dicts of columns, Arrow tables or record batches, without end if you like. It is called
    once in the task that reads the part, and again whenever the part is read again: it must yield the same rows.

    ``parts``       how many parts there are: 0, 1, ... are given to the function
    ``rate``        events a second on each part; None: as fast as it can. Event i of a part is due i / rate seconds
                    after the start of the run, and its timestamp says so in microseconds: i * 1,000,000 // rate. If the
                    function gives timestamps itself, they are microseconds since the start, and events are due then.
    ``heartbeats``  how many times a second a paced source emits its due events and a heartbeat
    """

    function: Callable[[int], Iterable[Any]]
    parts: int = 1
    rate: float | None = None
    heartbeats: float = 100.0

    def __post_init__(self) -> None:
        """Refuse invalid arguments."""
        if not callable(self.function):
            message = f"fl.GeneratorSource needs a function of the part's number, got {self.function!r}"
            raise UsageError("GENERATED_FUNCTION", message)
        if isinstance(self.parts, bool) or not isinstance(self.parts, int) or self.parts < 1:
            raise UsageError("GENERATED_PARTS", f"parts= is a number of parts, at least one, got {self.parts!r}")
        for option in ("rate", "heartbeats"):
            value = getattr(self, option)
            if value is None and option == "rate":
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
                raise UsageError("GENERATED_RATE", f"{option}= is a number a second, above 0, got {value!r}")

    def source(self, convert: Converter, ts: str) -> Generator:
        """Return the source of a stream with this converter and this column of timestamps."""
        return Generator(self, convert, ts)

    def due(self, first: int, count: int) -> Ints:
        """Return the timestamps of events from the first on: when they are due, in microseconds since the start."""
        assert self.rate is not None
        numbers = np.arange(first, first + count)
        if self.rate == int(self.rate):
            return numbers * 1_000_000 // np.int64(self.rate)
        return (numbers * 1e6 // self.rate).astype(np.int64)


@dataclass(frozen=True)
class Generator:
    """The source of a generator's rows, with timestamps from its rate."""

    generated: GeneratorSource
    convert: Converter
    ts: str

    @property
    def parts(self) -> int:
        """How many parts there are."""
        return self.generated.parts

    def schema(self, part: int) -> pa.Schema | None:
        """Return the columns of the first rows."""
        table = next(self._tables(part), None)
        return None if table is None else table.schema

    def rows(self, part: int) -> None:
        """Return None: unknown before the function ends."""

    def chunks(self, part: int, columns: Sequence[str], size: int = CHUNK_ROWS) -> Iterator[pa.RecordBatch]:
        """Yield the rows as the function yields them; paced ones at least one heartbeat interval at once."""
        least = 1
        if self.generated.rate is not None:
            least = min(size, max(1, int(self.generated.rate / self.generated.heartbeats)))
        held: list[pa.Table] = []
        for table in self._tables(part):
            held.append(table.select([name for name in columns if name in table.column_names]))
            if sum(piece.num_rows for piece in held) >= least:
                yield from _joined(held, size)
                held = []
        yield from _joined(held, size)

    def sample(self, part: int, columns: Sequence[str], rows: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Return the first rows: a generator can't skip rows."""
        return numbered(head(self.chunks(part, columns), rows))

    def bounds(self, part: int, column: str) -> None:
        """Return None: no statistics available."""

    def read(self, part: int) -> pa.Table:
        """Return all rows; never returns if the function does not end."""
        batches = list(self.chunks(part, list(self.convert.types)))
        if batches:
            tables = [pa.Table.from_batches([batch]) for batch in batches]
            return pa.concat_tables(tables, promote_options="default")
        return pa.table({name: pa.array([], type_) for name, type_ in self.convert.types.items()})

    def _tables(self, part: int) -> Iterator[pa.Table]:
        row = 0
        types: dict[str, pa.DataType] = {}
        for given in self._given(part):
            table = self._table(part, row, given)
            if not table.num_rows:
                continue
            if self.generated.rate is not None:
                table = self._paced(part, row, table)
            for field in table.schema:
                if pa.types.is_null(field.type) or field.name not in self.convert.types:
                    continue  # a column of nulls only takes the type of other rows
                if types.setdefault(field.name, field.type) != field.type:
                    message = f"the column is {field.type}, but was {types[field.name]} in the rows before"
                    raise self._error("CHUNK_TYPES", message, part, row, field.name)
            row += table.num_rows
            yield table

    def _given(self, part: int) -> Iterator[object]:
        """Yield the function's tables; its exceptions become user errors."""
        function = self.generated.function
        try:
            iterator = iter(function(part))
            while (given := next(iterator, self)) is not self:
                yield given
        except FluminaError:
            raise
        except RAISED as error:
            raise user_error(function, error, f"part {part} of stream {self.convert.stream!r}") from error

    def _table(self, part: int, row: int, given: object) -> pa.Table:
        if isinstance(given, pa.RecordBatch):
            return pa.Table.from_batches([given])
        if isinstance(given, pa.Table):
            return given
        if isinstance(given, Mapping):
            return self.convert.columns(given, part, row)
        message = f"the generator gave a {type(given).__name__}; it yields dicts of columns, tables or record batches"
        raise self._error("GENERATED_ROWS", message, part, row)

    def _paced(self, part: int, row: int, table: pa.Table) -> pa.Table:
        """Return the rows with a column of due times."""
        if self.ts not in table.column_names:
            return table.append_column(self.ts, pa.array(self.generated.due(row, table.num_rows)))
        column = table.column(self.ts)
        if not pa.types.is_integer(column.type):
            message = f"timestamps of a paced source are microseconds since the start, got {column.type}"
            raise self._error("PACED_TIMESTAMP", message, part, None, self.ts)
        if (pc.min(column).as_py() or 0) < 0:
            at = pc.index(pc.less(column, 0), value=True).as_py()
            message = f"the timestamp {column[at]} lies before the start of the run"
            raise self._error("PACED_TIMESTAMP", message, part, row + at, self.ts)
        return table

    def _error(self, condition: str, message: str, part: int, row: int | None, column: str | None = None) -> InputError:
        return InputError(condition, message, stream=self.convert.stream, part=part, row=row, column=column)


def head(chunks: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the first rows, reading no more chunks than needed."""
    for chunk in chunks:
        yield chunk.slice(0, rows)
        rows -= chunk.num_rows
        if rows <= 0:
            return


def numbered(chunks: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield chunks, each with the number of its first row."""
    row = 0
    for chunk in chunks:
        yield row, chunk
        row += chunk.num_rows


def _joined(tables: Sequence[pa.Table], size: int) -> Iterator[pa.RecordBatch]:
    """Yield tables as record batches of at most this size."""
    if len(tables) == 1:
        yield from InMemoryTables(tables).chunks(0, tables[0].column_names, size)
    elif tables:
        yield from pa.concat_tables(tables, promote_options="default").combine_chunks().to_batches(size)
