"""Leaves of keyed programs: one key's state is given away, and the other keys go on."""

from __future__ import annotations

import pytest

from flumina.apps import KeyCounter, PageViews
from flumina.model.order import END, START, Point
from flumina.model.tag_set import KeySet, TagSet
from flumina.plan.tree import Itag, PlanWorker
from flumina.program.base import define
from flumina.runtime.build import workers
from flumina.runtime.keyed_leaf import KeyedLeaf
from flumina.runtime.messages import EVERYTHING, Data, ForkState, Item, KeyStates, Request, Response
from flumina.runtime.run import Run
from flumina.runtime.topology import ProtocolOptions
from flumina.runtime.worker import Effects
from flumina.sim.case import Case
from flumina.state.keyed_map import KeyedMap
from flumina.state.record import Record
from tests.runtime.support import Scripted, in_columns, itag, leaf, one_event, plan_of, streams

PAGES = define(PageViews)
LEAVES = tuple(leaf(f"l{n}", PAGES, itag(PAGES, "view", "view", parts=[n])) for n in range(2))
PLAN = plan_of(
    PageViews,
    streams(PageViews, change=1, view=2),
    PlanWorker("root", PAGES.initial, (itag(PAGES, "change", "change"),), LEAVES),
)


def views(*entries: tuple[int, str]) -> Run:
    made = [one_event(PAGES, PLAN, "view", ts, seq, page=page, user=ts) for seq, (ts, page) in enumerate(entries)]
    return Run([point for point, _ in made], [event for _, event in made])


def change(ts: int, page: str) -> Item:
    return Item(Point(ts, 0, 0), ("root", "change"), page)


def started() -> KeyedLeaf:
    made = workers(PLAN, PAGES)["l0"]
    assert isinstance(made, KeyedLeaf)
    state = PAGES.init()
    state["a"], state["b"] = Record({"info": "old a"}), Record({"info": "old b"})
    made.handle("root", ForkState(state, START))
    return made


def seen(effects: Effects) -> list[str]:
    return [f"{row.values[0]}:{row.values[2]}" for row in effects.outputs if hasattr(row, "values")]


def test_only_the_state_of_the_wanted_key_is_given_away_and_other_keys_go_on() -> None:
    made = started()
    assert made.handle("root", Request((change(5, "a"),), Point(10, 0, 0), END)).sends == []
    run = views((3, "a"), (4, "b"), (6, "a"), (7, "b"))
    effects = made.handle(("view", 0), Data(("view", 0), run, Point(8, 1, 0)))
    assert seen(effects) == ["b:old b", "b:old b", "a:old a"], "the view of a after the change waits, and only it"
    (response,) = [message for _, message in effects.sends if isinstance(message, Response)]
    assert response.key == "a"
    assert response.state == Record({"info": "old a"}), "not the map of all keys"
    assert made.waiting == 1
    effects = made.handle(("view", 0), Data(("view", 0), views((8, "b"), (9, "a")), Point(9, 1, 5)))
    assert seen(effects) == ["b:old b"], "b goes on while a is away"
    effects = made.handle("root", ForkState(Record({"info": "new a"}), Point(5, 0, 0), "a"))
    assert seen(effects) == ["a:new a", "a:new a"]
    assert made.waiting == 0
    assert not made.hot, "a key that is settled costs nothing any more"
    assert (made.stats.blocked, made.stats.handed, made.stats.events, made.stats.requests) == (1, 0, 6, 1)
    assert made.stats.runs == 4, "b and a, then b, then what waited of a"


def test_clear_says_how_far_nothing_of_the_key_is_outstanding() -> None:
    for after, wanted in ((views((6, "a")), Point(6, 1, -1)), (views((6, "b")), Point(8, 1, 0))):
        made = started()
        made.handle("root", Request((change(5, "a"),), Point(9, 0, 0), END))
        effects = made.handle(("view", 0), Data(("view", 0), after, Point(8, 1, 0)))
        (response,) = [message for _, message in effects.sends if isinstance(message, Response)]
        assert response.settled[EVERYTHING] == wanted


