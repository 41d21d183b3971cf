"""Two thousand runs over all apps and random programs, faults included, and what a seed means."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from random import Random

import pytest

from flumina.apps import ValueBarrier
from flumina.program.base import define
from flumina.runtime.topology import ProtocolOptions
from flumina.sim.decisions import Decisions
from flumina.sim.trial import Setting, trial

SCHEDULES, PIECES = 2000, 8


@pytest.mark.parametrize("piece", range(PIECES))
def test_every_run_gives_the_outputs_of_the_oracle(piece: int) -> None:
    setting = Setting(events=30)
    for seed in range(piece * SCHEDULES // PIECES, (piece + 1) * SCHEDULES // PIECES):
        trial(seed, setting).run()


def test_a_seed_is_one_run() -> None:
    for seed in range(0, 400, 37):
        one, decisions = trial(seed), trial(seed).decisions()
        first = one.run(decisions)
        again = trial(seed, Setting(program=one.case.definition))
        assert (again.options, again.conditions, again.snapshots) == (one.options, one.conditions, one.snapshots)
        second = trial(seed).run(Decisions(given=decisions.made))
        assert (second.steps, second.outputs) == (first.steps, first.outputs)


def test_a_seed_is_one_run_in_every_process() -> None:
    """Text hashes differ from process to process; nothing may depend on the order of a set."""
    command = [sys.executable, "-m", "flumina", "sim", "flumina.apps:PageViews", "--seed", "1", "--trace"]
    traces = [
        subprocess.run(
            command, env={**os.environ, "PYTHONHASHSEED": hashes}, capture_output=True, text=True, check=True
        ).stdout.partition(" runs without")[0]
        for hashes in ("1", "2")
    ]
    assert len(traces[0]) > 5000
    assert traces[0] == traces[1]


def test_seeds_differ_in_everything() -> None:
    trials = [trial(seed) for seed in range(640)]
    assert len({one.options for one in trials}) == 16
    assert len({one.conditions for one in trials}) > 200
    assert any(one.crashes for one in trials)
    assert any(crash.plan != one.case.plan for one in trials for crash in one.crashes)
    assert any(one.conditions.slow for one in trials)
    assert any(one.conditions.heartbeats == 0 for one in trials)
    assert any(one.conditions.credits == 1 for one in trials)
    programs = Counter(one.case.definition.name for one in trials)
    assert programs["RandomProgram"] == 320
    assert programs["RandomKeyedProgram"] == 160
    assert any(point == p for one in trials for point in one.snapshots for p, _ in one.case.in_order)
    assert len({id(one.case.definition) for one in trials}) == 20


def test_all_apps_have_their_turn() -> None:
    names = {trial(seed).case.definition.name for seed in range(96, 32 * 4 * 40, 128)}
    assert {"Fraud", "KeyCounter", "PageViews", "ValueBarrier", "ValueBarrierByHand", "SmartHome"} <= names
    assert "Outliers" not in names, "slow"


def test_settings_are_kept() -> None:
    options = ProtocolOptions(coalesce=False)
    setting = Setting(define(ValueBarrier), 25, options, faults=False)
    for seed in range(40):
        one = trial(seed, setting)
        assert one.case.definition.name == "ValueBarrier"
        assert len(one.case.in_order) == 25
        assert one.options == options
        assert not one.crashes


def test_no_events_at_all() -> None:
    for seed in range(20):
        outcome = trial(seed, Setting(events=0)).run(Decisions(Random(seed)))
        assert not outcome.rows
