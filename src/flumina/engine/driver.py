"""Prepare, run and commit a job in the driver, for every backend."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyarrow import fs

from flumina.checkpoint.policy import Checkpoint
from flumina.checkpoint.resume import ResumePoint
from flumina.checkpoint.resume_point import Start
from flumina.checkpoint.run_committer import RunCommitter
from flumina.checkpoint.state_partitions import FinalStatePolicy, PartitionedState, settled
from flumina.engine.job import Job, StreamDescription, TaskReport
from flumina.engine.message_codec import Codec
from flumina.engine.options import DISCARD, RunOptions
from flumina.engine.placement import place_workers
from flumina.errors import CheckpointError, GangError, UsageError
from flumina.input.dead_letters import makes_dead_letters
from flumina.input.files import Parquet
from flumina.input.stream import Stream
from flumina.input.stream_checks import check_streams
from flumina.model.tag_set import TagSet
from flumina.output.commit import CommittedOutput, commit_outputs
from flumina.output.staged_outputs import Outputs
from flumina.plan.forest import Forest
from flumina.plan.optimize import make_plan
from flumina.plan.routing import Router
from flumina.plan.sources import StreamRates as PlannedSource
from flumina.plan.sources import bind
from flumina.plan.state_sizes import StateSize
from flumina.plan.tree import Plan
from flumina.plan.validity import check_valid
from flumina.program.base import AnyProgram, define
from flumina.program.definition import Definition
from flumina.runtime.build import refuse_ticks
from flumina.runtime.messages import PartId
from flumina.storage.filesystem import join, resolve
from flumina.storage.output_directory import OutputDirectory


class LostSlotsError(Exception):
    """A gang could not start again, since there are fewer slots than it has tasks."""

    def __init__(self, gang: GangError, tasks: int, slots: int) -> None:
        super().__init__(tasks, slots)
        self.gang, self.tasks, self.slots = gang, tasks, slots

    def __str__(self) -> str:
        """Return the sentence for progress and logs, which the caller continues."""
        return f"{self.tasks - self.slots} of {self.tasks} slots were lost"


def resume(options: RunOptions, program: AnyProgram, streams: Sequence[Stream]) -> ResumePoint | None:
    """Take over the checkpoint of a run, and return its resume point; None for a run without checkpoint."""
    if options.checkpoint is None:
        return None
    checkpoint = Checkpoint.of(options.checkpoint)
    filesystem, inside = resolve(checkpoint.path, checkpoint.filesystem, "checkpoint")
    outputs = output_location(options, "unknown", durable=True)
    if outputs is not None and outputs.contains(filesystem, join(inside, "any file")):
        raise UsageError(
            "CHECKPOINT_OUT",
            f"expected a checkpoint outside of the output directory, got {inside}",
            hint="choose a folder beside the output directory",
        )
    definition = define(program)
    if checkpoint.syncs is not None and definition.synchronizing.is_empty():
        raise UsageError(
            "NO_SYNCS",
            f"syncs={checkpoint.syncs} is never reached: no tag of {definition.name} depends on another",
            hint="pass events= or seconds= instead of syncs=",
        )
    resume_point = ResumePoint.of(checkpoint, program, streams, partial(output_location, options, durable=True))
    if options.return_state and resume_point.over and resume_point.final is None:
        raise CheckpointError(
            "CHECKPOINT_STATE",
            "this run is over, and its final state was not stored: it ran without return_state=True",
            file=resume_point.store.folder.path,
            hint="leave out return_state=True for the outputs, or begin anew with another checkpoint and "
            "return_state=True",
        )
    return resume_point


def output_location(options: RunOptions, run: str, *, durable: bool) -> OutputDirectory | None:
    """Return the output directory of a run; None if outputs are not written to files."""
    if options.out is None or options.out is DISCARD:
        return None
    place = os.fspath(options.out)
    return OutputDirectory.of(place, run, filesystem=options.filesystem, overwrite=options.overwrite, durable=durable)


def choose_plan(
    definition: Definition,
    sources: Sequence[PlannedSource],
    options: RunOptions,
    slots: int,
    sample: Callable[[float], StateSize | None] | None = None,
) -> Plan:
    """Return the plan of the options, or a new one for so many slots.

    ``sample`` returns the size of states for a number of different keys; None if it is not known. It is called if the
    new plan joins states, and the plan is made again with the result.
    """
    refuse_ticks(definition)
    if options.plan is None:
        made = partial(
            make_plan,
            definition,
            sources,
            workers=options.workers,
            slots=slots if options.workers is None else None,
            optimizer=options.optimizer,
        )
        plan = made()
        joined = any(worker.children and worker.itags for worker in plan.workers)
        if sample is None or not joined or options.optimizer == "greedy":  # greedy does not use costs
            return plan
        states = sample(bind(definition, sources).distinct)
        return plan if states is None else made(states=states)
    plan = options.plan if isinstance(options.plan, Plan) else Plan.load(options.plan)
    check_valid(plan, definition, bind(definition, sources).shapes)
    return plan


def make_job(
    program: AnyProgram,
    streams: Sequence[Stream],
    plan: Plan,
    ts_type: pa.DataType,
    options: RunOptions,
    *,
    start: Start | None = None,
    given: Mapping[PartId, int] | None = None,
    tasks: int = 0,
    paced: bool = False,
    resume_point: ResumePoint | None = None,
    location: OutputDirectory | None = None,
) -> Job:
    """Make the job for the tasks of a run, and prepare its output directory.

    ``resume_point`` is given for a run with a checkpoint: its snapshot replaces ``start``. ``location`` is given for a
    micro-batch: the caller has made it, and commits what tasks stage there.
    """
    definition = define(program)
    check_streams(definition, streams)
    run = uuid.uuid4().hex[:12] if resume_point is None else resume_point.run
    is_batch = location is not None
    if location is None:
        location = output_location(options, run, durable=resume_point is not None)
    if location is not None:
        run = location.run
        for stream in streams:
            for file in stream.data.files if isinstance(stream.data, Parquet) else ():
                check_is_no_input(location, stream.name, file.system, file.path)
    names = tuple(stream.name for stream in streams)
    outputs = Outputs(
        definition.outputs,
        ts_type,
        names,
        run,
        location,
        options.ordered,
        kept=options.out is not DISCARD,
        checked=resume_point is not None or is_batch,
        aside=makes_dead_letters(options.bad_rows),
    )
    sequenced = frozenset(stream.name for stream in streams if stream.seq is not None)
    protocol = replace(
        options.engine_options.protocol,
        final=options.return_state or resume_point is not None,
        sequenced=sequenced,
        counted=definition.synchronizing
        if resume_point is not None and resume_point.given.policy.counts_syncs
        else TagSet(),
    )
    settings = replace(options.engine_options, protocol=protocol)
    placement = place_workers(plan, Router(plan, definition), given, tasks, coordinated=resume_point is not None)
    job = Job(
        program,
        plan,
        tuple(map(StreamDescription.of, streams)),
        outputs,
        placement,
        settings,
        paced,
        start or Start(),
        final_state_policy=FinalStatePolicy() if options.return_state else None,
        liveness=options.liveness,
    )
    if resume_point is not None:
        resumed = resume_point.resume(location)
        if resumed is None:
            return job
        start, snapshots = resumed
        job = replace(job, start=start, snapshots=snapshots)
    state = settled(job.start.state, plan, definition, Codec(definition, names))
    if not is_batch:
        outputs.prepare()  # last, so that a run that does not begin leaves no files
    return replace(job, start=replace(job.start, state=state))


def check_is_no_input(location: OutputDirectory, stream: str, filesystem: fs.FileSystem, path: str) -> None:
    """Raise if an input file is in the output directory."""
    if location.contains(filesystem, path):
        raise UsageError(
            "OUT_IS_INPUT",
            f"out={location.path} contains an input file of stream {stream!r}: {path}",
            hint="choose another folder for the results",
        )


def run_job(
    job: Job,
    resume_point: ResumePoint | None,
    execute: Callable[[RunCommitter | None], Mapping[int, TaskReport]],
    *,
    state: bool = False,
) -> tuple[dict[str, CommittedOutput], Mapping[int, TaskReport], int]:
    """Run the tasks and commit the outputs; return them with the reports and the number of snapshots.

    If the run fails, its staged files are deleted, unless it can be resumed from its last snapshot. With ``state``, a
    run with a checkpoint stores its final state.
    """
    if resume_point is not None and resume_point.over:
        return resume_point.results(job.outputs), {}, 0
    committer = (
        None if resume_point is None else resume_point.committer(job.outputs, job.plan, job.placement.tasks, job.start)
    )
    try:
        reports = execute(committer)
        manifests = [report.manifest for _, report in sorted(reports.items())]
        if committer is None:
            return commit_outputs(job.outputs, manifests), reports, 0
        events = sum(stats.events for report in reports.values() for stats in report.stats.workers.values())
        final = None
        if state:
            definition = define(job.program)  # the same for state and codec: another one has other parts
            final = Codec(definition, job.names).pack(_final(job, reports, definition))
        return committer.finish(manifests, events, final), reports, committer.snapshots
    except BaseException:
        if committer is None:
            job.outputs.discard()
        raise


def final_state(
    job: Job, resume_point: ResumePoint | None, reports: Mapping[int, TaskReport], options: RunOptions
) -> Any:  # noqa: ANN401 -- whatever the program's state is
    """Return the state after the last event, from the tasks or the checkpoint; None without ``return_state``."""
    if not options.return_state:
        return None
    if reports or resume_point is None:
        return _final(job, reports, define(job.program))
    return None if resume_point.final is None else Codec(define(job.program), job.names).unpack(resume_point.final)


def partitioned_state(job: Job, reports: Mapping[int, TaskReport]) -> PartitionedState:
    """Return the final state of a run, in the partitions that its tasks have reported."""
    partitions = (report.final for _, report in sorted(reports.items()))
    return PartitionedState(
        Forest.of(job.plan.root), tuple(partition for partition in partitions if partition is not None)
    )


def _final(job: Job, reports: Mapping[int, TaskReport], definition: Definition) -> Any:  # noqa: ANN401 -- whatever the program's state is
    return partitioned_state(job, reports).whole(definition, Codec(definition, job.names))
