"""The paper's mailbox taken literally deadlocks, or answers too early; our workers do neither on the same schedules."""

from __future__ import annotations

from itertools import permutations
from random import Random

import flumina as fl
from flumina.model.order import END
from flumina.plan.tree import Plan, PlanWorker
from flumina.program.base import define
from flumina.runtime.topology import ProtocolOptions
from flumina.sim.case import Case
from flumina.sim.scheduler import Simulation, judge
from tests.runtime.literal_mailbox import LiteralSystem
from tests.runtime.support import Scripted, itag, leaf, one_event, plan_of, streams


class TwoResets(fl.Program):
    """``a`` and ``b`` are independent of each other, and ``x`` depends on both."""

    a = fl.Tag()
    b = fl.Tag()
    x = fl.Tag()
    y = fl.Tag()
    depends = fl.depends((a, a), (b, b), (a, x), (b, x))
    output = "name string, count long"
    first = fl.Count()
    second = fl.Count()
    ys = fl.Count()

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        if event.tag is self.x:
            state.first += 1
            state.second += 1
        elif event.tag is self.y:
            state.ys += 1
        elif event.tag is self.a:
            emit("first", state.first)
            state.first = 0
        else:
            emit("second", state.second)
            state.second = 0


DEPENDS = ("a", "b", "ax", "bx")
SCHEDULE = [
    ("b", 4, False),
    ("b", 9, True),
    ("x", 2, False),
    ("x", 9, True),
    ("y", 9, True),
    ("a", 1, False),
    ("a", 9, True),
]
"""(tag, timestamp, heartbeat): b's event comes first, a's last, and x lies between them."""


def plan() -> Plan:
    definition = define(TwoResets)
    leaves = tuple(leaf(f"leaf {tag}", definition, itag(definition, tag, tag)) for tag in "xy")
    own = (itag(definition, "a", "a"), itag(definition, "b", "b"))
    root = PlanWorker("root", definition.initial, own, leaves)
    return plan_of(TwoResets, streams(TwoResets, a=1, b=1, x=1, y=1), root)


def case() -> Case:
    definition, tree = define(TwoResets), plan()
    at = {"a": 1, "b": 4, "x": 2}
    events = {(tag, 0): [one_event(definition, tree, tag, ts)] for tag, ts in at.items()}
    return Case(definition, tree, events | {("y", 0): []})


def literal(*, overtaking: bool) -> LiteralSystem:
    system = LiteralSystem("ab", {"leaf x": "x", "leaf y": "y"}, DEPENDS, overtaking=overtaking)
    for tag, ts, beat in SCHEDULE:
        system.send(tag, ts, beat=beat)
    return system


def ours(schedule: list[tuple[str, int, bool]], options: ProtocolOptions | None = None) -> None:
    """The same schedule with our workers, judged by the oracle."""
    run = Scripted(case(), options=options)
    for tag, ts, beat in schedule:
        run.send((tag, 0), 0 if beat else 1, ts if beat else None)
    for part in run.case.parts:
        run.send(part, 0, END)
    judge(run.case, run.run())


def test_the_literal_worker_waits_for_ever() -> None:
    """It joins for b@4; the leaf must see a's timer past x@2 first; a@1 waits after the join."""
    system = literal(overtaking=False)
    assert system.stuck
    assert str(system.root.joining) == "b@4"
    assert [str(waiting) for waiting in system.root.mailbox.released] == ["a@1"]
    assert [str(waiting) for waiting in system.leaves["leaf x"].mailbox.buffers["x"]] == ["x@2"]


def test_heartbeats_that_overtake_requests_let_a_leaf_go_on_too_early() -> None:
    """No deadlock, but x@2 is processed before a@1, which it depends on."""
    system = literal(overtaking=True)
    assert not system.stuck
    assert "a@1" not in system.leaves["leaf x"].seen["x@2"]
    assert "x@2" in system.root.seen["a@1"]


def test_the_literal_leaf_answers_too_early() -> None:
    """An independent event before the join is not in the answer: a join is no consistent snapshot."""
    system = LiteralSystem("ab", {"leaf x": "x", "leaf y": "y"}, DEPENDS, overtaking=False)
    for tag, ts, beat in [("a", 9, True), ("b", 4, False), ("x", 9, True), ("y", 3, False)]:
        system.send(tag, ts, beat=beat)
    assert system.leaves["leaf y"].given["b@4"] == ()
    assert "y@3" not in system.root.seen["b@4"]


def test_our_workers_do_neither() -> None:
    for options in (
        ProtocolOptions(),
        ProtocolOptions(hand_over=False),
        ProtocolOptions(coalesce=False, pipeline=False, hand_over=False),
    ):
        ours(SCHEDULE, options)


def test_our_workers_do_neither_in_any_order_of_the_sources() -> None:
    """All 90 interleavings of the two messages of a, b and x."""
    order: dict[str, list[tuple[str, int, bool]]] = {"a": [], "b": [], "x": []}
    for step in SCHEDULE:
        order.setdefault(step[0], []).append(step)
    for tags in sorted(set(permutations("aabbxx"))):
        left = {tag: list(steps) for tag, steps in order.items()}
        schedule = [("y", 9, True), *(left[tag].pop(0) for tag in tags)]
        ours(schedule)
        ours(schedule, ProtocolOptions(hand_over=False))


def test_our_leaf_answers_with_everything_up_to_the_point() -> None:
    """The leaf of y is independent of b, and waits for its own frontier all the same."""
    run = Scripted(case(), options=ProtocolOptions(hand_over=False))
    run.send(("a", 0), 1, 9)
    run.send(("x", 0), 1, 9)
    run.send(("b", 0), 1, 9)
    assert run.workers["leaf y"].stats.blocked == 0
    run.send(("y", 0), 0, 5)
    assert run.workers["leaf y"].stats.blocked > 0


def test_random_schedules_of_the_same_case() -> None:
    for seed in range(100):
        judge(case(), Simulation(case(), Random(seed)).run())
