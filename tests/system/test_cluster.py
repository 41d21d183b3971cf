"""Machines that fail: Spark tries the gang again, and the outputs are those of the sequential program."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import flumina as fl
from flumina.apps.fraud import Fraud
from flumina.checkpoint.store.checkpoints import Checkpoints
from flumina.engine.hooks import BATCH_STEPS as POINTS
from flumina.engine.options import EngineOptions
from flumina.errors import GangError
from flumina.testing import assert_same_outputs
from tests.streaming.failpoints import At
from tests.system.cluster import Cluster, kill, session
from tests.system.processes import children
from tests.system.streaming import Files, Watcher, assert_exactly_once
from tests.system.streaming import start as start_query
from tests.system.test_failures import readers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 4000
RATE = 1000.0
"""Events a second on each part: a run takes four seconds."""


def transactions(part: int, told: str = "") -> Iterator[dict[str, Any]]:
    """Values; the process that reads them says so in the folder ``told``."""
    if told:
        Path(told, f"{part}-{os.getpid()}").touch()
    for start in range(0, ROWS, 200):
        yield {"v": np.arange(start, start + 200) * 7 + part}


def rules(part: int) -> Iterator[dict[str, Any]]:
    times = np.arange(50_000, int(ROWS / RATE * 1e6), 50_000)
    yield {"ts": times, "r": np.arange(len(times))}


def streams(told: str = "", parts: int = 2) -> list[fl.Stream]:
    made = fl.GeneratorSource(partial(transactions, told=told), parts=parts, rate=RATE)
    return [
        fl.Stream("rules", Fraud.rule, fl.GeneratorSource(rules, rate=RATE)),
        fl.Stream("transactions", Fraud.transaction, made),
    ]


@pytest.fixture(scope="module")
def cluster(spark_home: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two machines with two cores each."""
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    yield made
    end_session()
    made.close()
    assert not any(children(process.pid) for process in made.processes)


def end_session() -> None:
    from pyspark import SparkContext  # noqa: PLC0415 -- only where it is needed

    active = SparkContext._active_spark_context
    if active is not None:
        active.stop()


@pytest.fixture
def spark_on_cluster(cluster: Cluster) -> SparkSession:
    """A session on the cluster that most tests share."""
    return session_on(cluster)


def session_on(cluster: Cluster) -> SparkSession:
    """A session whose executors are there: on a busy machine they take longer than a run waits for them."""
    from flumina.spark.session import Cluster as SparkCluster  # noqa: PLC0415 -- only where it is needed

    made = session(
        cluster.master,
        spark__cores__max="4",
        spark__executor__cores="2",
        spark__ui__retainedJobs="1",  # what Spark has forgotten is missing from statistics only
        spark__ui__retainedStages="1",
    )
    deadline = time.monotonic() + 300
    while SparkCluster(made).slots() < 4 and time.monotonic() < deadline:
        time.sleep(0.2)
    return made


class NothingHappenedError(Exception):
    """The run was over before anything happened to it: on a busy machine, whoever watches may come late."""


def run_with(harm: Callable[[list[int]], None], after: float, folder: Path, *, parts: int = 2, **more: Any) -> Any:
    """A run to which something happens: so many seconds after all its parts have begun to be read, and by whom."""
    from flumina import spark as engine  # noqa: PLC0415 -- only where it is needed

    told = folder / "told"
    told.mkdir()
    over, harmed = threading.Event(), threading.Event()

    def watch() -> None:
        while not over.wait(0.05):
            reading = readers(told)
            if len(reading) == parts:
                if not over.wait(after):
                    harm(list(reading.values()))
                    harmed.set()
                return

    thread = threading.Thread(target=watch)
    thread.start()
    given = streams(str(told), parts)
    try:
        options = {"workers": parts, "optimizer": "greedy", "progress": False, "out": folder / "out", **more}
        return engine.run(Fraud, given, **options)
    finally:
        over.set()
        thread.join()
        if not harmed.is_set():
            raise NothingHappenedError


def assert_exact(result: Any) -> None:
    expected = fl.spec(Fraud, streams())
    found = {name: frame.toArrow() for name, frame in result.outputs.items()}
    assert_same_outputs(found, dict(expected.outputs))


def harm_of(cluster: Cluster, seed: int) -> Callable[[list[int]], None]:
    """Kill one of the Python workers that work, or its executor, whichever the seed says."""
    rng = random.Random(seed)

    def harm(reading: list[int]) -> None:
        chosen = rng.choice(sorted(reading))
        kill(chosen if seed % 2 else next(pid for pid in cluster.executors() if chosen in children(pid)))

    return harm


def survives(cluster: Cluster, seed: int, tmp_path: Path) -> None:
    after = random.Random(f"after {seed}").random() * 3
    result = run_with(harm_of(cluster, seed), after, tmp_path, engine_options=EngineOptions(patience=120.0))
    assert_exact(result)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "told"]


def test_a_cluster_runs_it(spark_on_cluster: SparkSession, tmp_path: Path) -> None:
    assert_exact(run_with(lambda _: None, 0.0, tmp_path, engine_options=EngineOptions(patience=120.0)))


@pytest.mark.parametrize("seed", range(4))
def test_a_killed_process_changes_nothing(
    spark_on_cluster: SparkSession, cluster: Cluster, tmp_path: Path, seed: int
) -> None:
    survives(cluster, seed, tmp_path)


