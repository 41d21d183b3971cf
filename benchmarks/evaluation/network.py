"""Bytes between workers against bytes processed: smart homes, whose readings are summed up where they are read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import flumina as fl
from benchmarks.evaluation.effort import Effort
from benchmarks.evaluation.record import Record
from flumina import local
from flumina.apps.registry import APPS

HOUSES = 20
BYTES = 8 + 4 + 4 + 4 + 8
"""A reading in columns: timestamp, house, household, plug, load."""


def records(effort: Effort, data: Path) -> Iterator[Record]:  # noqa: ARG001 -- sections are called alike
    """The same day of 20 houses with 1,040 plugs, on more and more workers (processes of this machine).

    What is sent depends on the number of plugs and slices, not on the number of readings.
    """
    app = APPS["smart-home"]
    for workers in effort.of((2, 4, 10, 20), (2, 4)):
        workload = app.generate(houses=HOUSES, parts=HOUSES, hours=24, interval=effort.of(2, 60))
        stats = local.run(
            app.program, workload.streams(), workers=workers, optimizer="greedy", progress=False, out=fl.DISCARD
        ).stats
        total = stats.events * BYTES
        effort.say(f"smart homes, {workers} workers: {stats.bytes_between:,} of {total:,} bytes, {stats}")
        yield Record("network", "between workers", workers, stats.bytes_between, "measured")
        yield Record("network", "read by workers", workers, total, "measured")
        yield Record("network share", "of what is read", workers, stats.bytes_between / total, "measured")
