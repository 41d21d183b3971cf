"""Prices come back from runs that were made with them."""

from __future__ import annotations

from random import Random

import pytest

from flumina.plan.cost_model import CostModel
from flumina.sim.calibrate import Measured, calibrate
from flumina.sim.cost_meter import Counts

TRUE = CostModel(
    by_tag={"value": 35e-9, "barrier": 4e-6}, join=11e-6, fork=9e-6, message=22e-6, send=14e-9, receive=17e-9
)


def runs(seed: int, noise: float = 0.0) -> list[Measured]:
    random = Random(seed)
    made = []
    for _ in range(40):
        counts = Counts(
            {"value": random.randint(0, 10**6), "barrier": random.randint(0, 2000)},
            joins=random.randint(0, 3000),
            forks=random.randint(0, 3000),
            messages=random.randint(0, 5000),
            sent=random.randint(0, 10**6),
            received=random.randint(0, 10**6),
        )
        made.append(Measured(counts, counts.seconds(TRUE) * (1 + noise * random.uniform(-1, 1))))
    return made


@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_the_prices_are_found(noise: float) -> None:
    found = calibrate(runs(1, noise))
    tolerance = 0.01 if noise == 0 else 0.3
    for name in ("join", "fork", "message", "send", "receive"):
        assert getattr(found, name) == pytest.approx(getattr(TRUE, name), rel=tolerance)
    assert found.by_tag == pytest.approx(TRUE.by_tag, rel=tolerance)


def test_what_no_run_tells_apart_keeps_its_proportion() -> None:
    equal = [Measured(Counts(joins=n, forks=n), n * 40e-6) for n in (10, 100, 1000)]
    found = calibrate(equal, CostModel(join=6e-6, fork=2e-6))
    assert found.join + found.fork == pytest.approx(40e-6, rel=0.01)
    assert found.join > found.fork


def test_what_was_never_counted_keeps_its_price() -> None:
    found = calibrate([Measured(Counts({"value": 1000}), 1e-3)])
    assert found.by_tag["value"] == pytest.approx(1e-6, rel=0.01)
    assert found.message == pytest.approx(CostModel().message, rel=0.01)
    assert calibrate([]) == CostModel()


def test_no_price_is_negative() -> None:
    odd = [Measured(Counts({"value": 1000, "barrier": 10}), 1e-3), Measured(Counts({"value": 2000}), 4e-3)]
    found = calibrate(odd)
    assert min(found.by_tag.values()) >= 0
