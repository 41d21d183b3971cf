"""Run a program in processes of this machine."""

from __future__ import annotations

import os
import pickle
import socket
from collections.abc import Sequence
from functools import partial
from typing import Unpack, cast

import pyarrow as pa

from flumina.checkpoint.run_committer import RunCommitter
from flumina.engine.driver import choose_plan, final_state, make_job, resume, run_job
from flumina.engine.host import TaskAssignment
from flumina.engine.inputs import data_of, is_paced
from flumina.engine.job import Job, TaskReport
from flumina.engine.options import RunArguments, RunOptions, takes
from flumina.engine.progress import ProgressLine
from flumina.engine.results import OutputTables, RunResult, RunStats
from flumina.engine.transport.listener import Secret
from flumina.engine.transport.rendezvous import Rendezvous
from flumina.errors import TaskLostError
from flumina.input.stream import Stream
from flumina.input.stream_checks import check_streams
from flumina.local.pool import POOL, PoolProcess
from flumina.local.state_size_sampling import sampled
from flumina.plan.survey import Survey
from flumina.program import pickling
from flumina.program.base import AnyProgram, define

LOOPBACK = "127.0.0.1"

_LOOK_EVERY = 0.2
"""Seconds between two checks that all processes are alive."""


@takes(RunOptions)
def run(program: AnyProgram, streams: Sequence[Stream], **options: Unpack[RunArguments]) -> RunResult[pa.Table]:
    """Run a program in processes of this machine, one for each place of its plan, with Arrow tables as outputs.

    ``program``  a class, an instance of one, or a definition
    ``streams``  its input, in the order of their ranks
    ``options``  the fields of :class:`~flumina.engine.options.RunOptions`
    """
    chosen = RunOptions.of(options)
    definition = define(program)
    check_streams(definition, streams)
    survey = Survey.of(definition, streams)
    plan = choose_plan(definition, survey.rates(), chosen, cores(), partial(sampled, program, survey, chosen.bad_rows))
    resume_point = resume(chosen, program, streams)
    job = make_job(program, streams, plan, survey.ts_type, chosen, paced=is_paced(streams), resume_point=resume_point)
    line = ProgressLine(definition.name, shown=chosen.progress)
    committed, reports, snapshots = run_job(
        job,
        resume_point,
        lambda committer: _execute(job, survey.inputs, line, committer, tls=chosen.tls),
        state=chosen.return_state,
    )
    stats = RunStats.of(reports, snapshots=snapshots)
    return RunResult.of(committed, plan, stats, final_state(job, resume_point, reports, chosen), OutputTables)


def cores() -> int:
    """Return the number of processes that can run at the same time."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _execute(
    job: Job, streams: Sequence[Stream], line: ProgressLine, committer: RunCommitter | None, *, tls: bool
) -> dict[int, TaskReport]:
    """Run the tasks in processes of the pool, and return their reports."""
    secret = Secret.make(tls=tls)
    tasks = job.placement.tasks
    patience = job.settings.patience
    try:
        with (
            POOL.borrow(tasks) as processes,
            Rendezvous(
                tasks,
                secret,
                LOOPBACK,
                assemble_within=patience,
                on_progress=line.update,
                committer=committer,
                retry=False,
                liveness=job.liveness,
            ) as rendezvous,
        ):
            assignment = TaskAssignment(
                pickling.dumps(job), rendezvous.address, secret, LOOPBACK, patience, job.liveness.interval
            )
            for number, process in enumerate(processes):
                packed = pickling.dumps(data_of(job, streams, number))
                process.give(pickle.dumps((assignment, number, "local", packed), protocol=5))
            return cast("dict[int, TaskReport]", _watched(rendezvous, processes))
    finally:
        line.close()


def _watched(rendezvous: Rendezvous, processes: Sequence[PoolProcess]) -> dict[int, object]:
    """Wait for the reports of the tasks; cancel the run if a process ends before it has reached the rendezvous."""
    while True:
        try:
            return rendezvous.wait(_LOOK_EVERY)
        except TimeoutError:
            for number, worker in enumerate(processes):
                if worker.process.poll() is not None:
                    pid, here = worker.process.pid, socket.gethostname()
                    rendezvous.cancel(TaskLostError(number, pid=pid, host=here))
