"""Joining many rows with the intervals between few: the range join that Spark has no operator for.

A condition like ``lower < ts AND ts <= upper`` alone makes Spark compare every row with every interval. So time is
divided into bins, an interval is repeated for every bin that it touches, and the join is one by bin: a broadcast hash
join in the JVM that scales with the number of cores, whatever the number of rows for an interval or a key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 -- everybody calls it so

LOWER, UPPER, BIN = "lower", "upper", "bin"


@dataclass(frozen=True)
class Bins:
    """Time in pieces of ``width``; what lies outside ``first`` to ``last`` counts as being at the edge."""

    first: int
    last: int
    width: int

    @staticmethod
    def of(ends: DataFrame) -> Bins:
        """About as many bins as there are rare events."""
        row = ends.agg(F.min("ts"), F.max("ts"), F.count("ts")).first()
        assert row is not None
        first, last, count = (value or 0 for value in row)
        return Bins(first, last + 1, max(1, (last - first) // max(1, count)))

    def at(self, ts: Column) -> Column:
        """The bin of a timestamp."""
        return F.floor(F.greatest(F.least(ts, F.lit(self.last)), F.lit(self.first)) / self.width).cast("long")


def before(ends: DataFrame, by: Sequence[str] = ()) -> DataFrame:
    """For each rare event the interval that it ends: later than the one before it (of the same key), up to itself."""
    order = Window.partitionBy(*by).orderBy("ts")
    return ends.withColumns({LOWER: F.lag("ts").over(order), UPPER: F.col("ts")}).drop("ts")


def after(ends: DataFrame, by: Sequence[str] = ()) -> DataFrame:
    """For each rare event the interval that it begins: later than itself, up to the next one (of the same key)."""
    order = Window.partitionBy(*by).orderBy("ts")
    return ends.withColumns({LOWER: F.col("ts"), UPPER: F.lead("ts").over(order)}).drop("ts")


def inside(rows: DataFrame, intervals: DataFrame, bins: Bins, by: Sequence[str] = (), how: str = "inner") -> DataFrame:
    """Each row with its interval; bounds that are null are open."""
    binned = intervals.withColumn(
        BIN,
        F.explode(
            F.sequence(bins.at(F.coalesce(LOWER, F.lit(bins.first))), bins.at(F.coalesce(UPPER, F.lit(bins.last))))
        ),
    )
    few = F.broadcast(binned.select(*(F.col(name).alias(f"_{name}") for name in binned.columns)))
    same = [F.col(name) == F.col(f"_{name}") for name in (BIN, *by)]
    later = F.col(f"_{LOWER}").isNull() | (F.col("ts") > F.col(f"_{LOWER}"))
    upto = F.col(f"_{UPPER}").isNull() | (F.col("ts") <= F.col(f"_{UPPER}"))
    condition = later & upto
    for equal in same:
        condition &= equal
    joined = rows.withColumn(BIN, bins.at(F.col("ts"))).join(few, condition, how)
    kept = [name for name in binned.columns if name not in (BIN, LOWER, UPPER, *by)]
    return joined.select(*rows.columns, *(F.col(f"_{name}").alias(name) for name in kept))
