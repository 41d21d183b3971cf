"""The rows of a batch: several streaming DataFrames as one, and each stream's rows out of it again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- as everybody calls it
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField

from flumina.decode import Decoder
from flumina.errors import InputError, UsageError
from flumina.spark.frames import needed, quoted
from flumina.streaming.frontier import Heartbeats, Policy
from flumina.streaming.sieve import PLACE, ROW, Sieve, Sifted
from flumina.streams import Stream

STREAM, POSITION, DIGEST = "s", "p", "d"
_ROW_BITS = 33
"""``monotonically_increasing_id`` has the number of the partition above so many bits, and below that of the row."""


@dataclass(frozen=True)
class Wide:
    """All streams in one DataFrame: the number of its stream in each row, and columns for each of them."""

    frame: DataFrame
    columns: Mapping[str, Mapping[str, str]]
    """For each stream its own columns, by their names in the frame."""
    schemas: Mapping[str, pa.Schema]
    """For each stream the types of these columns: times are UTC, whatever the session's zone is."""

    @staticmethod
    def of(streams: Sequence[Stream], policies: Mapping[str, Policy]) -> Wide:
        """Put streaming DataFrames together, their columns checked."""
        columns: dict[str, dict[str, str]] = {}
        schemas: dict[str, pa.Schema] = {}
        frames: list[DataFrame] = []
        for number, stream in enumerate(streams):
            mine = _columns(stream, policies[stream.name])
            schemas[stream.name] = _schema(stream.data, mine)
            columns[stream.name] = {f"c{number}_{place}": name for place, name in enumerate(mine)}
            chosen = [F.col(quoted(name)).alias(alias) for alias, name in columns[stream.name].items()]
            frames.append(stream.data.select(F.lit(number).alias(STREAM), *chosen))
        union = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)
        return Wide(union, columns, schemas)

    def gather(self, batch: DataFrame, sieves: Mapping[str, Sieve]) -> dict[str, Sifted]:
        """The rows of a batch, brought to the driver and sorted out."""
        hashed = F.xxhash64(*(part for field in batch.schema for part in _hashable(field)))
        whole = batch.withColumns({POSITION: F.monotonically_increasing_id(), DIGEST: hashed}).toArrow()
        return {
            name: replace(sieve.sift(self._rows(number, name, whole)), digest=self._digest(number, whole))
            for number, (name, sieve) in enumerate(sieves.items())
        }

    def _digest(self, number: int, whole: pa.Table) -> int:
        """The sum of what the rows of a stream are hashed to, so that their order does not matter."""
        mine = whole.column(DIGEST).filter(pc.equal(whole.column(STREAM), number))
        return int(mine.to_numpy().sum(dtype=np.int64))

    def nothing(self, sieves: Mapping[str, Sieve]) -> dict[str, Sifted]:
        """What a batch without rows holds."""
        schema = to_arrow_schema(self.frame.withColumn(POSITION, F.lit(0).cast("long")).schema, timezone="UTC")
        whole = schema.empty_table()
        return {name: sieve.sift(self._rows(n, name, whole)) for n, (name, sieve) in enumerate(sieves.items())}

    def _rows(self, number: int, name: str, whole: pa.Table) -> pa.Table:
        mine = whole.filter(pc.equal(whole.column(STREAM), number)) if len(self.columns) > 1 else whole
        positions = mine.column(POSITION).to_numpy()
        chosen = mine.select(list(self.columns[name])).rename_columns(list(self.columns[name].values()))
        chosen = chosen.cast(self.schemas[name])
        chosen = chosen.append_column(PLACE, pa.array(positions >> _ROW_BITS))
        return chosen.append_column(ROW, pa.array(positions & np.int64((1 << _ROW_BITS) - 1)))


def _hashable(field: StructField) -> tuple[Column, Column]:
    """A column as Spark can hash it, and whether it is null: nulls leave a hash as it is."""
    column = F.col(field.name)
    return (column.cast("string") if "map<" in field.dataType.simpleString() else column), F.isnull(column)


def _columns(stream: Stream, policy: Policy) -> list[str]:
    """The columns of a stream's DataFrame that are looked at."""
    frame = stream.data
    if not isinstance(frame, DataFrame) or not frame.isStreaming:
        what = "a DataFrame that is not streaming" if isinstance(frame, DataFrame) else f"{type(frame).__name__}"
        raise UsageError(
            "NOT_STREAMING",
            f"stream {stream.name!r}: flumina.spark.start takes streaming DataFrames, got {what}",
            hint="make one with spark.readStream; for data that are there, flumina.spark.run",
        )
    found = needed(stream, frame)
    Decoder(stream, 0, 0, [stream.name]).check_schema(_schema(frame, found))
    if isinstance(policy, Heartbeats):
        _check_heartbeats(stream, policy)
        found += [] if policy.column in found else [policy.column]
    return found


def _check_heartbeats(stream: Stream, policy: Heartbeats) -> None:
    """The column is there, and could hold the value."""
    if policy.column not in stream.data.columns:
        raise InputError(
            "MISSING_COLUMN",
            f"there is no such column, which should tell heartbeats; there are {stream.data.columns}",
            stream=stream.name,
            column=policy.column,
        )
    type_ = _schema(stream.data, [policy.column]).field(0).type
    try:
        pa.scalar(policy.value).cast(type_)
    except (pa.ArrowException, TypeError):
        message = f"the column is {type_}, so that it never is {policy.value!r}, which should tell heartbeats"
        raise InputError("COLUMN_TYPE", message, stream=stream.name, column=policy.column) from None


def _schema(frame: DataFrame, names: Sequence[str]) -> pa.Schema:
    """The columns of a DataFrame as they come to us."""
    found = to_arrow_schema(frame.select(*map(quoted, names)).schema, timezone="UTC")
    return pa.schema([field.with_nullable(True) for field in found])  # noqa: FBT003 -- Arrow's own signature
