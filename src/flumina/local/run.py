"""``flumina.local.run``: a program on this machine's cores."""

from __future__ import annotations

import os
import pickle
import socket
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

from flumina.checkpoint.committer import Committer
from flumina.checkpoint.policy import Checkpoint
from flumina.engine.driver import Wishes, choose_plan, final_state, make_job, run_job
from flumina.engine.host import TaskAssignment
from flumina.engine.inputs import data_of, is_paced, timestamp_type
from flumina.engine.job import Job, Settings, TaskReport
from flumina.engine.progress import ProgressLine
from flumina.engine.results import OutputTables, RunResult, RunStats
from flumina.engine.transport.listener import Secret
from flumina.engine.transport.rendezvous import Rendezvous
from flumina.errors import TaskLostError
from flumina.input.dead_letters import ERROR
from flumina.input.stream import Stream
from flumina.input.stream_checks import check_streams
from flumina.local.pool import POOL, PoolProcess
from flumina.local.sampling import sampled
from flumina.output.outputs import Nowhere
from flumina.plan.optimize import Optimizer
from flumina.plan.rates import estimate
from flumina.plan.tree import Plan
from flumina.program import pickling
from flumina.program.base import AnyProgram, define

LOOPBACK = "127.0.0.1"

_LOOK_EVERY = 0.2
"""Seconds after which it is looked whether all processes are alive."""


def run(
    program: AnyProgram,
    streams: Sequence[Stream],
    *,
    workers: int | None = None,
    plan: Plan | str | Path | None = None,
    optimizer: str | Optimizer = "cost",
    out: str | Path | Nowhere | None = None,
    filesystem: Any = None,  # noqa: ANN401 -- a pyarrow file system
    overwrite: bool = False,
    order: bool = False,
    state: bool = False,
    tls: bool = False,
    progress: bool | None = None,
    checkpoint: Checkpoint | str | os.PathLike[str] | None = None,
    bad_rows: str = ERROR,
    task_timeout: float | None = None,
    settings: Settings | None = None,
) -> RunResult:
    """Run a program on this machine, in as many processes as its plan has places.

    ``workers``     how many workers may run side by side; by default as many as there are cores, or fewer
    ``plan``        a plan, or the path of one that was saved, instead of a new one made by ``optimizer``
    ``out``         a folder for the outputs, as Parquet; without it they are kept in memory, and with
                    ``fl.NOWHERE`` they are counted only
    ``overwrite``   replace what is in that folder, once the run has succeeded
    ``order``       give outputs in the order O of their events
    ``state``       also give the state after the last event
    ``progress``    False shows nothing
    ``checkpoint``  a folder for snapshots, or a :class:`flumina.Checkpoint` that also says when to take them: a run
                    that was interrupted goes on from the last one when it is called again, under any plan
    ``bad_rows``    what becomes of rows that do not fit their declaration: "error", or "dead-letter" to go on
                    without them; they are then ``dead_letters`` of the result, and in ``out`` in a folder of their own
    ``task_timeout``  seconds after which a process that gives no sign of life is ended, and the run with it; by default
                    there is only a warning, after 30 s. A long ``update`` does not count, unless one call in C holds
                    Python's lock
    """
    definition = define(program)
    check_streams(definition, streams)
    wishes = Wishes(
        workers,
        plan,
        optimizer,
        out,
        filesystem,
        overwrite,
        order,
        state,
        settings or Settings(),
        checkpoint=checkpoint,
        bad_rows=bad_rows,
        task_timeout=task_timeout,
    )
    sources = estimate(definition, streams)
    chosen = choose_plan(definition, sources, wishes, cores(), partial(sampled, program, streams, bad_rows))
    kept = wishes.continuation(program, streams)
    job = make_job(program, streams, chosen, timestamp_type(streams), wishes, paced=is_paced(streams), kept=kept)
    line = ProgressLine(definition.name, shown=progress)
    published, reports, snapshots = run_job(
        job, kept, lambda recorder: _execute(job, streams, line, recorder, tls=tls), state=state
    )
    stats = RunStats.of(reports, snapshots=snapshots)
    return RunResult.of(published, chosen, stats, final_state(job, kept, reports, wishes), OutputTables)


def cores() -> int:
    """How many processes can work at the same time."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _execute(
    job: Job, streams: Sequence[Stream], line: ProgressLine, recorder: Committer | None, *, tls: bool
) -> dict[int, TaskReport]:
    """Have processes of the pool do the tasks."""
    secret = Secret.make(tls=tls)
    tasks = job.layout.tasks
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
                records=recorder,
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
    """What the tasks report; a process that ends before it has come to the rendezvous is not waited for."""
    while True:
        try:
            return rendezvous.wait(_LOOK_EVERY)
        except TimeoutError:
            for number, worker in enumerate(processes):
                if worker.process.poll() is not None:
                    pid, here = worker.process.pid, socket.gethostname()
                    rendezvous.cancel(TaskLostError(number, pid=pid, host=here))
