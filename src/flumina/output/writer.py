"""Write the outputs of one attempt of a task in a thread.

The task's loop passes the rows that its workers emitted; a thread writes whole row groups, without holding Python's
global lock. Memory is bounded: a few tables for each output, then :meth:`OutputWriter.write` waits for the thread.
"""

from __future__ import annotations

import queue
import re
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from operator import itemgetter

import pyarrow as pa

from flumina.errors import UsageError
from flumina.model.emit import Chunk, Row
from flumina.output.parquet_file import ParquetFile
from flumina.output.row_buffer import ROWS_AT_ONCE, RowBuffer, in_order
from flumina.output.staged_outputs import Manifest, Outputs, SortedRun, StagedFile, to_ipc, too_much
from flumina.storage.filesystem import storage_errors

WAITING = 1
"""Tables that may wait for the thread, besides the one being written and the rows being collected."""

PATIENCE = 10.0
"""Seconds that :meth:`OutputWriter.abandon` waits for the file system."""

_POLL = 0.2
_ATTEMPT = re.compile(r"[\w.-]+", re.ASCII)


class OutputWriter:
    """Writer for the outputs of one attempt of a task; ``attempt`` is unique among the attempts of this task.

    Exactly one of :meth:`close` and :meth:`abandon` ends it; after an error, :meth:`abandon`. ``waited`` is the number
    of seconds that :meth:`write` has waited because files were not written fast enough.
    """

    def __init__(self, outputs: Outputs, task: int, attempt: str) -> None:
        if not _ATTEMPT.fullmatch(attempt):
            raise UsageError(
                "ATTEMPT_ID", f"expected an attempt id of letters, digits, '_', '.' and '-', got {attempt!r}"
            )
        self.waited = 0.0
        self._outputs, self._task, self._attempt = outputs, task, attempt
        self._buffers = {name: RowBuffer(outputs, name) for name in outputs.schemas}
        self._rows = dict.fromkeys(outputs.schemas, 0)
        self._inline: dict[str, list[pa.Table]] = {name: [] for name in outputs.schemas}
        self._room = outputs.inline_limit
        self._thread = None if outputs.location is None else _Writer(outputs, task, attempt)

    @property
    def rows(self) -> int:
        """The number of rows received so far, of all outputs."""
        return sum(self._rows.values()) + sum(b.rows + len(b.single) for b in self._buffers.values())

    def write(self, items: Sequence[Row | Chunk]) -> None:
        """Buffer rows and chunks that workers emitted; waits if the thread is behind."""
        kinds = set(map(type, items))
        if Row in kinds:
            rows = [item for item in items if isinstance(item, Row)]
            outputs = set(map(itemgetter(0), rows))
            for name in outputs:
                buffer = self._buffers[name]
                buffer.single += rows if len(outputs) == 1 else [row for row in rows if row.output == name]
                if len(buffer.single) >= ROWS_AT_ONCE:
                    buffer.convert_rows()
                    self._write_if_full(name)
        if Chunk in kinds:
            for item in items:
                if isinstance(item, Chunk):
                    self._buffers[item.output].add_chunk(item)
                    self._write_if_full(item.output)

    def close(self) -> Manifest:
        """Write the buffered rows, finish the files and return the manifest."""
        for name, buffer in self._buffers.items():
            buffer.convert_rows()
            if buffer.rows:
                self._write_buffer(name)
        files = {} if self._thread is None else self._thread.finish()
        inline = {name: to_ipc(tables) for name, tables in self._inline.items() if tables}
        return Manifest(self._outputs.run, self._task, self._attempt, self._rows, files, inline)

    def abandon(self) -> None:
        """Stop, and delete the staged files of this attempt; never raises."""
        if self._thread is not None:
            self._thread.stop()
        self._buffers, self._inline = {}, {}

    def _write_if_full(self, name: str) -> None:
        buffer = self._buffers[name]
        if buffer.full:
            self._write_buffer(name)
        elif self._thread is None and self._outputs.kept and buffer.size > self._room:
            raise too_much(self._task, self._outputs.inline_limit)

    def _write_buffer(self, name: str) -> None:
        table = self._buffers[name].take()
        self._rows[name] += len(table)
        if not self._outputs.kept:
            return
        if self._thread is not None:
            self.waited += self._thread.put(name, table)
            return
        self._room -= table.nbytes
        if self._room < 0:
            raise too_much(self._task, self._outputs.inline_limit)
        self._inline[name].append(table)


class _Writer(threading.Thread):
    """Thread that writes the files of one attempt: one for each output that has rows."""

    def __init__(self, outputs: Outputs, task: int, attempt: str) -> None:
        super().__init__(name=f"flumina-outputs-{task}", daemon=True)
        assert outputs.location is not None
        self._outputs, self._location = outputs, outputs.location
        self._folder = self._location.task_directory(task, attempt)
        self._files: dict[str, ParquetFile] = {}
        self._runs: dict[str, list[SortedRun]] = {name: [] for name in outputs.schemas}
        self._queue: queue.Queue[tuple[str, pa.Table] | None] = queue.Queue(WAITING)
        self._stopped = threading.Event()
        self._error: BaseException | None = None
        self.start()

    def put(self, name: str, table: pa.Table) -> float:
        """Queue a table; return the seconds spent waiting for room in the queue."""
        return self._send((name, table))

    def finish(self) -> dict[str, StagedFile]:
        """Wait until all tables are written, and return the files by output."""
        self._send(None)
        self.join()
        self._check()
        return {
            name: StagedFile(file.path, file.rows, file.size, tuple(self._runs[name]), file.crc)
            for name, file in self._files.items()
        }

    def stop(self) -> None:
        """Stop without finishing, and delete the files; waits for the file system for a limited time only."""
        self._stopped.set()
        with suppress(queue.Full):
            self._queue.put_nowait(None)
        self.join(timeout=PATIENCE)
        self._location.remove(self._folder)

    def _send(self, item: tuple[str, pa.Table] | None) -> float:
        begin = time.monotonic()
        while True:
            self._check()
            with suppress(queue.Full):
                self._queue.put(item, timeout=_POLL)
                return time.monotonic() - begin

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def run(self) -> None:
        """Write queued tables until the end of the queue."""
        try:
            while not self._stopped.is_set():
                item = self._queue.get()
                if item is None:
                    break
                self._write(*item)
                del item
            if not self._stopped.is_set():
                for file in self._files.values():
                    file.close()
                self._sync()
                return
        except BaseException as error:  # noqa: BLE001 -- raised in the task's loop, at its next call
            self._error = error
        for file in self._files.values():
            file.abandon()

    def _sync(self) -> None:
        with storage_errors("write", self._folder):
            self._location.sync(*(file.path for file in self._files.values()))

    def _write(self, name: str, table: pa.Table) -> None:
        file = self._files.get(name)
        if file is None:
            staged = self._outputs.staged(name)
            read = staged if self._outputs.ordered else self._outputs.final(name)
            path = f"{self._folder}/{name}.parquet"
            outputs = self._outputs
            file = ParquetFile(
                self._location.filesystem, path, staged, read, outputs.compression, checked=outputs.checked
            )
            self._files[name] = file
        if self._outputs.ordered:
            table, run = in_order(table)
            self._runs[name].append(run)
        file.write(table)
