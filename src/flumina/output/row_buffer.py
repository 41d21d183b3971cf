"""Collect emitted rows and chunks of one output into large Arrow tables.

Chunks have some thousand rows each and are often views into much larger batches of input. So a buffer counts the memory
that its views keep alive, and copies them when that is too much.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flumina.model.emit import Chunk, Row, row_columns
from flumina.model.order import Ints, Point, argsort
from flumina.output.staged_outputs import Outputs, SortedRun

ROWS_AT_ONCE = 1024
"""Number of single rows that are converted together: enough to amortize the cost of a call."""

BUFFER_BYTES = 32 << 20
"""A buffer is full when it has this many bytes, or the rows of a row group."""

PINNED_BYTES = 256 << 20
"""Views that keep alive more than this are copied."""


Places = tuple[Ints, "Ints | npt.NDArray[np.int32] | int", "Ints | None"]
"""Timestamps, ranks (one, where all are equal) and, where results are ordered, sequence numbers of events."""


class RowBuffer:
    """Buffer of emitted rows of one output; rows of one event keep their order."""

    def __init__(self, outputs: Outputs, name: str) -> None:
        self._outputs, self._name = outputs, name
        self._declared, self._staged = outputs.schemas[name].arrow, outputs.staged(name)
        self._rank_of = {stream: rank for rank, stream in enumerate(outputs.streams)}
        self.single: list[Row] = []
        self.size = 0
        self.rows = 0
        self._fresh = 0
        self._pinned = 0
        self._columns: list[pa.RecordBatch] = []
        self._events: list[Places] = []

    def add_chunk(self, chunk: Chunk) -> None:
        """Add whole columns, with the timestamps, ranks and sequence numbers of their events."""
        batch, at = chunk.batch, chunk.at
        if not len(at):
            return
        rank: Ints | int = int(batch.rank[0]) if batch.rank.strides[0] == 0 else batch.rank[at]
        if batch.streams != self._outputs.streams:
            ranks = np.array([self._rank_of[stream] for stream in batch.streams])
            rank = int(ranks[rank]) if isinstance(rank, int) else ranks[rank]
        self._append(chunk.columns, batch.ts[at], rank, batch.seq[at] if self._outputs.ordered else None)

    def convert_rows(self) -> None:
        """Convert the rows in :attr:`single` to columns."""
        rows, self.single = self.single, []
        if not rows:
            return
        arrays = row_columns(self._outputs.schemas[self._name], rows)
        events = [row.event for row in rows]
        ts = np.fromiter(map(attrgetter("ts"), events), np.int64, len(rows))
        seq = np.fromiter(map(attrgetter("seq"), events), np.int64, len(rows)) if self._outputs.ordered else None
        streams = list(map(attrgetter("stream"), events))
        rank: Ints | int = self._rank_of[streams[0]]
        if len(set(streams)) > 1:
            rank = np.fromiter(map(self._rank_of.__getitem__, streams), np.int64, len(rows))
        columns = pa.record_batch(arrays, schema=self._declared) if arrays else _no_columns(len(rows))
        self._append(columns, ts, rank, seq)

    def _append(self, columns: pa.RecordBatch, ts: Ints, rank: Ints | int, seq: Ints | None) -> None:
        self._columns.append(columns)
        self._events.append((ts, rank, seq))
        self.rows += len(ts)
        self.size += columns.nbytes + 20 * len(ts)
        self._pinned += columns.get_total_buffer_size()
        if self._pinned > PINNED_BYTES:
            tail = _copied(self._columns[self._fresh :])
            self._columns[self._fresh :] = [tail]
            self._events[self._fresh :] = [_joined(self._events[self._fresh :])]
            self._fresh, self._pinned = self._fresh + 1, 0

    @property
    def full(self) -> bool:
        """Tell whether the buffer has enough rows or bytes to be written."""
        return self.rows >= self._outputs.group_rows or self.size >= BUFFER_BYTES

    def take(self) -> pa.Table:
        """Remove all collected rows and return them with the staged columns, in the order of emission."""
        ts, rank, seq = _joined(self._events)
        arrays: list[pa.Array | pa.ChunkedArray] = pa.Table.from_batches(self._columns).columns
        arrays.append(pa.array(ts).cast(self._staged.field(len(arrays)).type))
        if seq is None:
            arrays.append(pa.DictionaryArray.from_arrays(pa.array(rank), self._outputs.stream_names))
        else:
            arrays += [pa.array(rank), pa.array(seq)]
        table = pa.Table.from_arrays(arrays, schema=self._staged)
        self._columns, self._events = [], []
        self.rows = self.size = self._fresh = self._pinned = 0
        return table


def in_order(table: pa.Table) -> tuple[pa.Table, SortedRun]:
    """Sort a staged table by O, stably; return it with its first and last place."""
    ts, rank, seq = places(table)
    same = ts[1:] == ts[:-1]
    later = (ts[1:] > ts[:-1]) | same & ((rank[1:] > rank[:-1]) | (rank[1:] == rank[:-1]) & (seq[1:] >= seq[:-1]))
    if not later.all():
        order = argsort(ts, rank, seq)
        table = table.take(pa.array(order))
        ts, rank, seq = ts[order], rank[order], seq[order]
    first, last = (Point(int(ts[i]), int(rank[i]), int(seq[i])) for i in (0, -1))
    return table, SortedRun(first, last, len(ts))


def places(table: pa.Table | pa.RecordBatch) -> tuple[Ints, Ints, Ints]:
    """Return the places in O of the rows of a staged table: timestamp, rank and seq."""
    count = table.num_columns
    ts, rank, seq = (table.column(i) for i in range(count - 3, count))
    return ts.cast(pa.int64()).to_numpy(), rank.to_numpy().astype(np.int64), seq.to_numpy()


def _joined(events: Iterable[Places]) -> tuple[Ints, npt.NDArray[np.int32], Ints | None]:
    ts, rank, seq = zip(*events, strict=True)
    if all(isinstance(one, int) for one in rank):
        ranks = np.repeat(np.array(rank, np.int32), [len(one) for one in ts])
    else:
        each = [np.full(len(t), r, np.int32) if isinstance(r, int) else r for t, r in zip(ts, rank, strict=True)]
        ranks = np.concatenate(each).astype(np.int32, copy=False)
    return np.concatenate(ts), ranks, None if seq[0] is None else np.concatenate(seq)


def _copied(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Copy batches into one, with buffers of its own."""
    if len(batches) == 1:  # Arrow would give back the view
        return batches[0].take(pa.array(np.arange(len(batches[0]))))
    return pa.concat_batches(batches)


def _no_columns(rows: int) -> pa.RecordBatch:
    """Return a batch of rows without columns, which Arrow can't make from arrays."""
    return pa.record_batch([pa.nulls(rows)], names=["none"]).select([])
