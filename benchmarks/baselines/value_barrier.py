"""Value-barrier: the sum of the values up to each barrier."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.state import GroupState
from pyspark.sql.window import Window

from benchmarks.baselines.gang import Gang, Part, gang
from benchmarks.baselines.inputs import Folder
from benchmarks.baselines.intervals import Bins, before, inside
from benchmarks.baselines.keyed import in_order, keyed

OUTPUT = "total long"


def batch(spark: SparkSession, folder: Folder) -> dict[str, DataFrame]:
    """Values are added up by the barrier that ends their interval; a barrier without values gives 0."""
    barriers = folder.frame(spark, "barriers")
    numbered = before(barriers).withColumn("window", F.row_number().over(Window.orderBy("upper", "lower")))
    values = inside(folder.frame(spark, "values"), numbered, Bins.of(barriers))
    totals = values.groupBy("window").agg(F.sum("v").alias("total"))
    return {"output": numbered.join(totals, "window", "left").select(F.coalesce("total", F.lit(0)).alias("total"))}


def streaming(spark: SparkSession, folder: Folder) -> dict[str, DataFrame]:
    """One key for everything, as every barrier needs every value."""
    return {"output": query(folder.slices(spark))}


def query(rows: DataFrame) -> DataFrame:
    """The same for rows from anywhere: ``kind`` (1 for a barrier), ``ts``, ``v``."""
    return keyed(rows.withColumn("key", F.lit(0)), "key", _windows, OUTPUT, OUTPUT)


def _windows(_: tuple[Any, ...], pieces: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    rows = in_order(pieces)
    (carried,) = state.get if state.exists else (0,)
    ends = np.flatnonzero(rows["kind"].to_numpy() == 1)
    sums = np.concatenate(([0], np.cumsum(rows["v"].fillna(0).to_numpy(np.int64)))) + carried
    totals = np.diff(np.concatenate(([0], sums[ends])))
    state.update((int(sums[-1] - (sums[ends[-1]] if len(ends) else 0)),))
    yield pd.DataFrame({"total": totals})


def manual(spark: SparkSession, folder: Folder) -> dict[str, DataFrame]:
    """Each task sums its own part; at a barrier all tell each other their sums."""
    parts, barriers = folder.parts("values"), folder.parts("barriers")

    def work(me: Gang) -> Iterator[pa.RecordBatch]:
        part = Part(parts[me.number], ["v"])
        mine = Part(barriers[0]).rows() if me.leads else iter(())
        end = me.learn(next(mine, None))
        while end is not None:
            total = sum(int(batch["v"].to_numpy().sum()) for batch in part.upto(end["ts"]))
            told = me.exchange({"total": total, "next": next(mine, None)})
            if me.leads:
                yield pa.record_batch([pa.array([sum(one["total"] for one in told)])], names=["total"])
            end = told[0]["next"]

    return {"output": gang(spark, len(parts), work, OUTPUT)}
