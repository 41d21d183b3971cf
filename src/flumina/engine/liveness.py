"""Monitor the signs of life of tasks: warn of a silent task, then end it.

Each task has a thread beside its loop that reports to the driver at an interval that the process is alive, even while
an ``update`` takes hours. A call in C that holds Python's global lock silences that thread, too. So silence causes a
warning first, and ends a task only after a timeout that the user has set or accepted.

This module uses no clock and no socket: times are passed in, in seconds.
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
"""Default of ``task_timeout=`` on Spark: seconds of silence after which a task is ended."""


@dataclass(frozen=True, slots=True)
class Liveness:
    """Interval between signs of life, and seconds of silence before a warning and before the timeout (None: never)."""

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
    """The driver's reaction to a silent task."""

    WARN = auto()
    TIMEOUT = auto()


class LivenessMonitor:
    """Monitor of one task's signs of life."""

    def __init__(self, liveness: Liveness, now: float) -> None:
        self.liveness = liveness
        self.last_sign = now
        self.warned = False

    def record(self, now: float) -> float | None:
        """Record a sign of life; return the seconds of silence before it, if there was a warning."""
        silence = now - self.last_sign if self.warned else None
        self.last_sign, self.warned = now, False
        return silence

    def check(self, now: float) -> Silence | None:
        """Return the reaction that is due at ``now``, if all signs of life until then are recorded; it warns once."""
        silence = now - self.last_sign
        timeout = self.liveness.timeout
        if timeout is not None and silence >= timeout:
            return Silence.TIMEOUT
        if not self.warned and silence >= self.liveness.warn_after:
            self.warned = True
            return Silence.WARN
        return None

    @property
    def due(self) -> float | None:
        """The next time at which a reaction may be due; None if there is none."""
        times = [] if self.warned else [self.last_sign + self.liveness.warn_after]
        if self.liveness.timeout is not None:
            times.append(self.last_sign + self.liveness.timeout)
        return min(times, default=None)
