"""Crashes and bad conditions: exactly once, whatever happens."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from flumina.apps import Fraud, PageViews, ValueBarrier
from flumina.model.order import heartbeat
from flumina.program.base import AnyProgram, define
from flumina.runtime import tree_root
from flumina.runtime.tree_root import TreeRoot
from flumina.sim import scheduler
from flumina.sim.case import Case
from flumina.sim.conditions import Conditions, random_conditions
from flumina.sim.crashes import Crash, run
from flumina.sim.decisions import Decisions
from flumina.sim.invariants import SimulationError
from flumina.sim.plans import random_case, random_plan
from flumina.sim.scheduler import snapshots_of
from flumina.sim.snapshot import SimSnapshot


def some_case(seed: int, program: AnyProgram) -> Case:
    return random_case(Random(seed), define(program), 40)


@pytest.mark.parametrize("program", [Fraud, PageViews, ValueBarrier])
@pytest.mark.parametrize("other_plan", [False, True])
def test_outputs_before_and_after_crashes_are_the_oracles(program: AnyProgram, other_plan: bool) -> None:  # noqa: FBT001
    early = 0
    for seed in range(40):
        random = Random(seed)
        case = some_case(seed, program)
        times = sorted({point.ts for point, _ in case.in_order})
        snapshots = [heartbeat(ts, 9) for ts in times[::4]]
        plans = [random_plan(random, case.definition, case.plan.streams) if other_plan else case.plan for _ in range(3)]
        crashes = [Crash(random.randint(1, 150), plan) for plan in plans]
        outcome = run(case, Decisions(random), crashes, snapshots=snapshots)
        assert outcome.outputs == case.outputs()
        early += len(outcome.snapshots) < len(snapshots)
    assert early >= 10, "many crashes came after a snapshot, which was then not taken again"


def test_a_crash_before_the_first_snapshot_starts_anew() -> None:
    case = some_case(1, ValueBarrier)
    outcome = run(case, Decisions(Random(1)), [Crash(3, case.plan)], snapshots=[case.in_order[-1][0]])
    assert outcome.outputs == case.outputs()
    assert len(outcome.snapshots) == 1


def test_a_crash_after_the_end_is_none() -> None:
    case = some_case(2, ValueBarrier)
    assert run(case, Decisions(Random(1)), [Crash(10**6, case.plan)]).outputs == case.outputs()


def crash_each(program: AnyProgram) -> None:
    for seed in range(50):
        case = some_case(seed, program)
        middle = case.in_order[20][0]
        run(case, Decisions(Random(seed)), [Crash(150, case.plan)], snapshots=[heartbeat(middle.ts, 9)])


def test_a_snapshot_that_changes_afterwards_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_root, "copied", lambda state: state)
    with pytest.raises(SimulationError, match="snapshot"):
        crash_each(Fraud)


def test_outputs_that_are_repeated_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot that says it is older than it is."""

    def older(case: Case, tree_root: TreeRoot) -> list[SimSnapshot]:
        return [replace(one, point=one.point._replace(ts=one.point.ts - 5)) for one in snapshots_of(case, tree_root)]

    monkeypatch.setattr(scheduler, "snapshots_of", older)
    with pytest.raises(SimulationError):
        crash_each(PageViews)


@pytest.mark.parametrize(
    "conditions",
    [
        Conditions(heartbeats=0.0),
        Conditions(heartbeats=0.02),
        Conditions(heartbeats=1.0),
        Conditions(credits=1),
        Conditions(credits=1, heartbeats=0.0, most_events=1),
        Conditions(slow=frozenset({"w1"})),
        Conditions(slow=frozenset({"w2", "w3"}), credits=2),
    ],
    ids=["silent", "late", "beating", "one credit", "one of all", "slow root", "slow children"],
)
def test_every_weather(conditions: Conditions) -> None:
    for seed in range(12):
        case = some_case(seed, (Fraud, PageViews, ValueBarrier)[seed % 3])
        assert run(case, Decisions(Random(seed)), conditions=conditions).outputs == case.outputs()


def test_slow_workers_get_their_messages_late() -> None:
    case = next(c for c in (some_case(seed, ValueBarrier) for seed in range(50)) if len(c.plan) == 3)
    leaf = case.plan.leaves[0].id
    most = [
        sum(
            run(case, Decisions(Random(seed)), conditions=Conditions(slow=slow)).stats[leaf].buffered
            for seed in range(20)
        )
        for slow in (frozenset({leaf}), frozenset(w.id for w in case.plan.workers if w.id != leaf))
    ]
    assert most[0] != most[1]


def test_random_weather_knows_its_workers() -> None:
    found = [random_conditions(Random(seed), ["a", "b"]) for seed in range(100)]
    assert {worker for conditions in found for worker in conditions.slow} == {"a", "b"}
    assert any(conditions.credits == 1 for conditions in found)
