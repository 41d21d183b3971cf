"""The rows of a stream in a batch: new ones and buffered ones, in order, cut in two, and dealt to parts of a plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from flumina.engine.event_stream import Heartbeat
from flumina.input.event_table import SEQ, TS, EventTables, HoldsEvents
from flumina.input.sources import CHUNK_ROWS
from flumina.input.stream import Stream
from flumina.model.order import Ints
from flumina.streaming.validation import PLACE, ROW

Bytes = Any
"""Bytes, a memoryview, or a buffer of Arrow."""

_PARTITIONS = 1 << 31


def placed(table: pa.Table, batch: int) -> pa.Table:
    """Rows of a batch, their places numbered so that they differ from those of every other batch."""
    places = np.int64(batch) * _PARTITIONS + table.column(PLACE).to_numpy()
    return table.set_column(table.schema.get_field_index(PLACE), PLACE, pa.array(places))


def batch_of(place: int) -> int:
    """The batch that a place was numbered for."""
    return place // _PARTITIONS


def place_of(place: int) -> int:
    """The number that a place had in its batch."""
    return place % _PARTITIONS


def in_order(stream: Stream, pieces: Sequence[pa.Table]) -> pa.Table:
    """All rows by timestamp, then by the stream's ``seq`` if it has one, else as they came."""
    table = pa.concat_tables(pieces).combine_chunks()
    columns = [table.column(ROW), table.column(PLACE)]
    if stream.seq is not None:
        columns.append(table.column(SEQ))
    columns.append(table.column(TS))
    keys = [column.to_numpy() for column in columns]
    order = np.lexsort(keys)
    return table if _is_sorted(order) else table.take(pa.array(order))


def _is_sorted(order: Ints) -> bool:
    return bool((order == np.arange(len(order))).all())


def split(table: pa.Table, watermark: int) -> tuple[pa.Table, pa.Table]:
    """Rows up to a timestamp, and those behind it."""
    count = int(np.searchsorted(table.column(TS).to_numpy(), watermark, "right"))
    return table.slice(0, count), table.slice(count)


def to_bytes(table: pa.Table) -> Bytes:
    """Rows as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def from_bytes(blob: Bytes) -> pa.Table:
    """The rows again."""
    return pa.ipc.open_stream(pa.py_buffer(blob)).read_all()


@dataclass(frozen=True)
class Gathered(HoldsEvents):
    """The one part of a stream whose events are ordered by their place alone: a tie of two places is an error."""

    table: pa.Table
    gathered: str | None = PLACE
    parts: int = 1

    def pieces(self) -> Iterator[pa.RecordBatch | Heartbeat]:
        """All rows; then there is nothing more to tell."""
        yield from self.table.to_batches(CHUNK_ROWS)

    def schema(self, part: int) -> pa.Schema:  # noqa: ARG002 -- there is one part
        """The columns."""
        return self.table.schema

    def rows(self, part: int) -> int:  # noqa: ARG002
        """How many there are."""
        return int(self.table.num_rows)

    def chunks(self, part: int, columns: Sequence[str], size: int = CHUNK_ROWS) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        """The rows."""
        yield from self.table.select([n for n in self.table.column_names if n in columns]).to_batches(size)

    def sample(self, part: int, columns: Sequence[str], rows: int) -> Iterator[tuple[int, pa.RecordBatch]]:  # noqa: ARG002
        """Everything, as it is there anyway."""
        first = 0
        for chunk in self.chunks(part, columns):
            yield first, chunk
            first += chunk.num_rows

    def bounds(self, part: int, column: str) -> None:
        """Nobody has looked."""

    def read(self, part: int) -> pa.Table:  # noqa: ARG002
        """All rows."""
        return self.table


def dealt(stream: Stream, table: pa.Table, parts: int, *, single: bool) -> Stream:
    """The stream of these rows: spread evenly over parts, each in order, or all in one.

    Where it has no ``seq``, rows keep the numbers they had before, so that their order does not tell how many parts
    there are.
    """
    if single:
        return replace(stream, data=Gathered(table.drop_columns([ROW])), sorted=True)
    table, seq = table.drop_columns([PLACE, ROW]), stream.seq
    if seq is None and parts > 1:
        table, seq = table.append_column(SEQ, pa.array(np.arange(len(table)))), SEQ
    spread = (
        [table.take(pa.array(np.arange(part, len(table), parts))) for part in range(parts)] if parts > 1 else [table]
    )
    return replace(stream, data=EventTables(spread), seq=seq, sorted=True)
