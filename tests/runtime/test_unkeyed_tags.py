"""Keyed programs with a tag that sees all keys: a keyed event moves one key's state, an unkeyed one all states."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import flumina as fl
from flumina.model.order import END, START, Point
from flumina.plan.tree import Plan, PlanWorker
from flumina.program.base import define
from flumina.runtime.build import workers
from flumina.runtime.keyed_inner import KeyedInner
from flumina.runtime.keyed_leaf import KeyedLeaf
from flumina.runtime.messages import EVERYTHING, Data, ForkState, Item, Message, Request, Response, one_by_one
from flumina.runtime.run import Run
from flumina.runtime.topology import ProtocolOptions
from flumina.runtime.worker import Effects
from flumina.sim.case import Case
from flumina.state.record import Record
from tests.runtime.support import Scripted, in_columns, itag, leaf, one_event, plan_of, streams


class Shop(fl.KeyedProgram):
    """Sales at the price of the moment, and a report of all prices."""

    price = fl.Tag("amount long NOT NULL", key="item long")
    sale = fl.Tag(key="item long")
    report = fl.Tag()
    depends = fl.depends((price, price), (price, sale), (report, report), (report, price))
    output = "item long, amount long"
    amount = fl.Replicated("long", 0, read_by=[sale, report], set_by=[price])

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        if event.tag is self.price:
            state.amount = event.amount
        else:
            emit(event.item, state.amount)

    def update_all(self, states: dict[int, fl.State], event: fl.Event, emit: fl.Emit) -> None:
        emit(-1, sum(state.amount for state in states.values()))


SHOP = define(Shop)


def plan(*, report_below: bool = False) -> Plan:
    """Prices above two leaves with sales; reports are with the prices, or on the left leaf."""
    reports = itag(SHOP, "report", "report")
    sales = [itag(SHOP, "sale", "sale", parts=[n]) for n in (0, 1)]
    below = (leaf("l0", SHOP, sales[0], *((reports,) if report_below else ())), leaf("l1", SHOP, sales[1]))
    above = (itag(SHOP, "price", "price"), *(() if report_below else (reports,)))
    root = PlanWorker("root", SHOP.initial, above, below)
    return plan_of(Shop, streams(Shop, price=1, sale=2, report=1), root)


class Counted(Scripted):
    """Counts the keys whose states go over each edge, by what they were wanted for."""

    def deliver(self, which: int) -> None:
        link = self.network.busy[which]
        for message in one_by_one(self.network.links[link][0]):
            if link[0] != "^" and link[1] != "^":
                self.moved.update(keys_in(message))
        super().deliver(which)

    @property
    def moved(self) -> Counter[str]:
        return self.__dict__.setdefault("keys", Counter())  # type: ignore[no-any-return]


def keys_in(message: Message) -> dict[str, int]:
    if not isinstance(message, Response | ForkState):
        return {}
    if message.key is not None:
        return {"one by one": 1}
    return {"all at once": 0 if message.state is None else len(message.state.pruned())}


def moved(items: int, prices: int, reports: int, options: ProtocolOptions) -> tuple[Counter[str], Counter[str]]:
    """The keys that are moved with so many items, prices of a hot one and reports; and all that was done."""
    made = plan()
    entries = {
        ("price", 0): [one_event(SHOP, made, "price", n, item=1 + n, amount=1) for n in range(items)]
        + [one_event(SHOP, made, "price", items + 10 * n, item=0, amount=n) for n in range(prices)],
        **{
            ("sale", part): [one_event(SHOP, made, "sale", items + 10 * n + 1 + part, n, item=0) for n in range(prices)]
            for part in (0, 1)
        },
        ("report", 0): [
            one_event(SHOP, made, "report", items + 10 * prices * (n + 1) // (reports + 1)) for n in range(reports)
        ],
    }
    case = Case(SHOP, made, entries)
    run = Counted(case, options=options)
    run.finish()
    assert run.run().outputs == case.outputs()
    return run.moved, Counter({"joins": run.workers["root"].stats.joins})


@pytest.mark.parametrize("pipeline", [True, False])
def test_a_keyed_event_moves_one_key_and_an_unkeyed_one_all(pipeline: bool) -> None:  # noqa: FBT001
    """20,000 keys would be moved 2 x 2 x 50 times if each price of the hot item moved all of them."""
    options = ProtocolOptions(coalesce=False, pipeline=pipeline, final=False)
    items = 2_000
    found, done = moved(items, prices=50, reports=1, options=options)
    assert done["joins"] == items + 50 + 1, "a price of an item, and the report"
    assert found["one by one"] == 2 * 2 * (items + 50), "up and down, to either side"
    both_ways = 2 * items
    assert found["all at once"] <= 2 * both_ways + 4, "for the report only"
    more, _ = moved(items, prices=100, reports=1, options=options)
    assert more["one by one"] - found["one by one"] == 2 * 2 * 50
    assert more["all at once"] == found["all at once"]
    again, _ = moved(items, prices=50, reports=2, options=options)
    assert again["one by one"] == found["one by one"]
    assert again["all at once"] == 2 * found["all at once"]


# -- leaves ------------------------------------------------------------------------------------------------------------


def started(options: ProtocolOptions | None = None) -> KeyedLeaf:
    made = workers(plan(report_below=True), SHOP, options)["l0"]
    assert isinstance(made, KeyedLeaf)
    states = SHOP.init()
    states[7], states[8] = Record({"amount": 70}), Record({"amount": 8})
    made.handle("root", ForkState(states, START))
    return made


def wanted(ts: int, item: int | None = 7) -> Item:
    return Item(Point(ts, 0, 0), EVERYTHING if item is None else ("root", "price"), item)


def events(tag: str, *times: int, frontier: int = 90, **columns: object) -> Data:
    made = [one_event(SHOP, plan(), tag, ts, seq, **columns) for seq, ts in enumerate(times)]
    run = Run([point for point, _ in made], [event for _, event in made])
    rank = {"price": 0, "sale": 1, "report": 2}[tag]
    return Data((tag, 0), run, Point(frontier, rank, 0))


def outputs(effects: Effects) -> list[Any]:
    return [row.values for row in effects.outputs if hasattr(row, "values")]


@pytest.mark.parametrize("columns", [True, False])
def test_an_event_that_sees_all_keys_waits_for_a_key_that_is_away(columns: bool) -> None:  # noqa: FBT001
    made = started()
    made.handle("root", Request((wanted(5),), Point(50, 0, 0), END))
    made.handle(("sale", 0), events("sale", 9, item=7))
    data = events("report", 3, 8, 12)
    if columns:
        data = Data(data.part, in_columns(data.run, ["price", "sale", "report"]), data.frontier)
    effects = made.handle(("report", 0), data)
    assert outputs(effects) == [(-1, 78)], "the first report lies before the price that is wanted"
    assert [(m.point.ts, m.key) for _, m in effects.sends if isinstance(m, Response)] == [(5, 7)]
    assert (made.waiting, made.first_waiting) == (3, Point(8, 2, 1))
    effects = made.handle("root", ForkState(Record({"amount": 1}), Point(5, 0, 0), 7))
    assert sorted(outputs(effects)) == [(-1, 9), (-1, 9), (7, 1)]
    assert (made.waiting, made.first_waiting) == (0, None)


def test_a_key_is_answered_when_events_that_see_all_keys_have_come_so_far() -> None:
    made = started()
    made.handle("root", Request((wanted(5),), Point(50, 0, 0), END))
    effects = made.handle(("sale", 0), events("sale", item=7))
    assert not [m for _, m in effects.sends if isinstance(m, Response)]
    effects = made.handle(("report", 0), events("report", frontier=6))
    assert [m.settled for _, m in effects.sends if isinstance(m, Response)] == [{EVERYTHING: Point(6, 2, 0)}]


def test_a_key_is_not_answered_past_a_request_for_all_states() -> None:
    made = started()
    made.handle("root", Request((wanted(5), wanted(6, None), wanted(9)), Point(50, 0, 0), END))
    made.handle(("sale", 0), events("sale", item=7))
    effects = made.handle(("report", 0), events("report"))
    assert [(m.point.ts, m.key) for _, m in effects.sends if isinstance(m, Response)] == [(5, 7)]
    effects = made.handle("root", ForkState(Record({"amount": 1}), Point(5, 0, 0), 7))
    assert [(m.point.ts, m.key) for _, m in effects.sends if isinstance(m, Response)] == [(6, None)]
    effects = made.handle("root", ForkState(SHOP.init(), Point(6, 0, 0)))
    assert [(m.point.ts, m.key) for _, m in effects.sends if isinstance(m, Response)] == [(9, 7)]


def test_what_is_behind_a_cut_is_given_back_with_the_events_that_see_all_keys() -> None:
    made = started()
    made.handle("root", Request((wanted(5), wanted(40)), Point(50, 0, 0), END))
    made.handle(("sale", 0), events("sale", 9, 30, item=7))
    made.handle(("report", 0), events("report", 8, 20))
    _, found = made.truncate(10)
    assert {data.part: [point.ts for point, _ in data.run] for data in found} == {
        ("sale", 0): [30],
        ("report", 0): [20],
    }
    effects = made.handle("root", ForkState(Record({"amount": 1}), Point(5, 0, 0), 7))
    assert sorted(outputs(effects)) == [(-1, 9), (7, 1)]
    assert (made.waiting, made.ahead) == (0, [[], []])


# -- inner workers ---------------------------------------------------------------------------------------------------


def test_a_child_with_a_tag_that_sees_all_keys_is_asked_for_every_key() -> None:
    made = workers(plan(report_below=True), SHOP)["root"]
    assert isinstance(made, KeyedInner)
    assert made.sides_of(12345) == (0, 1)


def test_own_events_that_see_all_keys_are_in_the_sequence_and_hold_up_the_keys_behind_them() -> None:
    made = workers(plan(), SHOP, ProtocolOptions(hand_over=False))["root"]
    assert isinstance(made, KeyedInner)
    made.handle("^", ForkState(SHOP.init(), START))
    made.handle("^", Request((), END, END))
    made.handle(("price", 0), events("price", 3, 9, item=7, amount=5))
    effects = made.handle(("report", 0), events("report", 6))
    for to in ("l0", "l1"):
        (request,) = [m for receiver, m in effects.sends if receiver == to and isinstance(m, Request)]
        assert [(item.point.ts, item.key) for item in request.items] == [(3, 7), (9, 7), (6, None)]
    state = Record({"amount": 0})
    for to in ("l0", "l1"):
        made.handle(to, Response(Point(3, 0, 0), state, {EVERYTHING: END}, 7))
    assert (made.stats.coalesced, made.waiting) == (0, 2), "settled for the key, but a report precedes its next price"
    states = SHOP.init()
    states[7] = Record({"amount": 5})
    made.handle("l0", Response(Point(6, 2, 0), states, dict.fromkeys(made.shape.causes, END)))
    effects = made.handle("l1", Response(Point(6, 2, 0), SHOP.init(), dict.fromkeys(made.shape.causes, END)))
    assert outputs(effects) == [(-1, 5)]
    assert [(to, m.served.ts) for to, m in effects.sends if isinstance(m, ForkState)] == [("l0", 6), ("l1", 6)]
    assert made.waiting == 1
