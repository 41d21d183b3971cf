"""Each rule of the ledger, broken once."""

from __future__ import annotations

import pytest

from flumina.apps import ValueBarrierByHand
from flumina.order import END, START, Point
from flumina.program import define
from flumina.runtime.build import workers as build
from flumina.runtime.inner import Inner
from flumina.runtime.messages import EVERYTHING, Data, Handback, Item, Message, Request, Response, Stop
from flumina.runtime.run import EMPTY
from flumina.runtime.topology import COORDINATOR, Options
from flumina.runtime.worker import Worker
from flumina.sim.ledger import Ledger, SimulationError
from tests.sim.plans import two_leaves

PART = ("values", 0)
P1, P2, P3 = (Point(n, 0, n) for n in (1, 2, 3))


@pytest.fixture
def workers() -> dict[str, Worker]:
    options = Options(hand_over=False)
    return dict(build(two_leaves(ValueBarrierByHand), define(ValueBarrierByHand), options))


@pytest.fixture
def ledger(workers: dict[str, Worker]) -> Ledger:
    ledger = Ledger(workers)
    ledger.sent(COORDINATOR, "root", Handback(0, START))
    ledger.delivered(COORDINATOR, "root", Handback(0, START))
    ledger.sent("root", "left", Handback(0, START))
    return ledger


def request(*points: Point, frontier: Point = P3, calm: Point = END) -> Request:
    return Request(tuple(Item(point, ("root", "barrier")) for point in points), frontier, calm)


def asked(ledger: Ledger, *requests: Request) -> None:
    for one in requests:
        ledger.sent("root", "left", one)


def test_a_state_is_given_once(ledger: Ledger) -> None:
    with pytest.raises(SimulationError, match="the state of left goes down but is down, not above"):
        ledger.sent("root", "left", Handback(0, START))


def test_a_state_that_has_not_arrived_is_not_answered_with(ledger: Ledger) -> None:
    with pytest.raises(SimulationError, match="goes up but is down, not below"):
        ledger.sent("left", "root", Response(P1, 0, {}))


def test_a_state_goes_round(ledger: Ledger) -> None:
    for point in (P1, P2):
        ledger.delivered("root", "left", Handback(0, START))
        ledger.sent("left", "root", Response(point, 0, {}))
        ledger.delivered("left", "root", Response(point, 0, {}))
        ledger.sent("root", "left", Handback(0, point))


def test_answers_are_in_order(ledger: Ledger) -> None:
    ledger.delivered("root", "left", Handback(0, START))
    ledger.sent("left", "root", Response(P2, 0, {}))
    with pytest.raises(SimulationError, match=r"left answers for .* after"):
        ledger.sent("left", "root", Response(P1, 0, {}))


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (request(frontier=P2), request(frontier=P1), "goes back"),
        (request(calm=P2), request(calm=P1), "goes back"),
        (request(P1, frontier=P1), request(P1, frontier=P2), "was announced"),
        (request(frontier=P2), request(P2, frontier=P3), "was announced"),
        (request(), request(P3, frontier=P3), "was announced"),
        (request(frontier=START), request(P2, P1), "behind"),
        (request(frontier=START), request(P2, frontier=P1), "beyond"),
    ],
)
def test_requests_are_in_order_and_behind_the_frontier(
    ledger: Ledger, first: Request, second: Request, message: str
) -> None:
    asked(ledger, first)
    with pytest.raises(SimulationError, match=message):
        asked(ledger, second)


def test_good_requests_pass(ledger: Ledger) -> None:
    asked(ledger, request(P1, frontier=P1, calm=P1), request(P2, P3, frontier=P3), request(frontier=P3))
    ledger.sent("root", "left", Request((Item(END, EVERYTHING),), END, END))


@pytest.mark.parametrize("message", [Handback(0, START), Request((), END, END), Stop()])
def test_nothing_follows_the_stop(ledger: Ledger, message: Message) -> None:
    ledger.sent("root", "right", Stop())
    with pytest.raises(SimulationError, match="root stopped right and then sent it"):
        ledger.sent("root", "right", message)


def test_data_comes_from_sources_only(ledger: Ledger) -> None:
    with pytest.raises(SimulationError, match="root sent left Data"):
        ledger.sent("root", "left", Data(PART, EMPTY, END))


def test_a_leaf_holds_what_it_was_given(ledger: Ledger, workers: dict[str, Worker]) -> None:
    ledger.delivered("root", "left", Handback(0, START))
    with pytest.raises(SimulationError, match=r"left holds \[\]; its state is below"):
        ledger.check(workers["left"])