def test_everything_is_given_away_only_when_no_key_is_wanted_or_away() -> None:
    made = started()
    snapshot = Item(Point(7, 5, 0), EVERYTHING)
    made.handle("root", Request((change(5, "a"), snapshot), Point(9, 0, 0), END))
    effects = made.handle(("view", 0), Data(("view", 0), views((6, "a"), (8, "b")), Point(8, 1, 5)))
    assert [m.key for _, m in effects.sends if isinstance(m, Response)] == ["a"]
    effects = made.handle("root", ForkState(Record({"info": "new a"}), Point(5, 0, 0), "a"))
    assert seen(effects) == ["a:new a"]
    (response,) = [message for _, message in effects.sends if isinstance(message, Response)]
    assert response.key is None
    assert isinstance(response.state, KeyedMap)
    assert response.state.pruned().keys() == {"a", "b"}
    assert made.waiting == 1, "the view after the snapshot waits for the states"
    assert seen(made.handle("root", ForkState(response.state, snapshot.point))) == ["b:old b"]
    assert (made.stats.blocked, made.stats.handed) == (2, 0), "for the key, and for everything"


def test_a_leaf_that_only_adds_goes_on_from_nothing() -> None:
    counter = define(KeyCounter)
    below = tuple(leaf(f"l{n}", counter, itag(counter, "inc", "inc", parts=[n])) for n in range(2))
    root = PlanWorker("root", counter.initial, (itag(counter, "read", "read"),), below)
    plan = plan_of(KeyCounter, streams(KeyCounter, inc=2, read=1), root)
    made = workers(plan, counter, ProtocolOptions())["l0"]
    made.handle("root", ForkState(counter.init(), START))
    reads = tuple(Item(Point(ts, 1, 0), ("root", "read"), 7) for ts in (5, 9))
    made.handle("root", Request(reads, Point(9, 1, 0), END))
    entries = [one_event(counter, plan, "inc", ts, k=7) for ts in (1, 2, 6)]
    run = Run([point for point, _ in entries], [event for _, event in entries])
    effects = made.handle(("inc", 0), Data(("inc", 0), run, Point(10, 0, 0)))
    ((_, both),) = [(to, m) for to, m in effects.sends if isinstance(m, KeyStates)]
    answers = [(m.point.ts, m.state.count) for m in both.each if isinstance(m, Response)]
    assert answers == [(5, 2), (9, 1)], "two contributions, without waiting in between"
    assert (made.stats.blocked, made.stats.handed, made.stats.events) == (0, 2, 3)
    made.handle("root", Request((Item(END, EVERYTHING),), END, END))
    effects = made.handle(("inc", 0), Data(("inc", 0), Run(), END))
    (whole,) = [message for _, message in effects.sends if isinstance(message, Response)]
    assert (whole.point, whole.key, whole.settled[EVERYTHING]) == (END, None, END)
    assert (made.stats.blocked, made.stats.handed) == (0, 3)
    assert made.holdings() == [counter.init()], "it goes on from nothing"


def test_a_key_is_answered_when_all_components_that_have_it_have_come_so_far() -> None:
    """Increments of two parts do not depend on each other; a key of one part alone waits for that one."""
    counter = define(KeyCounter)
    one, others = KeySet.of(1), KeySet.everything() - KeySet.of(1)
    own = (
        itag(counter, "inc", "inc", parts=[0]),
        Itag("inc", frozenset({1}), TagSet({"inc": others})),
    )
    beside = leaf("beside", counter, Itag("inc", frozenset({1}), TagSet({"inc": one})))
    root = PlanWorker("root", counter.initial, (itag(counter, "read", "read"),), (leaf("l", counter, *own), beside))
    plan = plan_of(KeyCounter, streams(KeyCounter, inc=2, read=1), root)
    made = workers(plan, counter, ProtocolOptions(hand_over=False))["l"]
    made.handle("root", ForkState(counter.init(), START))
    items = tuple(Item(Point(5, 1, seq), ("root", "read"), key) for seq, key in enumerate((7, 1, 8)))
    made.handle("root", Request(items, Point(9, 1, 0), END))
    effects = made.handle(("inc", 0), Data(("inc", 0), Run(), Point(6, 0, 0)))
    assert [m.key for _, m in effects.sends if isinstance(m, Response)] == [1]
    assert made.handle(("inc", 1), Data(("inc", 1), Run(), Point(5, 0, 9))).sends == []
    effects = made.handle(("inc", 1), Data(("inc", 1), Run(), Point(6, 0, 0)))
    assert [m.key for _, several in effects.sends for m in several.each] == [7, 8]  # type: ignore[union-attr]
    assert list(made.gone) == [1, 7, 8]  # type: ignore[attr-defined]


