"""Inner workers, message by message."""

from __future__ import annotations

import pytest

from flumina.model.order import END, START, Point, heartbeat
from flumina.program.base import define
from flumina.runtime.build import workers
from flumina.runtime.inner import Inner
from flumina.runtime.messages import EVERYTHING, Cause, Credit, Data, ForkState, Item, Message, Request, Response, Stop
from flumina.runtime.run import EMPTY, Run
from flumina.runtime.topology import TREE_ROOT, ProtocolOptions
from flumina.runtime.worker import Address
from tests.runtime.support import COALESCED, PLAIN, Chain, chain_plan, one_event

DEFINITION = define(Chain)
PLAN = chain_plan()
KEPT = ProtocolOptions(hand_over=False)
C, A = ("middle", "c"), ("root", "a")
Sends = list[tuple[Address, Message]]


def middle(options: ProtocolOptions = KEPT, *, started: bool = True) -> Inner:
    """The worker of ``c``, above the leaves of x and z and below the root."""
    made = workers(PLAN, DEFINITION, options)["middle"]
    assert isinstance(made, Inner)
    if started:
        made.handle("root", ForkState(DEFINITION.init(), START))
        made.handle("root", Request((), START, END))
    return made


def own(made: Inner, *ts: int, frontier: int) -> Sends:
    entries = [one_event(DEFINITION, PLAN, "c", at) for at in ts]
    run = Run([point for point, _ in entries], [event for _, event in entries]) if ts else EMPTY
    return made.handle(("c", 0), Data(("c", 0), run, heartbeat(frontier, 1))).sends


def word(made: Inner, frontier: int, *items: Item, snapshot_frontier: Point = END) -> Sends:
    return made.handle("root", Request(items, heartbeat(frontier, 0), snapshot_frontier)).sends


def answer(made: Inner, leaf: str, point: Point, upto: int, **counts: int) -> Sends:
    """A leaf's answer; it is settled up to a timestamp."""
    state = DEFINITION.init()
    for name, count in counts.items():
        setattr(state, name, count)
    settled: dict[Cause, Point] = dict.fromkeys((A, C, EVERYTHING), heartbeat(upto, 4))
    return made.handle(leaf, Response(point, state, settled)).sends


def of(sends: Sends, kind: type[Message]) -> list[Message]:
    return [message for _, message in sends if isinstance(message, kind)]


def frontiers(sends: Sends) -> list[Point]:
    """How far children may go."""
    return [message.frontier for _, message in sends if isinstance(message, Request)]


def at(ts: int) -> Point:
    return Point(ts, 1, 0)


def test_own_events_and_requests_become_one_sequence() -> None:
    made = middle()
    assert of(own(made, 1, 5, frontier=9), Request) == []
    sends = word(made, 4, Item(Point(3, 0, 0), A))
    items = (Item(at(1), C), Item(Point(3, 0, 0), A))
    assert of(sends, Request) == [Request(items, heartbeat(4, 0), END)] * 2
    assert [to for to, _ in sends] == ["leaf x", "leaf z"]
    assert of(word(made, 7), Request) == [Request((Item(at(5), C),), heartbeat(7, 0), END)] * 2


def test_without_pipelining_one_at_a_time_and_the_frontier_before_the_next() -> None:
    made = middle(COALESCED)
    own(made, 1, 5, frontier=9)
    assert of(word(made, 9), Request)[0] == Request((Item(at(1), C),), Point(5, 1, -1), END)
    answer(made, "leaf x", at(1), 1)
    sends = answer(made, "leaf z", at(1), 1)
    assert of(sends, Request)[0] == Request((Item(at(5), C),), heartbeat(9, 0), END)


def test_a_join_serves_and_gives_back() -> None:
    made = middle()
    word(made, 9)
    own(made, 1, frontier=2)
    assert answer(made, "leaf x", at(1), 1, xs=2) == []
    effects = answer(made, "leaf z", at(1), 1, zs=3)
    backs = [(to, message.state.xs, message.served) for to, message in effects if isinstance(message, ForkState)]
    assert sorted(backs) == [("leaf x", 2, at(1)), ("leaf z", 0, at(1))]
    assert of(effects, Credit) == [Credit(("c", 0), 1)]
    assert (made.stats.joins, made.stats.forks, made.stats.events, made.stats.coalesced) == (1, 2, 1, 0)


def test_what_is_clear_is_served_without_giving_back() -> None:
    made = middle()
    word(made, 9)
    own(made, 1, 2, 3, 4, frontier=9)
    answer(made, "leaf x", at(1), 9)
    sends = answer(made, "leaf z", at(1), 3)
    assert [message.served for message in of(sends, ForkState) if isinstance(message, ForkState)] == [at(3)] * 2
    assert of(sends, Credit) == [Credit(("c", 0), 3)]
    assert (made.stats.joins, made.stats.coalesced, made.waiting) == (1, 2, 1)


