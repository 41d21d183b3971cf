"""Each rule of the invariants, broken once."""

from __future__ import annotations

import pytest

from flumina.apps import ValueBarrierByHand
from flumina.model.order import END, START, Point
from flumina.program.base import define
from flumina.runtime.build import workers as build
from flumina.runtime.inner import Inner
from flumina.runtime.messages import EVERYTHING, Data, ForkState, Item, Message, Request, Response, Stop
from flumina.runtime.run import EMPTY
from flumina.runtime.topology import TREE_ROOT, ProtocolOptions
from flumina.runtime.worker import Worker
from flumina.sim.invariants import Invariants, SimulationError
from tests.sim.plans import two_leaves

PART = ("values", 0)
P1, P2, P3 = (Point(n, 0, n) for n in (1, 2, 3))


@pytest.fixture
def workers() -> dict[str, Worker]:
    options = ProtocolOptions(hand_over=False)
    return dict(build(two_leaves(ValueBarrierByHand), define(ValueBarrierByHand), options))


@pytest.fixture
def invariants(workers: dict[str, Worker]) -> Invariants:
    invariants = Invariants(workers)
    invariants.sent(TREE_ROOT, "root", ForkState(0, START))
    invariants.delivered(TREE_ROOT, "root", ForkState(0, START))
    invariants.sent("root", "left", ForkState(0, START))
    return invariants


def request(*points: Point, frontier: Point = P3, snapshot_frontier: Point = END) -> Request:
    return Request(tuple(Item(point, ("root", "barrier")) for point in points), frontier, snapshot_frontier)


def asked(invariants: Invariants, *requests: Request) -> None:
    for one in requests:
        invariants.sent("root", "left", one)


def test_a_state_is_given_once(invariants: Invariants) -> None:
    with pytest.raises(SimulationError, match="the state of left goes down but is down, not above"):
        invariants.sent("root", "left", ForkState(0, START))


def test_a_state_that_has_not_arrived_is_not_answered_with(invariants: Invariants) -> None:
    with pytest.raises(SimulationError, match="goes up but is down, not below"):
        invariants.sent("left", "root", Response(P1, 0, {}))


def test_a_state_goes_round(invariants: Invariants) -> None:
    for point in (P1, P2):
        invariants.delivered("root", "left", ForkState(0, START))
        invariants.sent("left", "root", Response(point, 0, {}))
        invariants.delivered("left", "root", Response(point, 0, {}))
        invariants.sent("root", "left", ForkState(0, point))


def test_answers_are_in_order(invariants: Invariants) -> None:
    invariants.delivered("root", "left", ForkState(0, START))
    invariants.sent("left", "root", Response(P2, 0, {}))
    with pytest.raises(SimulationError, match=r"left answers for .* after"):
        invariants.sent("left", "root", Response(P1, 0, {}))


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (request(frontier=P2), request(frontier=P1), "goes back"),
        (request(snapshot_frontier=P2), request(snapshot_frontier=P1), "goes back"),
        (request(P1, frontier=P1), request(P1, frontier=P2), "was announced"),
        (request(frontier=P2), request(P2, frontier=P3), "was announced"),
        (request(), request(P3, frontier=P3), "was announced"),
        (request(frontier=START), request(P2, P1), "after"),
        (request(frontier=START), request(P2, frontier=P1), "beyond"),
    ],
)
def test_requests_are_in_order_and_behind_the_frontier(
    invariants: Invariants, first: Request, second: Request, message: str
) -> None:
    asked(invariants, first)
    with pytest.raises(SimulationError, match=message):
        asked(invariants, second)


def test_good_requests_pass(invariants: Invariants) -> None:
    asked(
        invariants, request(P1, frontier=P1, snapshot_frontier=P1), request(P2, P3, frontier=P3), request(frontier=P3)
    )
    invariants.sent("root", "left", Request((Item(END, EVERYTHING),), END, END))


@pytest.mark.parametrize("message", [ForkState(0, START), Request((), END, END), Stop()])
def test_nothing_follows_the_stop(invariants: Invariants, message: Message) -> None:
    invariants.sent("root", "right", Stop())
    with pytest.raises(SimulationError, match="root stopped right and then sent it"):
        invariants.sent("root", "right", message)


def test_data_comes_from_sources_only(invariants: Invariants) -> None:
    with pytest.raises(SimulationError, match="root sent left Data"):
        invariants.sent("root", "left", Data(PART, EMPTY, END))


