import pytest

from flumina.apps import Fraud, KeyCounter, ValueBarrier
from flumina.errors import UsageError
from flumina.plan import CostModel, Itag, Plan, Source, Worker, bind, evaluate, make_plan, validate
from flumina.tagsets import UNKEYED, TagSet

MODEL = CostModel(
    event=1e-3, join=1e-2, fork=2e-2, message=1e-2, hop=1e-1, send=0, receive=0, event_bytes=8, state_bytes=100
)


def values(barriers: float, parts: int = 2) -> list[Source]:
    return [Source("v", {"value": 100}, parts=parts), Source("b", {"barrier": barriers})]


def test_one_worker_only_handles_events() -> None:
    inputs = bind(ValueBarrier, values(1))
    cost = evaluate(make_plan(ValueBarrier, values(1), optimiser="sequential"), inputs, MODEL)
    assert cost.load == pytest.approx(101 * 1e-3)
    assert (cost.latency, cost.bytes, cost.workers) == (0, 0, 1)


def test_the_formulas_by_hand_for_two_leaves() -> None:
    sources = [Source("t", {"transaction": 100}, parts=2), Source("r", {"rule": 2})]
    plan = make_plan(Fraud, sources, workers=2, optimiser="greedy")
    cost = evaluate(plan, bind(Fraud, sources), MODEL)
    assert [worker.place for worker in plan.workers] == ["slot0", "slot0", "slot1"]
    trip = 3 * 1e-1 + 1e-2 + 2e-2
    beside = 2 * 1e-3 + 2 * (1e-2 + 2e-2) + 2 * 3 * 1e-2 + 50 * 1e-3 + 2 * trip
    across = 50 * 1e-3 + 2 * 3 * 1e-2 + 2 * trip
    assert cost.load == pytest.approx(max(beside, across))
    assert cost.latency == pytest.approx(2 * trip / 102)
    assert cost.bytes == pytest.approx(2 * 2 * 100)


def test_leaves_that_only_add_do_not_wait() -> None:
    plan = make_plan(ValueBarrier, values(2), workers=2, optimiser="greedy")
    waiting = make_plan(Fraud, [Source("t", {"transaction": 100}, parts=2), Source("r", {"rule": 2})], workers=2)
    free = evaluate(plan, bind(ValueBarrier, values(2)), MODEL)
    assert free.load == pytest.approx(2 * 1e-3 + 2 * 3e-2 + 2 * 3e-2 + 50e-3)
    assert len(waiting) >= 1


def test_moving_events_costs_both_ends() -> None:
    sources = [Source("s", {"inc": 100, "read": 0}, hosts="A"), Source("t", {"inc": 60}, hosts="B")]
    inputs = bind(KeyCounter, sources)
    plan = make_plan(KeyCounter, sources, optimiser="sequential")
    model = CostModel(event=0, send=1e-3, receive=5e-4, event_bytes=8)
    cost = evaluate(plan, inputs, model)
    assert plan.root.place == "A"
    assert cost.load == pytest.approx(60 * 1e-3)  # B sends more than A receives
    assert cost.bytes == pytest.approx(60 * 8)


def test_keys_compare_load_first_within_one_per_cent() -> None:
    inputs = bind(ValueBarrier, values(1))
    plan = make_plan(ValueBarrier, values(1), optimiser="sequential")
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
    sources = [Source("v", {"value": 1}, parts=2), Source("b", {"barrier": 100})]
    inputs = bind(ValueBarrier, sources)
    leaves = tuple(
        Worker(f"w{n}", "State", (Itag("v", frozenset({n - 2}), TagSet({"value": UNKEYED})),)) for n in (2, 3)
    )
    root = Worker("w1", "State", (Itag("b", frozenset({0}), TagSet({"barrier": UNKEYED})),), leaves)
    plan = Plan.of(ValueBarrier, inputs.shapes, root).at({"w1": "x", "w2": "x", "w3": "y"})
    assert validate(plan, ValueBarrier) == []
    assert evaluate(plan, inputs, CostModel(event=0, join=1e-2, fork=0, message=0)).load == pytest.approx(1e-2)
