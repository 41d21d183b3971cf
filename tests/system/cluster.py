"""A real standalone cluster on this machine, started and ended by the tests."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.system.processes import children

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
HERE = "127.0.0.1"
_DEPLOY = "org.apache.spark.deploy"


class Cluster:
    """A master, and workers with so many cores each, in processes of their own."""

    def __init__(self, folder: Path, workers: int = 2, cores: int = 2) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []
        try:
            master = self._start(
                "master", f"{_DEPLOY}.master.Master", "--host", HERE, "--port", "0", "--webui-port", "0"
            )
            self.master = self._wait_for(master, re.compile(rb"Starting Spark master at (spark://\S+)"))
            self.cores, self.workers = cores, list[int]()
            self.add_workers(workers)
        except BaseException:
            self.close()
            raise

    def _start(self, name: str, *command: str) -> str:
        import pyspark  # noqa: PLC0415 -- only where it is needed

        home = Path(pyspark.__file__).parent
        log = (self.folder / f"{name}.log").open("wb")
        environment = {
            **os.environ,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": HERE,
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
            "SPARK_DAEMON_MEMORY": "256m",
        }
        with log:
            process = subprocess.Popen(
                [str(home / "bin" / "spark-class"), *command], stdout=log, stderr=log, env=environment, cwd=self.folder
            )
        self.processes.append(process)
        return name

    def add_workers(self, count: int) -> None:
        """Have so many machines more."""
        added = range(len(self.workers), len(self.workers) + count)
        self.workers += [self._start_worker(number) for number in added]
        for number in added:
            self._wait_for(f"worker{number}", re.compile(rb"(Successfully registered) with master"))

    def _start_worker(self, number: int) -> int:
        options = ("--host", HERE, "--port", "0", "--webui-port", "0", "--cores", str(self.cores), "--memory", "1g")
        work = str(self.folder / f"work{number}")
        self._start(f"worker{number}", f"{_DEPLOY}.worker.Worker", *options, "--work-dir", work, self.master)
        return self.processes[-1].pid

    def _wait_for(self, name: str, pattern: re.Pattern[bytes], seconds: float = 500) -> str:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            found = pattern.search((self.folder / f"{name}.log").read_bytes())
            if found:
                return found[1].decode()
            time.sleep(0.1)
        text = (self.folder / f"{name}.log").read_text(errors="replace")
        raise AssertionError(f"{name} did not start:\n{text[-2000:]}")

    def executors(self) -> list[int]:
        """The processes of executors."""
        found = [children(pid) for pid in self.workers]
        return [pid for below in found for pid, command in below.items() if "CoarseGrainedExecutorBackend" in command]

    def lose_worker(self, number: int) -> None:
        """A machine goes away: its worker and all it has started."""
        gone = [self.workers[number], *children(self.workers[number])]
        for pid in gone:
            kill(pid)

    def close(self) -> None:
        """End everything, and make sure of it."""
        pids = [p.pid for p in self.processes]
        pids += [pid for p in self.processes for pid in children(p.pid)]
        for pid in pids:
            kill(pid)
        for process in self.processes:
            process.wait(10)


def kill(pid: int) -> None:
    """``kill -9``, if there is such a process."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def session(master: str, **settings: str) -> SparkSession:
    """A session for tests on this machine: the one that there is, if it is for the same master."""
    from pyspark import SparkContext  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    active = SparkContext._active_spark_context
    if active is not None and active.master != master:
        active.stop()
    builder = (
        SparkSession.builder.master(master)
        .appName("flumina tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", HERE)
        .config("spark.driver.bindAddress", HERE)
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.executor.memory", "512m")
    )
    for key, value in settings.items():
        builder = builder.config(key.replace("__", "."), value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("OFF")
    return made