def test_clear_up_to_the_very_point_is_enough() -> None:
    made = middle()
    word(made, 9)
    own(made, 1, 2, frontier=9)
    for child in ("leaf x", "leaf z"):
        made.handle(child, Response(at(1), DEFINITION.init(), dict.fromkeys((A, C, EVERYTHING), at(2))))
    assert (made.stats.coalesced, made.waiting) == (1, 0)


def test_a_snapshot_served_without_being_passed_on_is_no_longer_told_of() -> None:
    made = middle(COALESCED)
    own(made, 1, frontier=9)
    word(made, 9, Item(heartbeat(5, 0), (EVERYTHING[0], EVERYTHING[1])))  # equal to it, as it arrives
    answer(made, "leaf x", at(1), 9)
    sends = answer(made, "leaf z", at(1), 9)
    assert [message.point for message in of(sends, Response) if isinstance(message, Response)] == [heartbeat(5, 0)]
    assert not made.unannounced


@pytest.mark.parametrize("options", [PLAIN, ProtocolOptions(coalesce=False)], ids=str)
def test_coalescing_can_be_switched_off(options: ProtocolOptions) -> None:
    made = middle(options)
    word(made, 9)
    own(made, 1, 2, frontier=9)
    answer(made, "leaf x", at(1), 9)
    answer(made, "leaf z", at(1), 9)
    assert (made.stats.events, made.stats.coalesced) == (1, 0)


def test_the_parent_gets_the_state_and_what_is_clear() -> None:
    made = middle()
    own(made, 4, 8, frontier=9)
    word(made, 6, Item(Point(5, 0, 0), A))
    answer(made, "leaf x", at(4), 7, xs=1)
    sends = answer(made, "leaf z", at(4), 6, zs=1)
    assert [to for to, _ in sends][-1] == ("c", 0)
    (response,) = [message for message in of(sends, Response) if isinstance(message, Response)]
    assert (response.point, response.state.xs, response.state.zs) == (Point(5, 0, 0), 1, 0)
    assert response.settled == {A: heartbeat(6, 4), EVERYTHING: heartbeat(6, 4)}
    assert made.away
    assert made.holdings() == []


def test_clear_knows_own_events_that_wait() -> None:
    made = middle()
    own(made, 4, 6, frontier=9)
    word(made, 5, Item(Point(5, 0, 0), A))
    answer(made, "leaf x", at(4), 8)
    sends = answer(made, "leaf z", at(4), 8)
    (response,) = [message for message in of(sends, Response) if isinstance(message, Response)]
    assert set(response.settled.values()) == {Point(6, 1, -1)}


def test_requests_that_the_parent_has_settled_are_dropped() -> None:
    made = middle()
    own(made, frontier=9)
    word(made, 9, Item(Point(2, 0, 0), A), Item(Point(3, 0, 0), A), Item(Point(5, 0, 0), A))
    answer(made, "leaf x", Point(2, 0, 0), 4)
    answer(made, "leaf z", Point(2, 0, 0), 4)
    sends = made.handle("root", ForkState(DEFINITION.init(), Point(3, 0, 0))).sends
    assert [message.served for message in of(sends, ForkState) if isinstance(message, ForkState)] == [
        Point(3, 0, 0)
    ] * 2
    assert [item.point for item, _ in made.sequence] == [Point(5, 0, 0)]


def test_a_snapshot_that_is_not_passed_on_yet_is_told_of() -> None:
    made = middle(COALESCED)
    own(made, 1, frontier=2)
    snapshot = Item(heartbeat(5, 0), EVERYTHING)
    assert of(word(made, 9, snapshot), Request)[0] == Request(
        (Item(at(1), C),), heartbeat(2, 1), Point(5, 0, snapshot.point.seq - 1)
    )
    answer(made, "leaf x", at(1), 1)
    answer(made, "leaf z", at(1), 1)
    assert of(own(made, frontier=9), Request)[0] == Request((snapshot,), heartbeat(9, 0), END)


def test_a_child_that_hands_over_is_given_no_state_back() -> None:
    made = middle(ProtocolOptions())
    word(made, 9)
    own(made, 1, 3, frontier=9)
    answer(made, "leaf x", at(1), 1, xs=2)
    answer(made, "leaf x", at(3), 3, xs=1)
    assert made.children[0].state.xs == 2, "what belongs to a later point waits"
    sends = answer(made, "leaf z", at(1), 1, zs=5)
    assert of(sends, ForkState) == []
    assert made.children[0].state.xs == 3
    assert of(answer(made, "leaf z", at(3), 3), ForkState) == []
    assert [child.state.xs for child in made.children] == [3, 0]
    assert len(made.holdings()) == 2


def test_an_answer_for_another_point_is_refused() -> None:
    made = middle()
    word(made, 9)
    own(made, 1, frontier=9)
    answer(made, "leaf x", at(1), 1)
    with pytest.raises(AssertionError, match="answered"):
        answer(made, "leaf z", at(2), 1)
    with pytest.raises(AssertionError, match="answered"):
        answer(made, "leaf z", Point(1, 0, 0), 1)


