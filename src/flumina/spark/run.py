"""Run a program on a Spark cluster as one gang-scheduled stage: ``flumina.spark.run``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Unpack, cast

from py4j.protocol import Py4JError
from pyspark import Broadcast
from pyspark.sql import DataFrame, SparkSession

from flumina.checkpoint.resume import ResumePoint
from flumina.checkpoint.run_committer import RunCommitter
from flumina.engine.driver import (
    LostSlotsError,
    check_is_no_input,
    choose_plan,
    final_state,
    make_job,
    resume,
    run_job,
)
from flumina.engine.host import TaskAssignment
from flumina.engine.inputs import data_of, is_paced
from flumina.engine.job import Job, TaskReport
from flumina.engine.options import RunOptions, SparkRunArguments, SparkRunOptions, takes
from flumina.engine.progress import ProgressLine
from flumina.engine.results import RunResult, RunStats
from flumina.engine.transport.listener import Secret
from flumina.engine.transport.rendezvous import Rendezvous
from flumina.errors import FluminaError, GangError
from flumina.input.stream import Stream
from flumina.input.stream_checks import check_streams
from flumina.input.tie_checks import must_be_one_part
from flumina.plan.sources import StreamRates as PlannedSource
from flumina.plan.survey import Survey
from flumina.program import pickling
from flumina.program.base import AnyProgram, define
from flumina.program.definition import Definition
from flumina.runtime.messages import PartId
from flumina.spark.frames import Frame, combine_frames, in_place, needed, quoted
from flumina.spark.gang import Gang
from flumina.spark.results import DataFrames
from flumina.spark.session import Cluster
from flumina.spark.tasks import REPORT_DDL, Cargo, handed_out, kill_attempt, task
from flumina.storage.filesystem import resolve
from flumina.storage.output_directory import OutputDirectory

CLOSURE_BYTES = 256 << 10
"""The most bytes of a cargo in the function of the tasks; PySpark writes functions above 1 MiB to a file."""

SAMPLE_ROWS = 50_000
"""Rows of a DataFrame that are sampled to choose a plan."""


@takes(SparkRunOptions)
def run(
    program: AnyProgram,
    streams: Sequence[Stream],
    *,
    spark: SparkSession | None = None,
    **options: Unpack[SparkRunArguments],
) -> RunResult[DataFrame]:
    """Run a program once on a Spark cluster, with outputs as DataFrames.

    The data of a stream is a DataFrame, files that the tasks read themselves (:class:`flumina.Parquet`), a generator
    (:class:`flumina.GeneratorSource`), or data in memory.

    ``program``  a class, an instance of one, or a definition
    ``streams``  its input, in the order of their ranks
    ``spark``    the session; by default the active one
    ``options``  the fields of :class:`~flumina.engine.options.SparkRunOptions`
    """
    chosen = SparkRunOptions.of(options)
    cluster = Cluster.of(spark)
    cluster.check()
    tls = chosen.tls or cluster.encrypted
    cluster.check_listening(tls=tls)
    definition = define(program)
    check_streams(definition, streams)
    line = ProgressLine(definition.name, shown=chosen.progress)
    try:
        surveyed = _survey(definition, streams)
        while True:
            try:
                return _run_once(cluster, program, surveyed, chosen, line, tls=tls)
            except LostSlotsError as lost:
                if chosen.on_lost_slots == "fail" or not lost.slots:
                    raise lost.gang from None
                line.notice(f"{lost}: the run resumes with {lost.slots}, from its last snapshot and with a new plan")
                chosen = replace(chosen, workers=lost.slots)
    finally:
        line.close()


def _run_once(
    cluster: Cluster,
    program: AnyProgram,
    surveyed: _Surveyed,
    options: RunOptions,
    line: ProgressLine,
    *,
    tls: bool,
) -> RunResult[DataFrame]:
    """Run a program with a plan for the available slots, from its last snapshot if it has a checkpoint."""
    definition = define(program)
    resume_point = resume(options, program, surveyed.streams)
    staged = _stage(cluster, program, definition, surveyed, options, resume_point)
    cluster.require(staged.job.placement.tasks)
    shuffled: int | None = None

    def executed(committer: RunCommitter | None) -> dict[int, TaskReport]:
        nonlocal shuffled
        reports, shuffled = execute(cluster, staged, line, committer, tls=tls)
        return reports

    committed, reports, snapshots = run_job(staged.job, resume_point, executed, state=options.return_state)
    stats = RunStats.of(reports, shuffled, snapshots)
    final = final_state(staged.job, resume_point, reports, options)
    return RunResult.of(committed, staged.job.plan, stats, final, partial(DataFrames, cluster.spark))


@dataclass(frozen=True)
class Staged:
    """A job, and the DataFrame that Spark delivers to its tasks, if any."""

    job: Job
    streams: Sequence[Stream]
    input: DataFrame | None
    frame: Frame | None


@dataclass(frozen=True)
class _Surveyed:
    """Streams with their survey; of DataFrames with rows, the columns that are read, by stream."""

    streams: Sequence[Stream]
    columns: Mapping[str, Sequence[str]]
    survey: Survey


def _survey(definition: Definition, streams: Sequence[Stream]) -> _Surveyed:
    """Survey the streams once: Spark executes each DataFrame for a sample, all other data is opened here."""
    columns = {s.name: needed(s, s.data) for s in streams if isinstance(s.data, DataFrame)}
    known = [_sampled(s, columns[s.name]) if s.name in columns else s for s in streams]
    # Spark skips stages without input rows, and the gang with them.
    given = [
        sample if stream.name in columns and not sample.data.num_rows else stream
        for stream, sample in zip(streams, known, strict=True)
    ]
    survey = Survey.of(definition, known)
    inputs = [
        stream if isinstance(stream.data, DataFrame) else converted
        for stream, converted in zip(given, survey.inputs, strict=True)
    ]
    return _Surveyed(inputs, columns, survey)


def _stage(
    cluster: Cluster,
    program: AnyProgram,
    definition: Definition,
    surveyed: _Surveyed,
    options: RunOptions,
    resume_point: ResumePoint | None,
) -> Staged:
    """Choose a plan, and whether DataFrames are read in place or shuffled."""
    streams, columns, survey = surveyed.streams, surveyed.columns, surveyed.survey
    frames = [stream for stream in streams if isinstance(stream.data, DataFrame)]
    slots = cluster.slots()
    if not frames:
        plan = choose_plan(definition, survey.rates(), options, slots)
        job = make_job(
            program, streams, plan, survey.ts_type, options, paced=is_paced(streams), resume_point=resume_point
        )
        return Staged(job, streams, None, None)
    direct = _sits_in_place(definition, frames, slots)
    tasks = frames[0].data.rdd.getNumPartitions() if direct else options.workers or slots
    if direct:
        only = frames[0]
        frame_rows = in_place(only, only.data, columns[only.name])
        frame = Frame({only.name: {}}, mixed=False, parts={only.name: tuple(range(tasks))})
    else:
        single = [must_be_one_part(definition, stream) for stream in frames]
        frame_rows, frame = combine_frames(
            frames, [stream.data for stream in frames], [columns[stream.name] for stream in frames], single, tasks
        )
    _check_out(frames, options)
    sources = [_spread(source, frame) for source in survey.rates()]
    plan = choose_plan(definition, sources, options, tasks)
    given: dict[PartId, int] = {
        (name, part): home for name, homes in frame.parts.items() for part, home in enumerate(homes)
    }
    described = [replace(s, sorted=True) if s in frames else s for s in streams]
    job = make_job(
        program, described, plan, survey.ts_type, options, given=given, tasks=tasks, resume_point=resume_point
    )
    return Staged(job, described, frame_rows, frame)


def _check_out(frames: Sequence[Stream], options: RunOptions) -> None:
    """Raise if the run would overwrite its own input, as far as Spark knows the files that it reads."""
    if not options.overwrite or not isinstance(options.out, str | os.PathLike):
        return
    location = OutputDirectory.of(options.out, "", filesystem=options.filesystem)
    for stream in frames:
        for file in stream.data.inputFiles():
            try:
                place = resolve(file)
            except FluminaError:
                continue  # a scheme that only Spark knows
            check_is_no_input(location, stream.name, *place)


def _sits_in_place(definition: Definition, frames: Sequence[Stream], slots: int) -> bool:
    """Return whether the gang can read the partitions in place; in one part, rows of several files have no order."""
    only = frames[0]
    if len(frames) > 1 or not 1 <= only.data.rdd.getNumPartitions() <= slots:
        return False
    return not must_be_one_part(definition, only) or len(only.data.inputFiles()) <= 1


def _sampled(stream: Stream, columns: Sequence[str]) -> Stream:
    """Return the stream with a sample of its DataFrame, to estimate rates from."""
    rows = stream.data.select(*map(quoted, columns)).limit(SAMPLE_ROWS).toArrow()
    return replace(stream, data=rows, sorted=False)


def _spread(source: PlannedSource, frame: Frame) -> PlannedSource:
    """Return the rates of a sampled DataFrame, divided among the parts in which Spark delivers it."""
    homes = frame.parts.get(source.name)
    if homes is None:
        return source
    assert isinstance(source.tags, Mapping), "an estimate has rates"
    rates = {tag: sum(rate) if isinstance(rate, list) else rate for tag, rate in source.tags.items()}
    return replace(source, tags=rates, parts=len(homes), hosts=[f"task{home}" for home in homes])


def execute(
    cluster: Cluster,
    staged: Staged,
    line: ProgressLine,
    committer: RunCommitter | None = None,
    *,
    tls: bool,
    measured: bool = True,
) -> tuple[dict[int, TaskReport], int | None]:
    """Have Spark run the gang, and return the reports of its tasks and, if ``measured``, the shuffled bytes.

    Raises LostSlotsError if the gang is incomplete because the cluster has too few slots.
    """
    job = staged.job
    tasks, patience = job.placement.tasks, job.settings.patience
    secret = Secret.make(tls=tls)
    read = [stream for stream in staged.streams if not isinstance(stream.data, DataFrame)]
    packed = tuple(pickling.dumps(data_of(job, read, number)) for number in range(tasks))
    cargo = Cargo(pickling.dumps(job), packed if staged.frame else None)
    with (
        _shipped(cluster, cargo) as shipped,
        Rendezvous(
            tasks,
            secret,
            cluster.listens_at,
            assemble_within=patience,
            on_progress=line.update,
            committer=committer,
            liveness=job.liveness,
            on_silent=partial(kill_attempt, cluster.spark),
        ) as rendezvous,
    ):
        address = (cluster.reached_at, rendezvous.address[1])
        assignment = TaskAssignment(b"", address, secret, "", patience, job.liveness.interval)
        start = staged.input
        if start is None:
            start = handed_out(cluster.spark, packed)
        rows = job.settings.chunk_rows
        function = task(assignment, shipped, staged.frame, rows=rows, local=cluster.local)
        barrier = start.mapInArrow(function, REPORT_DDL, barrier=True)
        gang = Gang(cluster, barrier, line, rendezvous, tasks)
        try:
            with gang:
                reports = cast("dict[int, TaskReport]", rendezvous.wait())
        except GangError as error:
            if (slots := cluster.slots()) < tasks:
                raise LostSlotsError(error, tasks, slots) from error
            raise
        return reports, gang.shuffled_bytes() if measured else None


@contextmanager
def _shipped(cluster: Cluster, cargo: Cargo) -> Iterator[Cargo | Broadcast[Cargo]]:
    """Broadcast a large cargo, so that the function with the run's key stays small.

    PySpark broadcasts large functions, and writes broadcasts to a file.
    """
    if cargo.size <= CLOSURE_BYTES:
        yield cargo
        return
    broadcast = cluster.spark.sparkContext.broadcast(cargo)
    try:
        yield broadcast
    finally:
        with suppress(Py4JError, OSError):  # the cluster is gone, and the broadcast with it
            broadcast.destroy()
