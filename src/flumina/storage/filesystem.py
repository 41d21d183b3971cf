"""Resolve paths and URIs to file systems, and perform the operations that every other module builds on.

One function for each operation: :func:`put`, :func:`sync`, :func:`list_directory`, :func:`can_rename`. Directories that
are written atomically (:mod:`flumina.storage.directory`) and results of runs (:mod:`flumina.storage.output_directory`)
call these and no others.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from pyarrow import fs

from flumina.errors import FluminaError, OutputError, UsageError

_RENAMES = frozenset({"local", "hdfs", "mock"})
"""Kinds of file system that rename a file or directory in one step."""

_HINTS = {
    errno.ENOSPC: "the disk is full: make room, or choose another place",
    errno.EDQUOT: "the quota is used up: make room, or choose another place",
    errno.EACCES: "choose a place that this user may write to",
    errno.EPERM: "choose a place that this user may write to",
    errno.EROFS: "the file system is read-only: choose another place",
    errno.ENOENT: "the folder went away: was it removed during the run, or is it not on storage that all tasks share?",
}


@contextmanager
def storage_errors(
    what: str, path: str, kind: type[FluminaError] = OutputError, condition: str = "OUT_FAILED"
) -> Iterator[None]:
    """Convert errors of the file system to a :class:`FluminaError` with the path and a hint."""
    try:
        yield
    except FluminaError:
        raise
    except (OSError, pa.ArrowException) as error:
        number = getattr(error, "errno", None)
        hint = _HINTS.get(number or 0, "is the place still there, and can all tasks reach it?")
        raise kind(condition, f"can't {what} {path}: {error}", hint=hint) from error


def join(directory: str, *names: str) -> str:
    """Join path segments inside a file system, whose root may be the empty path.

    >>> join("", "a", "b"), join("/", "a"), join("/x/", "a")
    ('a/b', '/a', '/x/a')
    """
    return "/".join([directory.rstrip("/"), *names] if directory else names)


def put(filesystem: fs.FileSystem, path: str, data: bytes) -> None:
    """Write a file in place: atomic in object stores only; other file systems may show half of it."""
    with filesystem.open_output_stream(path) as stream:
        stream.write(data)


def get(filesystem: fs.FileSystem, path: str) -> bytes | None:
    """Read a file; None if it does not exist."""
    try:
        with filesystem.open_input_stream(path) as stream:
            data: bytes = stream.read()
    except FileNotFoundError:
        return None
    return data


def sync(filesystem: fs.FileSystem, path: str) -> None:
    """Force a file, or the names in a directory, to the disk, if the file system is local."""
    local = local_path(filesystem, path)
    if local is not None:
        descriptor = os.open(local or "/", os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def list_directory(filesystem: fs.FileSystem, path: str, *, recursive: bool = False) -> list[fs.FileInfo]:
    """List the current entries of a directory; empty if it does not exist."""
    forget_cached(filesystem)
    found: list[fs.FileInfo] = filesystem.get_file_info(
        fs.FileSelector(path, allow_not_found=True, recursive=recursive)
    )
    return found


def exists(filesystem: fs.FileSystem, path: str) -> bool:
    """Tell whether a file or directory exists."""
    return bool(filesystem.get_file_info(path).type != fs.FileType.NotFound)


def is_file(filesystem: fs.FileSystem, path: str) -> bool:
    """Tell whether a path is that of a file."""
    return bool(filesystem.get_file_info(path).type == fs.FileType.File)


def local_path(filesystem: fs.FileSystem, path: str) -> str | None:
    """Return the path as the operating system knows it; None where the file system is not local."""
    while isinstance(filesystem, fs.SubTreeFileSystem):
        filesystem, path = filesystem.base_fs, join(filesystem.base_path, path)
    return path if isinstance(filesystem, fs.LocalFileSystem) else None


def can_rename(filesystem: fs.FileSystem) -> bool:
    """Tell whether the file system renames a file or directory atomically."""
    while isinstance(filesystem, fs.SubTreeFileSystem):
        filesystem = filesystem.base_fs
    return filesystem.type_name in _RENAMES


def resolve(
    path: str | os.PathLike[str], filesystem: fs.FileSystem | None = None, option: str = "out"
) -> tuple[fs.FileSystem, str]:
    """Return the file system of a path or URI, and the path inside it.

    ``option`` is the name of the parameter that users pass the path as, for error messages.
    """
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


def forget_cached(filesystem: fs.FileSystem) -> None:
    """Drop the listings that file systems of fsspec cache: they would hide files of other processes."""
    while isinstance(filesystem, fs.SubTreeFileSystem):
        filesystem = filesystem.base_fs
    if isinstance(filesystem, fs.PyFileSystem) and isinstance(filesystem.handler, fs.FSSpecHandler):
        filesystem.handler.fs.invalidate_cache()
