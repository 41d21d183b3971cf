"""Files for the baselines: a workload as Parquet, and the same cut into slices of time for streaming."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

import flumina as fl
from flumina.apps.workload import Workload

KIND = "kind"
"""In slices: the rank of the stream from which a row comes."""


@dataclass(frozen=True)
class Folder:
    """A workload in files: ``stream/part-00000.parquet``, and ``slices`` if it has been cut."""

    path: Path

    @staticmethod
    def write(workload: Workload, path: Path, *, slices: int = 0) -> Folder:
        """Write a workload; in addition as so many slices of time, unless that is 0."""
        workload.write(path)
        folder = Folder(path)
        if slices:
            folder._cut(workload, slices)
        return folder

    def parts(self, stream: str) -> list[str]:
        """The files of a stream."""
        return sorted(str(path) for path in (self.path / stream).iterdir())

    def frame(self, spark: SparkSession, stream: str) -> DataFrame:
        """A stream as a DataFrame, which has no order."""
        return spark.read.parquet(str(self.path / stream))

    def streams(self, workload: Workload) -> list[fl.Stream]:
        """The same files as streams of the program."""
        return [fl.Stream(flow.name, flow.tag, fl.Parquet(self.parts(flow.name))) for flow in workload.flows()]

    def slices(self, spark: SparkSession) -> DataFrame:
        """All streams as one, as from a message queue: a micro-batch is a slice, and no slice lacks anything."""
        paths = sorted((self.path / "slices").iterdir())
        files = sum(path.name.startswith("slice-00000") for path in paths)
        schema = from_arrow_schema(pq.read_schema(paths[0]))
        return (
            spark.readStream.schema(schema)
            .option("maxFilesPerTrigger", files)
            .option("maxFileAge", "20000d")
            .parquet(str(self.path / "slices"))
        )

    def _cut(self, workload: Workload, slices: int) -> None:
        """Write a file for each slice and part; those of a later slice are younger, which is the order Spark reads."""
        names = [flow.name for flow in workload.flows()]
        tables = {
            f"{name}-{part:05d}": (rank, pq.read_table(path))
            for rank, name in enumerate(names)
            for part, path in enumerate(self.parts(name))
        }
        schema = pa.unify_schemas([pa.schema([(KIND, pa.int32())]), *(table.schema for _, table in tables.values())])
        nullable = pa.schema([field.with_nullable(True) for field in schema])  # noqa: FBT003 -- pyarrow's own
        last = max(pc.max(table["ts"]).as_py() or 0 for _, table in tables.values())
        width = last // slices + 1
        (self.path / "slices").mkdir()
        for number in range(slices):
            for name, (rank, table) in tables.items():
                inside = pc.and_(
                    pc.greater_equal(table["ts"], number * width), pc.less(table["ts"], (number + 1) * width)
                )
                rows = table.filter(inside)
                rows = rows.append_column(KIND, pa.repeat(pa.scalar(rank, pa.int32()), rows.num_rows))
                path = self.path / "slices" / f"slice-{number:05d}-{name}.parquet"
                pq.write_table(_with_columns(rows, nullable), path)
                os.utime(path, (10**9 + number, 10**9 + number))


def _with_columns(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with all columns of a schema; what it does not have is null."""
    columns = [
        table[field.name] if field.name in table.column_names else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)
