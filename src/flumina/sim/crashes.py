"""Crashes: the whole plan is lost, and the run goes on from the last snapshot, under the same plan or another.

Outputs of events up to the snapshot count; the events after it are read again. So every output
is there exactly once::

    outputs up to the snapshot  +  outputs after the restart  =  outputs of the oracle
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any

from flumina.model.emit import rows
from flumina.model.order import START
from flumina.plan.tree import Plan
from flumina.runtime.stats import WorkerStats
from flumina.sim.case import Case
from flumina.sim.decisions import Decisions
from flumina.sim.epochs import EpochSimulation
from flumina.sim.scheduler import Outcome, Simulation, compare, judge, same_state
from flumina.sim.snapshot import SimSnapshot


@dataclass(frozen=True)
class Crash:
    """After so many steps everything is lost but the snapshots; ``plan`` is the one to go on with."""

    after: int
    plan: Plan


def run(case: Case, decisions: Decisions, crashes: Sequence[Crash] = (), **arguments: Any) -> Outcome:  # noqa: ANN401
    """Run a case to the end through all crashes, and judge it; ``arguments`` go to the simulation.

    The outcome has the outputs that count and the statistics of all attempts; snapshots and state are of the last.
    """
    points = tuple(arguments.pop("snapshots", ()))
    resume: SimSnapshot | None = None
    committed: list[Any] = []
    stats: list[Mapping[str, WorkerStats]] = []
    steps = 0
    for crash in crashes:
        attempt = _attempt(case, decisions, points, resume, arguments)
        if all(attempt.step() for _ in range(crash.after)):
            resume, durable = _committed(case, attempt, resume)
            committed += durable
        # A run that was over before its crash leaves nothing behind, and is repeated from where it started.
        stats.append(attempt.outcome().stats)
        steps += attempt.steps
        case = case.under(crash.plan)
    outcome = _attempt(case, decisions, points, resume, arguments).run()
    judge(case, outcome, resume)
    if not crashes:
        return outcome
    total = reduce(add, (one for each in (*stats, outcome.stats) for one in each.values()))
    return replace(outcome, rows=[*committed, *outcome.rows], stats={"all": total}, steps=steps + outcome.steps)


def _attempt(
    case: Case,
    decisions: Decisions,
    points: Sequence[Any],
    resume: SimSnapshot | None,
    arguments: Any,  # noqa: ANN401
) -> Simulation:
    ahead = [point for point in points if resume is None or point > resume.point]
    if arguments.get("truncations"):
        return EpochSimulation(case, decisions, snapshots=ahead, resume=resume, **arguments)
    return Simulation(
        case, decisions, snapshots=ahead, resume=resume, **{k: v for k, v in arguments.items() if k != "truncations"}
    )


def _committed(case: Case, attempt: Simulation, resume: SimSnapshot | None) -> tuple[SimSnapshot | None, list[Any]]:
    """Return the last snapshot and the outputs up to it, compared with the oracle."""
    last = attempt.snapshots[-1] if attempt.snapshots else resume
    if last is None:
        return None, []
    after = START if resume is None else resume.point
    durable = [row for row in rows(attempt.rows) if case.point(row.event) <= last.point]
    compare(case, durable, until=last.point, after=after)
    same_state(case, last.state, last.point, "the snapshot that survived the crash")
    return last, durable
