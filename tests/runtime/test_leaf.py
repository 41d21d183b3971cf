"""Leaves, message by message."""

from __future__ import annotations

from typing import Any

import pytest

from flumina.model.batch import Batch
from flumina.model.order import END, START, Point, heartbeat
from flumina.plan.tree import PlanWorker
from flumina.program.base import define
from flumina.runtime.build import workers
from flumina.runtime.leaf import Leaf
from flumina.runtime.messages import EVERYTHING, Credit, Data, ForkState, Item, Request, Response, Stop
from flumina.runtime.run import EMPTY, Run
from flumina.runtime.topology import ProtocolOptions
from tests.runtime.support import Chain, itag, leaf, one_event, plan_of, streams

DEFINITION = define(Chain)
KEPT = ProtocolOptions(hand_over=False)
A = ("root", "a")


def below_a(*tags: str, options: ProtocolOptions = KEPT) -> Leaf:
    """A leaf with these tags below a worker that has ``a``; x is independent of it, y is not."""
    rest = next(tag for tag in "xyz" if tag not in tags)
    sides = (
        leaf("leaf", DEFINITION, *(itag(DEFINITION, tag, tag) for tag in tags)),
        leaf("rest", DEFINITION, itag(DEFINITION, rest, rest)),
    )
    root = PlanWorker("root", DEFINITION.initial, (itag(DEFINITION, "a", "a"),), sides)
    plan = plan_of(Chain, streams(Chain, a=1, **dict.fromkeys((*tags, rest), 1)), root)
    made = workers(plan, DEFINITION, options)["leaf"]
    assert isinstance(made, Leaf)
    made.names = [shape.name for shape in plan.streams]  # type: ignore[attr-defined]
    made.plan = plan  # type: ignore[attr-defined]
    return made


def data(made: Leaf, tag: str, *ts: int, frontier: int) -> list[tuple[Any, Any]]:
    entries = [one_event(DEFINITION, made.plan, tag, at) for at in ts]  # type: ignore[attr-defined]
    run = Run([point for point, _ in entries], [event for _, event in entries]) if ts else EMPTY
    rank = made.names.index(tag)  # type: ignore[attr-defined]
    return made.handle((tag, 0), Data((tag, 0), run, heartbeat(frontier, rank))).sends


def started(*tags: str, options: ProtocolOptions = KEPT) -> Leaf:
    made = below_a(*tags, options=options)
    made.handle("root", ForkState(DEFINITION.init(), START))
    made.handle("root", Request((), START, END))
    return made


def want(made: Leaf, ts: int, frontier: int | None = None, cause: tuple[str, str] = A) -> list[tuple[Any, Any]]:
    point = Point(ts, 0, 0)
    upto = point if frontier is None else heartbeat(frontier, 0)
    return made.handle("root", Request((Item(point, cause),), upto, END)).sends


def answers(sends: list[tuple[Any, Any]]) -> list[Response]:
    return [message for _, message in sends if isinstance(message, Response)]


def test_an_independent_tag_does_not_wait_for_the_parent() -> None:
    made = started("x", "y")
    assert data(made, "x", 1, 2, frontier=2) == [(("x", 0), Credit(("x", 0), 2))]
    assert data(made, "y", 1, 2, frontier=2) == []
    assert made.first_waiting == Point(1, 2, 0)
    assert (made.state.xs, made.state.ys) == (2, 0)
    made.handle("root", Request((), heartbeat(1, 0), END))
    assert made.state.ys == 0
    made.handle("root", Request((), heartbeat(2, 0), END))
    assert (made.state.ys, made.waiting) == (1, 1)
    assert (made.stats.events, made.stats.runs) == (3, 2)


def test_a_dependent_tag_stops_at_the_request_and_the_answer_waits_for_all() -> None:
    made = started("x", "y")
    assert want(made, 5, frontier=9) == []
    data(made, "y", 1, 4, 7, frontier=8)
    assert (made.state.ys, made.waiting) == (2, 1)
    response = answers(data(made, "x", 3, 6, frontier=6))
    assert [r.point for r in response] == [Point(5, 0, 0)]
    assert (response[0].state.xs, response[0].state.ys) == (2, 2)
    assert response[0].settled == {A: Point(7, 2, -1), EVERYTHING: heartbeat(6, 1)}
    assert made.holdings() == []


def test_a_leaf_without_its_state_only_collects() -> None:
    made = started("x")
    data(made, "x", frontier=5)
    assert answers(want(made, 5))
    assert data(made, "x", 6, 7, frontier=7) == []
    assert made.waiting == 2
    assert made.handle("root", ForkState(DEFINITION.init(), Point(5, 0, 0))).sends[0][1] == Credit(("x", 0), 2)
    assert made.stats.blocked == 1


def test_settled_requests_are_dropped() -> None:
    made = started("x")
    data(made, "x", frontier=5)
    assert len(answers(want(made, 3))) == 1
    want(made, 4)
    want(made, 5)
    sends = made.handle("root", ForkState(DEFINITION.init(), Point(4, 0, 0))).sends
    assert [response.point for response in answers(sends)] == [Point(5, 0, 0)]


