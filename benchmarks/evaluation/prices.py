"""The simulator's prices on this machine: those under which runs in virtual time take as long as they took.

What a worker spends on an event includes reading it ahead in another thread, so prices can't be read off counters;
they are fitted to the times of whole runs, on one worker and on two, with many rare events and with few. How good they
are is shown by runs that were not used for fitting.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.evaluation.case import Case
from flumina.plan.costs import CostModel
from flumina.plan.sources import bind
from flumina.plan.tree import Plan
from flumina.sim.clock import Clock, Timing

Floats = npt.NDArray[np.float64]

WINDOWS = 12
"""Rare events in a run in virtual time: enough that its beginning and its end do not count."""
_STEPS = 25
_NUDGE = 0.05
"""By how much a price is changed to see what that does: runs in virtual time have steps that are smaller."""
_TRUST = 0.01
"""How much the prices known before weigh against measurements; it divides what no measurement divides."""


@dataclass(frozen=True)
class Observed:
    """A run that was measured: its case and plan, and its events a second."""

    case: Case
    plan: Plan
    throughput: float


def in_virtual_time(case: Case, plan: Plan, model: CostModel, windows: int = WINDOWS) -> Timing:
    """The case at full speed."""
    return Clock(plan, bind(case.app.program, case.sources()), model).run(_seconds(case, windows))


def _seconds(case: Case, windows: int = WINDOWS) -> float:
    """How much input has so many rare events."""
    return windows * case.ratio / case.rate


def fit(observed: Sequence[Observed], start: CostModel) -> CostModel:
    """Prices of tags, messages and hops for which predictions are nearest to what was observed, as ratios."""
    inputs = [bind(one.case.app.program, one.case.sources()) for one in observed]
    tags = sorted({tag for given in inputs for tag in given.definition.tags})
    names = [*tags, "message", "hop"]
    first = [start.by_tag.get(tag, start.event) for tag in tags] + [start.message, start.hop]

    def model(values: Sequence[float]) -> CostModel:
        prices = dict(zip(names, values, strict=True))
        return replace(start, by_tag={tag: prices[tag] for tag in tags}, message=prices["message"], hop=prices["hop"])

    def wrong(logs: Floats) -> Floats:
        """The logarithms of predicted over observed, then those of prices over what they were before."""
        prices = model(np.exp(logs).tolist())
        off = [
            math.log(Clock(one.plan, given, prices).run(_seconds(one.case)).throughput / one.throughput)
            for one, given in zip(observed, inputs, strict=True)
        ]
        return np.concatenate([off, _TRUST * (logs - known)])

    known = np.log(first)
    return model(np.exp(_least_squares(wrong, known)).tolist())


def _least_squares(wrong: Callable[[Floats], Floats], start: Floats) -> Floats:
    """Where the sum of squares is smallest, near the start: Gauss-Newton, damped where that does not help."""
    at, here = start, wrong(start)
    damping = 0.1
    for _ in range(_STEPS):
        slopes = np.stack([(wrong(at + step) - here) / _NUDGE for step in _NUDGE * np.eye(len(at))], axis=1)
        step = np.linalg.solve(slopes.T @ slopes + damping * np.eye(len(at)), -slopes.T @ here)
        tried = at + np.clip(step, -2, 2)
        there = wrong(tried)
        if there @ there < here @ here:
            at, here, damping = tried, there, damping / 5
        else:
            damping *= 8
        if damping > 1e4 or np.abs(step).max() < 1e-3:
            break
    return at


def save(path: Path, models: Iterable[tuple[str, CostModel]]) -> None:
    """Keep prices for the sections that come later; those of other programs stay."""
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    known |= {name: asdict(model) for name, model in models}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


def load(path: Path, name: str) -> CostModel:
    """The prices of a program."""
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if name not in known:
        raise SystemExit(f"no prices of {name} yet: run `python -m benchmarks.evaluation throughput` first")
    return CostModel(**known[name])
