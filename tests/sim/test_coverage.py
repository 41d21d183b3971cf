"""The cases that the simulator makes are not easy ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from flumina.apps import PageViews, ValueBarrier
from flumina.model.hashing import BUCKETS
from flumina.model.tag_set import KeySet, TagSet
from flumina.plan.tree import Itag, Plan, PlanWorker
from flumina.program.base import define
from flumina.runtime.stats import WorkerStats
from flumina.sim.coverage import (
    BY_KEY,
    COLD,
    HOT,
    INDEPENDENT_CHILD,
    SINGLE,
    TAGGED_INNER,
    TIES,
    UNTAGGED_ROOT,
    Coverage,
    traits,
)
from flumina.sim.trial import Setting, trial
from tests.sim.plans import shape, two_leaves

PAGES = define(PageViews)


@pytest.fixture(scope="module")
def coverage() -> Coverage:
    seen = Coverage()
    setting = Setting(events=20, faults=False)
    for seed in range(0, 4000, 4):  # the first seed of each case
        one = trial(seed, setting)
        seen.add_case(one.case)
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


def test_a_quarter_is_about_single_keys_and_many_inputs_have_ties(coverage: Coverage) -> None:
    keyed = coverage.plans[BY_KEY]
    assert keyed >= 250
    assert coverage.plans[HOT] >= 0.5 * keyed
    assert coverage.plans[COLD] >= 0.4 * keyed
    assert coverage.share(TIES) >= 0.3


def test_runs_are_not_trivial(coverage: Coverage) -> None:
    runs, several = coverage.runs["all"], coverage.runs["several workers"]
    assert coverage.runs["with outputs"] > 0.9 * runs
    assert several > 0.85 * runs
    assert coverage.runs["joined"] > 0.7 * several, "keys that are sharded need no joins"
    assert coverage.runs["two or more at work"] > 0.95 * several
    assert coverage.runs["both sides at work"] > 0.9 * several


def test_what_was_covered_is_told(coverage: Coverage) -> None:
    text = str(coverage)
    assert f"{coverage.share(UNTAGGED_ROOT):4.0%} a root without tags" in text
    assert f"{coverage.share(BY_KEY):4.0%} of programs for single keys; of these" in text
    assert f"{coverage.plans[HOT] / coverage.plans[BY_KEY]:4.0%} with a hot key on several workers" in text
    assert f"{coverage.share(TIES):4.0%} with events that share a point" in text
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


def test_traits_of_keys() -> None:
    """Page a on two workers is hot; two leaves with other pages are shards, one leaf for all of them is not."""
    even, odd = (KeySet.from_buckets(range(n, BUCKETS, 2)) - KeySet.of("a") for n in (0, 1))

    def plan(*leaves: Sequence[Itag]) -> Plan:
        below = tuple(PlanWorker(f"w{n}", PAGES.initial, tuple(itags)) for n, itags in enumerate(leaves))
        return Plan.of(PageViews, [shape(PageViews, "views", 2, "view")], PlanWorker("root", PAGES.initial, (), below))

    def views(part: int, keys: KeySet) -> Itag:
        return Itag("views", frozenset({part}), TagSet({"view": keys}))

    hot = [views(n, KeySet.of("a")) for n in (0, 1)]
    cold = [views(n, keys) for keys in (even, odd) for n in (0, 1)]
    assert traits(plan([hot[0]], [hot[1], *cold]), PAGES) == {UNTAGGED_ROOT, BY_KEY, HOT}
    assert traits(plan([*hot, *cold[:2]], cold[2:]), PAGES) == {UNTAGGED_ROOT, BY_KEY, COLD}
    assert traits(plan(hot, cold), PAGES) == {UNTAGGED_ROOT, BY_KEY}
