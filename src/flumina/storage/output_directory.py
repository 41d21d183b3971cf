"""Where a run's files go: staged out of sight, and made visible once.

::

    file system renames folders      .../_NAME.flumina-RUN/   beside the results; one rename makes them visible
    any other (object stores)        .../NAME/_flumina-RUN/   below them; files are moved one by one, the marker last

Spark and pyarrow's datasets pass over names that begin with an underscore, so that nobody reads what is staged.

Results that are overwritten are exchanged for the new ones in one step, where the file system can. Elsewhere a driver
that is killed in the middle leaves enough for :mod:`flumina.storage.recovery` to bring the new ones to their place.
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
from flumina.storage.exchange import exchange
from flumina.storage.filesystem import can_rename, join, local_path, resolve, settle, telling

MARKER = "_SUCCESS"
"""The file that says that all results are there; it holds the id of the run that wrote them."""

READY = "ready"
"""The folder in that of staged files in which results wait for the rename that shows them."""

_REPLACED = "replaced"
"""The folder beside it with the results that are being replaced, where folders can't be exchanged."""

_PUBLISHING = "publishing.json"
"""The file there that names the files of a publication under way, where they are moved one by one."""


@dataclass(frozen=True)
class Location:
    """A folder that one run writes to, in a file system; made by :meth:`of`."""

    filesystem: fs.FileSystem
    path: str
    run: str
    staging: str
    renames: bool
    overwrite: bool = False
    lasting: bool = False
    """Whether records that outlive a loss of power vouch for files here, which then have to do so as well."""

    @staticmethod
    def of(
        path: str | os.PathLike[str],
        run: str,
        *,
        filesystem: fs.FileSystem | None = None,
        overwrite: bool = False,
        lasting: bool = False,
    ) -> Location:
        """Find the file system of a path or URI; to be called by the driver, since paths may be relative."""
        found, inside = resolve(path, filesystem)
        name = inside.rstrip("/").rpartition("/")[2]
        renames = can_rename(found) and bool(name)
        if renames and isinstance(found, fs.LocalFileSystem) and os.path.ismount(inside):
            renames = False  # what is mounted can't be renamed
        if not renames:
            staging = join(inside, f"_flumina-{run}")
        else:
            inside = inside.rstrip("/")
            staging = f"{inside.removesuffix(name)}_{name}.flumina-{run}"
        return Location(found, inside, run, staging, renames, overwrite, lasting)

    def holds(self, filesystem: fs.FileSystem, path: str) -> bool:
        """Whether a file lies here, so that it would be lost if this folder were overwritten."""
        here = self.path.rstrip("/")
        if isinstance(filesystem, fs.LocalFileSystem) and isinstance(self.filesystem, fs.LocalFileSystem):
            here, path = (os.path.realpath(each) for each in (here, path))
        elif not filesystem.equals(self.filesystem):
            return False
        return path.startswith(f"{here}/")

    def prepare(self) -> None:
        """Check before anything runs that results can go here, and make the folder for what is staged."""
        with telling("write to", self.path):
            self._check_free()
            self._make_staging()
            probe = join(self.staging, "probe")
            with self.filesystem.open_output_stream(probe) as stream:
                stream.write(b"flumina")
            self.filesystem.delete_file(probe)

    def _make_staging(self) -> None:
        above: list[str] = []
        parent = self.path.rpartition("/")[0]
        while self.lasting and parent and self.filesystem.get_file_info(parent).type == fs.FileType.NotFound:
            parent = parent.rpartition("/")[0]
            above.append(parent)
        local = local_path(self.filesystem, self.staging)
        if local is None:
            self.filesystem.create_dir(self.staging, recursive=True)
        else:
            lock.make_locked(local, resumable=self.lasting)
        for folder in above:
            with suppress(PermissionError):
                settle(self.filesystem, folder)

    def task_folder(self, task: int, attempt: str) -> str:
        """A new folder for what one attempt of a task stages; fails where nothing is staged any more."""
        folder = join(self.staging, f"{task:05d}-{attempt}")
        with telling("write to", folder):
            self.filesystem.create_dir(folder, recursive=False)
        return folder

    def settle(self, *files: str) -> None:
        """Before anybody vouches for files: have them on the disk, and all names on the way to them."""
        if self.lasting:
            for file in files:
                settle(self.filesystem, file)
            self._settle_names(files)

    def _settle_names(self, files: Iterable[str]) -> None:
        if not self.lasting:
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
                settle(self.filesystem, folder)

    def remove(self, folder: str) -> None:
        """Delete a folder with everything in it, as far as that can be done."""
        with suppress(OSError, pa.ArrowException):
            self.filesystem.delete_dir(folder)

    def discard(self) -> None:
        """Delete everything that is staged, unless it is needed to repair the results; never fails."""
        local = local_path(self.filesystem, self.staging)
        with suppress(OSError, pa.ArrowException):
            if self.interrupted:
                if local is not None:
                    lock.release(local)
            elif local is None:
                self.filesystem.delete_dir(self.staging)
            else:  # the lock last: whatever is left by a crash can be removed by the next driver
                for info in self.filesystem.get_file_info(fs.FileSelector(self.staging, allow_not_found=True)):
                    if info.type == fs.FileType.Directory:
                        self.filesystem.delete_dir(info.path)
                    elif info.base_name not in (lock.LOCK, lock.RESUMABLE):
                        self.filesystem.delete_file(info.path)
                lock.remove_locked(local)

    @property
    def interrupted(self) -> bool:
        """Whether a driver of this run has taken away old results, and not yet brought the new ones to their place."""
        if self.renames:
            there, replaced = self.filesystem.get_file_info([self.path, join(self.staging, _REPLACED)])
            return bool(there.type == fs.FileType.NotFound and replaced.type == fs.FileType.Directory)
        return self._is_publishing and not self._marked()

    @property
    def is_resumable(self) -> bool:
        """Whether snapshots vouch for staged files."""
        return bool(self.filesystem.get_file_info(join(self.staging, lock.RESUMABLE)).type != fs.FileType.NotFound)

    def finish(self) -> None:
        """Bring the results of an interrupted publication to their place, and delete what was staged."""
        lasting = replace(self, lasting=True)
        if not self.renames:
            with self.filesystem.open_input_stream(join(self.staging, _PUBLISHING)) as stream:
                lasting._finish_moves(json.loads(stream.read())["files"])
        else:
            new = self.filesystem.get_file_info(self.ready).type == fs.FileType.Directory
            self.filesystem.move(self.ready if new else join(self.staging, _REPLACED), self.path)
            settle(self.filesystem, self.path.rpartition("/")[0])
        self.discard()

    @property
    def is_published(self) -> bool:
        """Whether the results of this run are where they belong."""
        with telling("read", join(self.path, MARKER)):
            return self._marked() == self.run

    def settle_published(self) -> None:
        """Have the results, which some driver has made visible, stay so: before it is said that the run is over."""
        with telling("publish results in", self.path):
            self.settle(join(self.path, MARKER))

    def check_unpublished(self) -> None:
        """Refuse to publish a run twice."""
        if self.is_published:
            raise UsageError("PUBLISHED", f"the results of run {self.run} have been published to {self.path} before")

    @property
    def ready(self) -> str:
        """Where files are moved to become visible: still out of sight, where one rename then shows them all."""
        return join(self.staging, READY) if self.renames else self.path

    def lies(self, staged: str, name: str) -> str:
        """Where the file is that is to be seen under a name: staged, or moved by a driver that died over publishing."""
        moved = join(self.ready, name)
        with telling("read", staged):
            before, after = self.filesystem.get_file_info([staged, moved])
        return moved if before.type == fs.FileType.NotFound and after.type == fs.FileType.File else staged

    def take_back(self, names: Mapping[str, str]) -> None:
        """Undo what a driver that died has begun: files, each with its name, are staged again and go on as such."""
        moved = {staged: where for staged, name in names.items() if (where := self.lies(staged, name)) != staged}
        with telling("write to", self.staging):
            for staged, where in moved.items():
                self.filesystem.move(where, staged)
            self._settle_names(moved)
        if self.renames:
            self.remove(self.ready)

    def check_staged(self, path: str, size: int) -> None:
        """A file that a task says it wrote is there, whole."""
        with telling("read", path):
            info = self.filesystem.get_file_info(path)
        if info.type != fs.FileType.File or info.size != size:
            state = "is not there" if info.type == fs.FileType.NotFound else f"has {info.size} bytes"
            raise OutputError(
                "OUT_LOST",
                f"a task wrote {size} bytes to {path}, which {state}",
                hint="results need storage that the driver and all tasks share, and that nobody else cleans up",
            )

    def commit(self, files: Mapping[str, str]) -> None:
        """Make staged files visible, each under its name below :attr:`path`; all or none of them."""
        with telling("publish results in", self.path):
            self._check_free()
            if self.renames:
                self._rename_in(files)
            else:
                self._move_in(files)
        self.discard()

    def _rename_in(self, files: Mapping[str, str]) -> None:
        ready, there = self.ready, self._entries()
        lasting = replace(self, lasting=self.lasting or bool(there))  # else a loss of power would take old and new ones
        self._move_all(files, ready)
        lasting._mark(ready, self.run)
        if there:
            lasting.settle(*(join(ready, name) for name in files), join(ready, MARKER))
        else:
            self._settle_names([*(join(ready, name) for name in files), join(ready, MARKER)])
        if there is None:
            self.filesystem.move(ready, self.path)
        elif not self._exchange(ready):
            self._replace(ready, kept=bool(there))
        lasting.settle_published()

    def _exchange(self, ready: str) -> bool:
        """Exchange new results for old ones, which are then staged; return False where that takes several steps."""
        new, old = (local_path(self.filesystem, path) for path in (ready, self.path))
        return new is not None and old is not None and exchange(new, old)

    def _replace(self, ready: str, *, kept: bool) -> None:
        """Put new results in the place of old ones in two steps; the old ones come back if the second one fails."""
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
        """Names hold the run's id, so that old and new files can lie beside each other for a moment."""
        before = self._marked()
        lasting = replace(self, lasting=self.lasting or before is not None)
        lasting._note_publishing(files)
        if before is not None:
            lasting.settle(*(self.lies(staged, name) for name, staged in files.items()))
            self.filesystem.delete_file(join(self.path, MARKER))
        try:
            self._move_all(files, self.path)
        except BaseException:
            for name, staged in files.items():
                with suppress(OSError, pa.ArrowException):
                    self.filesystem.move(join(self.path, name), staged)  # whoever tries again finds it there
            if before is not None:
                self._mark(self.path, before)
            if all(self.lies(staged, name) == staged for name, staged in files.items()):
                self.filesystem.delete_file(join(self.staging, _PUBLISHING))
            raise
        lasting._finish_moves(files)

    def _note_publishing(self, files: Mapping[str, str]) -> None:
        """Write down what becomes visible under which name, for the driver that has to finish it."""
        note = join(self.staging, _PUBLISHING)
        written = f"{note}.new" if can_rename(self.filesystem) else note
        with self.filesystem.open_output_stream(written) as stream:
            stream.write(json.dumps({"files": dict(files)}).encode())
        if written != note:
            if self.lasting:
                settle(self.filesystem, written)
            self.filesystem.move(written, note)
            self._settle_names([note])

    def _finish_moves(self, files: Mapping[str, str]) -> None:
        self._move_all(files, self.path)
        self._settle_names(join(self.path, name) for name in files)
        self._delete_old(files)
        self._mark(self.path, self.run)
        self.settle_published()

    @property
    def _is_publishing(self) -> bool:
        return bool(self.filesystem.get_file_info(join(self.staging, _PUBLISHING)).type == fs.FileType.File)

    def _delete_old(self, files: Mapping[str, str]) -> None:
        new = {join(self.path, name) for name in files}
        for info in self.filesystem.get_file_info(fs.FileSelector(self.path, recursive=True)):
            if info.type == fs.FileType.File and info.path not in new and not self._is_staged(info):
                self.filesystem.delete_file(info.path)

    def _is_staged(self, info: fs.FileInfo) -> bool:
        return bool(info.path.removeprefix(self.path).lstrip("/").startswith("_flumina-"))

    def _move_all(self, files: Mapping[str, str], folder: str) -> None:
        for parent in sorted({join(folder, name).rpartition("/")[0] for name in files} | {folder}):
            if parent:
                self.filesystem.create_dir(parent, recursive=True)
        for name, staged in files.items():
            if self.lies(staged, name) == staged:
                self.filesystem.move(staged, join(folder, name))

    def _mark(self, folder: str, run: str) -> None:
        with self.filesystem.open_output_stream(join(folder, MARKER)) as stream:
            stream.write(f"{run}\n".encode())
        if self.lasting:
            settle(self.filesystem, join(folder, MARKER))

    def _marked(self) -> str | None:
        """The run whose results lie in the folder, if the marker is there."""
        marker = join(self.path, MARKER)
        if self.filesystem.get_file_info(marker).type != fs.FileType.File:
            return None
        with self.filesystem.open_input_stream(marker) as stream:
            text: bytes = stream.read()
        return text.decode(errors="replace").strip()

    def _entries(self) -> list[fs.FileInfo] | None:
        """What lies in the folder (None if there is no folder), but for what runs staged and this one moved."""
        kind = self.filesystem.get_file_info(self.path).type if self.path else fs.FileType.Directory
        if kind == fs.FileType.NotFound:
            return None
        if kind != fs.FileType.Directory:
            raise OutputError("OUT_EXISTS", f"{self.path} is a file", hint="out= names a folder: choose another name")
        inside = self.filesystem.get_file_info(fs.FileSelector(self.path))
        return [info for info in inside if not info.base_name.startswith("_flumina-") and not self._was_moved(info)]

    def _was_moved(self, info: fs.FileInfo) -> bool:
        """Whether this is what an attempt to publish, moving files one by one, has left here when it failed."""
        if self.renames:
            return False
        below = fs.FileSelector(info.path, recursive=True)
        files = [info] if info.type == fs.FileType.File else self.filesystem.get_file_info(below)
        return all(f.type == fs.FileType.Directory or f.base_name.endswith(f"-{self.run}.parquet") for f in files)

    def _check_free(self) -> None:
        """The folder is not there, or empty, or may be replaced and holds nothing that no run would have written."""
        there = self._entries()
        if not there:
            return
        if not self.overwrite:
            raise OutputError(
                "OUT_EXISTS",
                f"{self.path} is not empty",
                hint="choose another place for the results, or pass overwrite=True to replace what is there",
            )
        if not self._marked() and not self._is_publishing:
            raise OutputError(
                "OUT_FOREIGN",
                f"{self.path} can't be overwritten: no run has written it, as it has no {MARKER} with a run's name",
                hint="overwrite=True replaces results of a run: choose another folder, or delete this one yourself",
            )
        for info in self.filesystem.get_file_info(fs.FileSelector(self.path, recursive=True)):
            if self._is_staged(info):
                continue
            ours = info.base_name.endswith(".parquet") or info.base_name.startswith(("_", "."))
            if info.type == fs.FileType.File and not ours:
                raise OutputError(
                    "OUT_FOREIGN",
                    f"{self.path} can't be overwritten: {info.path} is no result of a run",
                    hint="overwrite=True replaces the whole folder: choose one that holds nothing else",
                )
