"""Start a streaming query over streaming DataFrames: ``flumina.spark.start``."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Unpack

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_type

from flumina.engine.options import takes
from flumina.errors import UsageError
from flumina.input.stream import Stream
from flumina.input.stream_checks import check_streams, one_ts_type
from flumina.input.watermark_policy import BoundedDelay
from flumina.model.schema import timestamp_type
from flumina.plan.tree import Plan
from flumina.program.base import AnyProgram, define
from flumina.program.definition import Definition
from flumina.spark.gang import explained
from flumina.spark.session import Cluster
from flumina.spark.streaming.batch_engine import SparkEngine
from flumina.spark.streaming.function_sink import FunctionSink
from flumina.spark.streaming.ingest import UnitedStreams
from flumina.spark.streaming.query import StreamingQuery
from flumina.storage.directory import Directory
from flumina.streaming.batches import Batches
from flumina.streaming.options import StreamingArguments, StreamingOptions
from flumina.streaming.planner import Planner
from flumina.streaming.progress import ProgressLog
from flumina.streaming.sink import DeadLetters, ParquetSink, Sink

Function = Callable[[DataFrame, int], object]

DEAD_LETTERS = "dead-letters"
"""The default folder of dead letters, in the checkpoint."""


@takes(StreamingOptions)
def start(
    program: AnyProgram,
    streams: Sequence[Stream],
    sink: str | os.PathLike[str] | Function,
    checkpoint: str | os.PathLike[str],
    *,
    spark: SparkSession | None = None,
    **options: Unpack[StreamingArguments],
) -> StreamingQuery:
    """Start a streaming query over Spark's streaming DataFrames.

    The query processes each micro-batch exactly once and keeps its state between batches.

    ``program``     a class, an instance of one, or a definition
    ``streams``     its input, in the order of their ranks; the data of each is a streaming DataFrame
    ``sink``        a folder for Parquet files, in which each batch appears once, as a whole; or a function of
                    (DataFrame, batch id) that is called at least once for each batch, with the same rows each time
    ``checkpoint``  a folder that driver and executors reach; a restarted query resumes from it
    ``spark``       the session; by default the active one
    ``options``     the fields of :class:`~flumina.streaming.options.StreamingOptions`
    """
    chosen = StreamingOptions.of(options)
    cluster = Cluster.of(spark)
    cluster.check()
    cluster.check_listening(tls=chosen.tls or cluster.encrypted)
    definition = define(program)
    check_streams(definition, streams)
    cluster.require(chosen.workers or 1)
    rules = chosen.rules(streams)
    try:
        united = UnitedStreams.of(definition, streams, rules.policies)
    except PySparkException as error:
        raise explained(error) from None
    ts_type = _timestamps(streams)
    for policy in rules.policies.values():
        if isinstance(policy, BoundedDelay):
            policy.ticks(ts_type)
    name = _name(chosen.name, definition, cluster.spark)
    folder = Directory.of(checkpoint, "checkpoint").exclusive("checkpoint")
    engine = SparkEngine(program, name, ts_type, chosen, cluster.spark)
    target = _sink(sink, folder, definition, engine)
    engine.ordered = target.ordered
    planner = Planner(
        definition,
        [replace(stream, data=None) for stream in streams],
        chosen.workers or cluster.slots(),
        chosen.workers,
        chosen.optimizer,
        chosen.plan if isinstance(chosen.plan, Plan) or chosen.plan is None else Plan.load(chosen.plan),
        chosen.adaptive,
        shrinks=chosen.on_lost_slots == "shrink",
    )
    dead_letters = DeadLetters(folder.at(DEAD_LETTERS) if chosen.dead_letters is None else chosen.dead_letters)
    _check_separate_folders(folder, target, dead_letters)
    batches = Batches(
        folder,
        program,
        planner.streams,
        ts_type,
        rules,
        planner,
        engine,
        target,
        dead_letters,
        ProgressLog(name),
        chosen.engine_options.hooks,
    )
    query = StreamingQuery(batches, united, engine, drain=chosen.drain)
    writer = united.frame.writeStream.foreachBatch(query.batch).queryName(name).outputMode("append")
    try:
        writer = writer.trigger(**chosen.trigger) if chosen.trigger else writer
    except PySparkException as error:
        message = f"Spark refuses trigger={chosen.trigger!r}: {str(error).splitlines()[0]}"
        raise UsageError("TRIGGER", message) from None
    batches.prepare(allow_code_change=chosen.allow_code_change)
    try:
        begun = writer.option("checkpointLocation", _url(folder, "spark")).start()
    except PySparkException as error:
        if "already active" in str(error):  # started since _name() has checked
            raise _taken(name) from None
        raise explained(error) from None
    query.began(begun, cluster.spark)
    return query


def _name(given: str | None, definition: Definition, spark: SparkSession) -> str:
    """Return the name of the query in Spark; raises UsageError if an active query has it."""
    name = f"flumina: {definition.name}" if given is None else given
    if any(query.name == name for query in spark.streams.active):
        raise _taken(name)
    return name


def _taken(name: str) -> UsageError:
    return UsageError("NAME", f"a query called {name!r} is running already", hint="give this one another name=")


def _check_separate_folders(checkpoint: Directory, sink: Sink, dead_letters: DeadLetters) -> None:
    """Raise UsageError if two of checkpoint, sink and dead letters are in one folder."""
    places = {"checkpoint": checkpoint}
    if sink.folder is not None:
        places["sink"] = sink.folder
    if dead_letters.folder != checkpoint.below(DEAD_LETTERS):
        places["dead_letters"] = dead_letters.folder
    for (one, first), (other, second) in combinations(places.items(), 2):
        if first.overlaps(second):
            raise UsageError(
                "PATH",
                f"expected separate folders, got {one}={first.path} and {other}={second.path}",
                hint="use folders that are not inside each other",
            )


def _sink(given: object, folder: Directory, definition: Definition, engine: SparkEngine) -> Sink:
    if callable(given):
        return FunctionSink(given, folder.below("outputs"), definition, engine)
    if isinstance(given, str | os.PathLike):
        _check_columns(definition)
        return ParquetSink(given, definition.outputs)
    raise UsageError("SINK", f"expected sink= as a folder or a function of (DataFrame, batch id), got {given!r}")


def _check_columns(definition: Definition) -> None:
    """Raise UsageError for an output column ``batch``: readers take it from the name of the folder."""
    for name, schema in definition.outputs.items():
        for column in schema.names:
            if column.lower() == "batch":
                raise UsageError(
                    "RESERVED_COLUMN",
                    f"output {name!r} has a column {column!r}: readers of the sink's folders batch=N get N instead",
                    hint="give the column another name, or a function as the sink",
                )


def _url(folder: Directory, name: str) -> str:
    """Return the URL of a file in a folder, with its scheme, since Spark's default file system may be another."""
    path = folder.at(name)
    return f"file://{path}" if folder.is_local else path


def _timestamps(streams: Sequence[Stream]) -> pa.DataType:
    """Return the timestamp type of all streams, from the schemas of their DataFrames."""
    found = [(s, timestamp_type(to_arrow_type(s.data.schema[s.ts].dataType, timezone="UTC"))) for s in streams]
    return one_ts_type(found) or pa.int64()
