"""Leaves of keyed programs: one key's state is given away, and the other keys go on."""

from __future__ import annotations

from flumina.apps import KeyCounter, PageViews
from flumina.keymap import KeyMap
from flumina.order import END, START, Point
from flumina.plan.tree import Worker
from flumina.program import define
from flumina.runtime.build import workers
from flumina.runtime.keyed_leaf import KeyedLeaf
from flumina.runtime.messages import EVERYTHING, Data, Handback, Item, Request, Response
from flumina.runtime.run import Run
from flumina.runtime.topology import Options
from flumina.runtime.worker import Effects
from flumina.state import Record
from tests.runtime.support import in_columns, itag, leaf, one_event, plan_of, streams

PAGES = define(PageViews)
LEAVES = tuple(leaf(f"l{n}", PAGES, itag(PAGES, "view", "view", parts=[n])) for n in range(2))
PLAN = plan_of(
    PageViews,
    streams(PageViews, change=1, view=2),
    Worker("root", PAGES.initial, (itag(PAGES, "change", "change"),), LEAVES),
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
    made.handle("root", Handback(state, START))
    return made


def seen(effects: Effects) -> list[str]:
    return [f"{row.values[0]}:{row.values[2]}" for row in effects.outputs if hasattr(row, "values")]


def test_only_the_state_of_the_wanted_key_is_given_away_and_other_keys_go_on() -> None:
    made = started()
    assert made.handle("root", Request((change(5, "a"),), Point(10, 0, 0), END)).sends == []
    run = views((3, "a"), (4, "b"), (6, "a"), (7, "b"))
    effects = made.handle(("view", 0), Data(("view", 0), run, Point(8, 1, 0)))
    assert seen(effects) == ["b:old b", "b:old b", "a:old a"], "the view of a behind the change waits, and only it"
    (response,) = [message for _, message in effects.sends if isinstance(message, Response)]
    assert response.key == "a"
    assert response.state == Record({"info": "old a"}), "not the map of all keys"
    assert made.waiting == 1
    effects = made.handle(("view", 0), Data(("view", 0), views((8, "b"), (9, "a")), Point(9, 1, 5)))
    assert seen(effects) == ["b:old b"], "b goes on while a is away"
    effects = made.handle("root", Handback(Record({"info": "new a"}), Point(5, 0, 0), "a"))
    assert seen(effects) == ["a:new a", "a:new a"]
    assert made.waiting == 0
    assert not made.hot, "a key that is settled costs nothing any more"


def test_clear_says_how_far_nothing_of_the_key_is_outstanding() -> None:
    for after, wanted in ((views((6, "a")), Point(6, 1, -1)), (views((6, "b")), Point(8, 1, 0))):
        made = started()
        made.handle("root", Request((change(5, "a"),), Point(9, 0, 0), END))
        effects = made.handle(("view", 0), Data(("view", 0), after, Point(8, 1, 0)))
        (response,) = [message for _, message in effects.sends if isinstance(message, Response)]
        assert response.clear[EVERYTHING] == wanted


def test_everything_is_given_away_only_when_no_key_is_wanted_or_away() -> None:
    made = started()
    snapshot = Item(Point(7, 5, 0), EVERYTHING)
    made.handle("root", Request((change(5, "a"), snapshot), Point(9, 0, 0), END))
    effects = made.handle(("view", 0), Data(("view", 0), views((6, "a"), (8, "b")), Point(8, 1, 5)))
    assert [m.key for _, m in effects.sends if isinstance(m, Response)] == ["a"]
    effects = made.handle("root", Handback(Record({"info": "new a"}), Point(5, 0, 0), "a"))
    assert seen(effects) == ["a:new a"]
    (response,) = [message for _, message in effects.sends if isinstance(message, Response)]
    assert response.key is None
    assert isinstance(response.state, KeyMap)
    assert response.state.pruned().keys() == {"a", "b"}
    assert made.waiting == 1, "the view behind the snapshot waits for the states"
    assert seen(made.handle("root", Handback(response.state, snapshot.point))) == ["b:old b"]


def test_a_leaf_that_only_adds_goes_on_from_nothing() -> None:
    counter = define(KeyCounter)
    below = tuple(leaf(f"l{n}", counter, itag(counter, "inc", "inc", parts=[n])) for n in range(2))
    root = Worker("root", counter.initial, (itag(counter, "read", "read"),), below)
    plan = plan_of(KeyCounter, streams(KeyCounter, inc=2, read=1), root)
    made = workers(plan, counter, Options())["l0"]
    made.handle("root", Handback(counter.init(), START))
    reads = tuple(Item(Point(ts, 1, 0), ("root", "read"), 7) for ts in (5, 9))
    made.handle("root", Request(reads, Point(9, 1, 0), END))
    entries = [one_event(counter, plan, "inc", ts, k=7) for ts in (1, 2, 6)]
    run = Run([point for point, _ in entries], [event for _, event in entries])
    effects = made.handle(("inc", 0), Data(("inc", 0), run, Point(10, 0, 0)))
    answers = [(m.point.ts, m.state.count) for _, m in effects.sends if isinstance(m, Response)]
    assert answers == [(5, 2), (9, 1)], "two contributions, without waiting in between"


def test_columns_are_divided_by_key_like_lists() -> None:
    """The same messages in columns have the same effects."""
    names = [shape.name for shape in PLAN.streams]
    told = []
    for columns in (False, True):
        made = started()
        made.handle("root", Request((change(5, "a"),), Point(9, 0, 0), END))
        run = views((3, "a"), (4, "b"), (6, "a"), (7, "b"))
        data = Data(("view", 0), in_columns(run, names) if columns else run, Point(8, 1, 0))
        effects = made.handle(("view", 0), data)
        told.append([(m.key, m.state, m.clear) for _, m in effects.sends if isinstance(m, Response)])
        assert made.waiting == 1
    assert told[0] == told[1]
