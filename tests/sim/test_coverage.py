"""The cases that the simulator makes are not easy ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flumina.apps import ValueBarrier
from flumina.program import define
from flumina.runtime.stats import WorkerStats
from flumina.sim.coverage import INDEPENDENT_CHILD, SINGLE, TAGGED_INNER, UNTAGGED_ROOT, Coverage, traits
from flumina.sim.trial import Setting, trial
from tests.sim.plans import two_leaves


@pytest.fixture(scope="module")
def coverage() -> Coverage:
    seen = Coverage()
    setting = Setting(events=20, faults=False)
    for seed in range(0, 4000, 4):  # the first seed of each case
        one = trial(seed, setting)
        seen.add_plan(one.case.plan, one.case.definition)
        if seed % 32 == 0:
            outcome = one.run()
            seen.add_run(one.case.plan, len(outcome.rows), outcome.stats, outcome.steps)
    return seen


def test_plans_are_of_the_kinds_in_which_something_can_go_wrong(coverage: Coverage) -> None:
    assert coverage.plans["all"] == 1000
    assert coverage.share(SINGLE) <= 1 / 10
    assert coverage.share(TAGGED_INNER) >= 1 / 3
    assert coverage.share(UNTAGGED_ROOT) >= 1 / 5
    assert coverage.share(INDEPENDENT_CHILD) >= 1 / 6


def test_runs_are_not_trivial(coverage: Coverage) -> None:
    runs, several = coverage.runs["all"], coverage.runs["several workers"]
    assert coverage.runs["with outputs"] > 0.9 * runs
    assert several > 0.85 * runs
    assert coverage.runs["joined"] > 0.8 * several
    assert coverage.runs["two or more at work"] > 0.95 * several
    assert coverage.runs["both sides at work"] > 0.9 * several


def test_what_was_covered_is_told(coverage: Coverage) -> None:
    text = str(coverage)
    assert f"{coverage.share(UNTAGGED_ROOT):4.0%} a root without tags" in text
    assert "both sides at work" in text


def test_one_busy_side_is_not_two() -> None:
    seen = Coverage()
    plan = two_leaves(ValueBarrier)
    seen.add_run(plan, 0, {"left": WorkerStats(events=3), "right": WorkerStats()}, steps=1)
    assert seen.runs == {"all": 1, "several workers": 1}
    seen.add_run(plan, 1, {"left": WorkerStats(events=3), "right": WorkerStats(events=1)}, steps=1)
    assert seen.runs["both sides at work"] == seen.runs["two or more at work"] == seen.runs["with outputs"] == 1


def test_traits_of_a_plan() -> None:
    plan = two_leaves(ValueBarrier)
    assert traits(plan, define(ValueBarrier)) == frozenset()
    leaf = replace(plan, root=plan.leaves[0])
    assert traits(leaf, define(ValueBarrier)) == {SINGLE}
