"""Drivers and Python workers are killed (executors in test_cluster.py): nothing is lost, and nothing is there twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flumina.engine.failpoints import POINTS, VARIABLE
from flumina.streaming import batches as batches_module
from tests.system.cluster import kill
from tests.system.processes import children
from tests.system.streaming import Files, Watcher, assert_exactly_once, start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files.make(tmp_path / "in", batches=3, rows=48)


def driver(folder: Path, failpoint: str | None = None) -> subprocess.Popen[bytes]:
    """A driver of its own, with a JVM of its own."""
    environment = {**os.environ, **({} if failpoint is None else {VARIABLE: failpoint})}
    script = ROOT / "tests" / "system" / "streaming_script.py"
    return subprocess.Popen(
        [sys.executable, str(script), str(folder)],
        env=environment,
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def end(process: subprocess.Popen[bytes], within: float = 120) -> int:
    """How a driver ended; none of its children is left."""
    below = list(children(process.pid))
    try:
        _, errors = process.communicate(timeout=within)
    finally:
        below += list(children(process.pid))
        process.kill()
        process.wait()
        deadline = time.monotonic() + 20
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
    start(spark, files.streams(spark), tmp_path, closed=False).awaitTermination()
    logs = {
        "ours": tmp_path / "checkpoint" / "log" / "commits" / "000000000002.json",
        "Spark's": tmp_path / "checkpoint" / "spark" / "commits" / "2",
    }
    for name, path in logs.items():
        if gone in (name, "both"):
            path.unlink()
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    start(spark, files.streams(spark), tmp_path).awaitTermination()
    assert_exactly_once(tmp_path / "out", files.expected())


def test_a_batch_fails_at_every_point_and_is_tried_again(
    spark: SparkSession, files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a killed driver, but for the JVM, which goes on: Spark's query is started again from its checkpoint."""
    waiting = [(point, number // 3) for number, point in enumerate(POINTS)]

    def reach(point: str, batch: int) -> None:
        if waiting and (point, batch) == waiting[0]:
            waiting.pop(0)
            raise Crash(point)

    monkeypatch.setattr(batches_module, "reach", reach)
    for _ in POINTS:
        with pytest.raises(Crash):
            start(spark, files.streams(spark), tmp_path).awaitTermination()
    start(spark, files.streams(spark), tmp_path).awaitTermination()
    assert not waiting
    assert_exactly_once(tmp_path / "out", files.expected())


def test_python_workers_are_killed(spark: SparkSession, files: Files, tmp_path: Path) -> None:
    def harm() -> bool:
        daemons = [pid for pid, command in children(os.getpid()).items() if "pyspark.daemon" in command]
        working = [pid for daemon in daemons for pid in children(daemon)]
        jobs = spark.sparkContext.statusTracker().getActiveJobsIds()
        if not working or not jobs:
            return False
        kill(random.Random(len(working)).choice(working))
        return True

    watcher = Watcher(harm, 3)
    with watcher:
        start(spark, files.streams(spark), tmp_path).awaitTermination()
    assert watcher.left < 3, "somebody was killed"
    assert_exactly_once(tmp_path / "out", files.expected())


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(100))
def test_a_driver_is_killed_at_any_time(spark_home: None, tmp_path: Path, seed: int) -> None:
    """At a failpoint, or after some seconds, up to three times in a row; then the newest commit may be lost, too."""
    rng = random.Random(seed)
    files = Files.make(tmp_path / "in", batches=4, rows=rng.choice([12, 48, 300]), seed=seed)
    for _ in range(rng.randint(1, 3)):
        if rng.random() < 0.5:
            end(driver(tmp_path, f"{rng.choice(POINTS)}:{rng.randrange(4)}"))
        else:
            process = driver(tmp_path)
            try:
                process.wait(rng.uniform(3, 20))
            except subprocess.TimeoutExpired:
                process.kill()
            end(process)
        if rng.random() < 0.3:
            for log in ("log", "spark"):
                names = sorted((tmp_path / "checkpoint" / log / "commits").glob("[0-9]*"))
                if names and rng.random() < 0.5:
                    newest = max(names, key=lambda path: int(path.name.split(".")[0]))
                    newest.unlink()
                    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
    assert end(driver(tmp_path)) == 0
    assert_exactly_once(tmp_path / "out", files.expected())
