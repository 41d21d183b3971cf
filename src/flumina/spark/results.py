"""Read the outputs of a run as DataFrames."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from flumina.errors import UsageError
from flumina.output.commit import CommittedOutput


class DataFrames(Mapping[str, DataFrame]):
    """One DataFrame for each declared output; reading one does not run the program again."""

    def __init__(self, spark: SparkSession, committed: Mapping[str, CommittedOutput]) -> None:
        self._frames = {name: _frame(spark, result) for name, result in committed.items() if result.kept}
        self._committed = committed

    def __getitem__(self, name: str) -> DataFrame:
        if name not in self._committed:
            raise UsageError("NO_OUTPUT", f"there is no output {name!r}; expected one of {list(self)}")
        if name not in self._frames:
            self._committed[name].dataset()  # raises with the reason
        return self._frames[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._committed)

    def __len__(self) -> int:
        return len(self._committed)


def _frame(spark: SparkSession, result: CommittedOutput) -> DataFrame:
    schema = from_arrow_schema(result.schema)
    if result.held is not None:
        return spark.createDataFrame(result.held, schema)
    reader = spark.read.schema(schema)
    # One file after another: Spark would read larger ones first, and results may be in order.
    return reduce(DataFrame.union, [reader.parquet(_literally(file)) for file in result.files])


def _literally(path: str) -> str:
    """Escape a path so that Spark does not read it as a glob pattern."""
    return re.sub(r"([\\{}\[\]*?])", r"\\\1", path)
