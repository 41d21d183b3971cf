"""Throughput-latency curves: what happens to latency as more and more events come in.

Flumina's sources are paced, and the lateness of every output is known. Spark's keyed streaming is given a micro-batch
of rows at regular intervals; an event is late from when it would have happened until its micro-batch is done. The
interval is the shortest that Spark keeps up with when it has nothing to do.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from benchmarks.baselines import fraud, page_views
from benchmarks.evaluation import prices
from benchmarks.evaluation.case import RATIO, Case
from benchmarks.evaluation.clock import Clock
from benchmarks.evaluation.effort import Effort
from benchmarks.evaluation.engine import run, session
from benchmarks.evaluation.record import Record
from flumina.plan.optimize import make_plan
from flumina.plan.sources import bind

WORKERS = 2
MORE = 12
"""Workers in virtual time, as in the paper."""
HEARTBEATS = 200.0
RATES = {True: (3e4, 5e5), False: (1e4, 3e4, 1e5, 3e5, 1e6, 2e6, 4e6)}
"""Events a second in all, by whether it is quick."""
OUTPUTS = {"page-views": ("view", "get", "change"), "fraud": ("transaction", "rule")}


def records(effort: Effort, data: Path) -> Iterator[Record]:
    """Both programs that the paper shows, or one; each curve ends where throughput does not grow any more."""
    spark = session(WORKERS)
    programs = (("fraud", _payments), ("page-views", _views))
    for name, query in effort.of(programs, programs[:1]):
        yield from _of_flumina(effort, name)
        yield from _of_spark(effort, spark, name, query)
        yield from _in_virtual_time(name, data)


def _of_flumina(effort: Effort, name: str) -> Iterator[Record]:
    seconds = effort.of(6.0, 2.0)
    for rate in RATES[effort.quick]:
        case = Case(name, WORKERS, rate=rate / WORKERS)
        streams = case.workload(round(case.rate * seconds)).streams(paced=True, heartbeats=HEARTBEATS)
        stats = run(case.app.program, streams, workers=WORKERS, optimizer="greedy").stats
        reached = stats.events / max(stats.seconds, seconds)
        p10, p50, p90 = (stats.latency.percentile(p) for p in (10, 50, 90))
        effort.say(f"{name}, Flumina at {rate:,.0f}/s: reached {reached:,.0f}/s, latency {1e3 * p50:.1f} ms")
        yield Record(f"curve {name}", f"Flumina, {WORKERS} workers", reached, p50, "measured", p10, p90)
        if reached < 0.7 * rate:
            return


def _in_virtual_time(name: str, data: Path) -> Iterator[Record]:
    """Up to somewhat more than the plan can take."""
    model = prices.load(data / "prices" / "prices.json", name)
    for workers in (WORKERS, MORE):
        most = Case(name, workers)
        plan = make_plan(most.app.program, most.sources(), workers=workers, optimizer="greedy")
        limit = prices.in_virtual_time(most, plan, model).throughput
        for share in (0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 1.0, 1.2):
            case = Case(name, workers, rate=limit * share / workers)
            inputs = bind(case.app.program, case.sources())
            seconds = min(20 * RATIO / case.rate, 2.0)
            timing = Clock(plan, inputs, model).run(seconds, paced=True, ticks=8, beats=1 / HEARTBEATS)
            p10, p50, p90 = (timing.percentile(p, *OUTPUTS[name]) for p in (10, 50, 90))
            series = f"Flumina, {workers} workers"
            yield Record(f"curve {name}", series, timing.throughput, p50, "simulated", p10, p90)


# -- Spark -----------------------------------------------------------------------------------------------------


def _payments(numbers: DataFrame, every: int) -> DataFrame:
    """Transactions, and a rule for every so many."""
    rule = F.col("value") % every == every - 1
    rows = numbers.select(
        F.when(rule, 1).otherwise(0).alias("kind"),
        F.col("value").alias("ts"),
        F.when(~rule, F.pmod(F.hash("value"), F.lit(1 << 30))).cast("long").alias("v"),
        F.when(rule, F.col("value") % 1000).alias("r"),
    )
    return fraud.query(rows)


def _views(numbers: DataFrame, every: int) -> DataFrame:
    """Views of two pages, and a change for every so many."""
    change = F.col("value") % every == every - 1
    rows = numbers.select(
        F.when(change, page_views.CHANGE).otherwise(0).alias("kind"),
        F.col("value").alias("ts"),
        (F.hash("value") % 2).cast("string").alias("page"),
        F.when(~change, F.col("value")).alias("user"),
        F.when(change, F.col("value").cast("string")).alias("info"),
    )
    return page_views.query(rows)


def _of_spark(
    effort: Effort, spark: SparkSession, name: str, query: Callable[[DataFrame, int], DataFrame]
) -> Iterator[Record]:
    idle = _batches(spark, query, 100, None, 5)
    interval = math.ceil(12 * float(np.median([batch["took"] for batch in idle[2:]]))) / 10
    effort.say(f"{name}, Spark streaming: a micro-batch every {interval:.1f} s")
    for rate in RATES[effort.quick]:
        rows = round(rate * interval)
        batches = _batches(spark, query, rows, interval, effort.of(14, 5))[2:]
        spent = batches[-1]["done"] - batches[0]["began"]
        reached = rows * len(batches) / max(spent, interval * len(batches))
        p10, p50, p90 = _lateness(batches, interval)
        effort.say(f"{name}, Spark at {rate:,.0f}/s: reached {reached:,.0f}/s, latency {1e3 * p50:.0f} ms")
        yield Record(f"curve {name}", f"Spark streaming, {WORKERS} cores", reached, p50, "measured", p10, p90)
        if reached < 0.7 * rate:
            return


def _batches(
    spark: SparkSession, query: Callable[[DataFrame, int], DataFrame], rows: int, interval: float | None, count: int
) -> list[dict[str, Any]]:
    """When micro-batches began and were done, in seconds."""
    numbers = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows)
    numbers = numbers.option("numPartitions", WORKERS)
    writer = query(numbers.load(), RATIO * WORKERS).writeStream.format("noop").outputMode("append")
    if interval is not None:
        writer = writer.trigger(processingTime=f"{round(interval * 1000)} milliseconds")
    started = writer.start()
    found: dict[int, dict[str, Any]] = {}
    try:
        deadline = time.monotonic() + 60 + count * (interval or 1.0) * 10
        while len(found) < count and time.monotonic() < deadline:
            for progress in started.recentProgress:
                if progress.numInputRows:
                    began = datetime.fromisoformat(progress.timestamp).timestamp()
                    took = progress.durationMs["triggerExecution"] / 1e3
                    found[progress.batchId] = {"began": began, "took": took, "done": began + took}
            time.sleep(0.05)
    finally:
        started.stop()
    return [found[number] for number in sorted(found)]


def _lateness(batches: Sequence[dict[str, Any]], interval: float) -> tuple[float, ...]:
    """Events of a micro-batch happened evenly in the interval before the one in which it should have begun."""
    first = batches[0]["began"] - interval
    shares = np.linspace(0, 1, 50)
    late = [batch["done"] - (first + (n + shares) * interval) for n, batch in enumerate(batches)]
    return tuple(float(p) for p in np.percentile(np.concatenate(late), (10, 50, 90)))
