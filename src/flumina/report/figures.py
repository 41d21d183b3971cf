"""Convert the statistics of a run to plain data for JSON."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from flumina.engine.job import TaskStats
from flumina.engine.results import RunStats
from flumina.runtime.histogram import Histogram
from flumina.runtime.stats import Wait, WorkerStats

PERCENTILES = (50, 90, 99, 99.9, 100)


def run_figures(stats: RunStats) -> dict[str, Any]:
    """Return the figures of the run, its workers and its tasks; times are in seconds, sizes in bytes."""
    return {
        "events": stats.events,
        "seconds": stats.seconds,
        "events_per_second": rate(stats),
        "joins": stats.joins,
        "state_bytes": stats.state_bytes,
        "bytes_between": stats.bytes_between,
        "shuffled_bytes": stats.shuffled_bytes,
        "snapshots": stats.snapshots,
        "dead_letters": stats.dead_letters,
        "latency": latency_figures(stats.latency),
        "workers": {name: worker_figures(worker) for name, worker in sorted(stats.workers.items())},
        "tasks": {str(number): _task_figures(task) for number, task in stats.tasks.items()},
    }


def rate(stats: RunStats) -> float:
    """Return events per second; 0 for a run that took no time."""
    return stats.events / stats.seconds if stats.seconds else 0.0


def latency_figures(latency: Histogram) -> dict[str, float] | None:
    """Return percentiles of the latency of outputs, by name, up to the maximum; None if it was not measured."""
    if not latency.total:
        return None
    return {"outputs": latency.total} | {f"p{percent:g}": latency.percentile(percent) for percent in PERCENTILES}


def worker_figures(worker: WorkerStats) -> dict[str, Any]:
    """Return the counts of a worker, and the seconds that it waited, by reason."""
    waits = {wait.value for wait in Wait}
    counts = {f.name: getattr(worker, f.name) for f in fields(worker) if f.name not in waits and f.name != "delay"}
    return {**counts, "waited": {wait.name.lower(): getattr(worker, wait.value) for wait in Wait}}


def _task_figures(task: TaskStats) -> dict[str, Any]:
    plain = {f.name: getattr(task, f.name) for f in fields(task) if f.name not in ("workers", "latency")}
    return {"workers": sorted(task.workers), **plain}
