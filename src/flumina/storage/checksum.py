"""Compare files with the size and CRC-32 that were recorded when they were written."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from pyarrow import fs

from flumina.errors import CheckpointError
from flumina.storage.filesystem import storage_errors

OLDER_HINT = "ask for an older snapshot (allow_older=True), or restore the file from a copy"

_PIECE = 1 << 22
_AT_ONCE = 8
"""Files that are read concurrently: reading and the checksum both release Python's global lock."""


class Checksum(NamedTuple):
    """Size and CRC-32 of a file."""

    size: int
    crc32: int

    @staticmethod
    def of(filesystem: fs.FileSystem, path: str) -> Checksum:
        """Compute the checksum of a file as it is now."""
        size = crc32 = 0
        with filesystem.open_input_stream(path) as stream:
            while piece := stream.read(_PIECE):
                size += len(piece)
                crc32 = zlib.crc32(piece, crc32)
        return Checksum(size, crc32)


def check_files(filesystem: fs.FileSystem, written: Mapping[str, Checksum]) -> None:
    """Compare files with their recorded checksums; raise for a missing or changed file."""
    with ThreadPoolExecutor(_AT_ONCE, "flumina-checksum") as threads:
        for _ in threads.map(lambda path: _check(filesystem, path, written[path]), written):
            pass


def damaged(file: str, what: str) -> CheckpointError:
    """Return the error for a file whose bytes have changed since it was written."""
    return CheckpointError("CHECKPOINT_DAMAGED", f"{file} is damaged: {what}", file=file, hint=OLDER_HINT)


def missing(path: str) -> CheckpointError:
    """Return the error for a missing file that other files refer to."""
    return CheckpointError(
        "CHECKPOINT_MISSING_FILE",
        f"{path} is missing, though other files of the checkpoint refer to it",
        file=path,
        hint="ask for an older snapshot (allow_older=True), or restore it from a copy; all tasks must reach it",
    )


def _check(filesystem: fs.FileSystem, path: str, written: Checksum) -> None:
    with storage_errors("read", path, CheckpointError, "CHECKPOINT_FAILED"):
        try:
            found = Checksum.of(filesystem, path)
        except FileNotFoundError:
            raise missing(path) from None
    if found.size != written.size:
        raise damaged(path, f"it has {found.size:,} bytes, {written.size:,} were written")
    if found != written:
        raise damaged(path, "its checksum is not the one recorded when it was written")
