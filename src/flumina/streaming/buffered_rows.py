"""Buffer rows after the batch watermark in files, of which later batches take prefixes.

A batch writes its own rows that have to wait, once, sorted. A later batch processes a prefix of the file, and its
manifest names the rest by the number of the first row that waits: rows are not written again with every batch. Where
rows wait for many batches, small files are merged, so that a manifest names few of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from flumina.checkpoint.store.checkpoints import Checkpoints
from flumina.checkpoint.store.layout import SnapshotId
from flumina.checkpoint.store.manifest import BufferedFile
from flumina.checkpoint.store.snapshot import read_file
from flumina.input.event_table import TS
from flumina.input.stream import Stream
from flumina.streaming.rows import from_bytes, in_order, split, to_bytes

FILES = 4
"""As many files of about the same size are merged."""


@dataclass(frozen=True)
class BufferedRows:
    """The rows of a file that wait."""

    file: BufferedFile
    table: pa.Table = field(repr=False)

    @staticmethod
    def read(store: Checkpoints, file: BufferedFile) -> BufferedRows:
        """Read and verify a file; raise if it is damaged."""
        table = from_bytes(read_file(store.folder, file))
        return BufferedRows(file, table.slice(file.first_row, file.rows))

    @staticmethod
    def write(store: Checkpoints, snapshot_id: SnapshotId, stream: str, table: pa.Table) -> BufferedRows:
        """Write sorted rows to a new file."""
        data = to_bytes(table).to_pybytes()
        return BufferedRows(store.write_buffered(snapshot_id, stream, data, table.column(TS).to_numpy()), table)

    def after(self, watermark: int) -> BufferedRows | None:
        """Return the rows after a timestamp, in the same file; None if there are none."""
        if self.file.max_ts <= watermark:
            return None
        now, later = split(self.table, watermark)
        if not len(now):
            return self
        first = self.file.first_row + len(now)
        min_ts = int(later.column(TS)[0].as_py())
        return BufferedRows(self.file._replace(first_row=first, rows=len(later), min_ts=min_ts), later)


def buffer(
    store: Checkpoints,
    snapshot_id: SnapshotId,
    stream: Stream,
    before: Sequence[BufferedRows],
    new: pa.Table,
    watermark: int,
) -> list[BufferedRows]:
    """Return the rows of a stream that wait after a batch: the rest of ``before``, and the ``new`` rows after it."""
    waiting = [rest for rows in before if (rest := rows.after(watermark)) is not None]
    later = split(new, watermark)[1]
    if not len(later):
        return waiting
    tables = [later]
    while similar := _similar(waiting, sum(map(len, tables))):
        tables += [rows.table for rows in waiting[-similar:]]
        del waiting[-similar:]
    table = later if len(tables) == 1 else in_order(stream, tables)
    return [*waiting, BufferedRows.write(store, snapshot_id, stream.name, table)]


def _similar(waiting: Sequence[BufferedRows], rows: int) -> int:
    """Return how many of the last files are to be merged with one of so many rows: each row log(rows) times in all."""
    level = _level(rows)
    count = 0
    while count < len(waiting) and _level(waiting[-1 - count].file.rows) <= level:
        count += 1
    return count if count >= FILES - 1 else 0


def _level(rows: int) -> int:
    """Return the logarithm of a number of rows to the base :data:`FILES`."""
    return (rows.bit_length() - 1) // 2
