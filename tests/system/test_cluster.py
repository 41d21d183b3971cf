"""Machines that fail: Spark tries the gang again, and the outputs are those of the sequential program."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import flumina as fl
from flumina.apps.fraud import Fraud
from flumina.engine.job import Settings
from flumina.errors import FluminaError, GangError
from flumina.testing import assert_same_outputs
from tests.system.cluster import Cluster, kill, session
from tests.system.processes import children

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(300)]

ROWS = 4000
RATE = 1000.0
"""Events a second on each part: a run takes four seconds."""


def transactions(part: int) -> Iterator[dict[str, Any]]:
    for start in range(0, ROWS, 200):
        yield {"v": np.arange(start, start + 200) * 7 + part}


def rules(part: int) -> Iterator[dict[str, Any]]:
    times = np.arange(50_000, int(ROWS / RATE * 1e6), 50_000)
    yield {"ts": times, "r": np.arange(len(times))}


def streams() -> list[fl.Stream]:
    return [
        fl.Stream("rules", Fraud.rule, fl.Generated(rules, rate=RATE)),
        fl.Stream("transactions", Fraud.transaction, fl.Generated(transactions, parts=2, rate=RATE)),
    ]


@pytest.fixture(scope="module")
def cluster(spark_home: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two machines with two cores each."""
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    yield made
    made.close()
    assert not any(children(process.pid) for process in made.processes)


@pytest.fixture(scope="module")
def spark_on_cluster(cluster: Cluster) -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession  # noqa: PLC0415

    active = SparkSession.getActiveSession()
    if active is not None:
        active.stop()
    made = session(cluster.master, spark__cores__max="4", spark__executor__cores="2")
    yield made
    made.stop()


def run_with(harm: Callable[[], None], after: float, tmp_path: Path, **more: Any) -> Any:
    """A run in the middle of which something happens: so many seconds after its first event."""
    from flumina import spark as engine  # noqa: PLC0415

    began = threading.Event()
    over = threading.Event()

    def watch() -> None:
        began.wait(60)
        if not over.wait(after):
            harm()

    class Starting(list):  # type: ignore[type-arg]
        """Streams that tell when the run begins."""

    thread = threading.Thread(target=watch)
    thread.start()
    began.set()
    try:
        return engine.run(
            Fraud, streams(), workers=2, optimiser="greedy", order=True, progress=False, out=tmp_path / "out", **more
        )
    finally:
        over.set()
        thread.join()


def assert_exact(result: Any) -> None:
    expected = fl.spec(Fraud, streams())
    found = {name: frame.toArrow() for name, frame in result.outputs.items()}
    assert_same_outputs(found, dict(expected.outputs))


KILLS = 2
"""How many processes of each kind are killed in ``make test``."""


def harm_of(cluster: Cluster, seed: int) -> Callable[[], None]:
    """Kill a Python worker or an executor, whichever the seed says."""
    rng = random.Random(seed)

    def harm() -> None:
        found = cluster.python_workers() if seed % 2 else cluster.executors()
        assert found, "there is nothing to kill"
        kill(rng.choice(sorted(found)))

    return harm


def survives(cluster: Cluster, seed: int, tmp_path: Path) -> None:
    after = 1.0 + random.Random(f"after {seed}").random() * 4
    assert_exact(run_with(harm_of(cluster, seed), after, tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_cluster_runs_it(spark_on_cluster: SparkSession, tmp_path: Path) -> None:
    assert_exact(run_with(lambda: None, 0.0, tmp_path))


@pytest.mark.parametrize("seed", range(4))
def test_a_killed_process_changes_nothing(
    spark_on_cluster: SparkSession, cluster: Cluster, tmp_path: Path, seed: int
) -> None:
    survives(cluster, seed, tmp_path)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_fifty_killed_processes_change_nothing(
    spark_on_cluster: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    for seed in range(100, 150):
        folder = tmp_path / str(seed)
        folder.mkdir()
        survives(cluster, seed, folder)


def test_a_machine_that_is_gone_for_good_is_an_error_in_time(
    spark_on_cluster: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    """The last test: the cluster has three slots too few afterwards."""
    with pytest.raises(FluminaError) as caught:
        from flumina import spark as engine  # noqa: PLC0415

        thread = threading.Timer(3.0, lambda: cluster.lose_worker(1))
        thread.start()
        began = time.monotonic()
        four = [
            streams()[0],
            fl.Stream("transactions", Fraud.transaction, fl.Generated(transactions, parts=4, rate=RATE)),
        ]
        engine.run(
            Fraud, four, workers=4, optimiser="greedy", out=tmp_path / "out", settings=Settings(patience=10.0),
            progress=False,
        )  # fmt: skip
    assert isinstance(caught.value, GangError), caught.value
    assert time.monotonic() - began < 40
    assert list(tmp_path.iterdir()) == []
