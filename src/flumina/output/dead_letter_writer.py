"""Where a task puts rows that can't be read: one box for all its parts, whatever segments the run has.

Every gang reads its input from the first row on, also one that goes on from a snapshot. So the boxes of the gang that
comes to the end hold all dead letters, each once, and those of gangs that were lost are thrown away: snapshots need
know nothing of them.
"""

from __future__ import annotations

import threading
from dataclasses import replace

import pyarrow as pa

from flumina.input.dead_letters import SCHEMA, RejectedRows
from flumina.output.outputs import DEAD_LETTERS, Manifest, Outputs, StagedFile, to_ipc, too_much
from flumina.output.parquet_file import ParquetFile
from flumina.storage.filesystem import storage_errors

ROWS_AT_ONCE = 1 << 16


class DeadLetterWriter:
    """Takes the dead letters of one attempt of a task; parts are read by threads of their own, so any may call.

    Exactly one of :meth:`added_to` and :meth:`abandon` ends it.
    """

    def __init__(self, outputs: Outputs, task: int, attempt: str) -> None:
        self._outputs, self._task, self._attempt = outputs, task, attempt
        self._lock = threading.Lock()
        self._waiting: list[pa.Table] = []
        self._held = 0
        """Bytes that are to be sent back, where there is no place for files."""
        self._folder: str | None = None
        self._file: ParquetFile | None = None
        self.rows = 0
        """How many there are so far."""

    def put(self, refused: RejectedRows) -> None:
        """Take some; what can't be kept is an error of whoever reads the part."""
        letters = refused.dead_letters() if self._outputs.kept else None
        with self._lock:
            self.rows += len(refused)
            if letters is None:
                return
            self._waiting.append(letters)
            if self._outputs.location is None:
                self._held += letters.nbytes
                if self._held > self._outputs.inline_limit:
                    raise too_much(self._task, self._outputs.inline_limit, "dead letters")
            elif sum(map(len, self._waiting)) >= ROWS_AT_ONCE:
                self._write()

    def added_to(self, manifest: Manifest) -> Manifest:
        """What the task has written at the end, with its dead letters."""
        with self._lock:
            rows = {**manifest.rows, DEAD_LETTERS: self.rows}
            if self._outputs.location is None:
                inline = {DEAD_LETTERS: to_ipc(self._waiting)} if self._waiting else {}
                return replace(manifest, rows=rows, inline={**manifest.inline, **inline})
            self._write()
            return replace(manifest, rows=rows, files={**manifest.files, **self._finished()})

    def abandon(self) -> None:
        """Delete what was staged; never fails."""
        with self._lock:
            if self._file is not None:
                self._file.abandon()
            if self._folder is not None and self._outputs.location is not None:
                self._outputs.location.remove(self._folder)

    def _write(self) -> None:
        """What has been waiting, to the file; it is made when there is something to write."""
        location, outputs = self._outputs.location, self._outputs
        assert location is not None
        if not self._waiting:
            return
        if self._file is None:
            self._folder = location.task_directory(self._task, f"{self._attempt}-aside")
            path = f"{self._folder}/{DEAD_LETTERS}.parquet"
            self._file = ParquetFile(
                location.filesystem, path, SCHEMA, SCHEMA, outputs.compression, checked=outputs.checked
            )
        self._file.write(pa.concat_tables(self._waiting))
        self._waiting = []

    def _finished(self) -> dict[str, StagedFile]:
        file, location = self._file, self._outputs.location
        if file is None:
            return {}
        assert location is not None
        file.close()
        with storage_errors("write", file.path):
            location.sync(file.path)
        return {DEAD_LETTERS: StagedFile(file.path, file.rows, file.size, crc=file.crc)}
