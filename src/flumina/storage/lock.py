"""Lock the folder of staged files for the lifetime of the driver.

The operating system releases the lock when the process ends, however it ends. So the next driver can distinguish the
files of a killed run from the files of a live one. A lock is valid on the machine that made it: network file systems
may not share locks, so folders of other machines are left alone.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from contextlib import suppress
from pathlib import Path

LOCK = "driver.lock"
RESUMABLE = "resumable"
"""Empty file in a folder whose files belong to snapshots: only the run itself removes them."""

_TRIES = 20

_HELD: dict[str, int] = {}
"""Descriptors of the locks that this process holds, by folder."""


def make_locked(folder: str, *, resumable: bool) -> None:
    """Make a folder, and hold its lock until :func:`remove_locked`.

    Another driver may remove a folder that is not locked yet, as if its run had been killed: then it is made again.
    """
    for _ in range(_TRIES):
        if folder in _HELD:
            return
        Path(folder).mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            if resumable:
                Path(folder, RESUMABLE).touch()
            descriptor = os.open(Path(folder, LOCK), os.O_RDWR | os.O_CREAT, 0o644)
            _HELD[folder] = descriptor
            # An earlier driver of a resumed run may still hold the lock; the owner token fences it off.
            _take(descriptor, wait=not resumable)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, socket.gethostname().encode(), 0)
            if not _is_at(descriptor, folder):
                release(folder)
    if folder not in _HELD:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(Path(folder, LOCK)))


def release(folder: str) -> None:
    """Release the lock on a folder, if this process holds it."""
    descriptor = _HELD.pop(folder, None)
    if descriptor is not None:
        os.close(descriptor)


def take_over(folder: str) -> bool:
    """Lock a folder whose driver has ended; return False if the driver may still be running."""
    if folder in _HELD:
        return False
    try:
        descriptor = os.open(Path(folder, LOCK), os.O_RDWR)
    except FileNotFoundError:
        return False
    _HELD[folder] = descriptor
    host = os.pread(descriptor, 1024, 0)
    ours = host == socket.gethostname().encode() or (
        not host and [file.name for file in Path(folder).iterdir()] == [LOCK]
    )
    if ours and _take(descriptor, wait=False) and _is_at(descriptor, folder):
        return True
    release(folder)
    return False


def is_locked(folder: str) -> bool:
    """Tell whether a folder has a lock file; its driver may still be running."""
    return Path(folder, LOCK).exists()


def remove_locked(folder: str) -> None:
    """Remove a folder that holds only its lock; the lock goes last, so that the next driver can resume the removal."""
    for name in (RESUMABLE, LOCK):
        Path(folder, name).unlink(missing_ok=True)
    with suppress(FileNotFoundError):
        Path(folder).rmdir()
    release(folder)


def remove_empty(folder: str) -> None:
    """Remove an empty folder, left by a driver that was killed before it locked the folder."""
    with suppress(OSError):
        Path(folder).rmdir()


def _take(descriptor: int, *, wait: bool) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:  # another driver holds it; or the file system has no locks, and no driver takes the folder over
        return False
    return True


def _is_at(descriptor: int, folder: str) -> bool:
    """Tell whether the open lock file is still the one in the folder."""
    try:
        return os.path.samestat(os.fstat(descriptor), Path(folder, LOCK).stat())
    except FileNotFoundError:
        return False
