"""Choose the backend of ``fl.run`` and ``fl.start`` from session and data.

A backend is a module with a ``run``: :mod:`flumina.local` or :mod:`flumina.spark`. :mod:`flumina.spark` is imported
only for a session or a DataFrame of Spark, so that Flumina runs without pyspark.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, Unpack, cast

from flumina import local
from flumina.engine.options import RunArguments, SparkRunArguments, SparkRunOptions, takes
from flumina.engine.results import RunResult, Table
from flumina.errors import UsageError
from flumina.input.stream import Stream
from flumina.program.base import AnyProgram
from flumina.streaming.options import StreamingArguments, StreamingOptions

if TYPE_CHECKING:
    from flumina.spark.streaming.query import StreamingQuery
    from flumina.spark.streaming.start import Function


Frame_co = TypeVar("Frame_co", covariant=True)


class Session(Protocol[Frame_co]):
    """A SparkSession, as far as the types of outputs depend on it: they have the type of its tables."""

    def table(self, tableName: str, /) -> Frame_co:  # noqa: N803 -- Spark's name
        """Return a table of the session's catalog."""


@takes(SparkRunOptions)
def run(
    program: AnyProgram,
    streams: Sequence[Stream],
    *,
    on: Session[Table] | None = None,
    **options: Unpack[SparkRunArguments],
) -> RunResult[Table]:
    """Run a program once, on Spark or in local processes.

    Runs on Spark if ``on`` is a SparkSession or the data of a stream is a Spark DataFrame, else in processes of this
    machine. ``flumina.spark.run`` and ``flumina.local.run`` are the explicit forms.

    ``program``  a class, an instance of one, or a definition
    ``streams``  its input, in the order of their ranks
    ``on``       a SparkSession; by default that of the first stream whose data is a Spark DataFrame, and None, this
                 machine, if there is none. With an explicit session, type checkers know that outputs are DataFrames
    ``options``  the fields of :class:`~flumina.engine.options.SparkRunOptions`; on this machine without
                 ``on_lost_slots``, and without a timeout unless ``task_timeout`` is given
    """
    session = _session(on, streams)
    if session is None:
        here: RunResult[Any] = local.run(
            program, streams, **cast("RunArguments", options)
        )  # refuses what only Spark has
        return here
    result: RunResult[Table] = _spark().run(program, streams, spark=session, **options)
    return result


@takes(StreamingOptions)
def start(
    program: AnyProgram,
    streams: Sequence[Stream],
    sink: str | os.PathLike[str] | Function,
    checkpoint: str | os.PathLike[str],
    *,
    on: Session[object] | None = None,
    **options: Unpack[StreamingArguments],
) -> StreamingQuery:
    """Start a streaming query over Spark's streaming DataFrames.

    The query processes each micro-batch exactly once and keeps its state between batches. ``flumina.spark.start`` is
    the explicit form; queries run on Spark only.

    ``program``     a class, an instance of one, or a definition
    ``streams``     its input, in the order of their ranks; the data of each is a streaming DataFrame
    ``sink``        a folder for Parquet files, in which each batch appears once, as a whole; or a function of
                    (DataFrame, batch id) that is called at least once for each batch, with the same rows each time
    ``checkpoint``  a folder that driver and executors reach; a restarted query resumes from it
    ``on``          a SparkSession; by default that of the first stream
    ``options``     the fields of :class:`~flumina.streaming.options.StreamingOptions`
    """
    session = _session(on, streams)
    if session is None:
        raise UsageError(
            "NO_SPARK",
            "start expected streams of streaming DataFrames, or on= as a SparkSession, got neither",
            hint="read streams with spark.readStream, or use fl.run for data that is complete",
        )
    query: StreamingQuery = _spark().start(program, streams, sink, checkpoint, spark=session, **options)
    return query


def _session(on: object, streams: object) -> Any:  # noqa: ANN401 -- a SparkSession, if pyspark is there
    """Return the session to run in; None if ``on`` is None and no stream is a Spark DataFrame."""
    sql: Any = sys.modules.get("pyspark.sql")  # no session exists before this module is imported
    if on is not None:
        if sql is None or not isinstance(on, sql.SparkSession):
            raise UsageError(
                "ON",
                f"expected on= as a SparkSession, got {on!r}",
                hint="leave it out to run on this machine",
            )
        return on
    if sql is None or not isinstance(streams, Sequence):
        return None
    frames = (s.data for s in streams if isinstance(s, Stream) and isinstance(s.data, sql.DataFrame))
    frame = next(frames, None)
    return None if frame is None else frame.sparkSession


def _spark() -> Any:  # noqa: ANN401 -- a module
    return importlib.import_module("flumina.spark")
