"""The tree_root: it starts the run, takes snapshots, and ends it."""

from __future__ import annotations

from typing import Any

import pytest

from flumina.model.order import END, START, Point, heartbeat
from flumina.runtime.messages import EVERYTHING, ForkState, Item, Request, Response, Stop
from flumina.runtime.tree_root import TreeRoot

FIRST, SECOND = heartbeat(1, 0), Point(2, 0, 0)


def test_it_gives_the_state_and_asks_for_everything() -> None:
    begin = TreeRoot({"one": "state", "other": "rest"}, [FIRST, SECOND]).begin()
    request = Request(tuple(Item(point, EVERYTHING) for point in (FIRST, SECOND, END)), END, END)
    assert begin.sends == [
        ("one", ForkState("state", START)),
        ("one", request),
        ("other", ForkState("rest", START)),
        ("other", request),
    ]


def test_a_snapshot_is_kept_and_the_state_goes_back() -> None:
    made = TreeRoot({"root": None}, [FIRST])
    state: list[Any] = [1]
    assert made.handle("root", Response(FIRST, state, {})).sends == [("root", ForkState(state, FIRST))]
    state.append(2)
    assert made.snapshots == {FIRST: {"root": [1]}}
    assert not made.finished


def test_the_last_state_of_every_tree_ends_the_run() -> None:
    made = TreeRoot({"one": None, "other": None}, ends=False)
    assert [to for to, _ in made.end().sends] == ["one", "other"]
    assert made.handle("other", Response(END, "last", {})).sends == [("other", Stop())]
    assert not made.finished
    assert made.handle("one", Response(END, "very last", {})).sends == [("one", Stop())]
    assert made.finished
    assert made.final == {"one": "very last", "other": "last"}


def test_where_no_tree_is_nothing_is_to_be_done() -> None:
    made = TreeRoot({}, ends=False)
    assert made.finished
    assert not made.begin().sends
    assert not made.end().sends


@pytest.mark.parametrize("at", [[SECOND, FIRST], [FIRST, FIRST], [START], [END]])
def test_snapshots_lie_ahead_in_order(at: list[Point]) -> None:
    with pytest.raises(AssertionError):
        TreeRoot({"root": None}, at)


def test_a_run_taken_up_later_starts_there() -> None:
    made = TreeRoot({"root": "state"}, [SECOND], start=FIRST)
    assert made.begin().sends[0] == ("root", ForkState("state", FIRST))
    with pytest.raises(AssertionError):
        TreeRoot({"root": "state"}, [FIRST], start=FIRST)


def test_it_takes_answers_of_its_trees_only() -> None:
    with pytest.raises(AssertionError):
        TreeRoot({"root": None}).handle("other", Response(END, None, {}))
    with pytest.raises(AssertionError):
        TreeRoot({"root": None}).handle("root", Stop())
