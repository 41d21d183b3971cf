"""Write the dead letters of a task: one writer for all its parts, over all epochs.

Every gang reads its input from the first row on, also a gang that resumes from a snapshot. So the writers of the last
gang hold all dead letters, each once, and the files of earlier gangs are deleted: snapshots need not record them.
"""

from __future__ import annotations

import threading
from dataclasses import replace

import pyarrow as pa

from flumina.input.dead_letters import SCHEMA, RejectedRows
from flumina.output.parquet_file import ParquetFile
from flumina.output.staged_outputs import DEAD_LETTERS, Manifest, Outputs, StagedFile, to_ipc, too_much
from flumina.storage.filesystem import storage_errors

ROWS_AT_ONCE = 1 << 16


class DeadLetterWriter:
    """Writer for the dead letters of one attempt of a task; thread-safe, since each part is read by a thread.

    Exactly one of :meth:`added_to` and :meth:`abandon` ends it.
    """

    def __init__(self, outputs: Outputs, task: int, attempt: str) -> None:
        self._outputs, self._task, self._attempt = outputs, task, attempt
        self._lock = threading.Lock()
        self._waiting: list[pa.Table] = []
        self._held = 0
        """Bytes to send back to the driver, where there is no output directory."""
        self._folder: str | None = None
        self._file: ParquetFile | None = None
        self.rows = 0
        """Number of dead letters so far."""

    def put(self, refused: RejectedRows) -> None:
        """Add rejected rows; raise in the source reader if they can't be stored."""
        dead_letters = refused.dead_letters() if self._outputs.kept else None
        with self._lock:
            self.rows += len(refused)
            if dead_letters is None:
                return
            self._waiting.append(dead_letters)
            if self._outputs.location is None:
                self._held += dead_letters.nbytes
                if self._held > self._outputs.inline_limit:
                    raise too_much(self._task, self._outputs.inline_limit, "dead letters")
            elif sum(map(len, self._waiting)) >= ROWS_AT_ONCE:
                self._write()

    def added_to(self, manifest: Manifest) -> Manifest:
        """Finish writing, and return the manifest with the dead letters added."""
        with self._lock:
            rows = {**manifest.rows, DEAD_LETTERS: self.rows}
            if self._outputs.location is None:
                inline = {DEAD_LETTERS: to_ipc(self._waiting)} if self._waiting else {}
                return replace(manifest, rows=rows, inline={**manifest.inline, **inline})
            self._write()
            return replace(manifest, rows=rows, files={**manifest.files, **self._finished()})

    def abandon(self) -> None:
        """Delete the staged file; never raises."""
        with self._lock:
            if self._file is not None:
                self._file.abandon()
            if self._folder is not None and self._outputs.location is not None:
                self._outputs.location.remove(self._folder)

    def _write(self) -> None:
        """Write the waiting rows to the file, which is created for the first of them."""
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
