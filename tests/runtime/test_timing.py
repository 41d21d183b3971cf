"""Statistics that need a clock: it is told to the worker, and changes nothing else."""

from __future__ import annotations

import pickle
from dataclasses import fields
from random import Random
from typing import Any

import pytest

from flumina.apps import KeyCounter, ValueBarrier, ValueBarrierByHand
from flumina.model.order import END, START, Point
from flumina.plan.tree import Plan, PlanWorker
from flumina.program.base import AnyProgram, define
from flumina.runtime.build import workers
from flumina.runtime.messages import EVERYTHING, Data, ForkState, Item, Request
from flumina.runtime.run import EMPTY, Run
from flumina.runtime.stats import StatsCounter, Wait, WorkerStats
from flumina.runtime.topology import TREE_ROOT
from tests.runtime.support import itag, leaf, one_event, plan_of, streams


def two_leaves(program: AnyProgram, above: str, below: str) -> Plan:
    definition = define(program)
    leaves = tuple(leaf(f"l{n}", definition, itag(definition, below, below, parts=[n])) for n in range(2))
    root = PlanWorker("root", definition.initial, (itag(definition, above, above),), leaves)
    return plan_of(program, streams(program, **{below: 2, above: 1}), root)


def test_a_leaf_tells_what_it_waited_for_and_how_long_events_waited() -> None:
    definition = define(ValueBarrierByHand)
    plan = two_leaves(ValueBarrierByHand, "barrier", "value")
    made = workers(plan, definition)["l0"]
    made.measure = lambda state: len(pickle.dumps(state))
    entries = [one_event(definition, plan, "value", ts, v=1) for ts in (1, 2)]
    run = Run([point for point, _ in entries], [event for _, event in entries])
    made.handle(("value", 0), Data(("value", 0), run, Point(2, 0, 0)), now=3.0)  # no state yet
    made.handle("root", ForkState(0, START), now=5.0)  # now the parent's word is missing
    barrier = Item(Point(1, 1, 0), ("root", "barrier"))
    made.handle("root", Request((barrier,), Point(3, 1, 0), END), now=8.0)  # value@1, answer: the state is away
    made.handle("root", ForkState(0, barrier.point), now=9.0)  # value@2
    stats = made.stats
    assert (stats.waited_for_state, stats.waited_for_parent) == (2.0 + 1.0, 3.0)
    assert stats.waited_for_children == stats.waited_for_events == 0
    assert stats.delay.total == stats.events == 2
    assert stats.delay.percentile(50) == pytest.approx(5.0, rel=0.1)
    assert stats.delay.percentile(100) == pytest.approx(6.0, rel=0.1)
    assert stats.state_bytes == len(pickle.dumps(1))


def test_an_inner_worker_waits_for_events_and_for_children() -> None:
    definition = define(ValueBarrierByHand)
    plan = two_leaves(ValueBarrierByHand, "barrier", "value")
    root = workers(plan, definition)["root"]
    root.handle(TREE_ROOT, ForkState(0, START), now=0.0)
    root.handle(TREE_ROOT, Request((Item(END, EVERYTHING),), END, END), now=0.0)
    root.handle(("barrier", 0), Data(("barrier", 0), EMPTY, Point(4, 1, 0)), now=3.0)
    point, event = one_event(definition, plan, "barrier", 5)
    root.handle(("barrier", 0), Data(("barrier", 0), Run([point], [event]), point), now=7.0)
    root.handle(("barrier", 0), Data(("barrier", 0), EMPTY, Point(6, 1, 0)), now=9.0)
    assert root.stats.waited_for_events == 7.0
    assert root.stats.waited_for_children == 2.0


@pytest.mark.parametrize(
    ("program", "above", "below"),
    [(ValueBarrier, "barrier", "value"), (KeyCounter, "read", "inc")],
    ids=lambda x: getattr(x, "__name__", x),
)
def test_the_time_changes_nothing_but_the_statistics(program: Any, above: str, below: str) -> None:
    definition = define(program)
    plan = two_leaves(program, above, below)
    keyed = {"k": 1} if program is KeyCounter else {}
    value = {"v": 3} if program is ValueBarrier else {}
    results = []
    for timed in (False, True):
        made = workers(plan, definition)["l1"]
        random = Random(1)
        sent = []
        messages: list[Any] = [
            ("root", ForkState(definition.init(), START)),
            ("root", Request((Item(Point(3, 1, 0), ("root", above), keyed.get("k")),), Point(9, 1, 0), END)),
        ]
        for ts in (1, 2, 4, 5):
            point, event = one_event(definition, plan, below, ts, **keyed, **value)
            messages.append(((below, 1), Data((below, 1), Run([point], [event]), point)))
        for clock, (sender, message) in enumerate(messages):
            effects = made.handle(sender, message, clock + random.random() if timed else None)
            sent.append((effects.sends, effects.outputs))
        results.append((sent, made.stats))
    assert results[0][0] == results[1][0]
    assert results[0][1].delay.total == 0
    assert results[1][1].delay.total == 4


def test_all_numbers_add_up_and_freeze() -> None:
    counting = StatsCounter()
    counting.events, counting.buffered = 3, 7
    counting.waited[Wait.STATE] += 2
    counting.delayed(0.5, 3)
    one = counting.freeze()
    counting.events = 100
    both = one + WorkerStats(events=1, buffered=2, waited_for_state=0.5)
    assert (both.events, both.buffered, both.waited_for_state, both.delay.total) == (4, 7, 2.5, 3)
    assert {wait.value for wait in Wait} <= {f.name for f in fields(WorkerStats)}