def test_a_leaf_does_not_keep_what_it_gave_away(ledger: Ledger, workers: dict[str, Worker]) -> None:
    workers["left"].handle("root", Handback(7, START))
    with pytest.raises(SimulationError, match=r"left holds \[7\]; its state is down"):
        ledger.check(workers["left"])


def test_an_inner_worker_holds_what_messages_say(workers: dict[str, Worker]) -> None:
    root = workers["root"]
    assert isinstance(root, Inner)
    ledger = Ledger(workers)
    ledger.check(root)
    ledger.sent(COORDINATOR, "root", Handback(0, START))
    ledger.delivered(COORDINATOR, "root", Handback(0, START))
    with pytest.raises(SimulationError, match="root is away: below"):
        ledger.check(root)
    root.handle(COORDINATOR, Handback(0, START))
    with pytest.raises(SimulationError, match="root holds 0 states of left, which is above"):
        ledger.check(root)
    for child in ("left", "right"):
        ledger.sent("root", child, Handback(0, START))
    ledger.check(root)
    root.children[0].state = 5
    with pytest.raises(SimulationError, match="root holds 1 states of left, which is down"):
        ledger.check(root)


def test_a_joined_state_is_not_kept_when_it_is_given_away(workers: dict[str, Worker]) -> None:
    root = workers["root"]
    assert isinstance(root, Inner)
    root.state = 3
    with pytest.raises(SimulationError, match="gave its state away and holds 3"):
        Ledger(workers).check(root)


def test_credits_are_neither_lost_nor_made(ledger: Ledger, workers: dict[str, Worker]) -> None:
    ledger.arrived(PART, "left", 3)
    workers["left"].handle("root", Handback(0, START))
    ledger.delivered("root", "left", Handback(0, START))
    with pytest.raises(SimulationError, match="left owes credits for 3 events; 0 wait"):
        ledger.check(workers["left"])
    ledger.credited(PART, "left", 2)
    with pytest.raises(SimulationError, match="credits were never given back"):
        ledger.check_end()
    with pytest.raises(SimulationError, match="1 too many"):
        ledger.credited(PART, "left", 2)


def test_credits_are_of_one_part_and_one_worker(workers: dict[str, Worker]) -> None:
    ledger = Ledger(workers, limit=4)
    ledger.fed(PART, "left", 4)
    ledger.fed(PART, "right", 1)
    ledger.fed(("values", 1), "left", 4)
    with pytest.raises(SimulationError, match="sends left 1 events more than it has credits for"):
        ledger.fed(PART, "left", 1)
    ledger = Ledger(workers, limit=4)
    ledger.fed(PART, "left", 4)
    ledger.refilled(PART, "left", 3)
    ledger.fed(PART, "left", 3)
    ledger.refilled(PART, "left", 3)
    with pytest.raises(SimulationError, match=r"credits were lost on the way: .*'left'.: 1"):
        ledger.check_end()
    with pytest.raises(SimulationError, match="gets 1 credits from right for events that it never sent"):
        ledger.refilled(PART, "right", 1)
    ledger.refilled(PART, "left", 1)
    with pytest.raises(SimulationError, match="gets 1 credits from left"):
        ledger.refilled(PART, "left", 1)


def test_states_of_single_keys_go_round_by_themselves(ledger: Ledger) -> None:
    ledger.delivered("root", "left", Handback({}, START))
    ledger.sent("left", "root", Response(P1, 1, {}, "a"))
    ledger.delivered("left", "root", Response(P1, 1, {}, "a"))
    ledger.sent("left", "root", Response(P1, 1, {}, "b"))
    with pytest.raises(SimulationError, match="the states of left go up, though some are elsewhere"):
        ledger.sent("left", "root", Response(P2, {}, {}))
    with pytest.raises(SimulationError, match="the state of left for 'a' goes up but is above"):
        ledger.sent("left", "root", Response(P3, 1, {}, "a"))
    ledger.sent("root", "left", Handback(1, P1, "a"))
    with pytest.raises(SimulationError, match="the state of left for 'a' goes down but is down"):
        ledger.sent("root", "left", Handback(1, P1, "a"))


def test_everybody_is_stopped(ledger: Ledger) -> None:
    ledger.sent("root", "left", Stop())
    with pytest.raises(SimulationError, match=r"never stopped: \['right', 'root'\]"):
        ledger.check_end()
