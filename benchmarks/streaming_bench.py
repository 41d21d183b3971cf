# ruff: noqa: INP001, T201, ARG002, ANN401 -- a script, which prints; states can be anything
"""What a micro-batch costs: over an empty ``foreachBatch`` with a barrier stage, and as the state grows.

::

    python benchmarks/streaming_bench.py            # both tables
    python benchmarks/streaming_bench.py --quick    # fewer batches, states up to 10 MB
    python benchmarks/streaming_bench.py --check    # exit with 1 if a batch costs more than is promised
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import flumina as fl

ROWS = 1000
PROMISED = 0.3
"""Seconds that a batch may cost over an empty barrier stage."""


class Held(fl.Program):
    """A state of a given size, of which every batch changes a little."""

    add = fl.Tag("v long NOT NULL")
    show = fl.Tag()
    depends = fl.depends((show, show), (show, add))
    output = "total long"

    def __init__(self, size: int = 1000) -> None:
        self.size = size

    def init(self) -> Any:
        return np.random.default_rng(1).integers(0, 2**60, max(1, self.size // 8))

    def update(self, state: Any, event: fl.Event, emit: fl.Emit) -> None:
        if event.tag is self.add:
            state[0] += event.v
        else:
            emit(int(state[0]))

    def fork(self, state: Any, left: fl.TagSet, right: fl.TagSet) -> Any:
        return state, np.zeros(1, np.int64)

    def join(self, left: Any, right: Any) -> Any:
        small, large = sorted((left, right), key=len)
        large[0] += small[0]
        return large


def write_input(folder: Path, batches: int) -> None:
    """A file a batch."""
    for name in ("add", "show"):
        (folder / name).mkdir(parents=True)
    for number in range(batches):
        ts = np.arange(ROWS) + number * ROWS
        for name, table in {"add": {"ts": ts, "v": ts}, "show": {"ts": ts[99::100]}}.items():
            path = folder / name / f"{number:04d}.parquet"
            pq.write_table(pa.table(table), path)
            os.utime(path, (1e9 + number, 1e9 + number))


def frames(spark: Any, folder: Path) -> dict[str, Any]:
    """One file of each stream a batch."""
    ddl = {"add": "ts long, v long", "show": "ts long"}
    return {
        name: spark.readStream.schema(columns).option("maxFilesPerTrigger", 1).parquet(str(folder / name))
        for name, columns in ddl.items()
    }


def empty(spark: Any, folder: Path, tasks: int) -> list[float]:
    """Seconds of each batch of a query that runs a barrier stage of so many tasks over nothing."""

    def nothing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        yield pa.record_batch([pa.array([1])], names=["n"])

    def each(batch: Any, _: int) -> None:
        handed = batch.sparkSession.sparkContext.parallelize([(b"",)] * tasks, tasks).toDF("data binary")
        handed.mapInArrow(nothing, "n long", barrier=True).repartition(1).collect()

    read = frames(spark, folder)
    both = read["add"].select("ts").union(read["show"].select("ts"))
    with tempfile.TemporaryDirectory() as place:
        query = both.writeStream.foreachBatch(each).option("checkpointLocation", place).trigger(availableNow=True)
        running = query.start()
        running.awaitTermination()
        return [entry["durationMs"]["triggerExecution"] / 1e3 for entry in running.recentProgress]


def ours(spark: Any, folder: Path, size: int, tasks: int = 1) -> tuple[list[float], dict[str, float]]:
    """Seconds of each batch of a Flumina query in so many tasks, and the median of each of its phases."""
    import flumina.spark  # noqa: PLC0415 -- needs Java

    program, read = Held(size), frames(spark, folder)
    streams = [fl.Stream("add", Held.add, read["add"]), fl.Stream("show", Held.show, read["show"])]
    place = Path(tempfile.mkdtemp())
    try:
        query = flumina.spark.start(
            program,
            streams,
            place / "out",
            place / "checkpoint",
            trigger={"availableNow": True},
            workers=tasks,
            optimizer="greedy",
        )
        query.awaitTermination()
        assert query.plan is not None
        assert len({worker.place for worker in query.plan.workers}) == tasks
        took = [entry["durationMs"]["triggerExecution"] / 1e3 for entry in query.spark_query.recentProgress]  # type: ignore[union-attr]
        warm = query.recentProgress[len(query.recentProgress) // 2 :]
        phases = {
            name: statistics.median(entry["durationMs"][name] for entry in warm) for name in warm[0]["durationMs"]
        }
        return took, phases
    finally:
        shutil.rmtree(place)


def warm(seconds: list[float]) -> float:
    """The median of the second half."""
    return statistics.median(seconds[len(seconds) // 2 :])


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    over = measure(quick=given.quick)
    if given.check and over > PROMISED:
        sys.exit(f"a batch costs {over:.3f} s more than an empty barrier stage: at most {PROMISED} s is promised")


def measure(*, quick: bool) -> float:
    """Print both tables; what a batch costs over an empty barrier stage, however many tasks it has."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession  # noqa: PLC0415

    builder = SparkSession.builder.master("local[4]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.memory", "2g").config("spark.driver.host", "127.0.0.1").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    batches = 12 if quick else 30
    with tempfile.TemporaryDirectory() as folder:
        given = Path(folder)
        write_input(given, batches)
        ours(spark, given, 1000)  # the JVM gets faster for a while
        over = []
        for tasks in (1, 2):
            base, (mine, phases) = empty(spark, given, tasks), ours(spark, given, 1000, tasks)
            again = empty(spark, given, tasks)
            barrier = min(warm(base), warm(again))
            over.append(warm(mine) - barrier)
            print(f"an empty barrier stage, {tasks} task{'s' * (tasks > 1)}   {barrier:.3f} s a batch")
            print(f"a batch of {ROWS} rows  {warm(mine):.3f} s, {over[-1]:.3f} s more (at most {PROMISED})")
            print("  of these, milliseconds  " + ", ".join(f"{name} {took:.0f}" for name, took in phases.items()))
        print("\nstate        a batch   of which run, state (ms)")
        for size in (10**3, 10**5, 10**6, 10**7, *(() if quick else (10**8,))):
            took, phases = ours(spark, given, size)
            print(f"{size:>11,}  {warm(took):6.3f} s   {phases['run']:.0f}, {phases['state']:.0f}")
    spark.stop()
    return max(over)


if __name__ == "__main__":
    main()
