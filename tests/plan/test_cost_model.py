import pytest

import flumina as fl
from flumina.apps import Fraud, KeyCounter, ValueBarrier
from flumina.errors import UsageError
from flumina.model.hashing import BUCKETS
from flumina.model.tag_set import UNKEYED, KeySet, TagSet
from flumina.plan import (
    CostModel,
    Itag,
    Plan,
    PlanWorker,
    StateSize,
    StreamRates,
    bind,
    evaluate,
    make_plan,
    validate,
    with_model,
)
from tests.program.tick_programs import Tumbling

MODEL = CostModel(
    event=1e-3, join=1e-2, fork=2e-2, message=1e-2, hop=1e-1, send=0, receive=0, event_bytes=8, state_bytes=100
)


def values(barriers: float, parts: int = 2) -> list[StreamRates]:
    return [StreamRates("v", {"value": 100}, parts=parts), StreamRates("b", {"barrier": barriers})]


def test_one_worker_only_handles_events() -> None:
    inputs = bind(ValueBarrier, values(1))
    cost = evaluate(make_plan(ValueBarrier, values(1), optimizer="sequential"), inputs, MODEL)
    assert cost.load == pytest.approx(101 * 1e-3)
    assert (cost.latency, cost.bytes, cost.workers) == (0, 0, 1)


def test_the_formulas_by_hand_for_two_leaves() -> None:
    sources = [StreamRates("t", {"transaction": 100}, parts=2), StreamRates("r", {"rule": 2})]
    plan = make_plan(Fraud, sources, workers=2, optimizer="greedy")
    cost = evaluate(plan, bind(Fraud, sources), MODEL)
    assert [worker.place for worker in plan.workers] == ["slot0", "slot0", "slot1"]
    trip = 3 * 1e-1 + 1e-2 + 2e-2
    beside = 2 * 1e-3 + 2 * (1e-2 + 2e-2) + 2 * 3 * 1e-2 + 50 * 1e-3 + 2 * trip
    across = 50 * 1e-3 + 2 * 3 * 1e-2 + 2 * trip
    assert cost.load == pytest.approx(max(beside, across))
    assert cost.latency == pytest.approx(2 * trip / 102)
    assert cost.bytes == pytest.approx(2 * 2 * 100)


def test_leaves_that_only_add_do_not_wait() -> None:
    plan = make_plan(ValueBarrier, values(2), workers=2, optimizer="greedy")
    waiting = make_plan(
        Fraud, [StreamRates("t", {"transaction": 100}, parts=2), StreamRates("r", {"rule": 2})], workers=2
    )
    free = evaluate(plan, bind(ValueBarrier, values(2)), MODEL)
    assert free.load == pytest.approx(2 * 1e-3 + 2 * 3e-2 + 2 * 3e-2 + 50e-3)
    assert len(waiting) >= 1


def test_moving_events_costs_both_ends() -> None:
    sources = [StreamRates("s", {"inc": 100, "read": 0}, hosts="A"), StreamRates("t", {"inc": 60}, hosts="B")]
    inputs = bind(KeyCounter, sources)
    plan = make_plan(KeyCounter, sources, optimizer="sequential")
    model = CostModel(event=0, send=1e-3, receive=5e-4, event_bytes=8)
    cost = evaluate(plan, inputs, model)
    assert plan.root.place == "A"
    assert cost.load == pytest.approx(60 * 1e-3)  # B sends more than A receives
    assert cost.bytes == pytest.approx(60 * 8)


def test_keys_compare_load_first_within_one_per_cent() -> None:
    inputs = bind(ValueBarrier, values(1))
    plan = make_plan(ValueBarrier, values(1), optimizer="sequential")
    base = evaluate(plan, inputs, CostModel(event=1.0))
    slower = evaluate(plan, inputs, CostModel(event=1.5))
    assert base.key < slower.key
    assert evaluate(plan, inputs, CostModel(event=0)).key < base.key


def test_costs_that_are_none() -> None:
    for bad in (-1.0, float("nan"), float("inf"), True):
        with pytest.raises(UsageError, match="BAD_COST"):
            CostModel(join=bad)
        with pytest.raises(UsageError, match="by_tag"):
            CostModel(by_tag={"value": bad})


def test_joins_that_nothing_below_makes_necessary_are_not_counted() -> None:
    """While nothing happens below, the root goes on with joined states: 100 barriers, 1 value, 1 join."""
    sources = [StreamRates("v", {"value": 1}, parts=2), StreamRates("b", {"barrier": 100})]
    inputs = bind(ValueBarrier, sources)
    leaves = tuple(
        PlanWorker(f"w{n}", "State", (Itag("v", frozenset({n - 2}), TagSet({"value": UNKEYED})),)) for n in (2, 3)
    )
    root = PlanWorker("w1", "State", (Itag("b", frozenset({0}), TagSet({"barrier": UNKEYED})),), leaves)
    plan = Plan.of(ValueBarrier, inputs.shapes, root).at({"w1": "x", "w2": "x", "w3": "y"})
    assert validate(plan, ValueBarrier) == []
    assert evaluate(plan, inputs, CostModel(event=0, join=1e-2, fork=0, message=0)).load == pytest.approx(1e-2)


