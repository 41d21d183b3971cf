"""The Spark job of a run: a gang of tasks, and a shuffle behind it so that Spark tries the gang again if it dies."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from py4j.protocol import Py4JError
from pyspark import InheritableThread
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from flumina.engine.progress import ProgressLine
from flumina.engine.transport.rendezvous import Rendezvous
from flumina.errors import ClusterError
from flumina.spark.session import Cluster

_NO_SLOTS = "SPARK-24819"
"""What Spark says where a gang does not fit into the slots of this moment."""

_AGAIN = 0.5
"""Seconds until Spark is asked again whether there are slots for all."""


_LOOK = 0.5
"""Seconds between two looks at what Spark does before the gang is complete."""


@dataclass(frozen=True)
class Stage:
    """What Spark tells of a stage: how many of its tasks run, whether all are over, and whether it is the gang's."""

    number: int
    active: int
    over: bool
    barrier: bool


@dataclass(frozen=True)
class Phase:
    """What a gang that is not complete waits for; ``counts`` says whether its tasks should come together now."""

    text: str
    counts: bool

    @staticmethod
    def of(stages: Sequence[Stage], tasks: int, slots: int, *, refused: bool = False) -> Phase:
        """Tell apart input that Spark prepares, slots that are missing, slots that are busy, and tasks that start.

        Spark starts all tasks of a gang at once, when there are slots for all of them. That other jobs use these is no
        error, however long it takes, as for every job of Spark's; that there are fewer than tasks is one after a while.
        So is a stage that Spark has ``refused`` to submit for want of slots, whatever the count of slots says now.
        """
        gang = [stage for stage in stages if stage.barrier]
        if slots < tasks:
            return Phase(f"waiting for slots: it needs {tasks}, and the cluster has {slots}", counts=True)
        if refused:
            return Phase(f"waiting for slots: Spark had fewer than {tasks} when the stage was submitted", counts=True)
        if any(stage.active for stage in gang):
            return Phase("waiting for its tasks to start", counts=True)
        inputs = [stage for stage in stages if not gang or stage.number < min(one.number for one in gang)]
        busy = [stage for stage in inputs if stage.active]
        if gang and not busy:
            return Phase(f"waiting for {tasks} free slots at the same time: other jobs use them", counts=False)
        begun = sum(stage.over or stage.active > 0 for stage in inputs)
        which = f" (stage {begun} of {len(inputs)})" if begun else ""
        return Phase(f"waiting for Spark to prepare the input{which}", counts=False)


class Gang:
    """A job in a thread of its own; its failure ends the run at the rendezvous.

    A barrier stage is tried again by Spark only if a shuffle follows it. What the tasks have to say goes through the
    rendezvous, so that all that is shuffled is a number a task.
    """

    def __init__(
        self, cluster: Cluster, tasks: DataFrame, line: ProgressLine, rendezvous: Rendezvous, count: int
    ) -> None:
        self.cluster, self.tasks, self.line, self.rendezvous, self.count = cluster, tasks, line, rendezvous, count
        self.context = cluster.spark.sparkContext
        self.group = f"flumina-{uuid.uuid4().hex[:12]}"
        self.thread = InheritableThread(target=self._work, name=self.group, daemon=True, session=cluster.spark)
        self.watcher = InheritableThread(
            target=self._watch, name=f"{self.group}-watch", daemon=True, session=cluster.spark
        )
        self.jobs: set[int] = set()
        """The jobs that Spark has begun for this run, as far as they have been seen."""
        self.barriers: dict[int, bool] = {}
        """Whether a stage is that of the gang."""
        self.refused = False
        """Whether Spark has given up on the stage for want of slots; the time to assemble counts from then on."""
        self.over = threading.Event()
        """Nobody waits for the job any more."""

    def __enter__(self) -> Self:
        self.thread.start()
        self.watcher.start()
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
        self.watcher.join()

    def _work(self) -> None:
        try:
            self.context.setJobGroup(self.group, f"flumina: {self.line.name}", interruptOnCancel=True)
            self.context.setLocalProperty("callSite.short", f"flumina: {self.line.name}")
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
            if _NO_SLOTS not in str(error):
                raise
            self.refused = True
            if self.over.wait(_AGAIN):
                raise
            return False
        return True

    def _watch(self) -> None:
        """Have the time to assemble count only while tasks could come, and tell what the run waits for until then."""
        while not self.over.wait(_LOOK):
            try:
                stages = self._stages()
                if self.rendezvous.assembled:
                    continue
                phase = Phase.of(stages, self.count, self.cluster.slots(), refused=self.refused)
            except (Py4JError, OSError):
                continue  # the cluster is gone, which the job's own thread reports
            if not phase.counts:
                self.rendezvous.prolong()
            self.line.wait(phase.text)

    def _stages(self) -> list[Stage]:
        """Return what Spark knows of the stages of this run."""
        store: Any = self.context._jsc.sc().statusStore()
        tracker = self.context.statusTracker()
        self.jobs.update(tracker.getJobIdsForGroup(self.group))
        found = []
        for job in self.jobs:
            info = tracker.getJobInfo(job)
            for number in info.stageIds if info is not None else ():
                if (stage := tracker.getStageInfo(number)) is not None:
                    if number not in self.barriers:
                        clusters = store.operationGraphForStage(number).rootCluster().getBarrierClusters()
                        self.barriers[number] = clusters.size() > 0
                    is_over = stage.numCompletedTasks == stage.numTasks
                    found.append(Stage(number, stage.numActiveTasks, over=is_over, barrier=self.barriers[number]))
        return found

    def shuffled_bytes(self) -> int | None:
        """Return what Spark has moved between tasks for this run, the closing shuffle aside; None if it has forgotten.

        Spark keeps a number of jobs and stages (``spark.ui.retainedJobs``, ``spark.ui.retainedStages``), of all users
        of the session together.
        """
        written: dict[int, int] = {}
        try:
            store: Any = self.context._jsc.sc().statusStore()
            tracker = self.context.statusTracker()
            for job in self.jobs.union(tracker.getJobIdsForGroup(self.group)):
                info = tracker.getJobInfo(job)
                if info is None:
                    return None
                for stage in info.stageIds:
                    written[stage] = max(written.get(stage, 0), int(store.lastStageAttempt(stage).shuffleWriteBytes()))
        except (Py4JError, OSError):
            return None
        moved = [written[stage] for stage in sorted(written) if written[stage]]
        return sum(moved[:-1]) if moved else None


def explained(error: BaseException) -> ClusterError:
    """What Spark said, without the pages around it."""
    lines = [line.strip().removeprefix(": ") for line in str(error).splitlines() if line.strip()]
    noise = ("at ", "File ", "Traceback", "An error occurred while calling")
    telling = [line for line in lines if not line.startswith(noise)]
    reason = next(
        (line for line in telling if "Job aborted" in line or "canceled" in line), telling[0] if telling else ""
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
