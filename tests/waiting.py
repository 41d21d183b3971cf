"""Wait for conditions in tests, without a clock of their own: a busy machine is no failure.

Tests assert no durations. Where a promise is that something does not wait, the wait it would fall into is made longer
than the time limit of tests, so that a broken promise ends there.
"""

import time
from collections.abc import Callable

FOREVER = 3600.0
"""Seconds for timeouts of the product that must not matter in a test: longer than the time limit of any test."""


def wait_until(what: str, condition: Callable[[], object], seconds: float = 500) -> None:
    """Wait for a condition; only a hang takes so long, and the error then says for what."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {seconds:g} seconds"
        time.sleep(0.02)
