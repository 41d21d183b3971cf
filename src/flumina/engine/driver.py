"""The driver's side of a run, whatever the engine: from a program and its streams to a job, and on to a result."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyarrow import fs

from flumina.checkpoint.committer import Committer
from flumina.checkpoint.policy import Checkpoint
from flumina.checkpoint.resume import ResumePoint
from flumina.checkpoint.start import Start
from flumina.checkpoint.state_partitions import FinalStatePolicy, PartitionedState, settled
from flumina.engine.job import Job, StreamDescription, TaskReport
from flumina.engine.message_codec import Codec
from flumina.engine.options import DISCARD, RunOptions
from flumina.engine.placement import place_workers
from flumina.errors import CheckpointError, UsageError
from flumina.input.dead_letters import makes_dead_letters
from flumina.input.files import Parquet
from flumina.input.stream import Stream
from flumina.input.stream_checks import check_streams
from flumina.model.tag_set import TagSet
from flumina.output.commit import CommittedOutput, commit_outputs
from flumina.output.outputs import Outputs
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
from flumina.runtime.messages import PartId
from flumina.storage.filesystem import join, resolve
from flumina.storage.output_directory import OutputDirectory


def resume(options: RunOptions, program: AnyProgram, streams: Sequence[Stream]) -> ResumePoint | None:
    """Find out what there is already of a run that keeps snapshots; None for a run that keeps none."""
    if options.checkpoint is None:
        return None
    checkpoint = Checkpoint.of(options.checkpoint)
    filesystem, inside = resolve(checkpoint.path, checkpoint.filesystem, "checkpoint")
    outputs = output_location(options, "unknown", durable=True)
    if outputs is not None and outputs.contains(filesystem, join(inside, "any file")):
        raise UsageError(
            "CHECKPOINT_OUT",
            f"the checkpoint {inside} lies in the folder for outputs, which holds nothing else",
            hint="choose a folder beside it",
        )
    definition = define(program)
    if checkpoint.syncs is not None and definition.synchronizing.is_empty():
        raise UsageError(
            "NO_SYNCS",
            f"syncs={checkpoint.syncs} is never reached: no tag of {definition.name} depends on another",
            hint="say after how many events= or seconds= a snapshot is taken",
        )
    resume_point = ResumePoint.of(checkpoint, program, streams, partial(output_location, options, durable=True))
    if options.return_state and resume_point.over and resume_point.final is None:
        raise CheckpointError(
            "CHECKPOINT_STATE",
            "this run is over, and did not keep its state: nobody asked for it then",
            file=resume_point.store.folder.path,
            hint="leave out return_state=True for the outputs, or begin anew with another checkpoint and "
            "return_state=True",
        )
    return resume_point


def output_location(options: RunOptions, run: str, *, durable: bool) -> OutputDirectory | None:
    """Return where the outputs of a run go; None if they do not go to files."""
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
    """The plan that was given, or a new one for so many slots.

    Where states of the new one are joined, ``sample`` tells how large they become, given how many different keys there
    are, and the plan is made again with that; None if that is not known.
    """
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
        if sample is None or not joined or options.optimizer == "greedy":  # greedy does not look at costs
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
) -> Job:
    """All that the tasks need; the place for the outputs is checked now rather than at the end.

    ``resume_point`` is what there is already of a run that keeps snapshots.
    """
    definition = define(program)
    check_streams(definition, streams)
    run = uuid.uuid4().hex[:12] if resume_point is None else resume_point.run
    location = output_location(options, run, durable=resume_point is not None)
    if location is not None:
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
        checked=resume_point is not None,
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
    placement = place_workers(plan, Router(plan, definition), given, tasks, led=resume_point is not None)
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
    outputs.prepare()  # last, so that nothing is left of a run that does not begin
    return replace(job, start=replace(job.start, state=state))


def check_is_no_input(location: OutputDirectory, stream: str, filesystem: fs.FileSystem, path: str) -> None:
    """Refuse to put results where a file is that the run reads."""
    if location.contains(filesystem, path):
        raise UsageError(
            "OUT_IS_INPUT",
            f"out= is {location.path}, where stream {stream!r} reads {path}",
            hint="choose another folder for the results",
        )


def run_job(
    job: Job,
    resume_point: ResumePoint | None,
    execute: Callable[[Committer | None], Mapping[int, TaskReport]],
    *,
    state: bool = False,
) -> tuple[dict[str, CommittedOutput], Mapping[int, TaskReport], int]:
    """Have the tasks do their work and make the outputs visible, all at once; also gives how many snapshots there were.

    What a run that fails has written is deleted, unless it can go on from its last snapshot. Whether its ``state`` is
    wanted, one that keeps snapshots remembers.
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
            definition = define(job.program)  # of the state that is packed: another one has other parts
            final = Codec(definition, job.names).pack(_final(job, reports, definition))
        return committer.finish(manifests, events, final), reports, committer.snapshots
    except BaseException:
        if committer is None:
            job.outputs.discard()
        raise


def final_state(
    job: Job, resume_point: ResumePoint | None, reports: Mapping[int, TaskReport], options: RunOptions
) -> Any:  # noqa: ANN401 -- whatever it is
    """The state after the last event, if it was asked for: the tasks have it, or a run that was over kept it."""
    if not options.return_state:
        return None
    if reports or resume_point is None:
        return _final(job, reports, define(job.program))
    return None if resume_point.final is None else Codec(define(job.program), job.names).unpack(resume_point.final)


def tree_sizes(job: Job, reports: Mapping[int, TaskReport]) -> PartitionedState:
    """The state that a run has left."""
    partitions = (report.final for _, report in sorted(reports.items()))
    return PartitionedState(
        Forest.of(job.plan.root), tuple(partition for partition in partitions if partition is not None)
    )


def _final(job: Job, reports: Mapping[int, TaskReport], definition: Definition) -> Any:  # noqa: ANN401 -- whatever the program's state is
    return tree_sizes(job, reports).whole(definition, Codec(definition, job.names))
