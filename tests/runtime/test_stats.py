"""Statistics: frozen, and those of several workers add up."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from flumina.runtime.stats import StatsCounter, WorkerStats


def test_they_are_frozen() -> None:
    stats = WorkerStats(events=3)
    with pytest.raises(FrozenInstanceError):
        stats.events = 4  # type: ignore[misc]


def test_counts_add_up_and_the_high_water_mark_is_the_larger() -> None:
    total = WorkerStats(events=3, joins=1, buffered=5) + WorkerStats(events=4, forks=2, buffered=2)
    assert total == WorkerStats(events=7, joins=1, forks=2, buffered=5)
    assert total + WorkerStats() == total


def test_frozen_numbers_are_those_of_the_moment() -> None:
    counting = StatsCounter()
    counting.events = 2
    before = counting.freeze()
    counting.events += 1
    counting.coalesced += 1
    assert before == WorkerStats(events=2)
    assert counting.freeze() == WorkerStats(events=3, coalesced=1)
