"""Named places at which a test can have this process killed; nothing happens unless the environment says so.

``FLUMINA_FAILPOINT=after-sink:2`` kills the process, as ``kill -9`` does, when it reaches ``after-sink`` in batch 2.
"""

from __future__ import annotations

import os
import signal

VARIABLE = "FLUMINA_FAILPOINT"

POINTS = (
    "after-intake",
    "after-cut",
    "before-state",
    "after-state",
    "before-sink",
    "after-sink",
    "before-commit",
    "after-commit",
)
"""In the order in which a batch reaches them."""

_armed = os.environ.get(VARIABLE)


def reach(point: str, batch: int) -> None:
    """This process is at a point of a batch."""
    assert point in POINTS, f"{point} is no failpoint"
    if _armed is not None and _armed == f"{point}:{batch}":
        os.kill(os.getpid(), signal.SIGKILL)
