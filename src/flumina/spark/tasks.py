"""What Spark runs in each task of the gang."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa
from pyspark import BarrierTaskContext

from flumina.engine.host import Invitation, host
from flumina.spark.frames import Frame

REPORT = pa.schema([pa.field("task", pa.int32()), pa.field("finished", pa.bool_())])
REPORT_DDL = "task int, finished boolean"
"""What a task leaves in the shuffle that ends the stage: outputs and statistics go another way."""


def task(
    invitation: Invitation, payload: Mapping[int, Mapping[str, object]], frame: Frame | None, *, local: bool
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for ``mapInArrow``: hosts the task whose number is that of the partition.

    ``payload`` has for each task what it reads itself; ``frame`` says how to read what Spark brings.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = BarrierTaskContext.get()
        number = context.partitionId()
        data = dict(payload.get(number, {}))
        if frame is not None:
            data |= frame.sources(number, batches)
        here = Invitation(
            invitation.job, invitation.rendezvous, invitation.secret, _address(context, local=local), invitation.patience
        )
        finished = host(here, number, f"{context.stageId()}.{context.taskAttemptId()}", data)
        if frame is None:
            for _ in batches:  # the row that made Spark start this task
                pass
        yield pa.record_batch([pa.array([number], pa.int32()), pa.array([finished])], schema=REPORT)

    return run


def _address(context: BarrierTaskContext, *, local: bool) -> str:
    """The address at which Spark itself reaches this task's executor."""
    if local:
        return "127.0.0.1"
    mine = context.getTaskInfos()[context.partitionId()].address
    return socket.gethostbyname(mine.rpartition(":")[0])
