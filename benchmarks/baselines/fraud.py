"""Fraud detection: transactions are flagged by the model that the last rule made from all transactions before it."""

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
from benchmarks.baselines.intervals import Bins, after, before, inside
from benchmarks.baselines.keyed import in_order, keyed
from flumina.apps.fraud import MODULO

BOTH = "flagged long, aggregate long"
"""Both outputs in one DataFrame, one of the two in each row: a stream, and tasks that wait for each other, run once."""
STATE = "total long, model long"


def batch(spark: SparkSession, folder: Folder) -> dict[str, DataFrame]:
    """First the totals between rules, and so all models; then all transactions once more, with the models.

    It works because a model needs the totals only, not what was flagged.
    """
    transactions, rules = folder.frame(spark, "transactions"), folder.frame(spark, "rules")
    bins = Bins.of(rules)
    numbered = rules.withColumn("window", F.row_number().over(Window.orderBy("ts")))
    ended = inside(transactions, before(numbered), bins).groupBy("window").agg(F.sum("v").alias("total"))
    totals = numbered.join(ended, "window", "left").select("ts", "r", F.coalesce("total", F.lit(0)).alias("total"))
    totals = totals.localCheckpoint()
    models = after(totals.select("ts", F.pmod(F.col("total") + F.col("r"), F.lit(MODULO)).alias("model")))
    judged = inside(transactions, models, bins)
    flagged = judged.filter(F.pmod("v", F.lit(MODULO)) == F.col("model")).select("v")
    return {"flagged": flagged, "aggregate": totals.select("total")}


def streaming(spark: SparkSession, folder: Folder) -> dict[str, DataFrame]:
    """One key for everything, as every rule needs every transaction."""
    return {"both": query(folder.slices(spark))}


def query(rows: DataFrame) -> DataFrame:
    """The same for rows from anywhere: ``kind`` (1 for a rule), ``ts``, ``v``, ``r``."""
    return keyed(rows.withColumn("key", F.lit(0)), "key", _judge, BOTH, STATE)


def _judge(_: tuple[Any, ...], pieces: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    rows = in_order(pieces)
    total, model = state.get if state.exists else (0, None)
    values, rules = rows["v"].fillna(0).to_numpy(np.int64), rows["r"].to_numpy()
    flagged: list[np.ndarray[Any, Any]] = []
    aggregates = []
    start = 0
    for end in [*np.flatnonzero(rows["kind"].to_numpy() == 1), len(rows)]:
        window = values[start:end]
        if model is not None:
            flagged.append(window[window % MODULO == model])
        total += int(window.sum())
        if end < len(rows):
            aggregates.append(total)
            total, model = 0, (total + int(rules[end])) % MODULO
        start = end + 1
    state.update((total, model))
    found = np.concatenate(flagged) if flagged else np.array([], np.int64)
    columns = {"flagged": pd.array(found, "Int64"), "aggregate": pd.array(aggregates, "Int64")}
    yield pd.concat([pd.DataFrame({name: column}) for name, column in columns.items()]).reindex(columns=list(columns))


def manual(spark: SparkSession, folder: Folder) -> dict[str, DataFrame]:
    """Each task flags and sums its own part; at a rule all tell each other their sums, and know the next model."""
    parts, rules = folder.parts("transactions"), folder.parts("rules")

    def work(me: Gang) -> Iterator[pa.RecordBatch]:
        part = Part(parts[me.number], ["v"])
        mine = Part(rules[0]).rows() if me.leads else iter(())
        rule, model = me.learn(next(mine, None)), None
        while rule is not None:
            total = 0
            for values in _values(part, rule["ts"]):
                yield from _flagged(values, model)
                total += int(values.sum())
            told = me.exchange({"total": total, "next": next(mine, None)})
            total = sum(one["total"] for one in told)
            if me.leads:
                yield _rows([None], [total])
            rule, model = told[0]["next"], (total + rule["r"]) % MODULO
        for values in _values(part, np.iinfo(np.int64).max):
            yield from _flagged(values, model)

    return {"both": gang(spark, len(parts), work, BOTH)}


def _values(part: Part, ts: int) -> Iterator[np.ndarray[Any, Any]]:
    return (batch["v"].to_numpy() for batch in part.upto(ts))


def _flagged(values: np.ndarray[Any, Any], model: int | None) -> Iterator[pa.RecordBatch]:
    if model is not None:
        found = values[values % MODULO == model]
        yield _rows(found, [None] * len(found))


def _rows(flagged: Any, aggregates: Any) -> pa.RecordBatch:  # noqa: ANN401 -- anything that pyarrow takes
    return pa.record_batch(
        [pa.array(flagged, pa.int64()), pa.array(aggregates, pa.int64())], names=["flagged", "aggregate"]
    )


def divided(rows: DataFrame) -> dict[str, DataFrame]:
    """The program's outputs from rows of both."""
    return {
        "flagged": rows.filter("flagged IS NOT NULL").selectExpr("flagged AS v"),
        "aggregate": rows.filter("aggregate IS NOT NULL").selectExpr("aggregate AS total"),
    }
