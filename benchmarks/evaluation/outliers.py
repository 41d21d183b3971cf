"""Speed-up of outlier detection: the same connections on more workers; measured on one and two, simulated to eight."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.evaluation.case import Case
from benchmarks.evaluation.effort import Effort
from benchmarks.evaluation.engine import session
from benchmarks.evaluation.observe import observe
from benchmarks.evaluation.prices import fit, in_virtual_time
from benchmarks.evaluation.record import Record
from flumina.plan.cost_model import CostModel
from flumina.plan.measure import measure
from flumina.plan.optimize import make_plan

WINDOW = 40_000
"""Connections between two queries, on all workers together."""
FITTED = (8_000, 100_000)
"""The same in the runs from which prices are taken: connections and queries have prices of their own."""
MOST = 8


def records(effort: Effort, data: Path) -> Iterator[Record]:  # noqa: ARG001 -- sections are called alike
    """Times of one and two workers, prices from shorter and longer windows, and predictions up to eight workers."""
    session(2)
    connections = effort.of(400_000, 80_000)
    rates: dict[int, float] = {}
    seen = []
    for workers in (1, 2):
        for window in (*FITTED, WINDOW):
            case = Case("outliers", workers, window // workers, rate=1e6 / workers)
            observed, _ = observe(case, connections // workers, effort.of(3, 1), "greedy")
            effort.say(f"outliers, {workers} workers, window {window:,}: {observed.throughput:,.0f} connections/s")
            if window in FITTED:
                seen.append(observed)
            else:
                rates[workers] = observed.throughput
    model = fit(seen, {"outliers": _start()})["outliers"]
    yield Record("outliers", "speed-up", 1, 1.0, "measured")
    yield Record("outliers", "speed-up", 2, rates[2] / rates[1], "measured")
    yield Record("outliers rate", "connections/s", 1, rates[1], "measured")
    alone = None
    for workers in range(1, MOST + 1):
        case = Case("outliers", workers, WINDOW // workers, rate=1e6 / workers)
        plan = make_plan(case.app.program, case.sources(), workers=workers, optimizer="greedy")
        throughput = in_virtual_time(case, plan, model).throughput
        alone = alone or throughput
        yield Record("outliers", "speed-up", workers, throughput / alone, "simulated")
        if workers in rates:
            series = f"outliers, window {WINDOW} (predicted)"
            yield Record("model error", series, workers, throughput / rates[workers] - 1, "simulated")


def _start() -> CostModel:
    return measure(Case("outliers", 1).app.program, Case("outliers", 1, 1_000).workload(5_000).streams(), rows=5_000)
