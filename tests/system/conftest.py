"""What whole runs need: a Spark session that all tests share, and the certainty that no process is left behind."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flumina.local.pool import POOL
from tests.system.cluster import session
from tests.system.processes import children

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def no_process_is_left() -> Iterator[None]:
    """Whatever a test does, afterwards there are no processes but those that wait in the pool."""
    yield
    waiting = {worker.process.pid for worker in POOL.idle}
    ours = {pid for pid, command in children(os.getpid()).items() if "flumina.local.process" in command}
    assert ours <= waiting, f"processes {ours - waiting} are left"


@pytest.fixture(scope="session")
def spark_home() -> None:
    """Spark can be started, and its Python workers find what the tests find."""
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("there is no Java")
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["JAVA_TOOL_OPTIONS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # short lives: a quarter less work


@pytest.fixture
def spark(spark_home: None) -> SparkSession:
    """A session on four cores, in which a stage that fails is tried again; one for all tests that need no other."""
    return session("local[4,4]")
