"""Run a gang of tasks as a Spark job that Spark retries as a whole."""

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
"""The issue that Spark names where a gang has more tasks than there are slots now."""

_RETRY_SECONDS = 0.5
"""Seconds until the job is submitted again after that."""


_POLL_SECONDS = 0.5
"""Seconds between two queries of Spark's status before the gang is complete."""


@dataclass(frozen=True)
class Stage:
    """Status of a stage in Spark: its running tasks, whether all have ended, and whether it is the gang's."""

    number: int
    active: int
    over: bool
    barrier: bool


@dataclass(frozen=True)
class Phase:
    """What an incomplete gang waits for; ``counts`` if the time limit for its tasks to register is running."""

    text: str
    counts: bool

    @staticmethod
    def of(stages: Sequence[Stage], tasks: int, slots: int, *, refused: bool = False) -> Phase:
        """Distinguish preparation of the input, missing slots, busy slots, and tasks that are starting.

        Spark starts all tasks of a gang at once, when there are free slots for all of them. Slots that other jobs use
        are waited for without limit, as for every Spark job; too few slots are an error once the time limit is over.
        So is a stage that Spark has ``refused`` to submit for want of slots, even if there are enough slots now.
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
    """Spark job of a run, in its own thread; a failure of the job ends the run at the rendezvous.

    Spark retries a barrier stage only if a shuffle follows it. Tasks report through the rendezvous, so that the shuffle
    has one row per task.
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
        """The known Spark jobs of this run."""
        self.barriers: dict[int, bool] = {}
        """Whether a stage is that of the gang."""
        self.refused = False
        """Whether Spark has refused the stage for want of slots; the time limit is running from then on."""
        self.over = threading.Event()
        """Set once the run does not wait for the job any more."""

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
        """Run the job; return False if it has to be submitted again.

        Spark fails at once if there are too few slots when it submits the stage, though it waits for an executor that
        is lost later. The rendezvous enforces the time limit for the gang.
        """
        try:
            self.tasks.repartition(1).collect()
        except (Py4JError, PySparkException) as error:
            if _NO_SLOTS not in str(error):
                raise
            self.refused = True
            if self.over.wait(_RETRY_SECONDS):
                raise
            return False
        return True

    def _watch(self) -> None:
        """Suspend the time limit while tasks can't start yet, and show what the run waits for."""
        while not self.over.wait(_POLL_SECONDS):
            try:
                stages = self._stages()
                if self.rendezvous.assembled:
                    continue
                phase = Phase.of(stages, self.count, self.cluster.slots(), refused=self.refused)
            except (Py4JError, OSError):
                continue  # the cluster is gone, which the job's own thread reports
            if not phase.counts:
                self.rendezvous.restart_deadline()
            self.line.wait(phase.text)

    def _stages(self) -> list[Stage]:
        """Return the status of the stages of this run."""
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
        """Return the bytes that Spark has shuffled for this run, without the last shuffle; None if not known.

        Spark retains a limited number of jobs and stages (``spark.ui.retainedJobs``, ``spark.ui.retainedStages``), of
        all users of the session together.
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
    """Return the cause of a Spark error as a ClusterError, without the stack traces around it."""
    lines = [line.strip().removeprefix(": ") for line in str(error).splitlines() if line.strip()]
    noise = ("at ", "File ", "Traceback", "An error occurred while calling")
    causes = [line for line in lines if not line.startswith(noise)]
    reason = next((line for line in causes if "Job aborted" in line or "canceled" in line), causes[0] if causes else "")
    last = next((line for line in reversed(causes) if "Error" in line and "Py4J" not in line), "")
    text = reason if last in reason else f"{reason}\n  {last}"
    hint = "see the executors' logs; Spark retries tasks on local[K,F] and on clusters, but not on local[K]"
    if "spark.driver.maxResultSize" in text:
        hint = "increase it; or, for a streaming query, limit the rows of a batch, for example with maxFilesPerTrigger"
    elif "BarrierJobUnsupportedRDDChain" in text:
        hint = "Spark can't start all tasks of a coalesced DataFrame at once: use repartition() instead of coalesce()"
    return ClusterError("SPARK", f"Spark gave up on the run: {text}", hint=hint)
