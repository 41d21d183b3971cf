"""Drivers and Python workers are killed (executors in test_cluster.py): nothing is lost, and nothing is there twice."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import flumina as fl
from flumina.apps import PageViews
from flumina.checkpoint.state_partitions import PartitionedState
from flumina.checkpoint.store.checkpoints import Checkpoints
from flumina.engine.hooks import BATCH_STEPS as POINTS
from flumina.engine.hooks import Hooks
from flumina.engine.message_codec import Codec
from flumina.plan.forest import Forest
from flumina.program.base import define
from flumina.state.compare import same
from flumina.streaming import batches as batches_module
from flumina.testing import assert_same_outputs
from tests.streaming.failpoints import VARIABLE, At
from tests.system import failing
from tests.system.cluster import kill
from tests.system.endless import ENDLESS, expected, options, stopped_after
from tests.system.processes import children
from tests.system.streaming import Files, Pages, Watcher, assert_exactly_once, start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files.make(tmp_path / "in", batches=3, rows=48)


def driver(folder: Path, failpoint: str | None = None, source: str = "files") -> subprocess.Popen[bytes]:
    """A driver of its own, with a JVM of its own."""
    environment = {**os.environ, **({} if failpoint is None else {VARIABLE: failpoint})}
    script = ROOT / "tests" / "system" / "streaming_script.py"
    return subprocess.Popen(
        [sys.executable, str(script), str(folder), source],
        env=environment,
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def end(process: subprocess.Popen[bytes], within: float = 500) -> int:
    """How a driver ended; none of its children is left."""
    below, errors = children(process.pid), None
    over = time.monotonic() + within
    try:
        while errors is None:
            try:
                _, errors = process.communicate(timeout=0.5)
            except subprocess.TimeoutExpired:
                below = children(process.pid) or below  # once it is gone, they are no longer its own
                if time.monotonic() > over:
                    raise
    finally:
        process.kill()
        process.wait()
        deadline = time.monotonic() + 300
        while any(Path(f"/proc/{pid}").exists() for pid in below) and time.monotonic() < deadline:
            time.sleep(0.1)
        for pid in below:
            kill(pid)
    assert process.returncode in (0, -signal.SIGKILL), errors.decode(errors="replace")[-3000:]
    return process.returncode


def test_a_driver_is_killed(spark_home: None, files: Files, tmp_path: Path) -> None:
    """With its JVM; tests/streaming/test_kills.py has every failpoint, without one."""
    assert end(driver(tmp_path, "after-sink:1")) == -signal.SIGKILL
    assert end(driver(tmp_path)) == 0
    assert_exactly_once(tmp_path / "out", files.expected())


class Crash(Exception):  # noqa: N818 -- what it is called in the tests
    """The batch goes no further."""


@pytest.mark.parametrize("gone", ["ours", "Spark's", "both"])
def test_the_newest_commit_is_deleted(spark: SparkSession, files: Files, tmp_path: Path, gone: str) -> None:
    start(spark, files.streams(spark), tmp_path, drain=False).awaitTermination()
    logs = {
        "ours": max((tmp_path / "checkpoint" / "state").glob("snapshot-*.done")),
        "Spark's": tmp_path / "checkpoint" / "spark" / "commits" / "2",
    }
    for name, path in logs.items():
        if gone in (name, "both"):
            path.unlink()
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    start(spark, files.streams(spark), tmp_path).awaitTermination()
    assert_exactly_once(tmp_path / "out", files.expected())


class Crashes(Hooks):
    """Where a batch goes no further, one after the other: as a killed driver, but for the JVM, which goes on."""

    def __init__(self) -> None:
        self.waiting = [(point, 3 if point == "pruned" else number // 4) for number, point in enumerate(POINTS)]

    def reached(self, step: str, batch: int) -> None:
        if self.waiting and (step, batch) == self.waiting[0]:
            self.waiting.pop(0)
            raise Crash(step)


def test_a_batch_fails_at_every_point_and_is_tried_again(spark: SparkSession, files: Files, tmp_path: Path) -> None:
    """The last of them in the batch after the files, which closes the streams."""
    crashes = Crashes()
    settings = fl.EngineOptions(hooks=crashes)
    for _ in POINTS:
        with pytest.raises(Crash):
            start(spark, files.streams(spark), tmp_path, engine_options=settings).awaitTermination()
    start(spark, files.streams(spark), tmp_path, engine_options=settings).awaitTermination()
    assert not crashes.waiting
    assert_exactly_once(tmp_path / "out", files.expected())


def test_a_state_in_shares_is_gone_on_with_after_crashes_by_other_numbers_of_workers(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each task writes and reads its own share, however small it is."""
    monkeypatch.setattr(batches_module, "INLINE_STATE", 0)
    files = Pages.make(tmp_path / "in")
    crashes = Crashes()
    crashes.waiting = [("after-state", 0), ("before-sink", 1), ("after-sink", 2), ("before-state", 3)]
    trees = []
    for workers in (2, 4, 1, 3, 4):
        more: dict[str, Any] = {"program": PageViews, "watermarks": fl.BoundedDelay(20), "workers": workers}
        query = start(spark, files.streams(spark), tmp_path, **more, engine_options=fl.EngineOptions(hooks=crashes))
        with suppress(Crash):
            query.awaitTermination()
        assert query.plan is not None
        assert len(query.plan.leaves) == workers
        trees.append(len(Forest.of(query.plan.root).trees))
    assert not crashes.waiting
    assert len(set(trees)) > 2, trees
    assert_exactly_once(tmp_path / "out", files.expected())
    latest = Checkpoints(tmp_path / "checkpoint" / "state").latest()
    assert latest is not None
    definition = define(PageViews)
    state = PartitionedState.of(latest).whole(definition, Codec(definition, ["changes", "views"]))
    assert same(state, files.oracle().state)


