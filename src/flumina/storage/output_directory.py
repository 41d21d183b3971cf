"""Stage the results of a run out of sight, and commit them in one step.

::

    file system renames directories   .../_NAME.flumina-RUN/   beside the results; one rename makes them visible
    any other (object stores)         .../NAME/_flumina-RUN/   below them; files are moved one by one, the marker last

Spark and pyarrow's datasets ignore names that begin with an underscore, so that no reader sees staged files.

Old and new results are exchanged in one step, where the file system supports it. Elsewhere a driver that is killed in
the middle leaves enough for :mod:`flumina.storage.recovery` to complete the commit.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

import pyarrow as pa
from pyarrow import fs

from flumina.errors import OutputError, UsageError
from flumina.storage import lock
from flumina.storage.directory import replace_file
from flumina.storage.filesystem import (
    can_rename,
    exists,
    get,
    is_file,
    join,
    list_directory,
    local_path,
    put,
    resolve,
    storage_errors,
    sync,
)
from flumina.storage.folder_exchange import exchange

MARKER = "_SUCCESS"
"""The file that marks results as complete; it holds the id of the run that wrote them, their owner."""

READY = "ready"
"""The folder among the staged files that a single rename turns into the results."""

_REPLACED = "replaced"
"""The folder beside it with the old results during a commit, where folders can't be exchanged."""

_COMMITTING = "commit.json"
"""The file beside it that names the files of a commit in progress, where files are moved one by one."""


