"""What Spark runs in each task of the gang."""

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
"""What a task leaves in the shuffle that ends the stage: outputs and statistics go another way."""

_ORPHANED = 5.0
"""Seconds in which Spark ends the processes of an application whose driver was killed: an error that was raised
earlier would be written to a pipe that is closed, and PySpark prints such errors."""


def handed_out(spark: SparkSession, packed: Sequence[bytes]) -> DataFrame:
    """One partition for each task, with what it reads itself: nobody is sent what others read."""
    return spark.sparkContext.parallelize([(one,) for one in packed], len(packed)).toDF("data binary")


@dataclass(frozen=True)
class Cargo:
    """What tasks are sent that can be large: the job and, if Spark does not bring it, what each of them reads.

    None of it is secret. PySpark writes a function that is large to a file, so that this travels apart from the key.
    """

    job: bytes
    packed: tuple[bytes, ...] | None

    @property
    def size(self) -> int:
        """How many bytes it has."""
        return len(self.job) + sum(map(len, self.packed or ()))


def task(
    assignment: TaskAssignment, cargo: Cargo | Broadcast[Cargo], frame: Frame | None, *, rows: int, local: bool
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for ``mapInArrow``: hosts the task whose number is that of the partition.

    ``frame`` says how to read what Spark brings, and the cargo what else each task reads; without them, Spark brings
    what :func:`handed_out` has made. ``rows`` is how many are worked on at a time, at most.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = BarrierTaskContext.get()
        number = context.partitionId()
        sent = cargo.value if isinstance(cargo, Broadcast) else cargo
        if frame is None or sent.packed is None:
            (mine,) = [value.as_py() for batch in batches for value in batch.column(0)]  # to the end: else Spark lets
            frame_rows = {}  # go of this process, and the next run waits for another one to have imported everything
        else:
            mine, frame_rows = sent.packed[number], frame.sources(number, batches, rows)
        here = replace(assignment, job=sent.job, bind=_address(context, local=local))
        finished = _hosted(here, number, f"{context.stageId()}.{context.taskAttemptId()}", mine, frame_rows)
        yield pa.record_batch([pa.array([number], pa.int32()), pa.array([finished])], schema=REPORT)

    return run


def _hosted(assignment: TaskAssignment, number: int, attempt: str, packed: bytes, frame_rows: Data) -> bool:
    """Host a task, and see to it that Spark uses this process again only if nothing of the task is left in it."""
    try:
        finished = host(assignment, number, attempt, packed, frame_rows)
    except PeerLostError as error:
        if error.condition == "DRIVER_LOST":
            time.sleep(_ORPHANED)
        raise
    if threads := left_behind():
        raise CalledOffError(f"task {number} has left {', '.join(threads)} behind in this process", over=True)
    return finished


def kill_attempt(spark: SparkSession, whom: Registration, why: str) -> None:
    """Have Spark kill an attempt of a task, and so try the stage again; it may know already that it is gone."""
    attempt = int(whom.attempt.rpartition(".")[2])
    context: Any = spark.sparkContext._jsc
    with suppress(Py4JError, OSError):
        context.sc().killTaskAttempt(attempt, True, why)  # noqa: FBT003 -- Spark's own: interrupt the thread


def _address(context: BarrierTaskContext, *, local: bool) -> str:
    """The address at which Spark itself reaches this task's executor."""
    if local:
        return "127.0.0.1"
    mine = context.getTaskInfos()[context.partitionId()].address
    return socket.gethostbyname(mine.rpartition(":")[0])
