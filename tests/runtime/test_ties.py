"""Events at one point: O does not order them, so they are independent, and none of them is lost or waits for ever."""

from __future__ import annotations

from random import Random

import pytest

from flumina.apps import KeyCounter
from flumina.apps.value_barrier import ValueBarrier
from flumina.model.order import Point
from flumina.model.tag_set import KeySet, TagSet
from flumina.plan.tree import Itag, PlanWorker
from flumina.program.base import define
from flumina.runtime.topology import ProtocolOptions
from flumina.sim.case import Case
from flumina.sim.plans import random_case
from flumina.sim.programs import random_program
from flumina.sim.scheduler import Simulation, judge
from tests.runtime.support import itag, leaf, one_event, plan_of, streams

OPTIONS = [
    ProtocolOptions(),
    ProtocolOptions(coalesce=False),
    ProtocolOptions(pipeline=False),
    ProtocolOptions(hand_over=False),
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_requests_at_one_point_are_answered_together(options: ProtocolOptions) -> None:
    """A child that waits for its state and one that hands over, asked twice at one point."""
    counter = define(KeyCounter)
    below = [leaf(f"l{n}", counter, itag(counter, "inc", "inc", parts=[n])) for n in range(3)]
    inner = PlanWorker("inner", counter.initial, (), (below[1], below[2]))
    root = PlanWorker("root", counter.initial, (itag(counter, "read", "read", parts=[0, 1]),), (below[0], inner))
    plan = plan_of(KeyCounter, streams(KeyCounter, inc=3, read=2), root)
    parts = {("inc", n): [one_event(counter, plan, "inc", 1, k=1)] for n in range(3)}
    parts |= {("read", n): [one_event(counter, plan, "read", 2, k=n)] for n in range(2)}
    case = Case(counter, plan, parts)
    for seed in range(30):
        judge(case, Simulation(case, Random(seed), options=options).run())


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_an_event_of_a_leaf_at_the_point_of_a_request(options: ProtocolOptions) -> None:
    """The leaf's part of the keys depends on the root's, but these two events do not."""
    counter = define(KeyCounter)
    sides = []
    for name, keys in (("left", KeySet.everything() - KeySet.of(3)), ("right", KeySet.of(3))):
        own = [Itag("inc", frozenset({0}), TagSet({"inc": keys})), Itag("read", frozenset({1}), TagSet({"read": keys}))]
        sides.append(leaf(name, counter, *own))
    root = PlanWorker("root", counter.initial, (itag(counter, "read", "read"),), tuple(sides))
    plan = plan_of(KeyCounter, streams(KeyCounter, inc=1, read=2), root)
    parts = {("inc", 0): [one_event(counter, plan, "inc", 1, k=2)]}
    parts |= {("read", n): [one_event(counter, plan, "read", 2, k=n + 1)] for n in range(2)}
    case = Case(counter, plan, parts)
    for seed in range(30):
        judge(case, Simulation(case, Random(seed), options=options).run())


def test_values_at_the_timestamp_of_the_barrier_are_all_counted() -> None:
    """The original loses one of two events of a stream that share the barrier's timestamp."""
    program = define(ValueBarrier)
    leaves = tuple(leaf(f"l{n}", program, itag(program, "value", "value", parts=[n])) for n in range(2))
    root = PlanWorker("root", program.initial, (itag(program, "barrier", "barrier"),), leaves)
    for counts in ({"value": 2, "barrier": 1}, {"barrier": 1, "value": 2}):
        plan = plan_of(ValueBarrier, streams(ValueBarrier, **counts), root)
        values = [one_event(program, plan, "value", 5, seq, v=10**seq) for seq in range(3)]
        barriers = [one_event(program, plan, "barrier", ts) for ts in (5, 6)]
        case = Case(program, plan, {("value", 0): values, ("value", 1): values[:2], ("barrier", 0): barriers})
        for seed in range(30):
            outcome = Simulation(case, Random(seed)).run()
            judge(case, outcome)
            totals = sorted(int(values.strip("(,)")) for _, values, _ in outcome.outputs.elements())
            assert totals == [0, 122]


def test_random_cases_with_ties_and_snapshots_at_events() -> None:
    tied = 0
    for seed in range(120):
        random = Random(seed)
        case = random_case(random, define(random_program(random)), 30)
        points = [point for point, _ in case.in_order]
        tied += len(set(points)) < len(points)
        options = ProtocolOptions(*(random.random() < 0.7 for _ in range(3)))
        snapshots: list[Point] = sorted(set(random.sample(points, random.choice((0, 1, 3)))))
        judge(case, Simulation(case, random, options=options, snapshots=snapshots).run())
    assert tied > 30
