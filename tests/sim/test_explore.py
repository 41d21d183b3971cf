"""No schedule of these small plans ends in a deadlock or gives other outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from flumina.apps import KeyCounter, KeyCounterByHand, ValueBarrier, ValueBarrierByHand
from flumina.model.order import heartbeat
from flumina.plan.tree import Plan, PlanWorker
from flumina.plan.validity import check_valid
from flumina.program.base import AnyProgram, define
from flumina.runtime.inner import Inner
from flumina.runtime.leaf import Leaf
from flumina.runtime.messages import ForkState
from flumina.runtime.topology import ProtocolOptions
from flumina.sim.case import Case
from flumina.sim.explore import explore
from flumina.sim.invariants import SimulationError
from flumina.sim.network import UNLIMITED
from tests.sim.plans import case, itag, shape, two_leaves

PLAIN = ProtocolOptions(coalesce=False, pipeline=False, hand_over=False)
SAVING = ProtocolOptions(hand_over=False)
FULL = ProtocolOptions()


def value_barrier(program: AnyProgram) -> Case:
    rows: Mapping[tuple[str, int], Sequence[Any]] = {
        ("values", 0): [(1, "value", {"v": 1})],
        ("values", 1): [(3, "value", {"v": 2})],
        ("barriers", 0): [(2, "barrier", {}), (3, "barrier", {})],
    }
    return case(program, two_leaves(program), rows)


def three_levels() -> Case:
    """Reads of one key above, of another key below, increments in the leaves; every part has one receiver."""
    program = KeyCounterByHand
    kind = define(program).initial
    streams = [shape(program, "incs", 3, "inc"), shape(program, "reads", 2, "read")]
    ones = [PlanWorker(f"one{n}", kind, (itag(program, "incs", "inc", n, keys=[1]),)) for n in (0, 1)]
    others = PlanWorker("others", kind, (itag(program, "incs", "inc", 2, keys=[2]),))
    inner = PlanWorker("inner", kind, (itag(program, "reads", "read", 0, keys=[1]),), tuple(ones))
    root = PlanWorker("root", kind, (itag(program, "reads", "read", 1, keys=[2]),), (inner, others))
    rows = {("incs", 0): [(1, "inc", {"k": 1})], ("reads", 0): [(3, "read", {"k": 1})]}
    return case(program, Plan.of(program, streams, root), rows)


def forest(program: AnyProgram) -> Case:
    """A root without tags above a tree for one key and a leaf for another."""
    kind = define(program).initial
    streams = [shape(program, "incs", 3, "inc"), shape(program, "reads", 1, "read")]
    leaves = tuple(PlanWorker(f"inc{n}", kind, (itag(program, "incs", "inc", n, keys=[1]),)) for n in (0, 1))
    tree = PlanWorker("tree", kind, (itag(program, "reads", "read", 0, keys=[1]),), leaves)
    alone = PlanWorker("alone", kind, (itag(program, "incs", "inc", 2, keys=[2]),))
    plan = Plan.of(program, streams, PlanWorker("root", kind, (), (tree, alone)))
    rows = {
        ("incs", 0): [(1, "inc", {"k": 1})],
        ("incs", 2): [(1, "inc", {"k": 2})],
        ("reads", 0): [(2, "read", {"k": 1})],
    }
    return case(program, plan, rows)


@pytest.mark.parametrize("options", [PLAIN, SAVING, FULL], ids=["plain", "saving", "full"])
@pytest.mark.parametrize("credits_", [1, UNLIMITED])
@pytest.mark.parametrize("program", [ValueBarrier, ValueBarrierByHand])
def test_value_barrier(program: AnyProgram, options: ProtocolOptions, credits_: int) -> None:
    explored = explore(value_barrier(program), options=options, credits_=credits_)
    assert explored.schedules > 10_000
    assert explored.states < explored.deliveries < explored.schedules


@pytest.mark.parametrize("options", [PLAIN, FULL], ids=["plain", "full"])
def test_three_levels(options: ProtocolOptions) -> None:
    assert explore(three_levels(), options=options).schedules > 10_000


@pytest.mark.parametrize("program", [KeyCounter, KeyCounterByHand])
def test_forest_with_two_keys(program: AnyProgram) -> None:
    one = forest(program)
    assert explore(one, credits_=1).schedules > 10_000


def test_snapshots() -> None:
    assert explore(value_barrier(ValueBarrierByHand), snapshots=[heartbeat(2, 1)]).schedules > 10_000


def test_the_reduction_loses_no_end() -> None:
    rows: Mapping[tuple[str, int], Sequence[Any]]
    rows = {("values", 0): [(1, "value", {"v": 1})], ("barriers", 0): [(2, "barrier", {})]}
    one = case(ValueBarrierByHand, two_leaves(ValueBarrierByHand), rows)
    reduced, full = explore(one), explore(one, reduce=False)
    assert reduced.states < full.states
    assert reduced.schedules < full.schedules
    assert f"{full.schedules} schedules through {full.states} states" in str(full)


@pytest.mark.parametrize("reduce", [True, False])
def test_a_deadlock_is_found(monkeypatch: pytest.MonkeyPatch, reduce: bool) -> None:  # noqa: FBT001
    def forgetful(self: Leaf, message: ForkState) -> None:
        self.state = message.state
        if len(self.requests) > 1:
            self.requests.popleft()

    monkeypatch.setattr(Leaf, "on_fork_state", forgetful)
    with pytest.raises((SimulationError, AssertionError)):
        explore(value_barrier(ValueBarrierByHand), options=SAVING, reduce=reduce)


def test_wrong_outputs_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Inner, "may_coalesce", lambda _: True)
    with pytest.raises((SimulationError, AssertionError), match=r"outputs differ|was stopped"):
        explore(value_barrier(ValueBarrierByHand), options=SAVING)


def test_too_large_a_case_is_refused() -> None:
    with pytest.raises(SimulationError, match="more than 10 states"):
        explore(value_barrier(ValueBarrierByHand), most_states=10)


def test_the_plans_are_valid() -> None:
    for one in (value_barrier(ValueBarrier), value_barrier(ValueBarrierByHand)):
        check_valid(one.plan, one.definition)
