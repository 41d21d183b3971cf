"""The driver's side of a run, whatever the engine: from a program and its streams to a job, and on to a result."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs

from flumina.checkpoint.committer import Committer
from flumina.checkpoint.policy import Checkpoint
from flumina.checkpoint.resume import ResumePoint
from flumina.checkpoint.state_partitions import FinalStatePolicy, PartitionedState, settled
from flumina.engine.job import Job, Settings, Start, StreamDescription, TaskReport
from flumina.engine.liveness import Liveness, check_timeout
from flumina.engine.message_codec import Codec
from flumina.engine.placement import place_workers
from flumina.errors import CheckpointError, UsageError
from flumina.input.dead_letters import ERROR, makes_dead_letters
from flumina.input.files import Parquet
from flumina.input.stream import Stream
from flumina.input.stream_checks import check_streams
from flumina.model.tag_set import TagSet
from flumina.output.commit import CommittedOutput, commit_outputs
from flumina.output.outputs import NOWHERE, Nowhere, Outputs
from flumina.plan.forest import Forest
from flumina.plan.optimize import Optimizer, check_workers, make_plan
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
from flumina.storage.output_directory import Location


@dataclass(frozen=True)
class Wishes:
    """What the user wants of a run besides the program and its streams."""

    workers: int | None = None
    plan: Plan | str | Path | None = None
    optimizer: str | Optimizer = "cost"
    out: str | Path | Nowhere | None = None
    filesystem: Any = None
    overwrite: bool = False
    order: bool = False
    state: bool = False
    settings: Settings = field(default_factory=Settings)
    start: Start = field(default_factory=Start)
    checkpoint: Checkpoint | str | os.PathLike[str] | None = None
    bad_rows: str = ERROR
    task_timeout: float | None = None

    def __post_init__(self) -> None:
        """Refuse a timeout that is no time."""
        check_timeout(self.task_timeout)

    @property
    def liveness(self) -> Liveness:
        """Return how often tasks give signs of life, and how long the driver does without."""
        interval, timeout = self.settings.liveness_interval, check_timeout(self.task_timeout)
        often = interval if timeout is None else min(interval, timeout / 3)
        return Liveness(often, self.settings.warn_after, timeout)

    def continuation(self, program: AnyProgram, streams: Sequence[Stream]) -> ResumePoint | None:
        """What there is already of the run, if it is to keep snapshots."""
        if self.checkpoint is None:
            return None
        if self.out is None:
            raise UsageError(
                "CHECKPOINT_OUT",
                "checkpoint= needs out=: outputs up to a snapshot have to lie somewhere until the run goes on",
                hint="pass out=PATH, a folder that all tasks and the driver can reach",
            )
        checkpoint = Checkpoint.of(self.checkpoint)
        filesystem, inside = resolve(checkpoint.path, checkpoint.filesystem, "checkpoint")
        outputs = self.location("unknown", lasting=True)
        if outputs is not None and outputs.holds(filesystem, join(inside, "any file")):
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
        kept = ResumePoint.of(checkpoint, program, streams, partial(self.location, lasting=True))
        if self.state and kept.over and kept.final is None:
            raise CheckpointError(
                "CHECKPOINT_STATE",
                "this run is over, and did not keep its state: nobody asked for it then",
                file=kept.store.folder.path,
                hint="leave out state=True for the outputs, or begin anew with another checkpoint and state=True",
            )
        return kept

    def location(self, run: str, *, lasting: bool) -> Location | None:
        """Where the outputs of a run go, if they go to files."""
        if self.out is None or self.out is NOWHERE:
            return None
        if not isinstance(self.out, str | os.PathLike):
            raise UsageError("OUT", f"out= is the path of a folder, got {self.out!r}")
        place = os.fspath(self.out)
        return Location.of(place, run, filesystem=self.filesystem, overwrite=self.overwrite, lasting=lasting)


def choose_plan(
    definition: Definition,
    sources: Sequence[PlannedSource],
    wishes: Wishes,
    slots: int,
    sample: Callable[[float], StateSize | None] | None = None,
) -> Plan:
    """The plan that was given, or a new one for so many slots.

    Where states of the new one are joined, ``sample`` tells how large they become, given how many different keys there
    are, and the plan is made again with that; None if that is not known.
    """
    if wishes.plan is None:
        made = partial(
            make_plan,
            definition,
            sources,
            workers=wishes.workers,
            slots=slots if wishes.workers is None else None,
            optimizer=wishes.optimizer,
        )
        plan = made()
        joined = any(worker.children and worker.itags for worker in plan.workers)
        if sample is None or not joined or wishes.optimizer == "greedy":  # greedy does not look at costs
            return plan
        states = sample(bind(definition, sources).distinct)
        return plan if states is None else made(states=states)
    check_workers(wishes.workers, wishes.plan)
    if not isinstance(wishes.plan, Plan | str | os.PathLike):
        raise UsageError("PLAN", f"plan= is a plan or the path of a saved one, got {wishes.plan!r}")
    plan = wishes.plan if isinstance(wishes.plan, Plan) else Plan.load(wishes.plan)
    check_valid(plan, definition, bind(definition, sources).shapes)
    return plan


def make_job(
    program: AnyProgram,
    streams: Sequence[Stream],
    plan: Plan,
    ts_type: pa.DataType,
    wishes: Wishes,
    *,
    given: Mapping[PartId, int] | None = None,
    tasks: int = 0,
    paced: bool = False,
    kept: ResumePoint | None = None,
) -> Job:
    """All that the tasks need; the place for the outputs is checked now rather than at the end.

    ``kept`` is what there is already of a run that keeps snapshots.
    """
    definition = define(program)
    check_streams(definition, streams)
    run = uuid.uuid4().hex[:12] if kept is None else kept.run
    location = wishes.location(run, lasting=kept is not None)
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
        wishes.order,
        kept=wishes.out is not NOWHERE,
        checked=kept is not None,
        aside=makes_dead_letters(wishes.bad_rows),
    )
    sequenced = frozenset(stream.name for stream in streams if stream.seq is not None)
    options = replace(
        wishes.settings.options,
        final=wishes.state or kept is not None,
        sequenced=sequenced,
        counted=definition.synchronizing if kept is not None and kept.given.policy.counts_syncs else TagSet(),
    )
    settings = replace(wishes.settings, options=options)
    layout = place_workers(plan, Router(plan, definition), given, tasks, led=kept is not None)
    job = Job(
        program,
        plan,
        tuple(map(StreamDescription.of, streams)),
        outputs,
        layout,
        settings,
        paced,
        wishes.start,
        ending=FinalStatePolicy() if wishes.state else None,
        liveness=wishes.liveness,
    )
    if kept is not None:
        job = kept.job(job)
        if kept.over:
            return job
    state = settled(job.start.state, plan, definition, Codec(definition, names))
    outputs.prepare()  # last, so that nothing is left of a run that does not begin
    return replace(job, start=replace(job.start, state=state))


def check_is_no_input(location: Location, stream: str, filesystem: fs.FileSystem, path: str) -> None:
    """Refuse to put results where a file is that the run reads."""
    if location.holds(filesystem, path):
        raise UsageError(
            "OUT_IS_INPUT",
            f"out= is {location.path}, where stream {stream!r} reads {path}",
            hint="choose another folder for the results",
        )


def run_job(
    job: Job,
    kept: ResumePoint | None,
    execute: Callable[[Committer | None], Mapping[int, TaskReport]],
    *,
    state: bool = False,
) -> tuple[dict[str, CommittedOutput], Mapping[int, TaskReport], int]:
    """Have the tasks do their work and make the outputs visible, all at once; also gives how many snapshots there were.

    What a run that fails has written is deleted, unless it can go on from its last snapshot. Whether its ``state`` is
    wanted, one that keeps snapshots remembers.
    """
    if kept is not None and kept.over:
        return kept.results(job.outputs), {}, 0
    recorder = None if kept is None else kept.recorder(job)
    try:
        reports = execute(recorder)
        manifests = [report.manifest for _, report in sorted(reports.items())]
        if recorder is None:
            return commit_outputs(job.outputs, manifests), reports, 0
        events = sum(stats.events for report in reports.values() for stats in report.stats.workers.values())
        final = None
        if state:
            definition = define(job.program)  # of the state that is packed: another one has other parts
            final = Codec(definition, job.names).pack(_final(job, reports, definition))
        return recorder.publish(manifests, events, final), reports, recorder.snapshots
    except BaseException:
        if recorder is None:
            job.outputs.discard()
        raise


def final_state(job: Job, kept: ResumePoint | None, reports: Mapping[int, TaskReport], wishes: Wishes) -> Any:  # noqa: ANN401 -- whatever it is
    """The state after the last event, if it was asked for: the tasks have it, or a run that was over kept it."""
    if not wishes.state:
        return None
    if reports or kept is None:
        return _final(job, reports, define(job.program))
    return None if kept.final is None else Codec(define(job.program), job.names).unpack(kept.final)


def shares(job: Job, reports: Mapping[int, TaskReport]) -> PartitionedState:
    """The state that a run has left."""
    bundles = (report.final for _, report in sorted(reports.items()))
    return PartitionedState(Forest.of(job.plan.root), tuple(bundle for bundle in bundles if bundle is not None))


def _final(job: Job, reports: Mapping[int, TaskReport], definition: Definition) -> Any:  # noqa: ANN401 -- whatever the program's state is
    return shares(job, reports).whole(definition, Codec(definition, job.names))
