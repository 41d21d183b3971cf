from pathlib import Path
from typing import Any

import pytest

import flumina as fl
from flumina.checkpoint.policy import DEFAULT_SECONDS, Checkpoint, CheckpointProgress, Policy
from flumina.errors import UsageError, UserCodeError


@pytest.mark.parametrize(
    ("policy", "before", "due"),
    [
        (Policy(seconds=2), CheckpointProgress(9, 9, 1.9, 0), CheckpointProgress(1, 0, 2.0, 0)),
        (Policy(events=10), CheckpointProgress(9, 9, 99, 0), CheckpointProgress(10, 0, 0.0, 0)),
        (Policy(syncs=3), CheckpointProgress(99, 2, 99, 0), CheckpointProgress(3, 3, 0.0, 0)),
        (
            Policy(when=lambda since: since.snapshots < 1),
            CheckpointProgress(9, 9, 9, 1),
            CheckpointProgress(1, 0, 0, 0),
        ),
        (Policy(seconds=2, events=10), CheckpointProgress(9, 9, 1.9, 0), CheckpointProgress(10, 0, 0.0, 0)),
    ],
)
def test_when_it_is_time(policy: Policy, before: CheckpointProgress, due: CheckpointProgress) -> None:
    assert not policy.due(before)
    assert policy.due(due)


def test_a_path_has_the_usual_policy() -> None:
    assert Checkpoint.of("here").policy == Policy(seconds=DEFAULT_SECONDS)
    assert Checkpoint.of(Path("here")).policy == Policy(seconds=DEFAULT_SECONDS)
    assert Checkpoint("here", events=5).policy == Policy(events=5)
    given = Checkpoint("here", syncs=5)
    assert Checkpoint.of(given) is given


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"path": ""}, "path"),
        ({"path": 3}, "path"),
        ({"seconds": 0}, "seconds"),
        ({"seconds": True}, "seconds"),
        ({"events": 0}, "events"),
        ({"events": 2.5}, "events"),
        ({"syncs": -1}, "syncs"),
        ({"keep": None}, "keep"),
        ({"keep": 0}, "keep"),
        ({"when": 3}, "when"),
    ],
)
def test_what_cannot_be_meant(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=rf"CHECKPOINT.*{says}"):
        fl.Checkpoint(**{"path": "here", **wrong})


def test_a_function_that_fails_is_named() -> None:
    def sometimes(since: CheckpointProgress) -> bool:
        return since.events / 0 > 1

    with pytest.raises(UserCodeError, match=r"sometimes.*ZeroDivisionError"):
        Policy(when=sometimes).due(CheckpointProgress(1, 1, 1, 1))


def test_who_decides_hears_often_enough() -> None:
    assert Policy(events=1600).pace == 100
    assert Policy(events=5).pace == 1
    assert Policy(syncs=1000).pace == 1
    assert Policy(when=bool).pace == 1
    assert Policy(seconds=1).pace > 1 << 60
