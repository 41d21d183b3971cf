"""Every failure that was ever kept passes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flumina.runtime.inner import Inner
from tests.sim.mutants import MUTANTS
from tests.sim.regressions import SCHEDULES, load

FOLDER = Path(__file__).parents[1] / "sim_failures"
FILES = sorted(FOLDER.glob("*.json"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_stays_fixed(path: Path) -> None:
    regression = load(path)
    explored = regression.replay()
    assert len(regression.about) > 20
    if regression.small:
        assert len(regression.trials) == SCHEDULES
        assert explored is not None
        assert explored.schedules > 1000


def test_there_are_some() -> None:
    assert len(FILES) >= 5


def test_the_bug_behind_the_first_file_is_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    path = FOLDER / "end_coalesced_above_a_leaf_that_hands_over.json"
    monkeypatch.setattr(Inner, "is_late", lambda *_: False)
    with pytest.raises(AssertionError, match="was stopped and got Response"):
        load(path).replay()


def test_the_bug_behind_the_snapshot_at_an_event_is_found_again() -> None:
    with MUTANTS["ties_apart"].alive(), pytest.raises(AssertionError, match="right answered"):
        load(FOLDER / "snapshot_at_an_event.json").replay()


def test_a_seed_with_switches(tmp_path: Path) -> None:
    path = tmp_path / "seed.json"
    path.write_text(json.dumps({"about": "?", "seed": 9, "events": 10, "options": {"pipeline": False}}))
    regression = load(path)
    assert (regression.trials[0].seed, regression.trials[0].options.pipeline, regression.small) == (9, False, False)
    assert regression.replay() is None
