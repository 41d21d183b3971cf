"""Store validated events in one Arrow table, as micro-batches sort and buffer them.

A column stands for all tags that declare it with the same type, and is null at events of other tags. Written and read
again, events are the same::

    EventReader(...).decode(to_table(batch, sequenced=...))  =  batch
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from flumina.input.sources import InMemoryTables
from flumina.input.stream import Stream
from flumina.model.batch import Batch, no_columns
from flumina.model.order import Ints
from flumina.model.tag import Tag

TS, SEQ, TAG = "\0ts", "\0seq", "\0tag"
"""Columns of every event: its timestamp as O compares it, its sequence number, the number of its tag in the stream."""


class HoldsEvents:
    """Marks a source whose rows are validated events in the columns of this module."""


@dataclass(frozen=True)
class EventTables(InMemoryTables, HoldsEvents):
    """Events in memory, one table for each part."""


def columns_of(tags: Sequence[Tag]) -> list[dict[str, str]]:
    """Return for each tag its declared columns, and the columns of the table that hold them."""
    names: dict[tuple[str, pa.DataType], str] = {}
    for tag in tags:
        for declared in tag.schema:
            others = sum(name == declared.name for name, _ in names)
            names.setdefault((declared.name, declared.type), f"{declared.name}\0{others}" if others else declared.name)
    return [{declared.name: names[declared.name, declared.type] for declared in tag.schema} for tag in tags]


def to_table(batch: Batch, *, sequenced: bool) -> pa.Table:
    """Return the events of a batch as a table; ``sequenced``: with their sequence numbers."""
    found: dict[str, pa.Array] = {TS: pa.array(batch.ts)}
    if sequenced:
        found[SEQ] = pa.array(batch.seq)
    places: pa.Array | None = None
    if batch.table_of is not None and batch.row_of is not None:
        found[TAG] = pa.array(batch.table_of.astype(np.int32))
        starts = np.cumsum([0, *(table.num_rows for table in batch.tables)])
        places = pa.array(starts[batch.table_of] + batch.row_of)
    named = columns_of(batch.tags)
    types = {
        name: tag.schema.field(declared).type
        for tag, mine in zip(batch.tags, named, strict=True)
        for declared, name in mine.items()
    }
    for name, type_ in types.items():
        pieces = [
            table.column(declared[0]) if declared else pa.nulls(table.num_rows, type_)
            for table, mine in zip(batch.tables, named, strict=True)
            for declared in [[of for of, column in mine.items() if column == name]]
        ]
        found[name] = pieces[0] if places is None else pa.concat_arrays(pieces).take(places)
    return pa.table(found)


class EventReader:
    """Reads the events of one part chunk by chunk; missing sequence numbers are row numbers."""

    def __init__(self, stream: Stream, rank: int, names: Sequence[str]) -> None:
        self.stream, self.rank, self.names = stream, rank, tuple(names)
        self.rows = 0
        self._columns = columns_of(stream.tags)

    @property
    def columns(self) -> list[str]:
        """The columns that are read."""
        return [TS, SEQ, TAG, *dict.fromkeys(name for mine in self._columns for name in mine.values())]

    def decode(self, chunk: pa.RecordBatch) -> Batch:
        """Return the next events."""
        tags = self.stream.tags
        codes = chunk.column(TAG).to_numpy().astype(np.int64) if len(tags) > 1 else None
        rows = [None if codes is None else np.flatnonzero(codes == which) for which in range(len(tags))]
        tables = [_table(chunk, tag, mine, at) for tag, mine, at in zip(tags, self._columns, rows, strict=True)]
        ts: Ints = chunk.column(TS).to_numpy()
        seq: Ints = (
            chunk.column(SEQ).to_numpy()
            if SEQ in chunk.schema.names
            else np.arange(self.rows, self.rows + chunk.num_rows)
        )
        self.rows += chunk.num_rows
        return Batch.of_tables(tags, tables, codes, rows, ts, self.rank, seq, self.names)

    def batches(self, chunks: Iterable[pa.RecordBatch], size: int) -> Iterator[Batch]:  # noqa: ARG002 -- as they come
        """Yield the events of all chunks, which are in O."""
        return (self.decode(chunk) for chunk in chunks if chunk.num_rows)


def _table(chunk: pa.RecordBatch, tag: Tag, columns: dict[str, str], rows: Ints | None) -> pa.RecordBatch:
    if not columns:
        return no_columns(chunk.num_rows if rows is None else len(rows))
    arrays = [chunk.column(name) for name in columns.values()]
    if rows is not None:
        arrays = [array.take(pa.array(rows)) for array in arrays]
    return pa.record_batch(arrays, schema=tag.schema)
