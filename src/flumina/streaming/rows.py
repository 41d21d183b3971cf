"""Sort the rows of a batch, split them at its watermark, and divide them into parts."""

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
    """Return the rows of a batch with places that are unique across batches."""
    places = np.int64(batch) * _PARTITIONS + table.column(PLACE).to_numpy()
    return table.set_column(table.schema.get_field_index(PLACE), PLACE, pa.array(places))


def batch_of(place: int) -> int:
    """Return the batch of a place from :func:`placed`."""
    return place // _PARTITIONS


def place_of(place: int) -> int:
    """Return the number that a place from :func:`placed` has in its batch."""
    return place % _PARTITIONS


def in_order(stream: Stream, tables: Sequence[pa.Table]) -> pa.Table:
    """Return all rows sorted by timestamp, then by the stream's ``seq`` if it has one, else by place and row."""
    table = pa.concat_tables(tables).combine_chunks()
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
    """Return the rows up to a timestamp, and the rows after it."""
    count = int(np.searchsorted(table.column(TS).to_numpy(), watermark, "right"))
    return table.slice(0, count), table.slice(count)


def to_bytes(table: pa.Table) -> Bytes:
    """Return rows as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def from_bytes(blob: Bytes) -> pa.Table:
    """Return the rows of :func:`to_bytes`."""
    return pa.ipc.open_stream(pa.py_buffer(blob)).read_all()


@dataclass(frozen=True)
class Gathered(HoldsEvents):
    """Single part of a stream without ``seq``, whose events are ordered by their place; a tie is an error."""

    table: pa.Table
    gathered: str | None = PLACE
    parts: int = 1

    def pieces(self) -> Iterator[pa.RecordBatch | Heartbeat]:
        """Yield all rows; no heartbeats follow."""
        yield from self.table.to_batches(CHUNK_ROWS)

    def schema(self, part: int) -> pa.Schema:  # noqa: ARG002 -- there is one part
        """Return the columns."""
        return self.table.schema

    def rows(self, part: int) -> int:  # noqa: ARG002
        """Return the number of rows."""
        return int(self.table.num_rows)

    def chunks(self, part: int, columns: Sequence[str], size: int = CHUNK_ROWS) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        """Yield the rows of some columns in chunks."""
        yield from self.table.select([n for n in self.table.column_names if n in columns]).to_batches(size)

    def sample(self, part: int, columns: Sequence[str], rows: int) -> Iterator[tuple[int, pa.RecordBatch]]:  # noqa: ARG002
        """Yield all rows, each chunk with the number of its first row: the table is in memory anyway."""
        first = 0
        for chunk in self.chunks(part, columns):
            yield first, chunk
            first += chunk.num_rows

    def bounds(self, part: int, column: str) -> None:
        """Return None: no statistics available."""

    def read(self, part: int) -> pa.Table:  # noqa: ARG002
        """Return all rows."""
        return self.table


def divide(stream: Stream, table: pa.Table, parts: int, *, single: bool) -> Stream:
    """Return the stream of these rows, divided evenly into sorted parts, or in a ``single`` part.

    Rows of a stream without ``seq`` get their position in the table as ``seq``, so that their order does not depend on
    the number of parts.
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
