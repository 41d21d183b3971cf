"""Lock on the folder of staged files, which the driver holds for as long as it lives.

The operating system releases the lock when the process ends, however it ends. So the next driver can tell the files of
a killed run from those of one at work. A lock counts on the machine that made it: network file systems may not share
locks, so that folders of other machines are left alone.
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

    Another driver may take a folder without a lock for that of a killed run, and remove it: then it is made again.
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
            _take(
                descriptor, wait=not resumable
            )  # of a resumed run another driver may be left, which the owner token ends
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, socket.gethostname().encode(), 0)
            if not _is_at(descriptor, folder):
                release(folder)
    if folder not in _HELD:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(Path(folder, LOCK)))


def release(folder: str) -> None:
    """Give up the lock on a folder, if this process holds it."""
    descriptor = _HELD.pop(folder, None)
    if descriptor is not None:
        os.close(descriptor)


def take_over(folder: str) -> bool:
    """Hold the lock on a folder whose driver is gone; return False if it may be at work."""
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
    """Tell whether a folder has a lock file, which may be that of a driver at work."""
    return Path(folder, LOCK).exists()


def remove_locked(folder: str) -> None:
    """Remove a folder with nothing in it but its lock, which goes last so that the next driver can go on."""
    for name in (RESUMABLE, LOCK):
        Path(folder, name).unlink(missing_ok=True)
    with suppress(FileNotFoundError):
        Path(folder).rmdir()
    release(folder)


def remove_empty(folder: str) -> None:
    """Remove a folder that a driver has made and not locked before it was killed."""
    with suppress(OSError):
        Path(folder).rmdir()


def _take(descriptor: int, *, wait: bool) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:  # held by another driver, or the file system has no locks, so that no driver takes the folder over
        return False
    return True


def _is_at(descriptor: int, folder: str) -> bool:
    """Tell whether the open lock file is still the one in the folder."""
    try:
        return os.path.samestat(os.fstat(descriptor), Path(folder, LOCK).stat())
    except FileNotFoundError:
        return False