def test_a_state_is_not_given_twice() -> None:
    made = started("x")
    with pytest.raises(AssertionError, match="while it has it"):
        made.handle("root", ForkState(DEFINITION.init(), START))


def test_hand_over_goes_on_from_the_identity() -> None:
    made = started("x", options=ProtocolOptions())
    data(made, "x", 1, frontier=9)
    want(made, 3)
    want(made, 5)
    assert made.state.xs == 0
    data(made, "x", 10, frontier=10)
    assert made.state.xs == 1
    assert (made.stats.handed, made.stats.blocked) == (2, 0)


def test_one_answer_is_for_all_requests_of_a_point() -> None:
    """They come one by one, from another process, and there are later ones after them."""
    made = started("x", options=ProtocolOptions())
    items = tuple(Item(Point(ts, 0, 0), cause) for ts in (300, 500) for cause in (A, A, EVERYTHING))
    made.handle("root", Request(items, Point(600, 0, 0), END))
    assert [message.point.ts for message in answers(data(made, "x", 1, 400, frontier=900))] == [300, 500]
    assert made.stats.handed == 2


def test_the_most_that_ever_waited_is_counted() -> None:
    made = started("y")
    data(made, "y", 2, 3, 4, frontier=4)
    assert (made.waiting, made.stats.buffered) == (3, 3)
    made.handle("root", Request((), Point(9, 0, 0), END))
    assert (made.waiting, made.stats.buffered) == (0, 3)


def test_requests_behind_a_cut_are_forgotten_and_events_given_back() -> None:
    made = started("y", "x")
    made.handle("root", Request(tuple(Item(Point(ts, 0, 0), A) for ts in (3, 6)), Point(9, 0, 0), END))
    data(made, "y", 5, 7, frontier=8)
    effects, found = made.truncate(5)
    assert [(entry.part, [point.ts for point, _ in entry.run]) for entry in found] == [(("y", 0), [7])]
    assert not answers(effects.sends), "x may still have something before the request"
    assert [message.point.ts for message in answers(data(made, "x", frontier=9))] == [3]
    made.handle("root", ForkState(DEFINITION.init(), Point(3, 0, 0)))
    assert made.waiting == 0
    assert made.requested_points() == []
    assert made.stats.events == 1


def test_a_snapshot_to_come_holds_back_independent_tags_too() -> None:
    made = below_a("x")
    made.handle("root", ForkState(DEFINITION.init(), START))
    made.handle("root", Request((), heartbeat(9, 0), heartbeat(3, 0)))
    data(made, "x", 2, 3, 4, frontier=9)
    assert (made.state.xs, made.waiting) == (1, 2)
    sends = made.handle("root", Request((Item(heartbeat(3, 1), EVERYTHING),), heartbeat(9, 0), END)).sends
    assert answers(sends)[0].state.xs == 2


def test_stalls_name_what_blocks() -> None:
    made = started("x", "y")
    assert made.stall() is None
    data(made, "y", 1, frontier=1)  # x has not come so far either, but y is independent of it
    assert str(made.stall()).startswith("leaf waits for word from root, which is at")
    made = started("x", "y")
    want(made, 5)
    assert "leaf waits for x[0]" in str(made.stall())
    assert "what is at (5, 0, 0)" in str(made.stall())
    data(made, "x", frontier=5)
    assert "leaf waits for y[0]" in str(made.stall())
    assert answers(data(made, "y", frontier=5))
    data(made, "x", 6, frontier=6)
    assert str(made.stall()) == "leaf waits for its state from root before what is at (6, 1, 0)"


def test_stalls_look_at_the_request_only_if_it_comes_first() -> None:
    made = started("x", "y")
    want(made, 5)
    data(made, "y", 7, frontier=8)
    assert str(made.stall()).startswith("leaf waits for x[0], which is at")
    assert "what is at (5, 0, 0)" in str(made.stall())
    made = started("x", "y")
    data(made, "y", 1, frontier=8)
    made.requests.append(Item(Point(5, 0, 0), A))
    assert str(made.stall()).startswith("leaf waits for word from root")


def test_stalls_of_columns() -> None:
    made = started("x", "y")
    tags = [DEFINITION.tags["y"].event(ts=1, stream="y")]
    run = Run(batch=Batch.of_events(tags, made.names))  # type: ignore[attr-defined]
    made.handle(("y", 0), Data(("y", 0), run, START))
    assert str(made.stall()).startswith("leaf waits for y[0]")


def test_after_the_end_a_leaf_takes_nothing() -> None:
    made = started("x")
    made.handle("root", Stop())
    with pytest.raises(AssertionError, match="was stopped"):
        data(made, "x", 1, frontier=1)


def test_a_leaf_has_no_children() -> None:
    with pytest.raises(AssertionError, match="has no child nobody"):
        started("x").handle("nobody", Response(START, None, {}))
