"""What a task does when the checkpoint participant tells it to; whole tasks: tests/system."""

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from flumina.checkpoint.coordinator import Tally
from flumina.engine.meter import TaskMeter
from flumina.engine.task import Task
from flumina.runtime.stats import WorkerStats

PART = ("values", 0)


def task(**fields: Any) -> Task:
    """A task of which only some fields are there."""
    made = object.__new__(Task)
    for name, value in {"readers": {}, "workers": {}, "past": {}, "past_syncs": 0, "inbox": deque(), **fields}.items():
        setattr(made, name, value)
    return made


def reader(**fields: Any) -> Any:
    return SimpleNamespace(**{"ended": True, "over": True, "highest": 20, "paused": False, "limit": None, **fields})


@pytest.mark.parametrize(
    ("changed", "ts", "exhausted"),
    [
        ({}, None, True),
        ({}, 20, True),
        ({}, 19, False),
        ({"highest": None}, 19, True),
        ({"over": False}, None, False),
    ],
)
def test_a_part_has_more_if_it_has_sent_what_lies_behind_the_cut(
    changed: dict[str, Any], ts: int | None, *, exhausted: bool
) -> None:
    assert task(readers={PART: reader(**changed)}).sources_exhausted(ts) == exhausted


def test_a_segment_has_ended_when_all_parts_have() -> None:
    assert task().sources_ended()
    assert not task(readers={PART: reader(), ("barriers", 0): reader(ended=False)}).sources_ended()


def test_it_pauses_and_goes_on_up_to_a_timestamp() -> None:
    """What workers had after it is given back, for the workers of the next segment."""
    executed: list[object] = []
    data: Any = SimpleNamespace(part=PART)
    workers = {
        "w1": SimpleNamespace(passed=None, truncate=lambda ts: (f"effects up to {ts}", [data])),
        "w2": SimpleNamespace(passed=7, truncate=lambda ts: ("none", [])),
    }
    part = reader()
    here = task(readers={PART: part}, workers=workers)
    here.perform = lambda *given: executed.append(given)  # type: ignore[method-assign]
    assert here.pause() == 7
    assert part.paused
    assert here.truncate(5) == [("w1", PART, data)]
    assert (part.paused, part.limit) == (False, 5)
    assert executed == [("w1", "effects up to 5"), ("w2", "none")]
    assert here.truncate(None) == []
    assert part.limit is None
    assert task().pause() is None


def test_what_was_done_in_all_segments_is_counted() -> None:
    worker = SimpleNamespace(counting=SimpleNamespace(events=7), counted=3)
    here = task(workers={"w1": worker}, past={"w1": WorkerStats(events=10)}, past_syncs=4)
    assert here.tally() == Tally(17, 7)


def test_the_largest_state_that_was_sent_is_remembered() -> None:
    meter = TaskMeter()
    meter.start()
    meter.sent(2, 100, [])
    assert meter.largest_state is None
    for sizes in ([30, 50], [40], []):
        meter.sent(1, 60, sizes)
    assert meter.largest_state == 50
    meter.stop()
    stats = meter.stats({}, read=1, rows=2, dead_letters=3)
    assert (stats.sent_messages, stats.sent_bytes, stats.rows) == (5, 280, 2)
    assert stats.peak_memory > 0
    assert stats.seconds >= 0
