"""Flumina against plain PySpark: the same files, the same cores, start to end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.baselines.inputs import Folder
from benchmarks.baselines.registry import BASELINES
from benchmarks.baselines.registry import run as run_baseline
from benchmarks.evaluation.case import PROGRAMS, Case, scratch
from benchmarks.evaluation.effort import Effort
from benchmarks.evaluation.engine import Watch, run, session
from benchmarks.evaluation.record import Record

ROUNDS_BY_HAND = 3
"""Rare events in a run by hand, each of which takes a second."""
SLICES = 5
"""Micro-batches of a streaming run."""
TASKS_BY_HAND = 12
"""As many as in the paper's table; they sleep nearly all the time, so two cores are enough for them."""


def records(effort: Effort, data: Path) -> Iterator[Record]:  # noqa: ARG001 -- sections are called alike
    """All forms of all programs on one worker and on two; those by hand also on as many as the paper had.

    The quick form has two workers only, and so says nothing of scaling.
    """
    for workers in effort.of((1, 2), (2,)):
        spark = session(workers)
        for name in PROGRAMS:
            yield from _compared(effort, spark, Case(name, workers))
    if effort.quick:
        return
    spark = session(TASKS_BY_HAND)
    for name in PROGRAMS:
        yield from _by_hand(effort, spark, Case(name, TASKS_BY_HAND))


def _compared(effort: Effort, spark: SparkSession, case: Case) -> Iterator[Record]:
    """Flumina, batch and streaming in turns, then by hand."""
    events = effort.of(8_000_000, 1_000_000)
    few = events // 4
    with scratch() as folder:
        workload = case.workload(events)
        whole = Folder.write(workload, folder / "whole")
        streamed = Folder.write(case.workload(few), folder / "streamed", slices=SLICES)
        streams = whole.streams(workload)
        program, forms = case.app.program, BASELINES[case.name]
        contestants: dict[str, tuple[int, Callable[[], object]]] = {
            "Flumina": (events, lambda: run(program, streams, workers=case.parts)),
            "Spark batch": (events, lambda: run_baseline(forms["batch"], spark, whole)),
            "Spark streaming": (few, lambda: run_baseline(forms["streaming"], spark, streamed)),
        }
        rates: dict[str, list[float]] = {form: [] for form in contestants}
        for turn in range(effort.of(4, 2)):
            for form, (size, contestant) in contestants.items():
                with Watch() as watch:
                    contestant()
                if turn:  # the first turn warms everything up
                    rates[form].append(size * case.parts / watch.seconds)
        for form, found in rates.items():
            yield _said(effort, Record.of(f"systems {case.name}", form, case.parts, found))
    yield from _by_hand(effort, spark, case)


def _by_hand(effort: Effort, spark: SparkSession, case: Case) -> Iterator[Record]:
    """A short input, as throughput does not depend on its length; the first run starts the Python workers."""
    manual = BASELINES[case.name]["manual"]
    with scratch() as folder:
        empty = Folder.write(case.workload(case.ratio // 2), folder / "empty")
        run_baseline(manual, spark, empty)
        events = case.ratio * ROUNDS_BY_HAND
        whole = Folder.write(case.workload(events), folder / "whole")
        rates = []
        for _ in range(effort.of(3, 1)):
            with Watch() as watch:
                run_baseline(manual, spark, whole)
            rates.append(events * case.parts / watch.seconds)
    yield _said(effort, Record.of(f"systems {case.name}", "Spark by hand", case.parts, rates))


def _said(effort: Effort, record: Record) -> Record:
    effort.say(f"{record.figure}, {record.x:.0f} workers, {record.series}: {record.y:,.0f} events/s")
    return record
