"""Synchronizing tasks by hand: a barrier stage whose tasks read their own parts and exchange messages.

This is what Spark offers for it, ``BarrierTaskContext.allGather``. The program has to know how many tasks there are,
and that task n has part n; and every exchange takes about a second, however small: Spark polls once a second.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import BarrierTaskContext
from pyspark.sql import DataFrame, SparkSession


class Gang:
    """One task among those that run at the same time."""

    def __init__(self) -> None:
        self.context = BarrierTaskContext.get()
        self.number = self.context.partitionId()

    @property
    def leads(self) -> bool:
        """Whether it is the one that reads the rare events."""
        return self.number == 0

    def exchange(self, mine: Any) -> list[Any]:  # noqa: ANN401 -- whatever JSON can say
        """Tell all others something, and wait for what they have to say; by number of task."""
        return [json.loads(told) for told in self.context.allGather(json.dumps(mine))]

    def learn(self, mine: Any) -> Any:  # noqa: ANN401
        """What the leader has to say."""
        return self.exchange(mine)[0]


class Part:
    """A sorted file, read as far as needed."""

    def __init__(self, path: str, columns: Sequence[str] = ()) -> None:
        wanted = ["ts", *columns] if columns else None
        self.batches = pq.ParquetFile(path).iter_batches(131_072, columns=wanted, use_threads=False)
        self.held: pa.RecordBatch | None = None

    def upto(self, ts: int) -> Iterator[pa.RecordBatch]:
        """All rows up to a timestamp that were not given before."""
        while True:
            batch = self.held if self.held is not None else next(self.batches, None)
            self.held = None
            if batch is None:
                return
            at = int(batch["ts"].to_numpy().searchsorted(ts, "right"))
            if at < batch.num_rows:
                self.held = batch.slice(at)
            if at:
                yield batch.slice(0, at)
            if self.held is not None:
                return

    def rows(self) -> Iterator[dict[str, Any]]:
        """All rows one by one, which is for rare events."""
        for batch in self.batches:
            yield from batch.to_pylist()


def gang(spark: SparkSession, tasks: int, work: Callable[[Gang], Iterator[pa.RecordBatch]], output: str) -> DataFrame:
    """So many tasks at the same time, each doing this; what they give is run whenever the DataFrame is used."""

    def run(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in numbers:
            pass
        yield from work(Gang())

    return spark.range(0, tasks, 1, tasks).mapInArrow(run, output, barrier=True)
