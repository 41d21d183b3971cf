"""What Spark runs in each task of the gang."""

from __future__ import annotations

import pickle
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark import BarrierTaskContext
from pyspark.sql import DataFrame, SparkSession

from flumina.engine.host import Invitation, host
from flumina.spark.frames import Frame

REPORT = pa.schema([pa.field("task", pa.int32()), pa.field("finished", pa.bool_())])
REPORT_DDL = "task int, finished boolean"
"""What a task leaves in the shuffle that ends the stage: outputs and statistics go another way."""


def handed_out(spark: SparkSession, data: Sequence[Mapping[str, object]]) -> DataFrame:
    """One partition for each task, with what it reads itself: nobody is sent what others read."""
    rows = [(pickle.dumps(of_task, protocol=5),) for of_task in data]
    return spark.sparkContext.parallelize(rows, len(rows)).toDF("data binary")


def task(
    invitation: Invitation, data: Sequence[Mapping[str, object]] | None, frame: Frame | None, *, local: bool
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for ``mapInArrow``: hosts the task whose number is that of the partition.

    ``frame`` says how to read what Spark brings, and ``data`` what else each task reads; without them, Spark brings
    what :func:`handed_out` has made.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = BarrierTaskContext.get()
        number = context.partitionId()
        if frame is None or data is None:
            mine = next(pickle.loads(value.as_py()) for batch in batches for value in batch.column(0))  # noqa: S301
        else:
            mine = {**data[number], **frame.sources(number, batches)}
        here = Invitation(
            invitation.job,
            invitation.rendezvous,
            invitation.secret,
            _address(context, local=local),
            invitation.patience,
        )
        finished = host(here, number, f"{context.stageId()}.{context.taskAttemptId()}", mine)
        yield pa.record_batch([pa.array([number], pa.int32()), pa.array([finished])], schema=REPORT)

    return run


def _address(context: BarrierTaskContext, *, local: bool) -> str:
    """The address at which Spark itself reaches this task's executor."""
    if local:
        return "127.0.0.1"
    mine = context.getTaskInfos()[context.partitionId()].address
    return socket.gethostbyname(mine.rpartition(":")[0])
