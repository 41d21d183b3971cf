"""Inner workers of keyed programs: one small protocol for each key, and only the children that have it are asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from flumina.apps import KeyCounter, PageViews
from flumina.model.emit import Row
from flumina.model.order import END, START, Point
from flumina.model.tag_set import KeySet, TagSet
from flumina.plan.tree import Itag, PlanWorker
from flumina.program.base import define
from flumina.runtime.build import workers
from flumina.runtime.keyed_inner import KeyedInner
from flumina.runtime.mailbox import before
from flumina.runtime.messages import EVERYTHING, Data, ForkState, Item, Message, Request, Response, Stop, one_by_one
from flumina.runtime.run import Run
from flumina.runtime.topology import ProtocolOptions
from flumina.runtime.worker import Address, Effects
from flumina.sim.case import Case
from flumina.sim.plans import random_case
from flumina.sim.scheduler import Conditions, Simulation, judge
from flumina.state.keyed_map import KeyedMap
from flumina.state.record import Record
from tests.runtime.support import ColumnSimulation, Scripted, itag, leaf, one_event, plan_of, streams

PAGES = define(PageViews)


class Watched(Scripted):
    """Remembers every message between workers."""

    def deliver(self, which: int) -> None:
        link = self.network.busy[which]
        self.seen.extend((*link, one) for one in one_by_one(self.network.links[link][0]))
        super().deliver(which)

    @property
    def seen(self) -> list[tuple[Address, Address, Message]]:
        """States of single keys one by one, though some may have come together."""
        return self.__dict__.setdefault("messages", [])  # type: ignore[no-any-return]


def hot_and_cold() -> Case:
    """Page a is hot: its views come on two parts. Page b lives on the left leaf alone, c belongs to the root alone."""

    def some(stream: str, part: int, tag: str, *keys: str) -> Itag:
        return Itag(stream, frozenset({part}), TagSet({tag: KeySet.of(*keys)}))

    others = KeySet.everything() - KeySet.of("a", "b")
    own = [some("change", 0, "change", "a"), Itag("change", frozenset({0}), TagSet({"change": others}))]
    own.append(Itag("view", frozenset({0, 1}), TagSet({"view": others})))
    of_b = [some("view", 1, "view", "b"), some("change", 0, "change", "b")]
    left = leaf("left", PAGES, some("view", 0, "view", "a", "b"), *of_b)
    right = leaf("right", PAGES, some("view", 1, "view", "a"))
    root = PlanWorker("root", PAGES.initial, tuple(own), (left, right))
    plan = plan_of(PageViews, streams(PageViews, change=1, view=2), root)
    pages = {0: "aabbcab", 1: "abcacab"}
    parts: dict[Any, Any] = {
        ("view", part): [
            one_event(PAGES, plan, "view", 2 * n + part, n, page=page, user=n) for n, page in enumerate(pages[part])
        ]
        for part in (0, 1)
    }
    parts["change", 0] = [
        one_event(PAGES, plan, "change", ts, page=page, info=f"{page}{ts}")
        for ts, page in ((1, "a"), (3, "b"), (5, "c"), (7, "a"))
    ]
    return Case(PAGES, plan, parts)


def test_a_change_of_a_hot_page_moves_that_page_only() -> None:
    case = hot_and_cold()
    run = Watched(case, options=ProtocolOptions(coalesce=False))
    run.finish()
    assert run.tree_root.finished
    asked = Counter(
        (to, i.key) for _, to, m in run.seen if isinstance(m, Request) for i in m.items if i.key is not None
    )
    assert asked == {("left", "a"): 2, ("right", "a"): 2}, "b is the left leaf's own, and c the root's"
    moved = [m.state for _, _, m in run.seen if isinstance(m, Response | ForkState) and m.key is not None]
    assert moved
    assert not any(isinstance(state, KeyedMap) for state in moved), "never a map"
    stats = run.workers["root"].stats
    assert (stats.events, stats.joins, stats.forks) == (6, 2, 3), "two changes of a, and four events of c"
    assert stats.coalesced == 3, "c is here, and its events are served one after the other"
    whole = [m for _, _, m in run.seen if isinstance(m, ForkState) and m.key is None]
    assert len(whole) == 3, "each worker gets all its states once, at the start"


def test_a_key_of_nobody_below_is_kept_here() -> None:
    case = hot_and_cold()
    run = Watched(case)
    root = run.workers["root"]
    assert isinstance(root, KeyedInner)
    run.send(("view", 0), 7, 90)
    run.send(("view", 1), 7, 90)
    run.send(("change", 0), 4, 90)
    assert root.local.pruned().keys() == {"c"}
    assert not root.busy
    run.finish()
    assert run.tree_root.final["root"].pruned().keys() == {"a", "b", "c"}


def three_levels() -> dict[str, Any]:
    """The root changes page a, an inner worker too (on another part), and two leaves below it view it."""

    def some(stream: str, part: int, *keys: str) -> Itag:
        return Itag(stream, frozenset({part}), TagSet({stream: KeySet.of(*keys)}))

    pages = KeySet.everything() - KeySet.of("a")
    rest = [Itag(tag, frozenset({0, 1}), TagSet({tag: pages})) for tag in ("view", "change")]
    left, right = (leaf(f"l{n}", PAGES, some("view", n, "a")) for n in (0, 1))
    inner = PlanWorker("inner", PAGES.initial, (some("change", 1, "a"),), (left, right))
    root = PlanWorker("root", PAGES.initial, (some("change", 0, "a"),), (inner, leaf("rest", PAGES, *rest)))
    plan = plan_of(PageViews, streams(PageViews, change=2, view=2), root)
    return dict(workers(plan, PAGES, ProtocolOptions(hand_over=False)))


def change(ts: int, seq: int = 0) -> tuple[Point, Any]:
    return Point(ts, 0, seq), PAGES.tags["change"].event(ts=ts, stream="change", seq=seq, page="a", info=str(ts))


def own(frontier: Point, *entries: tuple[Point, Any]) -> Data:
    return Data(("change", 1), Run([point for point, _ in entries], [event for _, event in entries]), frontier)


def wanted(*times: int) -> tuple[Item, ...]:
    return tuple(Item(Point(ts, 0, 0), ("root", "change"), "a") for ts in times)


def traveled(name: str) -> str:
    """As it comes from another process: equal, but another object."""
    return name.encode().decode()


def sent(effects: Effects, kind: type[Any]) -> list[tuple[Any, Any]]:
    return [(to, message) for to, message in effects.sends if isinstance(message, kind)]


def answer(inner: Any, ts: int, settled: Point) -> Effects:
    """Both leaves give the state of page a."""
    info = Record({"info": "old"})
    inner.handle("l0", Response(Point(ts, 0, 0), info, {EVERYTHING: settled}, "a"))
    effects: Effects = inner.handle("l1", Response(Point(ts, 0, 0), info, {EVERYTHING: settled}, "a"))
    return effects


def test_what_an_inner_worker_waits_for_is_named() -> None:
    inner = three_levels()["inner"]
    inner.handle("root", Request(wanted(5), Point(5, 0, 0), END))
    assert str(inner.stall()).startswith("inner waits for all states from root before what is at (5, 0, 0)")
    assert inner.holdings() == []
    inner.handle("root", ForkState(PAGES.init(), START))
    assert len(inner.holdings()) == 1
    assert "inner waits for change[1]" in str(inner.stall())
    inner.handle(("change", 1), own(Point(6, 0, 9), change(3), change(6)))
    assert "inner waits for the states of its children before what is at (3, 0, 0)" in str(inner.stall())
    assert (inner.waiting, inner.first_waiting) == (2, Point(3, 0, 0))
    answer(inner, 3, Point(9, 9, 9))
    assert (inner.waiting, inner.first_waiting) == (1, Point(6, 0, 0))
    assert "inner waits for the state of 'a' from root before what is at (6, 0, 0)" in str(inner.stall())
    inner.handle("root", ForkState(Record({"info": "new"}), Point(5, 0, 0), "a"))
    assert "word from root, which is at (5, 0, 0), before what is at (6, 0, 0)" in str(inner.stall())
    inner.handle("root", Request((Item(Point(5, 5, 0), EVERYTHING),), Point(5, 8, 0), END))
    assert "before what is at (5, 5, 0)" in str(inner.stall())


def test_an_inner_worker_coalesces_up_to_what_its_children_say() -> None:
    for settled, answers in ((Point(5, 0, 0), 1), (Point(5, 0, -1), 0)):
        inner = three_levels()["inner"]
        inner.handle("root", ForkState(PAGES.init(), START))
        inner.handle("root", Request(wanted(5), Point(9, 0, 0), END))
        inner.handle(("change", 1), own(Point(7, 0, 0), change(3)))
        effects = answer(inner, 3, settled)
        assert len(sent(effects, Response)) == answers == inner.stats.coalesced
        assert len(sent(effects, ForkState)) == 2 - 2 * answers
        assert [m.served for _, m in sent(effects, ForkState)] == [Point(3, 0, 0)] * (2 - 2 * answers)
        assert (inner.stats.joins, inner.stats.forks, inner.stats.events) == (1, 2 - answers, 1)


def test_how_far_a_key_is_clear() -> None:
    """Up to the first own event of the key that waits, the frontier of the own parts, and what the children say."""
    far = Point(90, 0, 0)
    for data, children, expected in (
        (own(Point(7, 0, 0)), far, Point(7, 0, 0)),
        (own(far), Point(8, 0, 0), Point(8, 0, 0)),
        (own(far, change(6)), far, Point(6, 0, -1)),
        (own(far, change(20)), far, Point(20, 0, -1)),
    ):
        inner = three_levels()["inner"]
        inner.handle("root", ForkState(PAGES.init(), START))
        inner.handle("root", Request(wanted(5), Point(9, 0, 0), END))
        inner.handle(("change", 1), data)
        ((to, response),) = sent(answer(inner, 5, children), Response)
        assert (to, response.point, response.settled) == ("root", Point(5, 0, 0), {EVERYTHING: expected})


@pytest.mark.parametrize("settled", [(6,), (5, 6), (3, 4, 6)])
def test_requests_that_were_settled_without_the_inner_worker_are_dropped(settled: tuple[int, ...]) -> None:
    inner = three_levels()["inner"]
    inner.handle("root", ForkState(PAGES.init(), START))
    inner.handle("root", Request(wanted(2, *settled, 7), Point(9, 0, 0), END))
    inner.handle(("change", 1), own(Point(9, 0, 0), change(8)))
    assert len(sent(answer(inner, 2, Point(2, 0, 0)), Response)) == 1
    effects = inner.handle("root", ForkState(Record({"info": "new"}), Point(6, 0, 0), "a"))
    assert [(to, m.served) for to, m in sent(effects, ForkState)] == [("l0", Point(6, 0, 0)), ("l1", Point(6, 0, 0))]
    assert [m.point.ts for _, m in sent(answer(inner, 7, Point(9, 0, 0)), Response)] == [7]
    assert inner.waiting == 1, "its own event is still to be served"


def test_an_inner_worker_that_must_not_coalesce_does_not() -> None:
    inner = three_levels()["inner"]
    inner.options = ProtocolOptions(coalesce=False, hand_over=False)
    inner.handle("root", ForkState(PAGES.init(), START))
    inner.handle("root", Request(wanted(5), Point(9, 0, 0), END))
    inner.handle(("change", 1), own(Point(7, 0, 0), change(3)))
    effects = answer(inner, 3, Point(9, 0, 0))
    assert [to for to, _ in sent(effects, ForkState)] == ["l0", "l1"]
    assert (inner.stats.coalesced, inner.stats.forks) == (0, 2)


def test_a_state_that_is_here_is_not_given_again() -> None:
    inner = three_levels()["inner"]
    inner.handle("root", ForkState(PAGES.init(), START))
    with pytest.raises(AssertionError, match="inner was given its state while it has it"):
        inner.handle("root", ForkState(PAGES.init(), START))
    inner.handle("root", Request(wanted(5), Point(9, 0, 0), END))
    inner.handle(("change", 1), own(Point(9, 0, 0)))
    with pytest.raises(AssertionError, match="inner was given the state of 'a' while it has it"):
        inner.handle("root", ForkState(Record({"info": "a"}), Point(5, 0, 0), "a"))


@pytest.mark.parametrize(("adds", "reads"), [("left", "right"), ("right", "left")])
def test_after_the_stop_only_a_child_that_hands_over_may_answer(adds: str, reads: str) -> None:
    counter = define(KeyCounter)
    one, others = KeySet.of(1), KeySet.everything() - KeySet.of(1)

    def some(tag: str, keys: KeySet, *parts: int) -> Itag:
        return Itag(tag, frozenset(parts), TagSet({tag: keys}))

    leaves = (
        leaf(adds, counter, some("inc", others, 0)),
        leaf(reads, counter, some("inc", one, 0, 1), some("read", one, 0)),
    )
    root = PlanWorker("root", counter.initial, (some("inc", others, 1), some("read", others, 0)), leaves)
    made = workers(plan_of(KeyCounter, streams(KeyCounter, inc=2, read=1), root), counter)["root"]
    assert [to for to, _ in made.handle("^", Stop()).sends] == [adds, reads]
    late = Response(Point(5, 0, 0), counter.init(), {EVERYTHING: START}, 2)
    assert made.handle(traveled(adds), late) == Effects()
    with pytest.raises(AssertionError, match="root was stopped and got Response"):
        made.handle(reads, late)
    with pytest.raises(AssertionError, match="root was stopped and got Request"):
        made.handle(adds, Request((), END, END))


Own = Mapping[tuple[str, int], tuple[int, ...]]
TWO_AT_ONCE: Own = {("inc", 0): (1,), ("inc", 1): (1,), ("read", 0): (5,)}
ONE: Own = {("inc", 0): (1,), ("inc", 1): (), ("read", 0): ()}
TWO_READS: Own = {("inc", 0): (), ("inc", 1): (), ("read", 0): (1, 5)}


def counting_root(
    options: ProtocolOptions | None = None, own: Own = TWO_AT_ONCE, *wanted: Item
) -> tuple[Any, list[Request]]:
    """A worker whose leaves hand over, with own events of key 7 at such times; and what it asks for."""
    counter = define(KeyCounter)
    below = tuple(leaf(f"l{n}", counter, itag(counter, "inc", "inc", parts=[n])) for n in (2, 3))
    own_itags = (itag(counter, "inc", "inc", parts=[0, 1]), itag(counter, "read", "read"))
    root = PlanWorker("root", counter.initial, own_itags, below)
    plan = plan_of(KeyCounter, streams(KeyCounter, inc=4, read=1), root)
    made = workers(plan, counter, options)["root"]
    made.handle("^", ForkState(counter.init(), START))
    made.handle("^", Request(wanted, before(END), before(END)))
    for part, times in own.items():
        entries = [one_event(counter, plan, part[0], ts, seq, k=7) for seq, ts in enumerate(times)]
        run = Run([point for point, _ in entries], [event for _, event in entries])
        effects = made.handle(part, Data(part, run, END))
    return made, [message for _, message in sent(effects, Request)]


def contribute(made: Any, point: Point, count: int, *children: str) -> Effects:
    """Both leaves, or some, have counted so many of key 7."""
    for child in children or ("l2", "l3"):
        state = define(KeyCounter).lifted.one.init()  # type: ignore[union-attr]
        state.count = count
        effects: Effects = made.handle(child, Response(Point(*point), state, {EVERYTHING: point}, 7))
    return effects


def all_counted(made: Any) -> int:
    """How many of key 7 the answer for everything has, to which the leaves add nothing."""
    made.handle("^", Request((Item(END, EVERYTHING),), END, END))
    for child in ("l2", "l3"):
        effects = made.handle(child, Response(END, define(KeyCounter).init(), {EVERYTHING: END}))
    ((_, response),) = sent(effects, Response)
    count: int = response.state[7].count
    return count


def test_what_shares_a_point_is_asked_for_together() -> None:
    for pipeline, times in ((True, [1, 1, 5]), (False, [1, 1])):
        _, requests = counting_root(ProtocolOptions(pipeline=pipeline))
        assert [[item.point.ts for item in request.items] for request in requests] == [times] * 2


def test_late_contributions_of_a_point_are_taken_in_before_the_next() -> None:
    """Two own events at one point are served with the first answers; the second ones come later, and then others."""
    made, requests = counting_root()
    first, last = (requests[0].items[n].point for n in (0, 2))
    contribute(made, first, 10)
    assert (made.stats.events, made.stats.joins) == (2, 1), "both events of the point, with one join"
    contribute(made, first, 0)
    (row,) = contribute(made, last, 100).outputs
    assert isinstance(row, Row)
    assert row.values == (7, 2 + 20 + 200)
    assert not made.busy, "nothing is expected any more"


def test_contributions_to_a_later_point_wait_for_their_turn() -> None:
    """One leaf has answered both requests before the other one answers the first."""
    made, requests = counting_root(own=TWO_READS)
    first, last = (item.point for item in requests[0].items)
    contribute(made, first, 10, "l2")
    contribute(made, last, 100, "l2")
    (row,) = contribute(made, first, 10, "l3").outputs
    assert isinstance(row, Row)
    assert row.values == (7, 10 + 10)
    (row,) = contribute(made, last, 100, "l3").outputs
    assert isinstance(row, Row)
    assert row.values == (7, 100 + 100), "a read starts anew"


def test_contributions_that_come_while_the_state_is_away_are_not_lost() -> None:
    """An own event and a request of the parent share a point: the second answers come when the state is with it."""
    (point,) = {item.point for item in counting_root(own=ONE)[1][0].items}
    made, _ = counting_root(None, ONE, Item(point, ("root", "read"), 7))
    ((_, response),) = sent(contribute(made, point, 10), Response)
    assert response.state.count == 1 + 10 + 10
    contribute(made, point, 100)
    made.handle("^", ForkState(response.state, point, 7))
    assert all_counted(made) == 21 + 100 + 100


def test_late_contributions_are_in_the_answer_for_everything() -> None:
    made, requests = counting_root()
    first, last = (requests[0].items[n].point for n in (0, 2))
    contribute(made, first, 10)
    contribute(made, last, 100)
    contribute(made, last, 1000)
    assert not made.busy, "taken in at once, though nothing is to be served"
    assert all_counted(made) == 2 * 1000


@pytest.mark.parametrize("pipeline", [True, False])
def test_frontiers_are_told_once_and_never_past_what_was_not_asked_for(pipeline: bool) -> None:  # noqa: FBT001
    inner = three_levels()["inner"]
    inner.options = ProtocolOptions(pipeline=pipeline, hand_over=False)
    inner.handle("root", ForkState(PAGES.init(), START))
    assert sent(inner.handle("root", Request(wanted(5, 7), Point(9, 0, 0), Point(19, 0, 0))), Request)
    effects = inner.handle(("change", 1), own(Point(8, 0, 0)))
    told = [(to, [i.point.ts for i in m.items], m.frontier, m.snapshot_frontier) for to, m in sent(effects, Request)]
    frontier = Point(8, 0, 0) if pipeline else Point(7, 0, -1)
    assert told == [(to, [5, 7] if pipeline else [5], frontier, Point(19, 0, 0)) for to in ("l0", "l1")]
    assert not sent(inner.handle(("change", 1), own(Point(8, 0, 0))), Request), "nothing is new"
    snapshot = Item(Point(20, 0, 0), EVERYTHING)
    effects = inner.handle("root", Request((snapshot,), Point(9, 0, 0), Point(30, 0, 0)))
    assert {m.snapshot_frontier for _, m in sent(effects, Request)} == {Point(20, 0, -1)}, "a snapshot is to come"


def everything(ts: int) -> Item:
    """A request for all states as it comes from another process: its cause is equal, but another object."""
    cause = (EVERYTHING[0], EVERYTHING[1])
    assert cause is not EVERYTHING
    return Item(Point(ts, 0, 0), cause)


def asked(effects: Effects, child: str = "l0") -> list[tuple[int, str | None]]:
    """When and for which key (None for all) a child is asked."""
    return [(item.point.ts, item.key) for to, m in sent(effects, Request) if to == child for item in m.items]


def test_a_request_for_everything_comes_behind_the_others_of_its_point() -> None:
    inner = three_levels()["inner"]
    inner.handle("root", ForkState(PAGES.init(), START))
    inner.handle("root", Request((everything(5),), Point(4, 0, 0), END))
    inner.handle("root", Request(wanted(5), Point(9, 0, 0), END))
    assert asked(inner.handle(("change", 1), own(Point(9, 0, 0)))) == [(5, "a"), (5, None)]


@pytest.mark.parametrize("pipeline", [True, False])
def test_what_is_behind_a_request_for_everything_is_asked_for_ahead_but_not_served(pipeline: bool) -> None:  # noqa: FBT001
    inner = three_levels()["inner"]
    inner.options = ProtocolOptions(pipeline=pipeline, hand_over=False)
    inner.handle("root", ForkState(PAGES.init(), START))
    inner.handle("root", Request((everything(5), *wanted(8), everything(12), *wanted(14)), Point(20, 0, 0), END))
    effects = inner.handle(("change", 1), own(Point(16, 0, 0), change(6), change(9)))
    ahead = [(6, "a"), (8, "a"), (9, "a"), (14, "a"), (5, None), (12, None)]
    assert asked(effects) == (ahead if pipeline else [(5, None)])
    frontier, snapshot_frontier = (Point(16, 0, 0), END) if pipeline else (Point(6, 0, -1), Point(12, 0, -1))
    assert [(m.frontier, m.snapshot_frontier) for _, m in sent(effects, Request)] == [(frontier, snapshot_frontier)] * 2
    assert [item.point.ts for item, _ in inner.sequence] == [5, 12]
    assert [entry.item.point.ts for entry in inner.busy["a"].entries] == [6, 8, 9, 14]
    assert [point.ts for point in inner.requested_points()] == [6, 5]
    assert inner.waiting == 2
    for child in ("l0", "l1"):
        effects = inner.handle(child, Response(Point(5, 0, 0), PAGES.init(), {EVERYTHING: END}))
    assert [m.point.ts for _, m in sent(effects, Response)] == [5]
    inner.handle("root", ForkState(PAGES.init(), Point(5, 0, 0)))
    assert [m.point.ts for _, m in sent(answer(inner, 6, START), Response)] == []
    assert inner.waiting == 1
    inner = three_levels()["inner"]
    inner.handle("root", ForkState(PAGES.init(), START))
    effects = inner.handle("root", Request((*wanted(8), everything(12), *wanted(14)), Point(20, 0, 0), END))
    assert [m.snapshot_frontier for _, m in sent(effects, Request)] == [Point(12, 0, -1)] * 2, (
        "also before own events are known"
    )


def test_an_answer_belongs_to_the_child_that_gave_it_whatever_their_names() -> None:
    for first, second in (("left", "right"), ("right", "left")):
        counter = define(KeyCounter)
        below = tuple(leaf(name, counter, itag(counter, "inc", "inc", parts=[n])) for n, name in enumerate("xy"))
        below = (replace(below[0], id=first), replace(below[1], id=second))
        root = PlanWorker("root", counter.initial, (itag(counter, "read", "read"),), below)
        plan = plan_of(KeyCounter, streams(KeyCounter, inc=2, read=1), root)
        made = workers(plan, counter)["root"]
        made.handle("^", ForkState(counter.init(), START))
        made.handle("^", Request((), END, END))
        point, event = one_event(counter, plan, "read", 5, k=7)
        made.handle(("read", 0), Data(("read", 0), Run([point], [event]), Point(9, 9, 0)))
        for name, count in ((second, 100), (first, 10)):
            state = counter.lifted.one.init()  # type: ignore[union-attr]
            state.count = count
            effects = made.handle(traveled(name), Response(Point(*point), state, {EVERYTHING: point}, 7))
        (row,) = effects.outputs
        assert isinstance(row, Row)
        assert row.values == (7, 110)


@pytest.mark.parametrize("pipeline", [True, False])
@pytest.mark.parametrize("ahead", [1, 2, 3, 5])
def test_children_are_asked_once_for_everything_that_is_served(ahead: int, pipeline: bool) -> None:  # noqa: FBT001
    """Some events are always to be served; the frontier is told up to the first that was not asked for."""
    inner = three_levels()["inner"]
    inner.options = ProtocolOptions(coalesce=False, pipeline=pipeline, hand_over=False)
    inner.handle("root", ForkState(PAGES.init(), START))
    inner.handle("root", Request((), Point(90, 0, 0), END))
    effects = inner.handle(("change", 1), own(Point(ahead, 0, 9), *(change(ts) for ts in range(1, ahead + 1))))
    all_asked = asked(effects)
    for ts in range(1, 8):
        all_asked += asked(answer(inner, ts, START))
        new = ts + ahead
        all_asked += asked(inner.handle(("change", 1), own(Point(new, 0, 9), change(new))))
        assert inner.announced_frontiers[0] == (Point(new, 0, 9) if pipeline or ahead == 1 else Point(ts + 2, 0, -1))
    assert all_asked == [(ts, "a") for ts in range(1, (7 + ahead if pipeline else 8) + 1)]


@pytest.mark.parametrize("pipeline", [True, False])
@pytest.mark.parametrize("settled", [1, 2, 3, 5])
def test_what_was_settled_above_is_not_asked_for_again(settled: int, pipeline: bool) -> None:  # noqa: FBT001
    inner = three_levels()["inner"]
    inner.options = ProtocolOptions(coalesce=False, pipeline=pipeline, hand_over=False)
    inner.handle("root", ForkState(PAGES.init(), START))
    inner.handle(("change", 1), own(Point(90, 0, 0)))
    times = list(range(1, settled + 3))
    all_asked = asked(inner.handle("root", Request(wanted(*times), Point(20, 0, 0), END)))
    answer(inner, 1, START)
    effects = inner.handle("root", ForkState(Record({"info": "new"}), Point(1 + settled, 0, 0), "a"))
    all_asked += asked(effects)
    all_asked += asked(inner.handle("root", Request(wanted(30, 40), Point(50, 0, 0), END)))
    last = times[-1]
    assert all_asked == [(ts, "a") for ts in ([*times, 30, 40] if pipeline else [1, last])]
    assert inner.announced_frontiers[0] == (Point(50, 0, 0) if pipeline else Point(30, 0, -1))


@pytest.mark.parametrize("pipeline", [True, False])
def test_what_is_behind_a_cut_is_forgotten_and_own_events_are_given_back(pipeline: bool) -> None:  # noqa: FBT001
    inner = three_levels()["inner"]
    inner.options = ProtocolOptions(coalesce=False, pipeline=pipeline, hand_over=False)
    inner.handle("root", ForkState(PAGES.init(), START))
    inner.handle("root", Request(wanted(5, 7, 9), Point(8, 0, 0), END))
    inner.handle(("change", 1), own(Point(20, 0, 0), change(3), change(6), change(8), change(12)))
    assert inner.waiting == 4
    effects, [found] = inner.truncate(6)
    assert (found.part, [point.ts for point, _ in found.run]) == (("change", 1), [8, 12])
    assert found.frontier == Point(20, 0, 0)
    assert (inner.waiting, inner.known) == (2, END)
    assert [entry.item.point.ts for entry in inner.busy["a"].entries] == [3, 5, 6]
    assert [point.ts for point in inner.requested_points()] == [3]
    assert not sent(effects, Response)
    assert [to for to, _ in sent(answer(inner, 3, START), ForkState)] == ["l0", "l1"]
    [(_, response)] = sent(answer(inner, 5, START), Response)
    inner.handle("root", ForkState(response.state, Point(5, 0, 0), "a"))
    assert [m.served for _, m in sent(answer(inner, 6, START), ForkState)] == [Point(6, 0, 0)] * 2
    assert not inner.busy, "the key is as if nobody had ever asked for more"
    assert (inner.waiting, inner.first_waiting, inner.stall()) == (0, None, None)


def test_who_was_asked_for_everything_is_not_cut_off() -> None:
    inner = three_levels()["inner"]
    inner.handle("root", ForkState(PAGES.init(), START))
    inner.handle(("change", 1), own(Point(20, 0, 0)))
    inner.handle("root", Request((Item(Point(9, 0, 0), EVERYTHING),), Point(9, 0, 0), END))
    with pytest.raises(AssertionError, match="inner was asked for everything"):
        inner.truncate(5)


@pytest.mark.parametrize("coalesce", [True, False])
@pytest.mark.parametrize("pipeline", [True, False])
def test_every_schedule_of_the_small_case_agrees_with_the_oracle(coalesce: bool, pipeline: bool) -> None:  # noqa: FBT001
    case = hot_and_cold()
    for seed in range(40):
        options = ProtocolOptions(coalesce=coalesce, pipeline=pipeline)
        snapshots = [Point(4, 9, 0), Point(8, 9, 0)] if seed % 2 else []
        judge(case, Simulation(case, Random(seed), options=options, snapshots=snapshots).run())


@pytest.mark.parametrize("program", [PageViews, KeyCounter], ids=lambda p: p.__name__)
@pytest.mark.parametrize("simulation", [Simulation, ColumnSimulation], ids=lambda s: s.__name__)
def test_random_cases_with_ties_snapshots_and_all_switches(program: Any, simulation: Any) -> None:
    definition = define(program)
    joins = moved = 0
    for seed in range(60):
        random = Random(seed)
        case = random_case(random, definition, 40)
        points = [point for point, _ in case.in_order]
        options = ProtocolOptions(*(random.random() < 0.7 for _ in range(3)))
        conditions = Conditions(credits=random.choice((1, 3, 10**6)), heartbeats=random.choice((0.0, 0.5)))
        snapshots = sorted(set(random.sample(points, random.choice((0, 2)))))
        outcome = simulation(case, random, options=options, conditions=conditions, snapshots=snapshots).run()
        judge(case, outcome)
        joins += sum(stats.joins for stats in outcome.stats.values())
        moved += sum(stats.blocked + stats.handed for stats in outcome.stats.values())
    assert joins > 300
    assert moved > 300