def test_a_function_gets_the_same_rows_after_a_crash(spark: SparkSession, files: Files, tmp_path: Path) -> None:
    calls: dict[int, list[dict[str, pa.Table]]] = {}
    crashes = Crashes()
    del crashes.waiting[::2]  # every restart takes a second
    given = fl.EngineOptions(hooks=crashes)

    def collect(outputs: Any, batch: int) -> None:
        calls.setdefault(batch, []).append({name: frame.toArrow() for name, frame in outputs.items()})

    for _ in list(crashes.waiting):
        with pytest.raises(Crash):
            start(spark, files.streams(spark), tmp_path, sink=collect, engine_options=given).awaitTermination()
    start(spark, files.streams(spark), tmp_path, sink=collect, engine_options=given).awaitTermination()
    assert not crashes.waiting
    assert sorted(calls) == [0, 1, 2, 3]
    assert max(map(len, calls.values())) > 1, "a batch that crashed after the sink is handed over again"
    assert all(again == first for first, *others in calls.values() for again in others), "in the same order"
    for name, wanted in files.expected().items():
        found = pa.concat_tables([first[name] for first, *_ in calls.values()])
        assert_same_outputs(found.cast(wanted.schema), wanted)


@pytest.mark.parametrize("name", ENDLESS)
def test_a_query_that_never_ends_fails_and_is_tried_again(spark: SparkSession, tmp_path: Path, name: str) -> None:
    source, crashes = ENDLESS[name], Crashes()
    if name == "ticks":  # with a process of Python for every start
        del crashes.waiting[1::2]
    given: dict[str, Any] = {**options(source), "engine_options": fl.EngineOptions(hooks=crashes)}
    for _ in list(crashes.waiting):
        with pytest.raises(Crash):
            start(spark, source.streams(spark), tmp_path, **given).awaitTermination()
    done = stopped_after(start(spark, source.streams(spark), tmp_path, **given), 4)
    assert not crashes.waiting
    assert done["leaves"] > 1
    assert done["joins"] > 0
    assert_exactly_once(tmp_path / "out", expected(source, done))


def python_workers(driver: int) -> list[int]:
    """The processes that a driver's executor has for Python."""
    daemons = [pid for pid, command in children(driver).items() if "pyspark.daemon" in command]
    return [pid for daemon in daemons for pid in children(daemon)]


