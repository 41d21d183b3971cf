"""Merge the sorted runs of several tasks into O with bounded memory.

Rows compare by (place in O, task, number of the run, position in the run): a total order, in which rows of one event,
all written by one task, stay as they were emitted. Each step yields all rows up to a bound that no unread row
precedes::

    bound = min of (last place held, run)  over the open runs that have more to read
            and   (first place, run)       over the runs that are not open
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from flumina.model.order import END, LAST, Ints, Point, argsort
from flumina.output.row_buffer import places
from flumina.output.staged_outputs import SortedRun

MERGE_ROWS = 2 << 20
"""Rows that all runs hold in memory together, if all are open at once."""

BLOCK_ROWS = 1 << 17
"""Largest number of rows of a run that are read at a time."""

Number = tuple[int, int]
"""Task, and number of the run (the row group) in its file."""

Bound = tuple[Point, Number]


class RunFile:
    """Staged file with sorted runs, open while the merge is between its first and its last run."""

    def __init__(self, open_file: Callable[[], pq.ParquetFile]) -> None:
        self._open_file = open_file
        self._file: pq.ParquetFile | None = None
        self.runs = 0
        """Number of runs that have not ended."""

    def blocks(self, group: int, rows: int) -> Iterator[pa.RecordBatch]:
        """Read a row group in blocks of ``rows`` rows."""
        if self._file is None:
            self._file = self._open_file()
        return iter(self._file.iter_batches(batch_size=rows, row_groups=[group]))

    def release(self) -> None:
        """Count down at the end of a run, and close the file after the last one."""
        self.runs -= 1
        if not self.runs and self._file is not None:
            self._file.close(force=True)
            self._file = None


class SortedRunReader:
    """Reader of one sorted run: a row group of a staged file, read in blocks as the merge reaches it."""

    def __init__(self, file: RunFile, number: Number, run: SortedRun) -> None:
        self.first: Bound = (run.first, number)
        self.number = number
        self._file: RunFile | None = file
        self._unread = run.rows
        self._block: pa.RecordBatch | None = None
        self._places: tuple[Ints, Ints, Ints]
        self._blocks: Iterator[pa.RecordBatch] | None = None
        file.runs += 1

    def open(self, rows: int) -> None:
        """Read the first block."""
        assert self._file is not None, "a run is read once"
        self._blocks = self._file.blocks(self.number[1], rows)
        self._read()

    def close(self) -> None:
        """Release the block and the Parquet reader, which holds pages and dictionaries of the row group."""
        self._block = self._blocks = None
        if self._file is not None:
            self._file.release()
            self._file = None

    @property
    def ended(self) -> bool:
        """Tell whether all rows have been taken."""
        return self._block is None

    @property
    def bound(self) -> Bound | None:
        """The place of the last row in memory; None if the run has no unread rows."""
        return (self._point(len(self._places[0]) - 1), self.number) if self._unread else None

    def take(self, bound: Bound) -> pa.RecordBatch:
        """Remove and return the rows in memory that are at or before a bound."""
        block, (ts, rank, seq) = self._block, self._places
        assert block is not None
        count = self._count(bound)
        if count == len(block):
            self._read()
        else:
            self._block, self._places = block.slice(count), (ts[count:], rank[count:], seq[count:])
        return block.slice(0, count)

    def _read(self) -> None:
        assert self._blocks is not None, "only an open run is read"
        if not self._unread:
            del self._places  # views of the last block
            self.close()
            return
        self._block = next(self._blocks)
        self._unread -= len(self._block)
        self._places = places(self._block)

    def _point(self, index: int) -> Point:
        ts, rank, seq = self._places
        return Point(int(ts[index]), int(rank[index]), int(seq[index]))

    def _count(self, bound: Bound) -> int:
        """Count the rows at or before the bound: a binary search by column, each among the rows equal so far."""
        low, high = 0, len(self._places[0])
        point, number = bound
        for column, value in zip(self._places, point, strict=True):
            inside = column[low:high]
            high = low + int(np.searchsorted(inside, value, "right"))
            low += int(np.searchsorted(inside, value, "left"))
        return high if self.number <= number else low


def merged(runs: Sequence[SortedRunReader]) -> Generator[pa.Table, None, None]:
    """Yield all rows of the runs in order, in tables of varying size."""
    closed = sorted(runs, key=lambda run: run.first, reverse=True)
    rows = max(1, min(BLOCK_ROWS, MERGE_ROWS // max(1, len(closed))))
    opened: list[SortedRunReader] = []
    try:
        while opened or closed:
            bound = min((held for run in opened if (held := run.bound) is not None), default=(END, (LAST, LAST)))
            if closed and closed[-1].first <= bound:
                bound, new = closed[-1].first, closed.pop()
                opened = sorted([*opened, new], key=lambda run: run.number)
                new.open(rows)
            taken = [block for run in opened if len(block := run.take(bound))]
            opened = [run for run in opened if not run.ended]
            if taken:
                yield _sorted(taken)
    finally:
        for run in (*opened, *closed):  # the caller stopped in the middle, or a file can't be read
            run.close()


def _sorted(blocks: list[pa.RecordBatch]) -> pa.Table:
    """Sort blocks, given in order of their runs, into one table in O; the sort is stable."""
    table = pa.Table.from_batches(blocks)
    return table if len(blocks) == 1 else table.take(pa.array(argsort(*places(table))))
