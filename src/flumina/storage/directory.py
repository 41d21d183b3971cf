"""Small files that are there whole or not at all, and that survive a crash once they are.

On a local disk a file is written beside its place, forced to the disk, and renamed or linked. Elsewhere (HDFS) it is
written beside its place and moved. Stores that can't rename are refused: nothing there happens at once.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs

from flumina.errors import UsageError
from flumina.storage.filesystem import join, resolve, settle, telling

_BESIDE = re.compile(r"\..+\.[0-9a-f]{12}")
"""Names of files that are not finished."""

Bytes = Any
"""Bytes, a memoryview, or a buffer of Arrow."""


@dataclass(frozen=True)
class Folder:
    """A folder in a file system that renames."""

    filesystem: fs.FileSystem
    path: str

    @staticmethod
    def of(path: str | os.PathLike[str], what: str) -> Folder:
        """The folder of a path or URI; ``what`` is the option that names it."""
        if not isinstance(path, str | os.PathLike):
            raise UsageError("PATH", f"{what}= is the path of a folder, got {path!r}")
        found, inside = resolve(path, None, what)
        if found.type_name not in ("local", "hdfs"):
            raise UsageError(
                "NO_RENAME",
                f"{what}={path} lies in a store ({found.type_name}) that can't rename, so that nothing there happens "
                "at once",
                hint="use a folder on a disk that driver and executors share, or on HDFS",
            )
        return Folder(found, inside.rstrip("/"))

    @property
    def local(self) -> bool:
        """Whether this is a disk of this machine (or looks like one)."""
        return isinstance(self.filesystem, fs.LocalFileSystem)

    def at(self, *names: str) -> str:
        """A path below."""
        return join(self.path, *names)

    def below(self, name: str) -> Folder:
        """A folder in this one."""
        return Folder(self.filesystem, self.at(name))

    def meets(self, other: Folder) -> bool:
        """Whether two folders are the same, or one lies in the other."""
        if self.local != other.local:
            return False
        mine, others = (os.path.realpath(f.path) if f.local else f.path for f in (self, other))
        return f"{mine}/".startswith(f"{others}/") or f"{others}/".startswith(f"{mine}/")

    def make(self) -> None:
        """Be there."""
        with telling("write to", self.path):
            if self.filesystem.get_file_info(self.path).type == fs.FileType.File:
                raise UsageError("PATH", f"{self.path} is a file, where a folder is needed")
            self.filesystem.create_dir(self.path, recursive=True)

    def sweep(self) -> None:
        """Take away what a crash has left half written, in a folder that is ours."""
        for name in self.names():
            if _BESIDE.fullmatch(name):
                self.remove(name)

    def names(self) -> list[str]:
        """What lies here, in order."""
        with telling("read", self.path):
            found = self.filesystem.get_file_info(fs.FileSelector(self.path, allow_not_found=True))
        return sorted(info.base_name for info in found)

    def has(self, *names: str) -> bool:
        """Whether something is there under this name."""
        with telling("read", self.at(*names)):
            return bool(self.filesystem.get_file_info(self.at(*names)).type != fs.FileType.NotFound)

    def read(self, name: str) -> bytes | None:
        """A file, if it is there."""
        if not self.has(name):
            return None
        with telling("read", self.at(name)), self.filesystem.open_input_file(self.at(name)) as file:
            found: bytes = file.readall()
            return found

    def write(self, name: str, pieces: Iterable[Bytes], *, once: bool = False) -> bool:
        """Write a file, all of it or nothing; with ``once`` only if there is none yet, and False if there is."""
        with telling("write", self.at(name)):
            return self._local_write(name, pieces, once=once) if self.local else self._move_in(name, pieces, once=once)

    def _local_write(self, name: str, pieces: Iterable[Bytes], *, once: bool) -> bool:
        target = Path(self.at(name))
        beside = target.with_name(f".{name}.{uuid.uuid4().hex[:12]}")
        with beside.open("wb") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        try:
            if once:
                os.link(beside, target)
            else:
                beside.replace(target)
        except FileExistsError:
            return False
        finally:
            with suppress(FileNotFoundError):
                beside.unlink()
        settle(self.filesystem, self.path)
        return True

    def _move_in(self, name: str, pieces: Iterable[Bytes], *, once: bool) -> bool:
        beside = self.at(f".{name}.{uuid.uuid4().hex[:12]}")
        with self.filesystem.open_output_stream(beside) as file:
            for piece in pieces:
                file.write(piece)
        if self.has(name):
            if once:
                self.filesystem.delete_file(beside)
                return False
            self.filesystem.delete_file(self.at(name))
        self.filesystem.move(beside, self.at(name))
        return True

    def move_folder(self, staged: str, name: str) -> bool:
        """Make a folder visible under a name, at once and for good; False if there is one already, which then stays."""
        if self.has(name):
            return False
        with telling("publish", self.at(name)):
            inside = self.filesystem.get_file_info(fs.FileSelector(staged, recursive=True)) if self.local else ()
            for found in inside:
                settle(self.filesystem, found.path)
            settle(self.filesystem, staged)
            try:
                self.filesystem.move(staged, self.at(name))
            except OSError:
                if self.has(name):  # somebody else was faster
                    return False
                raise
            settle(self.filesystem, self.path)
        return True

    def remove(self, name: str) -> None:
        """Delete a file or a folder, as far as that can be done."""
        with suppress(OSError, pa.ArrowException):
            kind = self.filesystem.get_file_info(self.at(name)).type
            if kind == fs.FileType.Directory:
                self.filesystem.delete_dir(self.at(name))
            elif kind == fs.FileType.File:
                self.filesystem.delete_file(self.at(name))

    def discard(self, name: str) -> None:
        """Delete a folder that somebody may be about to move: it loses its name at once, then its files."""
        aside = f".{name}.{uuid.uuid4().hex[:12]}"
        with suppress(OSError, pa.ArrowException):
            self.filesystem.move(self.at(name), self.at(aside))
            self.remove(aside)