def test_of_many_keys_that_are_away_a_few_are_named() -> None:
    made = started()
    pages = "abcde"
    items = tuple(Item(Point(5, 0, seq), ("root", "change"), page) for seq, page in enumerate(pages))
    made.handle("root", Request(items, Point(10, 0, 0), END))
    made.handle(("view", 0), Data(("view", 0), views(*((6, page) for page in pages)), Point(8, 1, 0)))
    assert "l0 waits for the state of 'a', 'b', 'c' and 2 more keys from root" in str(made.stall())
    assert (made.waiting, made.first_waiting) == (5, Point(6, 1, 0))
    handed = [ForkState(Record({"info": page}), Point(5, 0, seq), page) for seq, page in enumerate(pages)]
    effects = made.handle("root", KeyStates(tuple(handed[:4])))
    assert seen(effects) == ["a:a", "b:b", "c:c", "d:d"]
    assert (made.waiting, made.first_waiting) == (1, Point(6, 1, 4))
    assert "l0 waits for the state of 'e' from root" in str(made.stall())


def test_columns_are_divided_by_key_like_lists() -> None:
    """The same messages in columns have the same effects."""
    names = [shape.name for shape in PLAN.streams]
    answers = []
    for columns in (False, True):
        made = started()
        made.handle("root", Request((change(5, "a"),), Point(9, 0, 0), END))
        run = views((3, "a"), (4, "b"), (6, "a"), (7, "b"))
        data = Data(("view", 0), in_columns(run, names) if columns else run, Point(8, 1, 0))
        effects = made.handle(("view", 0), data)
        answers.append([(m.key, m.state, m.settled) for _, m in effects.sends if isinstance(m, Response)])
        assert made.waiting == 1
    assert answers[0] == answers[1]


def test_what_a_leaf_waits_for_is_named() -> None:
    made = workers(PLAN, PAGES)["l0"]
    made.handle(("view", 0), Data(("view", 0), views((3, "a")), Point(8, 1, 0)))
    assert "l0 waits for all states from root" in str(made.stall())
    assert made.holdings() == []
    made = started()
    assert made.stall() is None
    assert len(made.holdings()) == 1
    made.handle("root", Request((change(5, "a"), change(6, "b")), Point(9, 0, 0), Point(9, 0, 0)))
    assert "l0 waits for view[0]" in str(made.stall())
    assert "before what is at (5, 0, 0)" in str(made.stall())
    made.handle(("view", 0), Data(("view", 0), views((7, "a"), (7, "b"), (20, "c")), Point(20, 1, 9)))
    assert "the state of 'a', 'b' from root before what is at (7, 1, 0)" in str(made.stall())
    assert made.waiting == 3
    assert made.requested_points() == [], "both have been answered"
    for page, ts in (("a", 5), ("b", 6)):
        made.handle("root", ForkState(Record({"info": page}), Point(ts, 0, 0), page))
    assert "word from root, which is at (9, 0, 0), before what is at (20, 1, 2)" in str(made.stall())
    made.handle("root", Request((Item(Point(25, 5, 0), EVERYTHING),), Point(25, 5, 0), Point(25, 5, 0)))
    assert "l0 waits for view[0]" in str(made.stall())
    assert "before what is at (25, 5, 0)" in str(made.stall())


def test_a_state_that_is_here_is_not_given_again() -> None:
    made = started()
    with pytest.raises(AssertionError, match="l0 was given its state while it has it"):
        made.handle("root", ForkState(PAGES.init(), START))
    made.handle("root", Request((change(5, "a"),), Point(9, 0, 0), END))
    with pytest.raises(AssertionError, match="l0 was given the state of 'a' while it has it"):
        made.handle("root", ForkState(Record({"info": "a"}), Point(5, 0, 0), "a"))


