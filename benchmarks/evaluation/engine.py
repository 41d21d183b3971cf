"""Runs of Flumina and sessions of Spark for measuring."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from pyspark import SparkContext
from pyspark.sql import SparkSession

import flumina as fl
import flumina.spark
from flumina.engine.options import EngineOptions
from flumina.engine.results import RunResult

_HERE = "127.0.0.1"
_ROOT = Path(__file__).parents[2]


def session(slots: int) -> SparkSession:
    """A session with so many slots on this machine; the one that there is, if it has as many."""
    master = f"local[{slots}]"
    active = SparkContext._active_spark_context
    if active is not None and active.master != master:
        active.stop()
    paths = [str(_ROOT), str(_ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(os.pathsep.join(paths).split(os.pathsep)))
    os.environ["PYTHONWARNINGS"] = "ignore::FutureWarning"  # Spark's Python workers use pandas in ways that will change
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    made = (
        SparkSession.builder.master(master)
        .appName("flumina evaluation")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", _HERE)
        .config("spark.driver.bindAddress", _HERE)
        .config("spark.driver.memory", "3g")
        .config("spark.sql.shuffle.partitions", str(slots))
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "65536")  # larger pieces suit numpy and pandas
        .config("spark.sql.adaptive.coalescePartitions.parallelismFirst", "true")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    made.sparkContext.setLogLevel("ERROR")
    return made


def run(program: type[fl.Program], streams: Sequence[fl.Stream], **options: Any) -> RunResult:  # noqa: ANN401
    """A run of Flumina on the session that there is; outputs are counted and dropped, as the baselines' are."""
    engine_options = EngineOptions(patience=600)  # a busy machine is slow to start Python workers
    return flumina.spark.run(program, streams, progress=False, out=fl.DISCARD, engine_options=engine_options, **options)


class Watch:
    """How long something took, start to end: ``with Watch() as watch: ...; watch.seconds``."""

    seconds: float

    def __enter__(self) -> Self:
        self._began = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._began