def test_a_leaf_holds_what_it_was_given(invariants: Invariants, workers: dict[str, Worker]) -> None:
    invariants.delivered("root", "left", ForkState(0, START))
    with pytest.raises(SimulationError, match=r"left holds \[\]; its state is below"):
        invariants.check(workers["left"])


def test_a_leaf_does_not_keep_what_it_gave_away(invariants: Invariants, workers: dict[str, Worker]) -> None:
    workers["left"].handle("root", ForkState(7, START))
    with pytest.raises(SimulationError, match=r"left holds \[7\]; its state is down"):
        invariants.check(workers["left"])


def test_an_inner_worker_holds_what_messages_say(workers: dict[str, Worker]) -> None:
    root = workers["root"]
    assert isinstance(root, Inner)
    invariants = Invariants(workers)
    invariants.check(root)
    invariants.sent(TREE_ROOT, "root", ForkState(0, START))
    invariants.delivered(TREE_ROOT, "root", ForkState(0, START))
    with pytest.raises(SimulationError, match="root is away: below"):
        invariants.check(root)
    root.handle(TREE_ROOT, ForkState(0, START))
    with pytest.raises(SimulationError, match="root holds 0 states of left, which is above"):
        invariants.check(root)
    for child in ("left", "right"):
        invariants.sent("root", child, ForkState(0, START))
    invariants.check(root)
    root.children[0].state = 5
    with pytest.raises(SimulationError, match="root holds 1 states of left, which is down"):
        invariants.check(root)


def test_a_joined_state_is_not_kept_when_it_is_given_away(workers: dict[str, Worker]) -> None:
    root = workers["root"]
    assert isinstance(root, Inner)
    root.state = 3
    with pytest.raises(SimulationError, match="gave its state away and holds 3"):
        Invariants(workers).check(root)


def test_credits_are_neither_lost_nor_made(invariants: Invariants, workers: dict[str, Worker]) -> None:
    invariants.arrived(PART, "left", 3)
    workers["left"].handle("root", ForkState(0, START))
    invariants.delivered("root", "left", ForkState(0, START))
    with pytest.raises(SimulationError, match="left owes credits for 3 events; 0 wait"):
        invariants.check(workers["left"])
    invariants.credited(PART, "left", 2)
    with pytest.raises(SimulationError, match="credits were never given back"):
        invariants.check_end()
    with pytest.raises(SimulationError, match="1 too many"):
        invariants.credited(PART, "left", 2)


def test_credits_are_of_one_part_and_one_worker(workers: dict[str, Worker]) -> None:
    invariants = Invariants(workers, limit=4)
    invariants.events_sent(PART, "left", 4)
    invariants.events_sent(PART, "right", 1)
    invariants.events_sent(("values", 1), "left", 4)
    with pytest.raises(SimulationError, match="sends left 1 events more than it has credits for"):
        invariants.events_sent(PART, "left", 1)
    invariants = Invariants(workers, limit=4)
    invariants.events_sent(PART, "left", 4)
    invariants.refilled(PART, "left", 3)
    invariants.events_sent(PART, "left", 3)
    invariants.refilled(PART, "left", 3)
    with pytest.raises(SimulationError, match=r"credits were lost on the way: .*'left'.: 1"):
        invariants.check_end()
    with pytest.raises(SimulationError, match="gets 1 credits from right for events that it never sent"):
        invariants.refilled(PART, "right", 1)
    invariants.refilled(PART, "left", 1)
    with pytest.raises(SimulationError, match="gets 1 credits from left"):
        invariants.refilled(PART, "left", 1)


def test_states_of_single_keys_go_round_by_themselves(invariants: Invariants) -> None:
    invariants.delivered("root", "left", ForkState({}, START))
    invariants.sent("left", "root", Response(P1, 1, {}, "a"))
    invariants.delivered("left", "root", Response(P1, 1, {}, "a"))
    invariants.sent("left", "root", Response(P1, 1, {}, "b"))
    with pytest.raises(SimulationError, match="the states of left go up, though some are elsewhere"):
        invariants.sent("left", "root", Response(P2, {}, {}))
    with pytest.raises(SimulationError, match="the state of left for 'a' goes up but is above"):
        invariants.sent("left", "root", Response(P3, 1, {}, "a"))
    invariants.sent("root", "left", ForkState(1, P1, "a"))
    with pytest.raises(SimulationError, match="the state of left for 'a' goes down but is down"):
        invariants.sent("root", "left", ForkState(1, P1, "a"))


def test_everybody_is_stopped(invariants: Invariants) -> None:
    invariants.sent("root", "left", Stop())
    with pytest.raises(SimulationError, match=r"never stopped: \['right', 'root'\]"):
        invariants.check_end()
