"""Throughput against workers: measured on one and two, simulated up to a thousand with prices fitted to that."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.evaluation import prices
from benchmarks.evaluation.case import PROGRAMS, RATIO, Case
from benchmarks.evaluation.effort import Effort
from benchmarks.evaluation.engine import session
from benchmarks.evaluation.observe import observe
from benchmarks.evaluation.prices import Observed, fit, in_virtual_time
from benchmarks.evaluation.record import Record
from flumina.apps.registry import APPS
from flumina.plan.cost_model import CostModel
from flumina.plan.measure import measure
from flumina.plan.optimize import OptimizerName, make_plan

FITTED = (2_000, 50_000)
"""The ratios at which prices are fitted; those at ``RATIO`` are predicted."""
FEW = (1, 2, 4, 8, 12, 16, 20)
MANY = (50, 100, 200, 500, 1_000)


def records(effort: Effort, data: Path) -> Iterator[Record]:
    """Measure, fit, predict; prices are kept for other sections."""
    session(2)
    cases = [Case(name, n, ratio) for name in PROGRAMS for n in (1, 2) for ratio in (RATIO, *FITTED)]
    seen = []
    for case in cases:
        observed, record = _measured(effort, case)
        seen.append(observed)
        yield record
    effort.say("fitting prices")
    rows = effort.of(100_000, 20_000)
    start = {name: measure(APPS[name].program, Case(name, 2).workload(rows).streams()) for name in PROGRAMS}
    models = fit([one for one in seen if one.case.ratio != RATIO], start)
    prices.save(data / "prices" / "prices.json", models)
    for one in seen:
        yield _checked(one, models[one.case.name])
    for name, model in models.items():
        yield from _predicted(effort, name, model)


def _measured(effort: Effort, case: Case) -> tuple[Observed, Record]:
    observed, rates = observe(case, effort.of(8_000_000, 1_000_000), effort.of(5, 2))
    record = Record.of(f"throughput {case.name}", f"ratio {case.ratio}", case.parts, rates)
    effort.say(f"{case.name}, {case.parts} workers, ratio {case.ratio:,}: {record.y / 1e6:.1f} M events/s")
    return observed, record


def _checked(one: Observed, model: CostModel) -> Record:
    """By how much the prediction of what was measured is off."""
    predicted = in_virtual_time(one.case, one.plan, model).throughput
    kind = "predicted" if one.case.ratio == RATIO else "fitted"
    series = f"{one.case.name}, ratio {one.case.ratio} ({kind})"
    return Record("model error", series, one.case.parts, predicted / one.throughput - 1, "simulated")


def _predicted(effort: Effort, name: str, model: CostModel) -> Iterator[Record]:
    """The same on more machines than there are: parts and workers grow together, as in the paper."""
    for workers in (*FEW, *effort.of(MANY, MANY[1:2])):
        case = Case(name, workers)
        optimizer: OptimizerName = (
            "cost" if workers <= FEW[-1] else "greedy"
        )  # the search takes minutes for hundreds of workers
        plan = make_plan(case.app.program, case.sources(), workers=workers, optimizer=optimizer)
        timing = in_virtual_time(case, plan, model, windows=effort.of(12, 6) if workers <= 100 else 5)
        effort.say(f"{name}, {workers} workers in virtual time: {timing.throughput / 1e6:.0f} M events/s")
        yield Record(f"throughput {name}", f"ratio {RATIO}", workers, timing.throughput, "simulated")
