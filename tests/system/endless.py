"""Sources that never end, for tests of streaming: Spark's own that counts by the clock, and one in Python."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import flumina as fl
from flumina.apps import ValueBarrier

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from flumina.spark.streaming.query import StreamingQuery

TAGS = {"value": ValueBarrier.value, "barrier": ValueBarrier.barrier}
SHORTLY = {"processingTime": "100 milliseconds"}


class Rate:
    """The rate source: every second some rows in two partitions; how many a batch has is for the clock to say."""

    watermarks: Mapping[str, fl.BoundedDelay | fl.Heartbeats] = {"counted": fl.BoundedDelay(10)}
    stream = fl.Stream("counted", TAGS, None, tag_column="kind", seq="n", sorted=False)

    def streams(self, spark: SparkSession) -> list[fl.Stream]:
        read = spark.readStream.format("rate").option("rowsPerSecond", 40).option("numPartitions", 2).load()
        kind = "IF(value % 7 = 6, 'barrier', 'value') AS kind"
        return [replace(self.stream, data=read.selectExpr("value AS ts", "value AS n", "value AS v", kind))]

    def rows(self, done: Mapping[str, Any]) -> list[dict[str, Any]]:
        """What the query has had, whatever it has done with it."""
        count = done["totals"]["rows"]
        return [{"ts": n, "n": n, "v": n, "kind": "barrier" if n % 7 == 6 else "value"} for n in range(count)]


class Ticks:
    """The data source in ticks.py: eight ticks a batch, and heartbeats that say how far they are complete."""

    watermarks: Mapping[str, fl.BoundedDelay | fl.Heartbeats] = {"ticks": fl.Heartbeats("kind", "beat")}
    stream = fl.Stream("ticks", TAGS, None, tag_column="kind", seq="n", sorted=False)

    def streams(self, spark: SparkSession) -> list[fl.Stream]:
        from tests.system.ticks import TickSource  # noqa: PLC0415 -- needs pyspark

        spark.dataSource.register(TickSource)
        return [replace(self.stream, data=spark.readStream.format("ticks").load())]

    def rows(self, done: Mapping[str, Any]) -> list[dict[str, Any]]:
        """What the query has had, whatever it has done with it."""
        from tests.system.ticks import rows_of  # noqa: PLC0415 -- needs pyspark

        assert done["totals"]["heartbeats"] > 0
        return [row for row in rows_of(0, done["batchId"] + 1) if row["kind"] != "beat"]


ENDLESS: Mapping[str, Rate | Ticks] = {"rate": Rate(), "ticks": Ticks()}


def options(source: Rate | Ticks) -> dict[str, Any]:
    """How a query over such a source is started: it runs until it is stopped."""
    return {"program": ValueBarrier, "watermarks": source.watermarks, "trigger": SHORTLY, "drain": False}


def stopped_after(query: StreamingQuery, batch: int) -> dict[str, Any]:
    """How far a query is that was stopped when it had done a batch with this number, or a later one."""
    while query.lastProgress is None or query.lastProgress["batchId"] < batch:
        assert not query.awaitTermination(0.1), "it never ends of itself"
    query.stop()
    return query.lastProgress


def expected(source: Rate | Ticks, done: Mapping[str, Any]) -> dict[str, pa.Table]:
    """The sequential program on all that a query has processed: whatever lies before its last cut."""
    given = [row for row in source.rows(done) if row["ts"] <= done["batchWatermark"]]
    assert 0 < len(given) == done["totals"]["processed"]
    return dict(fl.spec(ValueBarrier, [replace(source.stream, data=given)]).outputs)
