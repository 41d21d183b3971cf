"""Run a micro-batch as one gang-scheduled stage, whose tasks stage its outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import SparkSession

from flumina.checkpoint.resume_point import Start
from flumina.checkpoint.state_partitions import FinalStatePolicy, PartitionedState
from flumina.engine.driver import LostSlotsError, make_job, partitioned_state
from flumina.engine.hooks import NO_HOOKS
from flumina.engine.options import RunOptions
from flumina.engine.progress import ProgressLine
from flumina.engine.results import RunStats
from flumina.errors import GangError
from flumina.input.stream import Stream
from flumina.plan.tree import Plan
from flumina.program.base import AnyProgram
from flumina.spark.run import Staged, execute
from flumina.spark.session import Cluster
from flumina.storage.output_directory import OutputDirectory
from flumina.streaming.batch_engine import BatchRun
from flumina.streaming.options import StreamingOptions


@dataclass
class SparkEngine:
    """Runs each batch in ``spark``, the session that Spark passes with it."""

    program: AnyProgram
    name: str
    ts_type: pa.DataType
    options: StreamingOptions
    spark: SparkSession
    ordered: bool = False

    def slots(self) -> int:
        """Return the number of tasks that can run at the same time now."""
        return max(1, Cluster(self.spark).slots())  # while executors come back, a run waits for them

    def run(
        self,
        batch: int,
        streams: Sequence[Stream],
        plan: Plan,
        state: PartitionedState | None,
        final_state_policy: FinalStatePolicy,
        location: OutputDirectory,
    ) -> BatchRun:
        """Run the plan from a state, and stage its outputs in ``location``.

        ``final_state_policy`` says where tasks write their final states.
        """
        cluster = Cluster.of(self.spark)
        options = RunOptions(
            ordered=self.ordered,
            return_state=True,
            engine_options=replace(self.options.engine_options, hooks=NO_HOOKS),
            task_timeout=self.options.task_timeout,
        )
        job = make_job(self.program, streams, plan, self.ts_type, options, start=Start(state), location=location)
        job = replace(
            job, final_state_policy=replace(final_state_policy, most=final_state_policy.most // job.placement.tasks)
        )
        tasks, patience = job.placement.tasks, job.settings.patience
        if (slots := cluster.wait_for_slots(tasks, patience)) < tasks:
            raise LostSlotsError(_too_few(tasks, slots, patience), tasks, slots)
        line = ProgressLine(f"{self.name}, batch {batch}", shown=False)
        tls = self.options.tls or cluster.encrypted
        reports, _ = execute(cluster, Staged(job, streams, None, None), line, None, tls=tls, measured=False)
        manifests = [report.manifest for _, report in sorted(reports.items())]
        return BatchRun(partitioned_state(job, reports), job.outputs, manifests, RunStats.of(reports))


def _too_few(tasks: int, slots: int, patience: float) -> GangError:
    return GangError(
        f"expected {tasks} slots for the tasks of the batch, got {slots} after {patience:.0f} s",
        hint="start the query again when its executors are back, pass on_lost_slots='shrink', or a larger patience= in "
        "EngineOptions",
    )
