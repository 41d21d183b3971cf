"""Write files and directories atomically and durably.

A file is written under a temporary name, forced to the disk, and renamed or linked; then its name is forced to
the disk. Where nothing can be renamed (object stores), it is put under its own name, in one step.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import pyarrow as pa
from pyarrow import fs

from flumina.errors import FluminaError, OutputError, UsageError
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

_TEMPORARY = re.compile(r"\.(.+)\.[0-9a-f]{16}\.tmp")

_EXCLUSIVE = frozenset({"local", "hdfs"})
"""Kinds of file system in which a new file or directory never replaces another driver's."""


def new_id() -> str:
    """Return sixteen random hexadecimal digits."""
    return secrets.token_hex(8)


def temporary_name(name: str) -> str:
    """Return a name for a file while it is written, or a directory while it is deleted."""
    return f".{name}.{new_id()}.tmp"


def target_of(name: str) -> str | None:
    """Return the name for which a temporary name was made; None if it is not one.

    >>> target_of(".a.json.0123456789abcdef.tmp"), target_of(".a.json")
    ('a.json', None)
    """
    found = _TEMPORARY.fullmatch(name)
    return None if found is None else found[1]


def replace_file(filesystem: fs.FileSystem, path: str, data: bytes, *, durable: bool = True) -> None:
    """Write a file atomically, in place of an existing one; if ``durable``, it survives a power loss on return."""
    if not can_rename(filesystem):
        put(filesystem, path, data)
        return
    with _temporary(filesystem, path, data, durable=durable) as temporary:
        filesystem.move(temporary, path)
    if durable:
        sync(filesystem, path.rpartition("/")[0])


def create_file(filesystem: fs.FileSystem, path: str, data: bytes) -> bool:
    """Write a file atomically unless it exists; return whether it was written."""
    with _temporary(filesystem, path, data, durable=True) as temporary:
        created = _name_once(filesystem, temporary, path)
    if created:
        sync(filesystem, path.rpartition("/")[0])
    return created


def _name_once(filesystem: fs.FileSystem, temporary: str, path: str) -> bool:
    """Give a temporary file its name unless another file has it."""
    new, old = local_path(filesystem, temporary), local_path(filesystem, path)
    if new is None or old is None:
        taken = exists(filesystem, path)
        if not taken:
            filesystem.move(temporary, path)
            return True
    else:
        try:
            os.link(new, old)
            taken = False
        except FileExistsError:
            taken = True
    with suppress(OSError, pa.ArrowException):
        filesystem.delete_file(temporary)
    return not taken


@contextmanager
def _temporary(filesystem: fs.FileSystem, path: str, data: bytes, *, durable: bool) -> Iterator[str]:
    """Write a file under a temporary name, for the caller to rename; delete it if that fails."""
    name = path.rpartition("/")[2]
    temporary = path.removesuffix(name) + temporary_name(name)
    try:
        put(filesystem, temporary, data)
        if durable:
            sync(filesystem, temporary)
        yield temporary
    except BaseException:
        with suppress(OSError, pa.ArrowException):
            filesystem.delete_file(temporary)
        raise