@dataclass(frozen=True)
class OutputDirectory:
    """The output directory of one run; made by :meth:`of`."""

    filesystem: fs.FileSystem
    path: str
    run: str
    staging: str
    renames: bool
    overwrite: bool = False
    durable: bool = False
    """Whether snapshots refer to files here, which must then survive a power loss, as snapshots do."""

    @staticmethod
    def of(
        path: str | os.PathLike[str],
        run: str,
        *,
        filesystem: fs.FileSystem | None = None,
        overwrite: bool = False,
        durable: bool = False,
    ) -> OutputDirectory:
        """Resolve a path or URI; called by the driver, since paths may be relative."""
        found, inside = resolve(path, filesystem)
        name = inside.rstrip("/").rpartition("/")[2]
        renames = can_rename(found) and bool(name)
        if renames and isinstance(found, fs.LocalFileSystem) and os.path.ismount(inside):
            renames = False  # a mount point can't be renamed
        if not renames:
            staging = join(inside, f"_flumina-{run}")
        else:
            inside = inside.rstrip("/")
            staging = f"{inside.removesuffix(name)}_{name}.flumina-{run}"
        return OutputDirectory(found, inside, run, staging, renames, overwrite, durable)

    def contains(self, filesystem: fs.FileSystem, path: str) -> bool:
        """Tell whether a file is in this directory, so that overwriting the directory would delete the file."""
        here = self.path.rstrip("/")
        if isinstance(filesystem, fs.LocalFileSystem) and isinstance(self.filesystem, fs.LocalFileSystem):
            here, path = (os.path.realpath(each) for each in (here, path))
        elif not filesystem.equals(self.filesystem):
            return False
        return path.startswith(f"{here}/")

    def prepare(self) -> None:
        """Check that results can be written here, and make the staging directory; called before the tasks start."""
        with storage_errors("write to", self.path):
            self._check_free()
            self._make_staging()
            probe = join(self.staging, "probe")
            put(self.filesystem, probe, b"flumina")
            self.filesystem.delete_file(probe)

    def _make_staging(self) -> None:
        above: list[str] = []
        parent = self.path.rpartition("/")[0]
        while self.durable and parent and not exists(self.filesystem, parent):
            parent = parent.rpartition("/")[0]
            above.append(parent)
        local = local_path(self.filesystem, self.staging)
        if local is None:
            self.filesystem.create_dir(self.staging, recursive=True)
        else:
            lock.make_locked(local, resumable=self.durable)
        for folder in above:
            with suppress(PermissionError):
                sync(self.filesystem, folder)

    def task_directory(self, task: int, attempt: str) -> str:
        """Make the staging directory of one attempt of a task; raise if the run's staging directory is gone."""
        folder = join(self.staging, f"{task:05d}-{attempt}")
        with storage_errors("write to", folder):
            self.filesystem.create_dir(folder, recursive=False)
        return folder

    def sync(self, *files: str) -> None:
        """Force files and the directories above them to the disk, before a snapshot refers to them."""
        if self.durable:
            for file in files:
                sync(self.filesystem, file)
            self._sync_names(files)

    def _sync_names(self, files: Iterable[str]) -> None:
        if not self.durable:
            return
        outermost = self.path.rpartition("/")[0]
        folders: set[str] = set()
        for file in files:
            folder = file.rpartition("/")[0]
            while folder not in folders and len(folder) >= len(outermost):
                folders.add(folder)
                folder = folder.rpartition("/")[0]
        for folder in sorted(folders, reverse=True):
            with suppress(PermissionError):  # a folder that may be written to, but not read
                sync(self.filesystem, folder)

    def remove(self, folder: str) -> None:
        """Delete a directory with everything in it, as far as possible."""
        with suppress(OSError, pa.ArrowException):
            self.filesystem.delete_dir(folder)

    def discard(self) -> None:
        """Delete all staged files, unless they are needed to repair the results; never raises."""
        local = local_path(self.filesystem, self.staging)
        with suppress(OSError, pa.ArrowException):
            if self.interrupted:
                if local is not None:
                    lock.release(local)
            elif local is None:
                self.filesystem.delete_dir(self.staging)
            else:  # the lock last: after a crash the next driver can remove the rest
                for info in list_directory(self.filesystem, self.staging):
                    if info.type == fs.FileType.Directory:
                        self.filesystem.delete_dir(info.path)
                    elif info.base_name not in (lock.LOCK, lock.RESUMABLE):
                        self.filesystem.delete_file(info.path)
                lock.remove_locked(local)

    @property
    def interrupted(self) -> bool:
        """Tell whether a driver of this run removed the old results, and the new ones are not in place yet."""
        if self.renames:
            there, replaced = self.filesystem.get_file_info([self.path, join(self.staging, _REPLACED)])
            return bool(there.type == fs.FileType.NotFound and replaced.type == fs.FileType.Directory)
        return self._is_committing and not self._marked()

    @property
    def is_resumable(self) -> bool:
        """Tell whether snapshots refer to staged files."""
        return exists(self.filesystem, join(self.staging, lock.RESUMABLE))

    def finish(self) -> None:
        """Complete an interrupted commit, and delete the staged files."""
        durable = replace(self, durable=True)
        if not self.renames:
            note = get(self.filesystem, join(self.staging, _COMMITTING))
            assert note is not None, "a commit is recorded before files are moved"
            durable._finish_moves(json.loads(note)["files"])
        else:
            new = self.filesystem.get_file_info(self.ready).type == fs.FileType.Directory
            self.filesystem.move(self.ready if new else join(self.staging, _REPLACED), self.path)
            sync(self.filesystem, self.path.rpartition("/")[0])
        self.discard()

    @property
    def is_committed(self) -> bool:
        """Tell whether the results of this run are committed."""
        with storage_errors("read", join(self.path, MARKER)):
            return self._marked() == self.run

    def sync_committed(self) -> None:
        """Force the names of committed results to the disk, before a snapshot records the end of the run."""
        with storage_errors("commit results in", self.path):
            self.sync(join(self.path, MARKER))

    def check_not_committed(self) -> None:
        """Raise if this run has been committed before."""
        if self.is_committed:
            raise UsageError("ALREADY_COMMITTED", f"run {self.run} has already been committed to {self.path}")

    @property
    def ready(self) -> str:
        """The directory that a commit moves files to: out of sight, where a single rename then shows them all."""
        return join(self.staging, READY) if self.renames else self.path

    def locate(self, staged: str, name: str) -> str:
        """Return the current path of a file: staged, or already moved to ``name`` by a driver that died."""
        moved = join(self.ready, name)
        with storage_errors("read", staged):
            before, after = self.filesystem.get_file_info([staged, moved])
        return moved if before.type == fs.FileType.NotFound and after.type == fs.FileType.File else staged

    def restage(self, names: Mapping[str, str]) -> None:
        """Undo an incomplete commit of a driver that died: stage its files again, each given with its name."""
        moved = {staged: where for staged, name in names.items() if (where := self.locate(staged, name)) != staged}
        with storage_errors("write to", self.staging):
            for staged, where in moved.items():
                self.filesystem.move(where, staged)
            self._sync_names(moved)
        if self.renames:
            self.remove(self.ready)

    def check_staged(self, path: str, size: int) -> None:
        """Raise unless a file that a task reported exists with the reported size."""
        with storage_errors("read", path):
            info = self.filesystem.get_file_info(path)
        if info.type != fs.FileType.File or info.size != size:
            state = "is missing" if info.type == fs.FileType.NotFound else f"has {info.size} bytes"
            raise OutputError(
                "OUT_LOST",
                f"a task wrote {size} bytes to {path}, which {state}",
                hint="use storage that the driver and all tasks share, and that no other process cleans up",
            )

    def commit(self, files: Mapping[str, str]) -> None:
        """Make staged files visible, each under its name below :attr:`path`; all or none of them."""
        with storage_errors("commit results in", self.path):
            self._check_free()
            if self.renames:
                self._rename_in(files)
            else:
                self._move_in(files)
        self.discard()

    def _rename_in(self, files: Mapping[str, str]) -> None:
        ready, there = self.ready, self._entries()
        durable = replace(self, durable=self.durable or bool(there))  # else a power loss could lose old and new results
        self._move_all(files, ready)
        durable._mark(ready, self.run)
        if there:
            durable.sync(*(join(ready, name) for name in files), join(ready, MARKER))
        else:
            self._sync_names([*(join(ready, name) for name in files), join(ready, MARKER)])
        if there is None:
            self.filesystem.move(ready, self.path)
        elif not self._exchange(ready):
            self._replace(ready, kept=bool(there))
        durable.sync_committed()

    def _exchange(self, ready: str) -> bool:
        """Exchange new and old results in one step; return False where the system does not support it."""
        new, old = (local_path(self.filesystem, path) for path in (ready, self.path))
        return new is not None and old is not None and exchange(new, old)

    def _replace(self, ready: str, *, kept: bool) -> None:
        """Replace old results by new ones in two steps; restore the old ones if the second step fails."""
        replaced = join(self.staging, _REPLACED)
        if kept:
            self.filesystem.move(self.path, replaced)
        else:
            self.filesystem.delete_dir(self.path)
        try:
            self.filesystem.move(ready, self.path)
        except BaseException:
            if kept and self._marked() != self.run:  # else another driver has repaired it
                self.filesystem.move(replaced, self.path)
                raise
            if not kept:
                raise

    def _move_in(self, files: Mapping[str, str]) -> None:
        """Move files to their place one by one; old and new files coexist, as their names hold the run's id."""
        before = self._marked()
        durable = replace(self, durable=self.durable or before is not None)
        durable._note_commit(files)
        if before is not None:
            durable.sync(*(self.locate(staged, name) for name, staged in files.items()))
            self.filesystem.delete_file(join(self.path, MARKER))
        try:
            self._move_all(files, self.path)
        except BaseException:
            for name, staged in files.items():
                with suppress(OSError, pa.ArrowException):
                    self.filesystem.move(join(self.path, name), staged)  # the next try finds it there
            if before is not None:
                self._mark(self.path, before)
            if all(self.locate(staged, name) == staged for name, staged in files.items()):
                self.filesystem.delete_file(join(self.staging, _COMMITTING))
            raise
        durable._finish_moves(files)

    def _note_commit(self, files: Mapping[str, str]) -> None:
        """Record the files and names of a commit, for a driver that has to complete it."""
        note = join(self.staging, _COMMITTING)
        replace_file(self.filesystem, note, json.dumps({"files": dict(files)}).encode(), durable=self.durable)
        self._sync_names([note])

    def _finish_moves(self, files: Mapping[str, str]) -> None:
        self._move_all(files, self.path)
        self._sync_names(join(self.path, name) for name in files)
        self._delete_old(files)
        self._mark(self.path, self.run)
        self.sync_committed()

    @property
    def _is_committing(self) -> bool:
        return is_file(self.filesystem, join(self.staging, _COMMITTING))

    def _delete_old(self, files: Mapping[str, str]) -> None:
        new = {join(self.path, name) for name in files}
        for info in list_directory(self.filesystem, self.path, recursive=True):
            if info.type == fs.FileType.File and info.path not in new and not self._is_staged(info):
                self.filesystem.delete_file(info.path)

    def _is_staged(self, info: fs.FileInfo) -> bool:
        return bool(info.path.removeprefix(self.path).lstrip("/").startswith("_flumina-"))

    def _move_all(self, files: Mapping[str, str], folder: str) -> None:
        for parent in sorted({join(folder, name).rpartition("/")[0] for name in files} | {folder}):
            if parent:
                self.filesystem.create_dir(parent, recursive=True)
        for name, staged in files.items():
            if self.locate(staged, name) == staged:
                self.filesystem.move(staged, join(folder, name))

    def _mark(self, folder: str, run: str) -> None:
        put(self.filesystem, join(folder, MARKER), f"{run}\n".encode())
        if self.durable:
            sync(self.filesystem, join(folder, MARKER))

    def _marked(self) -> str | None:
        """Return the run whose results lie in the directory; None without a marker that was written to its end."""
        text = get(self.filesystem, join(self.path, MARKER))
        return None if text is None or not text.endswith(b"\n") else text.decode(errors="replace").strip()

    def _entries(self) -> list[fs.FileInfo] | None:
        """List the directory (None if it does not exist), without staged files and files this run has moved."""
        kind = self.filesystem.get_file_info(self.path).type if self.path else fs.FileType.Directory
        if kind == fs.FileType.NotFound:
            return None
        if kind != fs.FileType.Directory:
            raise OutputError("OUT_EXISTS", f"{self.path} is a file", hint="out= names a folder: choose another name")
        inside = list_directory(self.filesystem, self.path)
        return [info for info in inside if not self._is_staged(info) and not self._was_moved(info)]

    def _was_moved(self, info: fs.FileInfo) -> bool:
        """Tell whether this entry is left from a failed commit that moved files one by one."""
        if self.renames:
            return False
        if info.base_name == MARKER:
            return self._is_committing and self._marked() is None
        is_one = info.type == fs.FileType.File
        files = [info] if is_one else list_directory(self.filesystem, info.path, recursive=True)
        return all(f.type == fs.FileType.Directory or f.base_name.endswith(f"-{self.run}.parquet") for f in files)

    def _check_free(self) -> None:
        """Raise unless the directory is missing or empty, or may be overwritten and holds only results of a run."""
        there = self._entries()
        if not there:
            return
        if not self.overwrite:
            raise OutputError(
                "OUT_EXISTS",
                f"{self.path} is not empty",
                hint="choose another folder for the results, or pass overwrite=True to replace these",
            )
        if not self._marked() and not self._is_committing:
            raise OutputError(
                "OUT_FOREIGN",
                f"{self.path} can't be overwritten: it is not the result of a run (it has no {MARKER} with a run's id)",
                hint="overwrite=True replaces results of a run: choose another folder, or delete this one yourself",
            )
        for info in list_directory(self.filesystem, self.path, recursive=True):
            if self._is_staged(info):
                continue
            ours = info.base_name.endswith(".parquet") or info.base_name.startswith(("_", "."))
            if info.type == fs.FileType.File and not ours:
                raise OutputError(
                    "OUT_FOREIGN",
                    f"{self.path} can't be overwritten: {info.path} is not the result of a run",
                    hint="overwrite=True replaces the whole folder: choose one that holds nothing else",
                )