def test_python_workers_are_killed(spark: SparkSession, tmp_path: Path) -> None:
    """All of them at another failpoint of every batch from the third on; and some of them while they work.

    Each time costs Spark five seconds: it waits for the tasks that it gives up.
    """
    files = Files.make(tmp_path / "in", batches=len(POINTS) + 2, rows=48)
    killed: dict[str, list[int]] = {}

    def reach(point: str, batch: int) -> None:
        if point == dict(enumerate(POINTS, 2)).get(batch):
            killed[point] = python_workers(os.getpid())
            for pid in killed[point]:
                kill(pid)

    def harm() -> bool:
        working = python_workers(os.getpid())
        jobs = spark.sparkContext.statusTracker().getActiveJobsIds()
        if not working or not jobs:
            return False
        kill(random.Random(len(working)).choice(working))
        return True

    watcher = Watcher(harm, 1)
    query = start(spark, files.streams(spark), tmp_path, engine_options=fl.EngineOptions(hooks=At(reach)))
    with watcher:
        query.awaitTermination()
    assert watcher.left == 0, "somebody was killed"
    assert tuple(killed) == POINTS
    assert all(killed.values()), killed
    assert max(entry["leaves"] for entry in query.recentProgress) > 1
    assert_exactly_once(tmp_path / "out", files.expected())


def test_a_python_worker_that_stands_still_is_ended_and_its_batch_tried_again(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    values = pa.table({"ts": range(60), "v": [failing.BAD if ts == 30 else ts for ts in range(60)]})
    barriers = pa.table({"ts": range(9, 60, 10)})
    tables = {"values": values, "barriers": barriers}
    program = failing.StandsStill(str(tmp_path / "once"))
    given = [
        fl.Stream("values", program.value, values),
        fl.Stream("barriers", program.barrier, barriers),
    ]
    for name, table in tables.items():
        (tmp_path / "in" / name).mkdir(parents=True)
        pq.write_table(table, tmp_path / "in" / name / "0.parquet")
    streams = [
        replace(s, data=spark.readStream.schema(ddl).parquet(str(tmp_path / "in" / s.name)))
        for s, ddl in zip(given, ("ts long, v long", "ts long"), strict=True)
    ]
    more: dict[str, Any] = {
        "program": program,
        "watermarks": None,
        "task_timeout": 3.0,
        "engine_options": fl.EngineOptions(liveness_interval=0.2, warn_after=1.0),
    }
    start(spark, streams, tmp_path, **more).awaitTermination()
    stopped = int((tmp_path / "once").read_text())
    assert f"process {stopped} on " in caplog.text
    assert_exactly_once(tmp_path / "out", dict(fl.spec(program, given).outputs))


def lose_newest_commits(folder: Path, rng: random.Random) -> None:
    """As a file system does that lost its last second: the newest commit of ours, of Spark's, of both or of neither."""
    ours = sorted((folder / "checkpoint" / "state").glob("snapshot-*.done"))
    sparks = sorted((folder / "checkpoint" / "spark" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    for names in (ours, sparks):
        if names and rng.random() < 0.5:
            newest = names[-1]
            newest.unlink()
            newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)


def harm(folder: Path, source: str, rng: random.Random) -> None:
    """A driver is killed at a failpoint, or at any time; or some of its Python workers are, and it goes on."""
    what = rng.choice(["failpoint", "driver", "workers"])
    process = driver(folder, f"{rng.choice(POINTS)}:{rng.randrange(5)}" if what == "failpoint" else None, source)
    if what != "failpoint":
        try:
            process.wait(rng.uniform(3, 20))
        except subprocess.TimeoutExpired:
            for pid in [process.pid] if what == "driver" else python_workers(process.pid):
                kill(pid)
    end(process)
    if rng.random() < 0.3:
        lose_newest_commits(folder, rng)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100))
def test_whoever_is_killed_at_any_time(spark_home: None, tmp_path: Path, seed: int) -> None:
    """Up to three times in a row, over every source; queries that end of themselves, and such that do not."""
    rng = random.Random(seed)
    name = rng.choice(["files", "pages", *ENDLESS])
    made = Pages if name == "pages" else Files
    files = made.make(tmp_path / "in", batches=4, rows=rng.choice([48, 120, 300]), seed=seed)
    for _ in range(rng.randint(1, 3)):
        harm(tmp_path, rng.choice(["files", "files, waiting"]) if name == "files" else name, rng)
    assert end(driver(tmp_path, source=name)) == 0
    if name in ("files", "pages"):
        assert_exactly_once(tmp_path / "out", files.expected())
    else:
        done = json.loads((tmp_path / "done.json").read_text())
        assert_exactly_once(tmp_path / "out", expected(ENDLESS[name], done))
    if name == "pages":
        taken = Checkpoints(tmp_path / "checkpoint" / "state").all()
        written = [sum(bool(file.tree_sizes) for file in snapshot.manifest.state) for snapshot in taken]
        assert max(written) > 1, "each task writes its share by itself"
