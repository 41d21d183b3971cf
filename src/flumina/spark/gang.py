"""The Spark job of a run: a gang of tasks, and a shuffle behind it so that Spark tries the gang again if it dies."""

from __future__ import annotations

import threading
import uuid
from types import TracebackType
from typing import Any, Self

from py4j.protocol import Py4JError
from pyspark import InheritableThread
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from flumina.engine.rendezvous import Rendezvous
from flumina.errors import ClusterError
from flumina.spark.session import Cluster

_NO_SLOTS = "SPARK-24819"
"""What Spark says where a gang does not fit into the slots of this moment."""

_AGAIN = 0.5
"""Seconds until Spark is asked again whether there are slots for all."""


class Gang:
    """A job in a thread of its own; its failure ends the run at the rendezvous.

    A barrier stage is tried again by Spark only if a shuffle follows it. What the tasks have to say goes through the
    rendezvous, so that all that is shuffled is a number a task.
    """

    def __init__(self, cluster: Cluster, tasks: DataFrame, name: str, rendezvous: Rendezvous) -> None:
        self.cluster, self.tasks, self.name, self.rendezvous = cluster, tasks, name, rendezvous
        self.context = cluster.spark.sparkContext
        self.group = f"flumina-{uuid.uuid4().hex[:12]}"
        self.thread = InheritableThread(target=self._work, name=self.group, daemon=True, session=cluster.spark)
        self.over = threading.Event()
        """Nobody waits for the job any more."""

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.over.set()
        try:
            if error is not None:
                self.context.cancelJobGroup(self.group)
        except (Py4JError, OSError):
            pass  # the cluster is gone, and the error says why
        self.thread.join()

    def _work(self) -> None:
        try:
            self.context.setJobGroup(self.group, f"flumina: {self.name}", interruptOnCancel=True)
            self.context.setLocalProperty("callSite.short", f"flumina: {self.name}")
            while not self._collect():
                pass
        except (Py4JError, PySparkException, OSError) as error:
            self.rendezvous.cancel(explained(error))
        else:
            self.rendezvous.cancel(ClusterError("NO_RESULT", "all tasks have ended, but not all have reported"))

    def _collect(self) -> bool:
        """Run the job; False if it has to be tried again.

        Spark gives up at once where there are too few slots when it submits the stage, though it waits for an executor
        that is lost a moment later. Whether it is too long until the gang is there, the rendezvous decides.
        """
        try:
            self.tasks.repartition(1).collect()
        except (Py4JError, PySparkException) as error:
            if _NO_SLOTS not in str(error) or self.over.wait(_AGAIN):
                raise
            return False
        return True

    def shuffled_bytes(self) -> int:
        """What Spark has moved between tasks for this run, the closing shuffle aside."""
        store: Any = self.context._jsc.sc().statusStore()
        tracker = self.context.statusTracker()
        written: dict[int, int] = {}
        for job in tracker.getJobIdsForGroup(self.group):
            info = tracker.getJobInfo(job)
            for stage in info.stageIds if info is not None else ():
                written[stage] = max(written.get(stage, 0), int(store.lastStageAttempt(stage).shuffleWriteBytes()))
        moved = [written[stage] for stage in sorted(written) if written[stage]]
        return sum(moved[:-1])


def explained(error: BaseException) -> ClusterError:
    """What Spark said, without the pages around it."""
    lines = [line.strip().removeprefix(": ") for line in str(error).splitlines() if line.strip()]
    noise = ("at ", "File ", "Traceback", "An error occurred while calling")
    telling = [line for line in lines if not line.startswith(noise)]
    reason = next(
        (line for line in telling if "Job aborted" in line or "cancelled" in line), telling[0] if telling else ""
    )
    last = next((line for line in reversed(telling) if "Error" in line and "Py4J" not in line), "")
    text = reason if last in reason else f"{reason}\n  {last}"
    hint = "the executors' logs say more; on local[K] nothing is tried again, on local[K,F] and on clusters it is"
    if "spark.driver.maxResultSize" in text:
        hint = (
            "raise it; or, where a batch of a stream has too many rows, limit it with maxFilesPerTrigger and the like"
        )
    elif "BarrierJobUnsupportedRDDChain" in text:
        hint = "of a DataFrame that is coalesced Spark can't start all tasks at once: use repartition() instead"
    return ClusterError("SPARK", f"Spark gave up on the run: {text}", hint=hint)
