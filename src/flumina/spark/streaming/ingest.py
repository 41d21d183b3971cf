"""Union streaming DataFrames into one, and split each micro-batch by stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- as everybody calls it
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField

from flumina.errors import InputError, UsageError
from flumina.input.decode import Decoder
from flumina.input.stream import Stream
from flumina.input.tie_checks import must_be_one_part
from flumina.input.watermark_policy import Heartbeats, WatermarkPolicy
from flumina.model.order import Ints
from flumina.program.definition import Definition
from flumina.program.tie_finder import TieRule
from flumina.spark.frames import needed, quoted
from flumina.spark.row_origin import (
    FILE,
    PATH,
    POSITION,
    WITHIN,
    in_order_digest,
    path_column,
    paths,
    place_columns,
    places,
)
from flumina.streaming.validation import PLACE, ROW, RowValidator, ValidatedRows

STREAM, DIGEST = "s", "d"


@dataclass(frozen=True)
class UnitedStreams:
    """All streams as one DataFrame: a column with the number of the stream, and columns of each stream."""

    frame: DataFrame
    columns: Mapping[str, Mapping[str, str]]
    """For each stream its own columns, by their names in the frame."""
    schemas: Mapping[str, pa.Schema]
    """For each stream the types of these columns: timestamps are UTC, whatever the session's time zone is."""
    ordered: Mapping[str, tuple[str, ...]]
    """For each stream that must be one part, the columns by which rows are grouped whose order matters."""

    @staticmethod
    def of(definition: Definition, streams: Sequence[Stream], policies: Mapping[str, WatermarkPolicy]) -> UnitedStreams:
        """Union the streaming DataFrames of these streams; raises if a column is missing or has another type."""
        columns: dict[str, dict[str, str]] = {}
        schemas: dict[str, pa.Schema] = {}
        frames: list[DataFrame] = []
        for number, stream in enumerate(streams):
            mine = _columns(stream, policies[stream.name])
            schemas[stream.name] = _schema(stream.data, mine)
            columns[stream.name] = {f"c{number}_{place}": name for place, name in enumerate(mine)}
            chosen = [F.col(quoted(name)).alias(alias) for alias, name in columns[stream.name].items()]
            place = (*place_columns(stream.data), path_column(stream.data))
            frames.append(stream.data.select(F.lit(number).alias(STREAM), *chosen, *place))
        union = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)
        ordered = {s.name: _alike(definition, s) for s in streams if must_be_one_part(definition, s)}
        return UnitedStreams(union, columns, schemas, ordered)

    def gather(self, batch: DataFrame, validators: Mapping[str, RowValidator]) -> dict[str, ValidatedRows]:
        """Collect the rows of a batch in the driver, and validate them by stream."""
        fields = [field for field in batch.schema if field.name not in (FILE, WITHIN, PATH)]
        hashed = F.xxhash64(*(part for field in fields for part in _hashable(field)))
        whole = batch.drop(PATH).withColumns({POSITION: F.monotonically_increasing_id(), DIGEST: hashed}).toArrow()
        found: dict[str, ValidatedRows] = {}
        for number, (name, row_validator) in enumerate(validators.items()):
            mine = whole.filter(pc.equal(whole.column(STREAM), number)) if len(self.columns) > 1 else whole
            rows = self._rows(name, mine)
            digest = self._digest(name, rows, mine.column(DIGEST).to_numpy())
            known = mine.column(FILE).null_count < len(mine)
            files = partial(paths, batch.where(F.col(STREAM) == number)) if known else dict  # the source is asked again
            found[name] = replace(row_validator.validate(rows), digest=digest, files=files)
        return found

    def _digest(self, name: str, rows: pa.Table, hashes: Ints) -> int:
        """Return the sum of the hashes of a stream's rows, which depends on their order only where results do."""
        if name not in self.ordered:
            return int(hashes.sum(dtype=np.int64))
        alike = tuple(rows.column(column) for column in self.ordered[name])
        return in_order_digest(hashes, alike, rows.column(PLACE).to_numpy(), rows.column(ROW).to_numpy())

    def nothing(self, validators: Mapping[str, RowValidator]) -> dict[str, ValidatedRows]:
        """Return the validated rows of an empty batch."""
        schema = to_arrow_schema(self.frame.withColumn(POSITION, F.lit(0).cast("long")).schema, timezone="UTC")
        return {
            name: row_validator.validate(self._rows(name, schema.empty_table()))
            for name, row_validator in validators.items()
        }

    def _rows(self, name: str, mine: pa.Table) -> pa.Table:
        """Return the rows of one stream, with its own columns, :data:`PLACE` and :data:`ROW`."""
        chosen = mine.select(list(self.columns[name])).rename_columns(list(self.columns[name].values()))
        place, row = places(mine)
        return chosen.cast(self.schemas[name]).append_column(PLACE, pa.array(place)).append_column(ROW, pa.array(row))


def _alike(definition: Definition, stream: Stream) -> tuple[str, ...]:
    """Return the columns that group rows whose order matters: the timestamp, and the key if all tags are keyed."""
    keys = {stream.column_of(tag.key.name) for tag in stream.tags if tag.key is not None}
    by_key = TieRule.of(definition.depends, stream.tags, sequenced=False).by_key
    return (stream.ts, *keys) if by_key and len(keys) == 1 else (stream.ts,)


def _hashable(field: StructField) -> tuple[Column, Column]:
    """Return a column as Spark can hash it, and whether it is null, since Spark's hash skips nulls."""
    column = F.col(field.name)
    return (column.cast("string") if "map<" in field.dataType.simpleString() else column), F.isnull(column)


def _columns(stream: Stream, policy: WatermarkPolicy) -> list[str]:
    """Return the columns of a stream's DataFrame that the query reads."""
    frame = stream.data
    if not isinstance(frame, DataFrame) or not frame.isStreaming:
        what = "a DataFrame that is not streaming" if isinstance(frame, DataFrame) else f"{type(frame).__name__}"
        raise UsageError(
            "NOT_STREAMING",
            f"stream {stream.name!r}: expected a streaming DataFrame, got {what}",
            hint="make one with spark.readStream, or use flumina.spark.run for data that is complete",
        )
    found = needed(stream, frame)
    Decoder(stream, 0, 0, [stream.name]).check_schema(_schema(frame, found))
    if isinstance(policy, Heartbeats):
        _check_heartbeats(stream, policy)
        found += [] if policy.column in found else [policy.column]
    return found


def _check_heartbeats(stream: Stream, policy: Heartbeats) -> None:
    """Raise InputError unless the DataFrame has the heartbeat column, of a type that can hold the value."""
    if policy.column not in stream.data.columns:
        raise InputError(
            "MISSING_COLUMN",
            f"expected this column to mark heartbeats, got {stream.data.columns}",
            stream=stream.name,
            column=policy.column,
        )
    type_ = _schema(stream.data, [policy.column]).field(0).type
    try:
        pa.scalar(policy.value).cast(type_)
    except (pa.ArrowException, TypeError):
        message = f"expected a type that can hold {policy.value!r}, the value that marks heartbeats, got {type_}"
        raise InputError("COLUMN_TYPE", message, stream=stream.name, column=policy.column) from None


def _schema(frame: DataFrame, names: Sequence[str]) -> pa.Schema:
    """Return the Arrow schema of some columns of a DataFrame."""
    found = to_arrow_schema(frame.select(*map(quoted, names)).schema, timezone="UTC")
    return pa.schema([field.with_nullable(True) for field in found])  # noqa: FBT003 -- Arrow's own signature
