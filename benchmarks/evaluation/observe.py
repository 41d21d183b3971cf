"""Full-speed runs of Flumina from Parquet files, one part for each worker."""

from __future__ import annotations

import statistics

from benchmarks.baselines.inputs import Folder
from benchmarks.evaluation.case import Case, scratch
from benchmarks.evaluation.engine import run
from benchmarks.evaluation.prices import Observed


def observe(case: Case, events: int, rounds: int, optimizer: str = "cost") -> tuple[Observed, list[float]]:
    """A case with so many events on each part, and the events a second of every round; one before them warms up."""
    with scratch() as folder:
        workload = case.workload(events)
        streams = Folder.write(workload, folder).streams(workload)
        plan = run(case.app.program, streams, workers=case.parts, optimizer=optimizer).plan
        rates = []
        for _ in range(rounds):
            stats = run(case.app.program, streams, plan=plan).stats
            rates.append(stats.events / stats.seconds)
    return Observed(case, plan, statistics.median(rates)), rates