class Shop(fl.KeyedProgram):
    """Totals by item, prices, and a report that sees all items."""

    sale = fl.Tag("amount long NOT NULL", key="item long")
    price = fl.Tag("amount long NOT NULL", key="item long")
    report = fl.Tag()
    depends = fl.depends((price, price), (price, sale), (report, report), (report, sale), (report, price))
    output = "total long"
    total = fl.Sum("long")
    last = fl.Replicated("long", 0)

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        if event.tag is self.sale:
            state.total += event.amount
        else:
            emit(state.total)
            state.last = event.amount

    def update_all(self, states: dict[int, fl.State], event: fl.Event, emit: fl.Emit) -> None:
        emit(sum(state.total for state in states.values()))


def shop(keys: float, reports: float = 1e-5) -> list[StreamRates]:
    return [
        StreamRates("sales", {"sale": 1.0}, parts=2, hot={"sale": {0: 0.9}}, distinct={"sale": keys}),
        StreamRates("prices", {"price": 1e-3}, hot={"price": {0: 1e-3}}),
        StreamRates("reports", {"report": reports}),
    ]


def divided(sources: list[StreamRates]) -> Plan:
    """A root with prices and reports over a leaf for each part of the sales."""
    keyed = Shop.sale.universe
    leaves = tuple(
        PlanWorker(f"w{n}", "States", (Itag("sales", frozenset({n - 2}), TagSet({"sale": keyed})),)) for n in (2, 3)
    )
    above = (
        Itag("prices", frozenset({0}), TagSet({"price": keyed})),
        Itag("reports", frozenset({0}), TagSet({"report": UNKEYED})),
    )
    plan = Plan.of(Shop, bind(Shop, sources).shapes, PlanWorker("w1", "States", above, leaves))
    plan = plan.at({"w1": "x", "w2": "x", "w3": "y"})
    assert validate(plan, Shop) == []
    return plan


def test_only_joins_of_an_unkeyed_tag_move_and_merge_all_keys() -> None:
    prices = CostModel(event=0, join=0, fork=0, message=0, hop=0, send=0, receive=0, look_key=0, event_bytes=0)
    keys, reports = 10_000, 1e-5
    cost = evaluate(divided(shop(keys)), bind(Shop, shop(keys)), prices)
    merged = keys * (prices.join_key + prices.fork_key)
    carried = (keys - 1) * prices.move_key + (keys * 200 - 200) * prices.move_byte
    assert cost.load == pytest.approx(reports * (merged + carried))
    assert cost.bytes == pytest.approx(reports * 2 * keys * 200 + 1e-3 * 2 * 200), "a price moves the state of one item"


def test_leaves_that_hand_over_send_what_came_since_the_last_join_of_an_unkeyed_tag() -> None:
    prices = CostModel(event=0, join=0, fork=0, message=0, hop=0, send=0, receive=0, look_key=0, event_bytes=0)
    keys, reports = 10_000, 1e-3
    cost = evaluate(divided(shop(keys, reports)), bind(Shop, shop(keys, reports)), prices)
    contributed = 0.5 / reports  # at most a key an event
    merged = keys * (prices.join_key + prices.fork_key)
    carried = (contributed - 1) * prices.move_key + (contributed * 200 - 200) * prices.move_byte
    assert cost.load == pytest.approx(reports * (merged + carried))
    assert cost.bytes == pytest.approx(reports * 2 * contributed * 200 + 1e-3 * 2 * 200)


def test_the_default_plan_of_many_keys_depends_on_how_often_all_of_them_are_joined() -> None:
    often = make_plan(Shop, shop(20_000, reports=1e-4), workers=2)
    assert len(often) == 1
    inputs = bind(Shop, shop(20_000, reports=1e-4))
    assert evaluate(divided(shop(20_000, reports=1e-4)), inputs).load > 5 * evaluate(often, inputs).load
    seldom = make_plan(Shop, shop(20_000, reports=1e-7), workers=2)
    assert len(seldom.leaves) == 2, "prices move one item's state, however many items there are"
    few = make_plan(Shop, shop(20), workers=2)
    assert len(few.leaves) == 2
    assert often == make_plan(Shop, shop(20_000, reports=1e-4), workers=2)


def test_sampled_sizes_come_before_counted_keys() -> None:
    sources = shop(20_000)
    assert len(make_plan(Shop, sources, workers=2, states=StateSize(20, 30)).leaves) == 2
    assert len(make_plan(Shop, shop(20), workers=2, states=StateSize(20_000, 30))) == 1
    assert len(make_plan(Shop, shop(20, reports=1e-3), workers=2, states=StateSize(20, 1e6))) == 1


