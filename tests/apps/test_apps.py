"""Every program with its own workload: several workers give what the oracle gives."""

from pathlib import Path
from typing import Any

import pytest

import flumina as fl
from flumina import local
from flumina.apps.registry import APPS
from flumina.plan.optimize import OptimizerName
from flumina.testing import assert_same_outputs

SMALL: dict[str, dict[str, Any]] = {
    "key-counter": {"events": 1_500, "keys": 4, "ratio": 30},
    "value-barrier": {"events": 1_500, "ratio": 50},
    "page-views": {"events": 1_500, "pages": 20, "skew": 0.8, "gets": 10, "changes": 25},
    "fraud": {"events": 6_000, "ratio": 200},
    "outliers": {"events": 1_200, "ratio": 60, "unusual": 0.03},
    "smart-home": {"houses": 6, "households": 2, "plugs": 3, "hours": 6, "interval": 400},
}
every = pytest.mark.parametrize("name", SMALL)


@every
@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("optimizer", ["greedy", "cost"])
def test_several_workers_give_what_the_oracle_gives(name: str, workers: int, optimizer: OptimizerName) -> None:
    app = APPS[name]
    streams = app.generate(**SMALL[name], parts=workers).streams()
    expected = fl.spec(app.program, streams)
    result = local.run(app.program, streams, workers=workers, optimizer=optimizer, progress=False)
    assert result.stats.events == expected.events
    assert_same_outputs(result.outputs, expected.outputs)
    assert all(table.num_rows for table in expected.outputs.values()), "an output that is empty shows nothing"
    if optimizer == "greedy":
        assert len(result.plan.leaves) >= 2


@every
def test_the_program_by_hand_gives_the_same(name: str, tmp_path: Path) -> None:
    app = APPS[name]
    if app.by_hand is None:
        pytest.skip("there is only one")
    made = app.generate(**SMALL[name])
    tags = fl.define(app.by_hand).tags
    streams = [fl.Stream(s.name, tags[s.tag.name], s.data) for s in made.streams() if isinstance(s.tag, fl.Tag)]
    result = local.run(app.by_hand, streams, workers=2, optimizer="greedy", progress=False)
    assert len(result.plan.leaves) >= 2
    assert_same_outputs(result.outputs, fl.spec(app.program, made.streams()).outputs)


@every
def test_from_files_to_files(name: str, tmp_path: Path) -> None:
    app = APPS[name]
    workload = app.generate(**SMALL[name])
    workload.write(tmp_path / "in")
    opened = app.open(tmp_path / "in")
    result = local.run(app.program, opened.streams, workers=2, out=tmp_path / "out", progress=False)
    assert_same_outputs(result.outputs, fl.spec(app.program, workload.streams()).outputs)


def test_paced() -> None:
    """A tenth of a second of value-barrier as it happens; there is a latency to tell."""
    streams = APPS["value-barrier"].generate(events=2_000, rate=20_000, ratio=100).streams(paced=True, heartbeats=200)
    result = local.run(APPS["value-barrier"].program, streams, workers=2, progress=False)
    assert result.stats.latency.total == 10
