"""What a gang waits for before it is complete, and what Spark remembers of it."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from py4j.protocol import Py4JError

from flumina.spark.gang import Gang, Phase, Stage

SCAN, SORT = Stage(0, 0, over=True, barrier=False), Stage(1, 3, over=False, barrier=False)
WAITS, RUNS = Stage(2, 0, over=False, barrier=True), Stage(2, 4, over=False, barrier=True)
CLOSING = Stage(3, 0, over=False, barrier=False)


@pytest.mark.parametrize(
    ("stages", "slots", "text", "counts"),
    [
        ([], 4, "prepare the input", False),
        ([SORT], 4, r"prepare the input \(stage 1 of 1\)", False),
        ([SCAN, SORT], 4, r"prepare the input \(stage 2 of 2\)", False),
        ([SCAN, SORT, WAITS, CLOSING], 4, r"prepare the input \(stage 2 of 2\)", False),
        ([SCAN, WAITS, CLOSING], 4, "4 free slots at the same time: other jobs use them", False),
        ([SCAN, WAITS, CLOSING], 3, "it needs 4, and the cluster has 3", True),
        ([SCAN, SORT], 3, "it needs 4, and the cluster has 3", True),
        ([SCAN, RUNS, CLOSING], 4, "its tasks to start", True),
    ],
)
def test_time_counts_only_while_tasks_could_come(stages: list[Stage], slots: int, text: str, *, counts: bool) -> None:
    phase = Phase.of(stages, tasks=4, slots=slots)
    assert phase.counts == counts
    assert re.search(text, phase.text)


def test_time_counts_once_spark_has_refused_the_stage() -> None:
    """Slots may be back in Spark's count while it refuses the stage again and again: that must end."""
    phase = Phase.of([SCAN, SORT], tasks=4, slots=4, refused=True)
    assert phase.counts
    assert "fewer than 4" in phase.text


def forgetful(*, jobs: bool) -> Any:
    """A context whose status store has dropped what the gang asks for."""

    def evicted(_: int) -> None:
        raise Py4JError("java.util.NoSuchElementException: StageDataWrapper")

    info = None if jobs else SimpleNamespace(stageIds=[7])
    tracker = SimpleNamespace(getJobIdsForGroup=lambda _: [3], getJobInfo=lambda _: info)
    store = SimpleNamespace(lastStageAttempt=evicted)
    java = SimpleNamespace(sc=lambda: SimpleNamespace(statusStore=lambda: store))
    return SimpleNamespace(statusTracker=lambda: tracker, _jsc=java)


@pytest.mark.parametrize("jobs", [False, True], ids=["stages", "jobs"])
def test_what_spark_has_forgotten_is_not_known(*, jobs: bool) -> None:
    gang = Gang.__new__(Gang)
    gang.context, gang.group, gang.jobs = forgetful(jobs=jobs), "group", {3}
    assert gang.shuffled_bytes() is None