def test_a_state_is_not_given_twice() -> None:
    made = middle()
    with pytest.raises(AssertionError, match="while it has it"):
        made.handle("root", ForkState(DEFINITION.init(), START))


def test_stalls_name_what_blocks() -> None:
    made = middle(started=False)
    assert made.stall() is None
    own(made, 1, frontier=2)
    assert str(made.stall()) == "middle waits for its state from root before what is at (1, 1, 0)"
    made = middle()
    own(made, 1, frontier=2)
    assert str(made.stall()).startswith("middle waits for word from root, which is at")
    word(made, 9, Item(Point(5, 0, 0), A))
    assert str(made.stall()) == "middle waits for the states of its children before what is at (1, 1, 0)"
    answer(made, "leaf x", at(1), 1)
    answer(made, "leaf z", at(1), 1)
    assert str(made.stall()) == f"middle waits for c[0], which is at {(2, 1, END.seq)}, before what is at (5, 0, 0)"


def test_a_request_that_waits_is_a_stall_too() -> None:
    made = middle()
    own(made, frontier=9)
    word(made, 9, Item(Point(5, 0, 0), A), Item(Point(6, 0, 0), A))
    assert str(made.stall()) == "middle waits for the states of its children before what is at (5, 0, 0)"


def test_the_end_is_passed_on_and_late_answers_of_children_that_hand_over_are_taken() -> None:
    for options, late in ((KEPT, False), (ProtocolOptions(), True)):
        made = middle(options)
        assert made.handle("root", Stop()).sends == [("leaf x", Stop()), ("leaf z", Stop())]
        if late:
            assert answer(made, "leaf x", at(1), 1) == []
        else:
            with pytest.raises(AssertionError, match="was stopped"):
                answer(made, "leaf x", at(1), 1)
        with pytest.raises(AssertionError, match="was stopped"):
            own(made, 1, frontier=1)


def test_late_answers_of_a_child_that_waits_are_refused() -> None:
    made = workers(PLAN, DEFINITION)["root"]
    made.handle(TREE_ROOT, Stop())
    assert made.handle("leaf y", Response(END, None, {})).sends == []
    with pytest.raises(AssertionError, match="was stopped"):
        made.handle("middle", Response(END, None, {}))
    with pytest.raises(AssertionError, match="was stopped"):
        made.handle("a stranger", Response(END, None, {}))


def test_the_root_of_a_plan_has_only_the_coordinator_above() -> None:
    made = workers(PLAN, DEFINITION)["root"]
    assert made.shape.parent == TREE_ROOT


@pytest.mark.parametrize("pipeline", [True, False])
def test_what_is_behind_a_cut_is_forgotten_and_own_events_are_given_back(pipeline: bool) -> None:  # noqa: FBT001
    made = middle(ProtocolOptions(coalesce=False, pipeline=pipeline, hand_over=False))
    own(made, 1, 5, 6, 8, frontier=9)
    word(made, 7, *(Item(Point(ts, 0, 0), A) for ts in (3, 7, 9)))
    assert made.waiting == 4
    effects, [found] = made.truncate(5)
    assert (found.part, [point.ts for point, _ in found.run], found.frontier) == (("c", 0), [6, 8], heartbeat(9, 1))
    assert [(item.point.ts, event is None) for item, event in made.sequence] == [(1, False), (3, True), (5, False)]
    assert made.known == END
    assert (made.waiting, made.first_waiting, not made.requests) == (2, at(1), True)
    for ts in (1, 3, 5):
        point = Point(ts, 0, 0) if ts == 3 else at(ts)
        answer(made, "leaf x", point, ts)
        sends = answer(made, "leaf z", point, ts)
        if ts == 3:
            [response] = of(sends, Response)
            assert isinstance(response, Response)
            sends = made.handle("root", ForkState(response.state, point)).sends
        assert len(of(sends, ForkState)) == 2
    assert (made.waiting, made.first_waiting, made.stats.events) == (0, None, 2)
    assert not effects.outputs


def test_a_parent_that_is_at_the_very_point_is_not_waited_for() -> None:
    made = middle()
    made.handle("root", Request((), at(5), END))
    own(made, 5, frontier=9)
    assert str(made.stall()).startswith("middle waits for the states of its children")


def test_who_is_cut_off_tells_at_once_how_far_the_children_may_go() -> None:
    """Its own events end at the cut, and nothing else may come to it for a while; after the stop nobody is told."""
    for stopped in (False, True):
        made = middle()
        own(made, frontier=7)
        assert frontiers(word(made, 20)) == [heartbeat(7, 1)] * 2
        if stopped:
            made.handle("root", Stop())
        effects, found = made.truncate(5)
        assert frontiers(effects.sends) == ([] if stopped else [heartbeat(20, 0)] * 2)
        assert [message.frontier for message in found] == [heartbeat(7, 1)]


def test_who_was_asked_for_everything_is_not_cut_off() -> None:
    made = middle()
    word(made, 3, Item(Point(7, 0, 0), EVERYTHING))
    with pytest.raises(AssertionError, match="middle was asked for everything"):
        made.truncate(5)
