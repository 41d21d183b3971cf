"""The simulator's prices on this machine: those under which runs in virtual time take as long as they took.

What a worker spends on an event includes reading it ahead in another thread, so prices can't be read off counters;
they are fitted to the times of whole runs, on one worker and on two, with many rare events and with few. How good they
are is shown by runs that were not used for fitting.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.evaluation.case import Case
from benchmarks.evaluation.clock import Clock, Timing
from flumina.apps.registry import APPS
from flumina.plan.cost_model import CostModel
from flumina.plan.sources import bind
from flumina.plan.tree import Plan

Floats = npt.NDArray[np.float64]

WINDOWS = 12
"""Rare events in a run in virtual time: enough that its beginning and its end do not count."""
_STEPS = 25
_NUDGE = 0.05
"""By how much a price is changed to see what that does: runs in virtual time have steps that are smaller."""
_TRUST, _TRUST_NETWORK = 0.01, 0.02
"""How much a price known before weighs against measurements: that of an event is known for its function alone, without
reading; those of messages and hops were measured once, and a noisy run should not make them a thousand times larger."""


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


def fit(observed: Sequence[Observed], start: Mapping[str, CostModel]) -> dict[str, CostModel]:
    """Prices of tags, messages and hops for which predictions are nearest to what was observed, as ratios.

    A model for each program of which there is one to start with: messages and hops cost the same in all of them, as
    they are those of the machine; functions cost what they cost at the start.
    """
    inputs = [bind(one.case.app.program, one.case.sources()) for one in observed]
    tags = [(name, tag) for name in start for tag in [flow.tag.name for flow in APPS[name].workload().flows()]]
    network = next(iter(start.values()))
    first = [start[name].by_tag.get(tag, start[name].event) for name, tag in tags] + [network.message, network.hop]
    known = np.log(first)
    trust = np.array([_TRUST] * len(tags) + [_TRUST_NETWORK] * 2)

    def models(logs: Floats) -> dict[str, CostModel]:
        *events, message, hop = np.exp(logs).tolist()
        prices = dict(zip(tags, events, strict=True))
        return {
            name: replace(
                model, message=message, hop=hop, by_tag={tag: price for (n, tag), price in prices.items() if n == name}
            )
            for name, model in start.items()
        }

    def wrong(logs: Floats) -> Floats:
        """The logarithms of predicted over observed, then those of prices over what they were before."""
        tried = models(logs)
        runs = [Clock(o.plan, given, tried[o.case.name]) for o, given in zip(observed, inputs, strict=True)]
        off = [math.log(r.run(_seconds(o.case)).throughput / o.throughput) for r, o in zip(runs, observed, strict=True)]
        return np.concatenate([off, trust * (logs - known)])

    return models(_least_squares(wrong, known))


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


def save(path: Path, models: Mapping[str, CostModel]) -> None:
    """Keep prices for the sections that come later."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({name: asdict(model) for name, model in models.items()}, indent=1)
    path.write_text(text + "\n", encoding="utf-8")


def load(path: Path, name: str) -> CostModel:
    """The prices of a program."""
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if name not in known:
        raise SystemExit(f"no prices of {name} yet: run `python -m benchmarks.evaluation throughput` first")
    return CostModel(**known[name])