def test_a_run_with_snapshots_loses_an_executor_and_goes_on_from_the_last(
    spark_on_cluster: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    for turn in count():
        folder = tmp_path / str(turn)
        folder.mkdir()
        with suppress(NothingHappenedError):
            goes_on_from_the_last_snapshot(cluster, folder)
            break


def goes_on_from_the_last_snapshot(cluster: Cluster, folder: Path) -> None:
    """Snapshots by the clock, and after so many events: what is left after the executor was lost is due at once."""
    kept = folder / "kept"

    def harm(reading: list[int]) -> None:
        deadline = time.monotonic() + 300
        while len(taken(kept)) < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        kill(next(pid for pid in cluster.executors() if reading[0] in children(pid)))

    policy = fl.Checkpoint(kept, seconds=0.5, events=500, keep=100)
    engine_options = EngineOptions(chunk_rows=100, window=200, patience=120.0)
    result = run_with(harm, 0.0, folder, checkpoint=policy, engine_options=engine_options)
    assert_exact(result)
    skipped = fl.spec(Fraud, streams()).events - result.stats.events
    assert skipped in taken(kept)[1:], "it went on from the second snapshot, or a later one"
    assert len(taken(kept)) >= 3


def taken(folder: Path) -> list[int]:
    """How many events lie before each snapshot on the way."""
    found = Checkpoints(folder).all() if folder.exists() else []
    return [one.manifest.events for one in found if one.end is not None]


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_fifty_killed_processes_change_nothing(
    spark_on_cluster: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    for seed in range(100, 150):
        for turn in count():
            folder = tmp_path / f"{seed}-{turn}"
            folder.mkdir()
            with suppress(NothingHappenedError):
                survives(cluster, seed, folder)
                break


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 5))])
def test_a_query_loses_an_executor_at_every_failpoint_and_others_at_any_time(
    cluster: Cluster, spark_on_cluster: SparkSession, tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    files = Files.make(tmp_path / "in", batches=4, rows=rng.choice([48, 120, 300]), seed=seed)
    waiting = [(point, number // 3) for number, point in enumerate(POINTS)]
    killed: list[int] = []

    def lose_one() -> None:
        while not (there := cluster.executors()):
            time.sleep(0.1)
        killed.append(rng.choice(there))
        kill(killed[-1])

    def reach(point: str, batch: int) -> None:
        if waiting and (point, batch) == waiting[0]:
            waiting.pop(0)
            lose_one()

    def harm() -> bool:
        busy = len(cluster.executors()) == 2 and bool(spark_on_cluster.sparkContext.statusTracker().getActiveJobsIds())
        if busy and rng.random() < 0.1:
            lose_one()
            return True
        return False

    settings = fl.EngineOptions(hooks=At(reach), patience=300.0)
    query = start_query(spark_on_cluster, files.streams(spark_on_cluster), tmp_path, engine_options=settings)
    with Watcher(harm, 3):
        query.awaitTermination()
    assert not waiting
    assert max(entry["leaves"] for entry in query.recentProgress) > 1
    assert len(killed) >= len(POINTS)
    assert_exactly_once(tmp_path / "out", files.expected())


def start_up(spark: SparkSession) -> float:
    """Seconds until four tasks have their Python and the package: a busy machine takes many times as long."""

    def load(rows: Iterable[int]) -> Iterator[int]:
        import_module("flumina.engine.host")
        return iter(rows)

    began = time.monotonic()
    spark.sparkContext.parallelize(range(4), 4).mapPartitions(load).count()
    return time.monotonic() - began


def test_a_machine_that_is_gone_for_good_is_an_error_in_time_or_the_run_goes_on_without_it(
    spark_on_cluster: SparkSession, cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The last test: afterwards the cluster has one machine."""
    patience = 20 + 5 * start_up(spark_on_cluster)
    failing, going_on = tmp_path / "failing", tmp_path / "going on"
    failing.mkdir()
    going_on.mkdir()
    harm = partial(lose_worker, cluster)
    with pytest.raises(GangError) as caught:
        run_with(harm, 0.5, failing, parts=4, engine_options=EngineOptions(patience=patience))
    assert "2 of 4" in str(caught.value) or "0 of 4" in str(caught.value)
    assert [path.name for path in failing.iterdir()] == ["told"]
    cluster.add_workers(1)
    session_on(cluster)
    goes_on_with_the_slots_that_are_left(cluster, going_on, patience)
    assert "2 of 4 slots were lost: the run resumes with 2" in caplog.text


def lose_worker(cluster: Cluster, _: list[int]) -> None:
    cluster.lose_worker(len(cluster.workers) - 1)


def goes_on_with_the_slots_that_are_left(cluster: Cluster, folder: Path, patience: float) -> None:
    """One of two machines is gone for good in the middle of a run: from the last snapshot, two tasks do the rest."""
    kept = folder / "kept"

    def harm(_: list[int]) -> None:
        deadline = time.monotonic() + 300
        while len(taken(kept)) < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        lose_worker(cluster, _)

    result = run_with(
        harm,
        0.0,
        folder,
        parts=4,
        checkpoint=fl.Checkpoint(kept, seconds=0.5, events=500, keep=100),
        on_lost_slots="shrink",
        engine_options=EngineOptions(chunk_rows=100, window=200, patience=patience),
        progress=True,
    )
    expected = fl.spec(Fraud, streams(parts=4))
    found = {name: frame.toArrow() for name, frame in result.outputs.items()}
    assert_same_outputs(found, dict(expected.outputs))
    assert len(result.plan.leaves) == 2
    assert expected.events - result.stats.events in taken(kept)[1:], "it went on from the second snapshot, or later"
