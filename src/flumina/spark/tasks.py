"""Host a task of the gang in a task of Spark."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import BarrierTaskContext, Broadcast
from pyspark.sql import DataFrame, SparkSession

from flumina.engine.host import Data, TaskAssignment, host, left_behind
from flumina.engine.transport.client import Registration
from flumina.errors import CalledOffError, PeerLostError
from flumina.spark.frames import Frame

REPORT = pa.schema([pa.field("task", pa.int32()), pa.field("finished", pa.bool_())])
REPORT_DDL = "task int, finished boolean"
"""The row of a task in the shuffle that ends the stage; outputs and statistics do not go through Spark."""

_ORPHANED = 5.0
"""Seconds in which Spark ends the processes of an application whose driver was killed. A task waits that long before it
raises: PySpark would print that it can't write the error to a closed pipe."""


def handed_out(spark: SparkSession, packed: Sequence[bytes]) -> DataFrame:
    """Return a DataFrame with one partition for each task, with the packed data that only this task reads."""
    return spark.sparkContext.parallelize([(one,) for one in packed], len(packed)).toDF("data binary")


@dataclass(frozen=True)
class Cargo:
    """Job and, beside DataFrames, the packed data of each task, which can be large.

    None of it is secret. PySpark writes large functions to a file, so it is sent apart from the run's key.
    """

    job: bytes
    packed: tuple[bytes, ...] | None

    @property
    def size(self) -> int:
        """Return the size in bytes."""
        return len(self.job) + sum(map(len, self.packed or ()))


def task(
    assignment: TaskAssignment, cargo: Cargo | Broadcast[Cargo], frame: Frame | None, *, rows: int, local: bool
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function for ``mapInArrow`` that hosts the task with the number of its partition.

    ``frame`` says how to read the rows that Spark delivers, and ``cargo`` has the other data of each task; without
    ``frame``, Spark delivers the data of :func:`handed_out`. ``rows`` is the most rows that are decoded at a time.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = BarrierTaskContext.get()
        number = context.partitionId()
        sent = cargo.value if isinstance(cargo, Broadcast) else cargo
        if frame is None or sent.packed is None:
            # Read to the end: else Spark ends this process, and the next run waits for the imports of another one.
            (mine,) = [value.as_py() for batch in batches for value in batch.column(0)]
            frame_rows = {}
        else:
            mine, frame_rows = sent.packed[number], frame.sources(number, batches, rows)
        here = replace(assignment, job=sent.job, bind=_address(context, local=local))
        finished = _hosted(here, number, f"{context.stageId()}.{context.taskAttemptId()}", mine, frame_rows)
        yield pa.record_batch([pa.array([number], pa.int32()), pa.array([finished])], schema=REPORT)

    return run


def _hosted(assignment: TaskAssignment, number: int, attempt: str, packed: bytes, frame_rows: Data) -> bool:
    """Host a task; raises CalledOffError if it has left threads, so that Spark does not reuse this process."""
    try:
        finished = host(assignment, number, attempt, packed, frame_rows)
    except PeerLostError as error:
        if error.condition == "DRIVER_LOST":
            time.sleep(_ORPHANED)
        raise
    if threads := left_behind():
        raise CalledOffError(f"task {number} has left {', '.join(threads)} behind in this process", over=True)
    return finished


def kill_attempt(spark: SparkSession, registration: Registration, why: str) -> None:
    """Have Spark kill an attempt of a task, so that it retries the stage; the attempt may have ended already."""
    attempt = int(registration.attempt.rpartition(".")[2])
    context: Any = spark.sparkContext._jsc
    with suppress(Py4JError, OSError):
        context.sc().killTaskAttempt(attempt, True, why)  # noqa: FBT003 -- Spark's own: interrupt the thread


def _address(context: BarrierTaskContext, *, local: bool) -> str:
    """Return the address at which Spark reaches this task's executor."""
    if local:
        return "127.0.0.1"
    mine = context.getTaskInfos()[context.partitionId()].address
    return socket.gethostbyname(mine.rpartition(":")[0])
