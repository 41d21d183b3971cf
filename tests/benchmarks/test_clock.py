"""Virtual time: sensible, in the same order as the optimizer's model, and fast enough for a thousand workers."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest

from benchmarks.evaluation.clock import Clock, Timing
from flumina.apps import Fraud, ValueBarrier
from flumina.plan.cost_model import DEFAULT, CostModel, evaluate
from flumina.plan.optimize import make_plan
from flumina.plan.sources import Inputs, StreamRates, bind
from flumina.plan.tree import Plan
from flumina.program.base import AnyProgram
from flumina.runtime.topology import ProtocolOptions


def streams(parts: int, *, rate: float = 1e6, barriers: float = 20.0, fraud: bool = False) -> list[StreamRates]:
    value, barrier = ("transaction", "rule") if fraud else ("value", "barrier")
    return [StreamRates("values", {value: rate * parts}, parts=parts), StreamRates("barriers", {barrier: barriers})]


def planned(program: AnyProgram, sources: list[StreamRates], workers: int) -> tuple[Plan, Inputs]:
    return make_plan(program, sources, workers=workers), bind(program, sources)


def predict(
    plan: Plan, inputs: Inputs, model: CostModel = DEFAULT, *, seconds: float = 1.0, beats: float | None = None
) -> Timing:
    """Throughput at full speed, and latencies of the given rates, for this much input."""
    fast = Clock(plan, inputs, model).run(seconds)
    slow = Clock(plan, inputs, model).run(seconds, paced=True, beats=beats)
    return replace(fast, latencies=slow.latencies)


def test_one_worker_takes_the_sum_of_its_costs() -> None:
    plan, inputs = planned(ValueBarrier, streams(1), 1)
    timing = Clock(plan, inputs).run(1.0)
    assert timing.events == pytest.approx(1e6 + 20, rel=0.01)
    assert timing.elapsed == pytest.approx(50e-9 * timing.events, rel=1e-6)
    assert timing.throughput == pytest.approx(20e6, rel=0.01)


def test_more_workers_are_faster_but_not_for_free() -> None:
    throughputs = [predict(*planned(ValueBarrier, streams(n), n)).throughput / n for n in (1, 2, 8, 32)]
    assert throughputs == sorted(throughputs, reverse=True)
    assert throughputs[-1] > throughputs[0] / 3


@pytest.mark.parametrize("program", [ValueBarrier, Fraud])
def test_plans_are_in_the_same_order_as_in_the_optimizers_model(program: AnyProgram) -> None:
    """Where that model sees a clear difference: messages that workers at one place send to others are not all in it."""
    for barriers in (10.0, 100.0, 2000.0):
        sources = streams(8, barriers=barriers, fraud=program is Fraud)
        inputs = bind(program, sources)
        plans = [make_plan(program, sources, workers=n, optimizer="greedy") for n in (1, 2, 4, 8)]
        assert len({len(plan) for plan in plans}) == 4
        both = [(evaluate(plan, inputs).load, Clock(plan, inputs).run(0.1).elapsed) for plan in plans]
        for (load, elapsed), (other_load, other_elapsed) in permutations(both, 2):
            assert load * 1.2 > other_load or elapsed < other_elapsed


def test_one_processor_for_all_is_no_faster_than_one_worker() -> None:
    plan, inputs = planned(ValueBarrier, streams(4), 4)
    together = plan.at({worker.id: "here" for worker in plan.workers})
    assert Clock(together, inputs).run(0.5).throughput < 20e6
    assert Clock(plan, inputs).run(0.5).throughput > 60e6


def test_hand_over_saves_waiting() -> None:
    sources = streams(4, barriers=2000)
    plan, inputs = make_plan(ValueBarrier, sources, workers=4, optimizer="greedy"), bind(ValueBarrier, sources)
    quick = Clock(plan, inputs).run(0.2).elapsed
    waiting = Clock(plan, inputs, options=ProtocolOptions(hand_over=False)).run(0.2).elapsed
    assert quick < waiting


def test_heartbeats_make_latencies_short() -> None:
    plan, inputs = planned(ValueBarrier, streams(2), 2)
    silent = Clock(plan, inputs).run(0.5, paced=True)
    beating = Clock(plan, inputs).run(0.5, paced=True, beats=1e-3)
    assert silent.p50 <= silent.p99
    assert beating.p99 < 0.2 * silent.p99
    assert beating.p50 < 0.005


def test_latencies_are_told_by_tag() -> None:
    plan, inputs = planned(ValueBarrier, streams(2), 2)
    timing = Clock(plan, inputs).run(0.5, paced=True, beats=1e-3)
    assert set(timing.latencies) == {"value", "barrier"}
    assert timing.percentile(50, "value") != timing.percentile(50, "barrier")
    assert timing.p50 == timing.percentile(50, "value", "barrier") == timing.percentile(50)
    assert timing.percentile(0, "barrier") <= timing.percentile(100, "barrier") == max(timing.latencies["barrier"])[0]
    assert Clock(plan, inputs).run(0.1).latencies == {}


def test_a_slow_network_costs_latency_and_throughput() -> None:
    plan, inputs = planned(Fraud, streams(4, fraud=True, barriers=200), 4)
    near = predict(plan, inputs, CostModel(), seconds=0.2, beats=2e-3)
    far = predict(plan, inputs, replace(CostModel(), hop=2e-3), seconds=0.2, beats=2e-3)
    assert far.throughput < near.throughput
    assert far.p50 > near.p50


def test_hundreds_of_workers_are_feasible() -> None:
    plan, inputs = planned(ValueBarrier, streams(200), 200)
    timing = Clock(plan, inputs).run(0.5, ticks=1)
    assert len(plan) == 399
    assert timing.throughput > 1e9
    assert set(timing.busy) == set(plan.places)
