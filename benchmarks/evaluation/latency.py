"""Appendix D.1: latency of value-barrier against workers, the ratio of values to barriers, and heartbeats."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.evaluation import prices
from benchmarks.evaluation.case import Case
from benchmarks.evaluation.clock import Clock
from benchmarks.evaluation.effort import Effort
from benchmarks.evaluation.engine import run, session
from benchmarks.evaluation.record import Record
from flumina.plan.cost_model import CostModel
from flumina.plan.optimize import make_plan
from flumina.plan.sources import bind

RATE = 10_000.0
"""Values a second on each part: little work, so that more workers than cores can be measured too."""
RATIOS = (100, 1_000, 10_000)
MEASURED = (1, 2, 4, 8)
SIMULATED = (1, 2, 5, 10, 15, 20, 30, 40)
HEARTBEATS = (10.0, 30.0, 100.0, 300.0, 1_000.0)
USUAL = 200.0
WORKERS = 5
"""For the heartbeats, as in the paper."""


def records(effort: Effort, data: Path) -> Iterator[Record]:
    """By workers and ratio, then by heartbeats and ratio."""
    session(max(*MEASURED, WORKERS))
    model = prices.load(data / "prices" / "prices.json", "value-barrier")
    for ratio in effort.of(RATIOS, RATIOS[::2]):
        for workers in effort.of(MEASURED, MEASURED[:2]):
            yield _measured(effort, "latency workers", workers, Case("value-barrier", workers, ratio, RATE), USUAL)
        for workers in SIMULATED:
            yield _simulated("latency workers", workers, Case("value-barrier", workers, ratio, RATE), USUAL, model)
    for ratio in effort.of(RATIOS, RATIOS[:1]):
        case = Case("value-barrier", WORKERS, ratio, RATE)
        for beats in effort.of(HEARTBEATS, HEARTBEATS[::4]):
            yield _measured(effort, "latency heartbeats", beats, case, beats)
        for beats in HEARTBEATS:
            yield _simulated("latency heartbeats", beats, case, beats, model)


def _measured(effort: Effort, figure: str, x: float, case: Case, beats: float) -> Record:
    """How late the outputs of barriers were; the run is as long as five of the rarest barriers need."""
    seconds = max(effort.of(5.0, 1.5), effort.of(5, 2) * case.ratio / case.rate)
    streams = case.workload(round(case.rate * seconds)).streams(paced=True, heartbeats=beats)
    latency = run(case.app.program, streams, workers=case.parts, optimizer="greedy").stats.latency
    p10, p50, p90 = (latency.percentile(p) for p in (10, 50, 90))
    effort.say(f"{figure} {x:g}, {case.parts} workers, ratio {case.ratio}: {1e3 * p50:.1f} ms")
    return Record(figure, f"ratio {case.ratio}", x, p50, "measured", p10, p90)


def _simulated(figure: str, x: float, case: Case, beats: float, model: CostModel) -> Record:
    plan = make_plan(case.app.program, case.sources(), workers=case.parts, optimizer="greedy")
    inputs = bind(case.app.program, case.sources())
    seconds = min(20 * case.ratio / case.rate, 5.0)
    timing = Clock(plan, inputs, model).run(seconds, paced=True, beats=1 / beats)
    p10, p50, p90 = (timing.percentile(p, "barrier") for p in (10, 50, 90))
    return Record(figure, f"ratio {case.ratio}", x, p50, "simulated", p10, p90)
