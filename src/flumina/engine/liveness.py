"""Signs of life of tasks, and what their absence means to the driver.

Each task has a thread beside its loop that tells the driver at an interval that the process is alive, whatever the loop
does: an ``update`` may take hours. A call in C that holds Python's lock silences that thread, too, so silence is a
warning first, and ends a task only after a timeout that the user has set or accepted.

No clock and no socket in here: times are passed in, in seconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum, auto

from flumina.errors import UsageError

INTERVAL = 5.0
"""Seconds between two signs of life of a task."""
WARN_AFTER = 30.0
"""Seconds of silence after which the driver warns."""
SPARK_TIMEOUT = 600.0
"""Seconds of silence after which a task is ended on Spark, unless told otherwise."""


@dataclass(frozen=True, slots=True)
class Liveness:
    """Set how often tasks give signs of life, and how long the driver does without; a timeout of None has no end."""

    interval: float = INTERVAL
    warn_after: float = WARN_AFTER
    timeout: float | None = None


def check_timeout(given: object) -> float | None:
    """Return ``task_timeout=`` if it is a time, or None for no timeout."""
    if given is None:
        return None
    number = isinstance(given, int | float) and not isinstance(given, bool)
    if not number or not math.isfinite(given) or given <= 0:  # type: ignore[arg-type, operator]
        raise UsageError(
            "TASK_TIMEOUT",
            f"expected task_timeout= as a number of seconds above 0, or None for no timeout, got {given!r}",
        )
    return float(given)  # type: ignore[arg-type]


class Silence(Enum):
    """Tell the driver what to do about a silent task."""

    WARN = auto()
    TIMEOUT = auto()


class LivenessMonitor:
    """Judge the silence of one task."""

    def __init__(self, liveness: Liveness, now: float) -> None:
        self.liveness = liveness
        self.heard = now
        self.warned = False

    def hear(self, now: float) -> float | None:
        """Take a sign of life; return the seconds of silence before it, if there was a warning."""
        silence = now - self.heard if self.warned else None
        self.heard, self.warned = now, False
        return silence

    def look(self, now: float) -> Silence | None:
        """Return what is due at a time up to which everything the task sent has been heard; a warning is due once."""
        silence = now - self.heard
        timeout = self.liveness.timeout
        if timeout is not None and silence >= timeout:
            return Silence.TIMEOUT
        if not self.warned and silence >= self.liveness.warn_after:
            self.warned = True
            return Silence.WARN
        return None

    @property
    def due(self) -> float | None:
        """Return when to look again if nothing is heard; None if no silence matters any more."""
        times = [] if self.warned else [self.heard + self.liveness.warn_after]
        if self.liveness.timeout is not None:
            times.append(self.heard + self.liveness.timeout)
        return min(times, default=None)