@dataclass(frozen=True)
class Directory:
    """A directory in a file system; pickled for the tasks that write to it."""

    filesystem: fs.FileSystem
    path: str

    error: ClassVar[tuple[type[FluminaError], str]] = (OutputError, "OUT_FAILED")
    """Class and condition of the errors that replace those of the file system."""

    @classmethod
    def of(cls, path: str | os.PathLike[str], option: str, filesystem: fs.FileSystem | None = None) -> Self:
        """Resolve a path or URI; a relative path is resolved in the calling process.

        ``option`` is the name of the parameter that users pass the path as, for error messages.
        """
        if not isinstance(path, str | os.PathLike):
            raise UsageError("PATH", f"{option}= is the path of a folder, got {path!r}")
        found, inside = resolve(path, filesystem, option)
        return cls(found, inside.rstrip("/") or inside)

    def exclusive(self, option: str) -> Self:
        """Return this directory if it supports exclusive creation of files; raise otherwise."""
        if self.filesystem.type_name not in _EXCLUSIVE:
            raise UsageError(
                "NO_RENAME",
                f"{option}={self.path} is in a store ({self.filesystem.type_name}) that can't rename files atomically",
                hint="use a folder on a disk that driver and executors share, or on HDFS",
            )
        return self

    @property
    def is_local(self) -> bool:
        """Tell whether the directory has a path of the operating system."""
        return local_path(self.filesystem, self.path) is not None

    def at(self, *names: str) -> str:
        """Return a path below this directory."""
        return join(self.path, *names)

    def below(self, name: str) -> Self:
        """Return a directory in this one."""
        return replace(self, path=self.at(name))

    def overlaps(self, other: Directory) -> bool:
        """Tell whether two directories are the same, or one lies in the other."""
        if self.is_local != other.is_local:
            return False
        mine, others = (os.path.realpath(d.path) if d.is_local else d.path for d in (self, other))
        return f"{mine}/".startswith(f"{others}/") or f"{others}/".startswith(f"{mine}/")

    def create(self) -> None:
        """Make the directory and its parents where they do not exist."""
        with self._errors("write to", self.path):
            if is_file(self.filesystem, self.path):
                raise UsageError("PATH", f"{self.path} is a file, where a folder is needed")
            self.filesystem.create_dir(self.path, recursive=True)

    def names(self) -> list[str]:
        """List the names in the directory, sorted; empty if it does not exist."""
        with self._errors("read", self.path):
            return sorted(info.base_name for info in list_directory(self.filesystem, self.path))

    def files(self) -> dict[str, int]:
        """List all files in and below the directory, by their relative paths, with their sizes."""
        with self._errors("read", self.path):
            found = list_directory(self.filesystem, self.path, recursive=True)
        prefix = f"{self.path}/"
        return {info.path.removeprefix(prefix): info.size for info in found if info.type == fs.FileType.File}

    def has(self, *names: str) -> bool:
        """Tell whether a file or directory of this name exists."""
        with self._errors("read", self.at(*names)):
            return exists(self.filesystem, self.at(*names))

    def size(self, name: str) -> int | None:
        """Return the size of a file in bytes; None if it does not exist."""
        with self._errors("read", self.at(name)):
            info = self.filesystem.get_file_info(self.at(name))
        return info.size if info.type == fs.FileType.File else None

    def read(self, name: str) -> bytes | None:
        """Read a file; None if it does not exist."""
        with self._errors("read", self.at(name)):
            return get(self.filesystem, self.at(name))

    def write(self, name: str, data: bytes) -> None:
        """Write a file that no other process writes, atomically and durably."""
        with self._errors("write", self.at(name)):
            replace_file(self.filesystem, self.at(name), data)

    def write_once(self, name: str, data: bytes) -> bool:
        """Write a file atomically unless it exists; return whether it was written."""
        with self._errors("write", self.at(name)):
            return create_file(self.filesystem, self.at(name), data)

    def delete(self, names: Iterable[str]) -> None:
        """Delete files as far as possible; the next owner of the directory deletes the rest."""
        for name in names:
            with suppress(OSError, pa.ArrowException):
                self.filesystem.delete_file(self.at(name))

    def remove(self, name: str) -> None:
        """Delete a file, or a directory with everything in it, as far as possible."""
        with suppress(OSError, pa.ArrowException):
            kind = self.filesystem.get_file_info(self.at(name)).type
            if kind == fs.FileType.Directory:
                self.filesystem.delete_dir(self.at(name))
            elif kind == fs.FileType.File:
                self.filesystem.delete_file(self.at(name))

    def discard(self, name: str) -> None:
        """Delete a directory that another driver may be about to move: rename it first, then delete its files."""
        aside = temporary_name(name)
        with suppress(OSError, pa.ArrowException):
            self.filesystem.move(self.at(name), self.at(aside))
            self.remove(aside)

    def remove_temporary_files(self) -> None:
        """Delete files that a crash left half written or half deleted; only the owner of the directory calls this."""
        for name in self.names():
            if target_of(name) is not None:
                self.remove(name)

    def move_in(self, staged: str, name: str) -> bool:
        """Move a staged directory to its name, atomically and durably; return False if the name is taken."""
        if self.has(name):
            return False
        with self._errors("commit", self.at(name)):
            if self.is_local:
                for found in list_directory(self.filesystem, staged, recursive=True):
                    sync(self.filesystem, found.path)
            sync(self.filesystem, staged)
            try:
                self.filesystem.move(staged, self.at(name))
            except OSError:
                if self.has(name):  # another driver was faster
                    return False
                raise
            sync(self.filesystem, self.path)
        return True

    def _errors(self, what: str, path: str) -> AbstractContextManager[None]:
        kind, condition = self.error
        return storage_errors(what, path, kind, condition)
