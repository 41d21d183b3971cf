"""File systems: paths inside them, what they can do, and their errors as ours."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from pyarrow import fs

from flumina.errors import FluminaError, OutputError, UsageError

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


def settle(filesystem: fs.FileSystem, path: str) -> None:
    """Have a file, or the names in a folder, on the disk, even if the power fails; where there is a disk of our own."""
    local = local_path(filesystem, path)
    if local is not None:
        descriptor = os.open(local or "/", os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def local_path(filesystem: fs.FileSystem, path: str) -> str | None:
    """The path as the operating system knows it; None where the file system is not local."""
    while isinstance(filesystem, fs.SubTreeFileSystem):
        filesystem, path = filesystem.base_fs, join(filesystem.base_path, path)
    return path if isinstance(filesystem, fs.LocalFileSystem) else None


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
