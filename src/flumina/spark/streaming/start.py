"""``flumina.spark.start``: a program over streaming DataFrames, exactly once."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from flumina.engine.job import Settings
from flumina.engine.liveness import SPARK_TIMEOUT, check_timeout
from flumina.errors import UsageError
from flumina.input.stream import Stream
from flumina.input.stream_checks import check_streams
from flumina.input.watermarks import BoundedDelay, ClosedBatches, Heartbeats, InOrder, WatermarkPolicy
from flumina.plan.optimize import Optimizer, check_optimizer, check_workers
from flumina.plan.tree import Plan
from flumina.program.base import AnyProgram, define
from flumina.program.definition import Definition
from flumina.spark.gang import explained
from flumina.spark.run import timestamps
from flumina.spark.session import Cluster
from flumina.spark.streaming.engine import SparkEngine
from flumina.spark.streaming.ingest import Wide
from flumina.spark.streaming.query import StreamingQuery, check_trigger
from flumina.spark.streaming.sinks import FunctionSink
from flumina.storage.directory import Folder
from flumina.streaming.batches import Batches
from flumina.streaming.planner import Planner
from flumina.streaming.progress import ProgressLog
from flumina.streaming.rules import MAX_BUFFERED_ROWS, Rules
from flumina.streaming.sink import DeadLetters, ParquetSink, Sink

Function = Callable[[Any, int], object]

DEAD_LETTERS = "dead-letters"
"""Where they are, in the checkpoint, unless told otherwise."""


def start(
    program: AnyProgram,
    streams: Sequence[Stream],
    sink: str | os.PathLike[str] | Function,
    checkpoint: str | os.PathLike[str],
    *,
    frontiers: WatermarkPolicy | Mapping[str, WatermarkPolicy] | None = None,
    late: str = "error",
    bad_rows: str = "error",
    dead_letters: str | os.PathLike[str] | None = None,
    trigger: Mapping[str, Any] | None = None,
    closed: bool = False,
    max_buffered_rows: int = MAX_BUFFERED_ROWS,
    name: str | None = None,
    workers: int | None = None,
    plan: Plan | str | Path | None = None,
    optimizer: str | Optimizer = "cost",
    adaptive: bool = True,
    changed: bool = False,
    tls: bool = False,
    task_timeout: float | None = SPARK_TIMEOUT,
    settings: Settings | None = None,
    spark: SparkSession | None = None,
) -> StreamingQuery:
    """Start a query: the program over streaming DataFrames, its state kept from batch to batch, exactly once.

    ``sink``          a folder for Parquet (each batch once, whole), or a function of (DataFrame, batch id) that is
                      called at least once for each batch, always with the same rows
    ``checkpoint``    a folder that driver and executors reach; a query that is started again goes on from there
    ``frontiers``     how far a stream has come when a batch ends, for all streams or by name: :class:`~flumina.InOrder`
                      (the default), :class:`~flumina.BoundedDelay`, :class:`~flumina.Heartbeats`,
                      :class:`~flumina.ClosedBatches`
    ``late``          what becomes of rows that come after their time has been processed: "error", "dead-letter" or
                      "drop" (counted)
    ``bad_rows``      what becomes of rows that do not fit their declaration: "error" or "dead-letter"
    ``dead_letters``  the folder for those; by default one in the checkpoint
    ``trigger``       ``{"availableNow": True}`` or ``{"processingTime": "1 second"}``, as for Spark
    ``closed``        with availableNow: nothing comes after what is there now, so what is carried is processed, too
    ``max_buffered_rows``   how many rows may wait for a stream that holds up others before that is an error
    ``name``          how Spark and messages call the query; by default the program's name
    ``workers``       at most so many workers, each a task; by default what the cluster has room for
    ``plan``          a plan, or the file of one, for all batches; instead of ``workers`` and ``optimizer``
    ``optimizer``     how plans are made, as for :func:`flumina.spark.run`
    ``adaptive``      make another plan between two batches where the observed rates promise 20 % or more
    ``changed``       go on from the checkpoint although the program's code is another
    ``tls``           encrypt what workers send each other, also where Spark does not encrypt
    ``task_timeout``  seconds after which a task that gives no sign of life is ended, as for :func:`flumina.spark.run`
    ``settings``      sizes and times of the engine: :class:`~flumina.Settings`
    ``spark``         the session; by default the active one
    """
    cluster = Cluster.of(spark)
    cluster.check()
    cluster.check_listening(tls=tls or cluster.encrypted)
    definition = define(program)
    check_streams(definition, streams)
    check_workers(workers, plan)
    check_optimizer(optimizer)
    if settings is not None and not isinstance(settings, Settings):
        raise UsageError("OPTION", f"settings= is a Settings, got {settings!r}")
    check_timeout(task_timeout)
    cluster.require(workers or 1)
    rules = Rules(_policies(streams, frontiers), late, bad_rows, max_buffered_rows)
    _check_rules(rules)
    _check_switches(closed=closed, adaptive=adaptive, changed=changed, tls=tls)
    options = check_trigger(trigger, closed=closed)
    try:
        wide = Wide.of(definition, streams, rules.policies)
    except PySparkException as error:
        raise explained(error) from None
    ts_type = timestamps(streams)
    for policy in rules.policies.values():
        if isinstance(policy, BoundedDelay):
            policy.ticks(ts_type)
    shown = _name(name, definition, cluster.spark)
    folder = Folder.of(checkpoint, "checkpoint")
    engine = SparkEngine(program, shown, ts_type, settings or Settings(), tls, cluster.spark)
    engine.task_timeout = task_timeout
    target = _sink(sink, folder, definition, engine)
    engine.ordered = target.ordered
    planner = Planner(
        definition,
        [replace(stream, data=None) for stream in streams],
        workers or cluster.slots(),
        workers,
        optimizer,
        plan if isinstance(plan, Plan) or plan is None else Plan.load(plan),
        adaptive,
    )
    letters = DeadLetters(dead_letters if dead_letters is not None else folder.at(DEAD_LETTERS))
    _check_apart(folder, target, letters)
    batches = Batches(
        folder, program, planner.streams, ts_type, rules, planner, engine, target, letters, ProgressLog(shown)
    )
    query = StreamingQuery(batches, wide, engine, closed=closed)
    writer = wide.frame.writeStream.foreachBatch(query.batch).queryName(shown).outputMode("append")
    try:
        writer = writer.trigger(**options) if options else writer
    except PySparkException as error:
        raise UsageError("TRIGGER", f"Spark refuses trigger={trigger!r}: {str(error).splitlines()[0]}") from None
    batches.prepare(changed=changed)
    try:
        begun = writer.option("checkpointLocation", _url(folder, "spark")).start()
    except PySparkException as error:
        if "already active" in str(error):  # begun since we looked
            raise _taken(shown) from None
        raise explained(error) from None
    query.began(begun, cluster.spark)
    return query


def _name(given: object, definition: Definition, spark: SparkSession) -> str:
    """What Spark calls the query; it wants names of its own for all that run."""
    shown = f"flumina: {definition.name}" if given is None else given
    if not isinstance(shown, str) or not shown:
        raise UsageError("NAME", f"name= is a text, got {given!r}")
    if any(query.name == shown for query in spark.streams.active):
        raise _taken(shown)
    return shown


def _taken(name: str) -> UsageError:
    return UsageError("NAME", f"a query called {name!r} is running already", hint="give this one another name=")


def _check_apart(checkpoint: Folder, sink: Sink, letters: DeadLetters) -> None:
    """Batches of two kinds in one folder would be taken for each other, and Spark's files for ours."""
    places = {"checkpoint": checkpoint}
    if isinstance(sink, ParquetSink):
        places["sink"] = sink.folder
    if letters.folder != checkpoint.below(DEAD_LETTERS):
        places["dead_letters"] = letters.folder
    for (one, first), (other, second) in combinations(places.items(), 2):
        if first.meets(second):
            raise UsageError(
                "PATH",
                f"{one}={first.path} and {other}={second.path}: one is, or lies in, the other",
                hint="give each a folder of its own",
            )