def test_where_all_tags_are_keyed_the_number_of_keys_does_not_matter_but_their_size_does() -> None:
    sources = [
        StreamRates("i", {"inc": 1e4}, parts=2, hot={"inc": {0: 9e3}}, distinct={"inc": 1e6}),
        StreamRates("r", {"read": 1.0}, hot={"read": {0: 1.0}}),
    ]
    model = CostModel(event=3e-6)
    plan = make_plan(KeyCounter, sources, workers=2, optimizer=with_model(model))
    assert len(plan.leaves) == 2
    small, large = (
        evaluate(plan, bind(KeyCounter, sources, StateSize(1e6, size)), model).load for size in (100.0, 1e8)
    )
    assert small == evaluate(plan, bind(KeyCounter, sources), model).load
    assert large > 10 * small
    apart = make_plan(KeyCounter, sources, workers=2, optimizer=with_model(model), states=StateSize(9, 1e8))
    assert not any(worker.children and worker.itags for worker in apart.workers)  # nothing is joined


def test_a_state_without_keys_is_moved_whole() -> None:
    sources = [StreamRates("t", {"transaction": 1e5}, parts=2), StreamRates("r", {"rule": 1.0})]
    assert len(make_plan(Fraud, sources, workers=2, states=StateSize(rest_bytes=300)).leaves) == 2
    assert len(make_plan(Fraud, sources, workers=2, states=StateSize(rest_bytes=1e8))) == 1


def test_each_side_has_its_share_of_the_keys() -> None:
    """Where a fork gives each key to one side, an edge moves the keys of that side."""
    sources = shop(4096)
    half = KeySet.from_buckets(range(BUCKETS // 4))
    rest = Shop.sale.universe - half
    sides = [
        PlanWorker(
            f"w{n}",
            "States",
            (
                Itag("sales", frozenset({0, 1}), TagSet({"sale": keys})),
                Itag("prices", frozenset({0}), TagSet({"price": keys})),
            ),
        )
        for n, keys in ((2, rest), (3, half))
    ]
    root = PlanWorker("w1", "States", (Itag("reports", frozenset({0}), TagSet({"report": UNKEYED})),), tuple(sides))
    plan = Plan.of(Shop, bind(Shop, sources).shapes, root).at({"w1": "x", "w2": "x", "w3": "y"})
    assert validate(plan, Shop) == []
    found = evaluate(plan, bind(Shop, sources), CostModel(event_bytes=0))
    assert found.bytes == pytest.approx(1e-5 * 2 * 1024 * 200)


def test_a_key_that_is_hot_for_another_tag_has_its_share_of_events() -> None:
    """Else it seems to have none, and goes to a worker that joins all states for each of its events."""
    sources = [
        StreamRates("sales", {"sale": 1.0}, parts=2, hot={"sale": {0: 0.5}}, distinct={"sale": 1000}),
        StreamRates("prices", {"price": 1e-3}, hot={"price": {0: 5e-4, 7: 1e-5}}),
        StreamRates("reports", {"report": 1e-5}),
    ]
    profile = next(load.profile for load in bind(Shop, sources).loads if load.tag == "sale")
    assert profile.share(KeySet.of(7)) == pytest.approx(0.5 / 999)
    assert profile.share(Shop.sale.universe - KeySet.of(7)) == pytest.approx(1 - 0.5 / 999)
    assert profile.share(Shop.sale.universe - KeySet.of(0)) == pytest.approx(0.5)
    assert profile.share(KeySet.of(0, 7)) == pytest.approx(0.5 + 0.5 / 999)
    plan = make_plan(Shop, sources, workers=2)
    assert not any(worker.children and "sale" in dict(worker.tags) for worker in plan.workers)


def test_numbers_of_keys_that_are_none() -> None:
    with pytest.raises(UsageError, match="DISTINCT_KEYS"):
        bind(Shop, [StreamRates("r", {"report": 1.0}, distinct={"report": 3})])
    with pytest.raises(UsageError, match="BAD_RATE"):
        bind(Shop, [StreamRates("s", {"sale": 1.0}, distinct={"sale": -3})])
    with pytest.raises(UsageError, match="UNKNOWN_TAG"):
        bind(Shop, [StreamRates("s", {"sale": 1.0}, distinct={"sold": 3})])


def test_ticks_cost_work_and_no_moving() -> None:
    sources = [StreamRates("loads", {"load": 0.0}, parts=2, distinct={"load": 1000})]
    plan = make_plan(Tumbling, sources, workers=2, optimizer="greedy")
    assert len({worker.place for worker in plan.leaves}) == 2
    cost = evaluate(plan, bind(Tumbling, sources), CostModel(event=1e-3, send=1.0, receive=1.0))
    assert cost.load == pytest.approx(1000 / 10 / 2 * 1e-3, rel=0.01)
    assert cost.bytes == 0
