"""Exchange two folders in one step, where the operating system supports it.

Linux has ``renameat2`` with ``RENAME_EXCHANGE``, which ext4, XFS, Btrfs, tmpfs and most local file systems know. A
reader finds one folder or the other under a name, and a process that is killed leaves both whole.
"""

from __future__ import annotations

import ctypes
import errno
import os

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2

_UNKNOWN = frozenset({errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOTTY})
"""Errors of kernels and file systems that can't exchange."""


def exchange(first: str, second: str) -> bool:
    """Exchange two local paths; return False, with nothing changed, where the system does not support it."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    done = rename(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), ctypes.c_uint(_RENAME_EXCHANGE))
    number = ctypes.get_errno()
    if done == 0:
        return True
    if number in _UNKNOWN:
        return False
    raise OSError(number, os.strerror(number), first, None, second)
