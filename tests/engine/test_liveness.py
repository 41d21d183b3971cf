from itertools import pairwise
from typing import Any

import pytest

from flumina.engine.liveness import Liveness, LivenessMonitor, Silence, check_timeout
from flumina.errors import UsageError


def watch(liveness: Liveness, signs: list[float], until: float) -> list[tuple[float, Any]]:
    """Look whenever something is due, and hear at the given times; return what there was to do."""
    monitor = LivenessMonitor(liveness, 0.0)
    found: list[tuple[float, Any]] = []
    for before, after in pairwise([0.0, *signs, until]):
        while monitor.due is not None and before <= monitor.due < after:
            now = monitor.due
            found.append((now, monitor.check(now)))
            if found[-1][1] is Silence.TIMEOUT:
                return found
        silence = monitor.record(after) if after != until else None
        if silence is not None:
            found.append((after, silence))
    return found


def test_signs_of_life_in_time_are_all_there_is() -> None:
    assert watch(Liveness(5, 30, 60), [29.9, 59.8, 89.7], 119) == []


def test_silence_is_a_warning_once_and_the_end_only_after_the_timeout() -> None:
    assert watch(Liveness(5, 30, 600), [10], 10_000) == [(40, Silence.WARN), (610, Silence.TIMEOUT)]


def test_without_a_timeout_silence_is_a_warning_for_ever() -> None:
    assert watch(Liveness(5, 30, None), [10], 1e9) == [(40, Silence.WARN)]


def test_a_task_that_is_heard_again_is_warned_of_again() -> None:
    found = watch(Liveness(5, 30, None), [50, 55], 1000)
    assert found == [(30, Silence.WARN), (50, 50), (85, Silence.WARN)]


def test_a_timeout_shorter_than_the_warning() -> None:
    assert watch(Liveness(5, 30, 10), [8], 1000) == [(18, Silence.TIMEOUT)]


def test_looking_too_early_says_nothing() -> None:
    monitor = LivenessMonitor(Liveness(5, 30, 60), 0.0)
    assert monitor.check(29.9) is None
    assert monitor.check(30) is Silence.WARN
    assert monitor.check(59.9) is None
    assert monitor.check(60) is Silence.TIMEOUT


@pytest.mark.parametrize("given", [0, -1, True, "10", float("nan"), float("inf")])
def test_a_timeout_is_a_time(given: Any) -> None:
    with pytest.raises(UsageError, match="expected task_timeout= as a number of seconds above 0") as caught:
        check_timeout(given)
    assert repr(given) in str(caught.value)


def test_no_timeout_is_a_choice() -> None:
    assert check_timeout(None) is None
    assert check_timeout(90) == 90.0