def _policies(streams: Sequence[Stream], given: object) -> dict[str, WatermarkPolicy]:
    """A policy for each stream."""
    if given is None or isinstance(given, InOrder | BoundedDelay | Heartbeats | ClosedBatches):
        chosen: WatermarkPolicy = InOrder() if given is None else given
        return {stream.name: chosen for stream in streams}
    if not isinstance(given, Mapping):
        raise UsageError("FRONTIERS", f"frontiers= is a policy, or a dict of them by stream, got {given!r}")
    for name, policy in given.items():
        if name not in {stream.name for stream in streams}:
            raise UsageError("FRONTIERS", f"no stream is called {name!r}")
        if not isinstance(policy, InOrder | BoundedDelay | Heartbeats | ClosedBatches):
            raise UsageError(
                "FRONTIERS",
                f"stream {name!r}: {policy!r} is no frontier policy",
                hint="there are fl.InOrder, fl.BoundedDelay, fl.Heartbeats and fl.ClosedBatches",
            )
    return {stream.name: given.get(stream.name, InOrder()) for stream in streams}


def _check_rules(rules: Rules) -> None:
    for option, value, known in (
        ("late", rules.late, ("error", "dead-letter", "drop")),
        ("bad_rows", rules.bad_rows, ("error", "dead-letter")),
    ):
        if value not in known:
            raise UsageError("OPTION", f"{option}= is one of {', '.join(map(repr, known))}, got {value!r}")
    if (
        isinstance(rules.max_buffered_rows, bool)
        or not isinstance(rules.max_buffered_rows, int)
        or rules.max_buffered_rows < 1
    ):
        raise UsageError("OPTION", f"max_buffered_rows= is a number of rows, got {rules.max_buffered_rows!r}")


def _check_switches(**given: object) -> None:
    for option, value in given.items():
        if not isinstance(value, bool):
            raise UsageError("OPTION", f"{option}= is True or False, got {value!r}")


def _sink(given: object, folder: Folder, definition: Definition, engine: SparkEngine) -> Sink:
    if callable(given):
        return FunctionSink(given, folder.below("outputs"), definition, engine)
    if isinstance(given, str | os.PathLike):
        _check_columns(definition)
        return ParquetSink(given, definition.outputs)
    raise UsageError("SINK", f"sink= is a folder or a function of (DataFrame, batch id), got {given!r}")


def _check_columns(definition: Definition) -> None:
    """Readers of a folder take the column of the batch from its name, whatever is in the files."""
    for name, schema in definition.outputs.items():
        for column in schema.names:
            if column.lower() == "batch":
                raise UsageError(
                    "RESERVED_COLUMN",
                    f"output {name!r} has a column {column!r}: readers of the sink's folders batch=N get N instead",
                    hint="give the column another name, or a function as the sink",
                )


def _url(folder: Folder, name: str) -> str:
    """A folder of ours as Spark finds it, whatever its default file system is."""
    path = folder.at(name)
    return f"file://{path}" if folder.local else path
