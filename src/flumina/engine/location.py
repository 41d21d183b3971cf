"""Where a run's files go: staged out of sight, and made visible once.

::

    file system renames folders      .../_NAME.flumina-RUN/   beside the results; one rename makes them visible
    any other (object stores)        .../NAME/_flumina-RUN/   below them; files are moved one by one, the marker last

Spark and pyarrow's datasets pass over names that begin with an underscore, so that nobody reads what is staged.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import fs

from flumina.errors import FluminaError, OutputError, UsageError

MARKER = "_SUCCESS"
"""The file that says that all results are there; it holds the id of the run that wrote them."""

READY = "ready"
"""The folder in that of staged files in which results wait for the rename that shows them."""

_RENAMES = frozenset({"local", "hdfs", "mock"})
"""Kinds of file system that rename a folder in one step."""

_HINTS = {
    errno.ENOSPC: "the disk is full: make room, or choose another place",
    errno.EDQUOT: "the quota is used up: make room, or choose another place",
    errno.EACCES: "choose a place that this user may write to",
    errno.EPERM: "choose a place that this user may write to",
    errno.EROFS: "the file system is read-only: choose another place",
    errno.ENOENT: "the folder went away: was it removed during the run, or is it not on storage that all tasks share?",
}


@contextmanager
def telling(
    what: str, path: str, kind: type[FluminaError] = OutputError, condition: str = "OUT_FAILED"
) -> Iterator[None]:
    """Errors of the file system as ours, with the path and what to do."""
    try:
        yield
    except FluminaError:
        raise
    except (OSError, pa.ArrowException) as error:
        number = getattr(error, "errno", None)
        hint = _HINTS.get(number or 0, "is the place still there, and can all tasks reach it?")
        raise kind(condition, f"can't {what} {path}: {error}", hint=hint) from error


def join(folder: str, *names: str) -> str:
    """A path inside a file system; the root of one may be the empty path.

    >>> join("", "a", "b"), join("/", "a"), join("/x/", "a")
    ('a/b', '/a', '/x/a')
    """
    return "/".join([folder.rstrip("/"), *names] if folder else names)


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
        self.filesystem.create_dir(self.staging, recursive=True)
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
        """Delete everything that is staged; never fails."""
        self.remove(self.staging)

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
        ready, replaced = self.ready, join(self.staging, "replaced")
        self._move_all(files, ready)
        self._mark(ready, self.run)
        self._settle_names([*(join(ready, name) for name in files), join(ready, MARKER)])
        there = self._entries()
        if there:
            self.filesystem.move(self.path, replaced)
        elif there is not None:
            self.filesystem.delete_dir(self.path)
        try:
            self.filesystem.move(ready, self.path)
        except BaseException:
            if there:
                self.filesystem.move(replaced, self.path)
            raise
        self.settle_published()

    def _move_in(self, files: Mapping[str, str]) -> None:
        """Names hold the run's id, so that old and new files can lie beside each other for a moment."""
        marker, before = join(self.path, MARKER), self._marked()
        if before is not None:
            self.filesystem.delete_file(marker)
        try:
            self._move_all(files, self.path)
        except BaseException:
            for name, staged in files.items():
                with suppress(OSError, pa.ArrowException):
                    self.filesystem.move(join(self.path, name), staged)  # whoever tries again finds it there
            if before is not None:
                self._mark(self.path, before)
            raise
        self._settle_names(join(self.path, name) for name in files)
        self._delete_old(files)
        self._mark(self.path, self.run)
        self.settle_published()

    def _delete_old(self, files: Mapping[str, str]) -> None:
        new = {join(self.path, name) for name in files}
        for info in self.filesystem.get_file_info(fs.FileSelector(self.path, recursive=True)):
            below = info.path.removeprefix(self.path).lstrip("/")
            if info.type == fs.FileType.File and info.path not in new and not below.startswith("_flumina-"):
                self.filesystem.delete_file(info.path)

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
        if not self._marked():
            raise OutputError(
                "OUT_FOREIGN",
                f"{self.path} can't be overwritten: no run has written it, as it has no {MARKER} with a run's name",
                hint="overwrite=True replaces results of a run: choose another folder, or delete this one yourself",
            )
        for info in self.filesystem.get_file_info(fs.FileSelector(self.path, recursive=True)):
            ours = info.base_name.endswith(".parquet") or info.base_name.startswith(("_", "."))
            if info.type == fs.FileType.File and not ours:
                raise OutputError(
                    "OUT_FOREIGN",
                    f"{self.path} can't be overwritten: {info.path} is no result of a run",
                    hint="overwrite=True replaces the whole folder: choose one that holds nothing else",
                )


def settle(filesystem: fs.FileSystem, path: str) -> None:
    """Have a file, or the names in a folder, on the disk, even if the power fails; where there is a disk of our own."""
    while isinstance(filesystem, fs.SubTreeFileSystem):
        filesystem, path = filesystem.base_fs, join(filesystem.base_path, path)
    if isinstance(filesystem, fs.LocalFileSystem):
        descriptor = os.open(path or "/", os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def can_rename(filesystem: fs.FileSystem) -> bool:
    """Whether a file or folder gets another name in one step, all of it or nothing."""
    while isinstance(filesystem, fs.SubTreeFileSystem):
        filesystem = filesystem.base_fs
    return filesystem.type_name in _RENAMES


def resolve(
    path: str | os.PathLike[str], filesystem: fs.FileSystem | None = None, option: str = "out"
) -> tuple[fs.FileSystem, str]:
    """The file system of a path or URI, and the path inside it; ``option`` is what users call the path."""
    path, condition = os.fspath(path), option.upper()
    if not path:
        raise UsageError(condition, f"{option}= is the empty path", hint="pass the path of a folder")
    try:
        if filesystem is not None:
            if not isinstance(filesystem, fs.FileSystem):
                filesystem = fs.PyFileSystem(fs.FSSpecHandler(filesystem))
            return filesystem, filesystem.normalize_path(path)
        if "://" in path or path.startswith("file:"):
            found, inside = fs.FileSystem.from_uri(path)
            return found, inside
        local = fs.LocalFileSystem()
        return local, local.normalize_path(os.path.abspath(path))  # noqa: PTH100 -- pathlib would follow links
    except (OSError, ValueError, TypeError, pa.ArrowException) as error:
        raise UsageError(
            condition,
            f"no file system can be found for {option}={path!r}: {error}",
            hint="pass a path, or filesystem= as well",
        ) from error
