"""Costs from measured runs: the prices under which what was counted takes as long as it took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from flumina.plan.cost_model import DEFAULT, CostModel
from flumina.sim.cost_meter import Counts

_NAMES = ("join", "fork", "message", "send", "receive")
_TRUST = 1e-6
"""How much the prices known before weigh against measurements: enough to divide what no measurement divides."""


@dataclass(frozen=True)
class Measured:
    """What one place did, and how long it worked."""

    counts: Counts
    seconds: float


def calibrate(measured: Sequence[Measured], model: CostModel = DEFAULT) -> CostModel:
    """The model whose prices fit best (least squares of relative errors); what was never counted keeps its price.

    Joins and forks often come in equal numbers, so that no measurement tells their prices apart: they keep the
    proportion that they have in ``model``.
    """
    tags = sorted({tag for one in measured for tag in one.counts.events})
    known = np.array([model.by_tag.get(tag, model.event) for tag in tags] + [getattr(model, n) for n in _NAMES])
    known = np.where(known > 0, known, 1e-9)
    rows = [
        [*(one.counts.events.get(tag, 0.0) for tag in tags), *_others(one.counts)]
        for one in measured
        if one.seconds > 0
    ]
    if not rows:
        return model
    took = np.array([one.seconds for one in measured if one.seconds > 0])
    # In units of the known prices, and each run by its own time: all numbers are then around one.
    scaled = np.array(rows, float) * known / took[:, None]
    factors = _fit(scaled, np.ones(len(took)))
    prices = dict(zip([*tags, *_NAMES], (factors * known).tolist(), strict=True))
    by_tag = {**model.by_tag, **{tag: prices[tag] for tag in tags}}
    return replace(model, by_tag=by_tag, **{name: prices[name] for name in _NAMES})


def _others(counts: Counts) -> tuple[float, ...]:
    return counts.joins, counts.forks, counts.messages, counts.sent, counts.received


def _fit(scaled: npt.NDArray[np.float64], wanted: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Factors that are not negative, near 1 where nothing else is known."""
    size = scaled.shape[1]
    free = np.ones(size, bool)
    factors = np.zeros(size)
    while free.any():
        width = int(free.sum())
        matrix = np.vstack([scaled[:, free], _TRUST * np.eye(width)])
        target = np.concatenate([wanted, np.full(width, _TRUST)])
        found = np.linalg.lstsq(matrix, target, rcond=None)[0]
        factors[:] = 0.0
        factors[free] = found
        if (found >= 0).all():
            break
        free[np.flatnonzero(free)[found < 0]] = False
    return np.maximum(factors, 0.0)
