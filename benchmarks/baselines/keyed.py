"""Keyed stateful streaming: a Python function that is given the new rows of a key and the key's state."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

Function = Callable[[tuple[Any, ...], Iterator[pd.DataFrame], GroupState], Iterator[pd.DataFrame]]


def keyed(rows: DataFrame, key: str, function: Function, output: str, state: str) -> DataFrame:
    """The outputs of a function that Spark calls for each key in each micro-batch."""
    return rows.groupBy(key).applyInPandasWithState(function, output, state, "append", GroupStateTimeout.NoTimeout)


def in_order(pieces: Iterator[pd.DataFrame]) -> pd.DataFrame:
    """The rows of a key in a micro-batch, which come in any order, in that of time; of rows at one time by kind."""
    return pd.concat(list(pieces)).sort_values(["ts", "kind"], kind="stable")


def finished(outputs: DataFrame, sink: str = "noop", name: str | None = None) -> None:
    """Run a query until it has seen all input that there is."""
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = outputs.writeStream.format(sink).option("checkpointLocation", checkpoint).outputMode("append")
        query = (writer.queryName(name) if name else writer).trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()