def test_requests_that_were_settled_without_the_leaf_are_dropped() -> None:
    """Those up to ``served``, and no other."""
    made = started()
    made.handle("root", Request(tuple(change(ts, "a") for ts in (5, 6, 7)), Point(9, 0, 0), END))
    made.handle(("view", 0), Data(("view", 0), Run(), Point(8, 1, 0)))
    effects = made.handle("root", ForkState(Record({"info": "a"}), Point(6, 0, 0), "a"))
    assert [m.point.ts for _, m in effects.sends if isinstance(m, Response)] == [7]


def test_an_event_at_the_very_point_of_a_request_is_in_the_answer() -> None:
    counter = define(KeyCounter)
    below = tuple(leaf(f"l{n}", counter, itag(counter, "inc", "inc", parts=[n])) for n in range(2))
    root = PlanWorker("root", counter.initial, (itag(counter, "read", "read"),), below)
    plan = plan_of(KeyCounter, streams(KeyCounter, inc=2, read=1), root)
    made = workers(plan, counter, ProtocolOptions(hand_over=False))["l0"]
    made.handle("root", ForkState(counter.init(), START))
    made.handle("root", Request((Item(Point(5, 0, 3), ("root", "read"), 7),), Point(9, 1, 0), END))
    entries = [one_event(counter, plan, "inc", 5, seq, k=7) for seq in (2, 3, 4)]
    run = Run([point for point, _ in entries], [event for _, event in entries])
    effects = made.handle(("inc", 0), Data(("inc", 0), run, Point(6, 0, 0)))
    (answer,) = [message for _, message in effects.sends if isinstance(message, Response)]
    assert (answer.state.count, answer.settled[EVERYTHING]) == (2, Point(5, 0, 3))
    assert made.waiting == 1


def test_a_leaf_alone_stops_at_every_snapshot() -> None:
    alone = leaf("alone", PAGES, itag(PAGES, "view", "view", parts=[0, 1]), itag(PAGES, "change", "change"))
    plan = plan_of(PageViews, streams(PageViews, change=1, view=2), alone)
    changes = [one_event(PAGES, plan, "change", ts, page="a", info=str(ts)) for ts in (1, 3, 5, 7)]
    case = Case(PAGES, plan, {("change", 0): changes, ("view", 0): [], ("view", 1): []})
    run = Scripted(case, snapshots=[Point(ts, 9, 0) for ts in (2, 4, 6)])
    run.finish()
    assert [states["alone"]["a"].info for states in run.tree_root.snapshots.values()] == ["1", "3", "5"]


def test_what_is_behind_a_cut_is_forgotten_and_events_are_given_back() -> None:
    made = started()
    made.handle("root", Request((change(5, "a"), change(7, "a"), change(8, "b")), Point(10, 0, 0), END))
    run = views((3, "a"), (4, "b"), (6, "a"), (7, "a"))
    made.handle(("view", 0), Data(("view", 0), run, Point(7, 1, 9)))
    assert made.waiting == 2, "they are lined up after the first change of a"
    assert list(made.hot) == ["a", "b"]
    effects, [found] = made.truncate(6)
    assert (found.part, [point.ts for point, _ in found.run]) == (("view", 0), [7])
    assert found.frontier == Point(7, 1, 9)
    assert not effects.outputs
    assert (made.waiting, made.first_waiting) == (1, Point(6, 1, 2))
    assert list(made.hot) == ["a"], "nothing is left of b"
    effects = made.handle("root", ForkState(Record({"info": "new a"}), Point(5, 0, 0), "a"))
    assert seen(effects) == ["a:new a"]
    assert not any(isinstance(message, Response) for _, message in effects.sends), "nothing is wanted any more"
    assert not made.hot


def test_who_was_asked_for_everything_is_not_cut_off() -> None:
    made = started()
    made.handle("root", Request((Item(Point(9, 0, 0), EVERYTHING),), Point(9, 0, 0), END))
    with pytest.raises(AssertionError, match="l0 was asked for everything"):
        made.truncate(5)
