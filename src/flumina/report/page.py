"""Render a run as one self-contained HTML page without scripts."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from statistics import median

import pyarrow as pa

from flumina.engine.results import RunResult
from flumina.errors import UsageError
from flumina.formatting import duration, size
from flumina.plan.render.html import to_html
from flumina.report.charts import histogram, legend, stacked, table
from flumina.report.comparison import Comparison
from flumina.report.figures import latency_figures, rate
from flumina.report.style import STYLE
from flumina.runtime.stats import Wait

WAITS = {
    Wait.STATE: "its state, from its parent",
    Wait.CHILDREN: "the states of its children",
    Wait.EVENTS: "events of another part",
    Wait.PARENT: "requests of its parent",
}

MOST_WORKERS = 64
"""The most workers that are listed."""


@dataclass(frozen=True)
class RunReport:
    """Report of a finished run.

    ``engine``      the backend that ran it
    ``command``     the command line that repeats it
    ``settings``    the settings of the run, by name
    ``samples``     some rows of each output
    ``verified``    whether the outputs equal those of the oracle; None if they were not compared
    ``comparison``  the speed-up over one worker, if it was measured
    """

    result: RunResult
    engine: str = "this machine"
    command: str | None = None
    settings: Mapping[str, object] = field(default_factory=dict)
    samples: Mapping[str, pa.Table] = field(default_factory=dict)
    verified: bool | None = None
    comparison: Comparison | None = None
    made: datetime = field(default_factory=lambda: datetime.now(UTC))

    def html(self) -> str:
        """Return the page."""
        title = escape(f"{self.result.plan.program} on {self.engine}")
        sections = [
            ("Plan", to_html(self.result.plan)),
            ("Against one worker", self._comparison()),
            ("Workers", self._workers()),
            ("Tasks", self._tasks()),
            ("Latency of outputs", self._latency()),
            *((f"Some rows of {escape(name)}", _rows(sample)) for name, sample in self.samples.items()),
            ("How it was run", self._how()),
        ]
        body = "".join(f"<section><h2>{name}</h2>{content}</section>" for name, content in sections if content)
        return (
            f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
            f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style></head>'
            f"<body><header><h1>{title}</h1>{self._verdict()}</header>{self._tiles()}{body}</body></html>\n"
        )

    def save(self, path: str | Path) -> Path:
        """Write the page, and make missing folders; raises UsageError if it can't be written."""
        place = Path(path)
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(self.html(), encoding="utf-8")
        except OSError as error:
            raise UsageError("REPORT", f"{place} can't be written: {error.strerror}") from None
        return place

    def _verdict(self) -> str:
        if self.verified is None:
            return '<p class="verdict">not compared with the sequential program</p>'
        if self.verified:
            return '<p class="verdict right">the same outputs as the sequential program</p>'
        return '<p class="verdict wrong">other outputs than the sequential program</p>'

    def _tiles(self) -> str:
        stats = self.result.stats
        rows = sum(result.rows for result in self.result.committed.values())
        tiles = {
            "events": f"{stats.events:,}",
            "time": duration(stats.seconds),
            "events a second": f"{rate(stats):,.0f}",
            "rows of output": f"{rows:,}",
            "joins": f"{stats.joins:,}",
            "between workers": size(stats.bytes_between),
        }
        if self.comparison is not None:
            tiles["as fast as one worker"] = f"{self.comparison.speed_up:.2f}×"  # noqa: RUF001 -- the sign for times
        if stats.shuffled_bytes:
            tiles["shuffled by Spark"] = size(stats.shuffled_bytes)
        if stats.snapshots:
            tiles["snapshots"] = f"{stats.snapshots:,}"
        if stats.dead_letters:
            tiles["dead letters"] = f"{stats.dead_letters:,}"
        latency = latency_figures(stats.latency)
        if latency is not None:
            tiles["latency, median"] = duration(latency["p50"])
            tiles["latency, 99 %"] = duration(latency["p99"])
        return '<div class="tiles">' + "".join(f"<div><b>{v}</b>{k}</div>" for k, v in tiles.items()) + "</div>"

    def _comparison(self) -> str:
        compared = self.comparison
        if compared is None:
            return ""
        longest = max(*compared.one, *compared.several)
        rows = [
            [name, stacked({"working": median(times)}, longest), ", ".join(map(duration, times))]
            for name, times in (("1 worker", compared.one), (f"{compared.workers} workers", compared.several))
        ]
        return f"<p>{escape(str(compared))}.</p>" + table(["", "median", "all measurements"], rows)

    def _workers(self) -> str:
        stats = self.result.stats
        if not stats.workers:
            return ""
        homes = {name: number for number, task in stats.tasks.items() for name in task.workers}
        waits = {
            name: {wait.name.lower(): getattr(worker, wait.value) for wait in Wait}
            for name, worker in stats.workers.items()
        }
        longest = max(stats.seconds, *(sum(each.values()) for each in waits.values()))
        shown = [worker for worker in self.result.plan.workers if worker.id in stats.workers]
        if left_out := max(0, len(shown) - MOST_WORKERS):
            shown = sorted(shown, key=lambda worker: -sum(waits[worker.id].values()))[:MOST_WORKERS]
        rows = [
            [
                escape(worker.id),
                str(homes.get(worker.id, "")),
                f"{one.events:,}",
                f"{one.joins:,}",
                f"{one.buffered:,}",
                stacked(waits[worker.id], longest),
                duration(sum(waits[worker.id].values())),
            ]
            for worker in shown
            for one in [stats.workers[worker.id]]
        ]
        head = ["worker", "task", "events", "joins", "most events waiting", "waited for", "in all"]
        labels = {wait.name.lower(): label for wait, label in WAITS.items()}
        note = f"<p>The workers that waited longest; {left_out:,} more are not shown.</p>" if left_out else ""
        return note + table(head, rows, right=[1, 2, 3, 4, 6]) + legend(labels)

    def _tasks(self) -> str:
        tasks = self.result.stats.tasks
        if not tasks:
            return "<p>No task ran: the run in the checkpoint was finished already.</p>"
        longest = max(task.seconds for task in tasks.values())
        rows = [
            [
                str(number),
                escape(", ".join(sorted(task.workers))),
                stacked({"working": task.seconds - task.idle_seconds, "idle": task.idle_seconds}, longest),
                duration(task.seconds),
                duration(task.cpu_seconds),
                f"{task.read:,}",
                f"{task.rows:,}",
                size(task.sent_bytes),
                size(task.peak_memory),
            ]
            for number, task in tasks.items()
        ]
        head = ["task", "workers", "time", "", "processor", "events read", "rows written", "sent", "peak memory"]
        return table(head, rows, right=range(3, 9)) + legend({"working": "working", "idle": "waiting"})

    def _latency(self) -> str:
        figures = latency_figures(self.result.stats.latency)
        if figures is None:
            return ""
        names = ["half", "90 %", "99 %", "99.9 %", "all"]
        within = [f"{name} within {duration(most)}" for name, most in zip(names, _percentiles(figures), strict=True)]
        text = f"<p>{figures['outputs']:,} outputs, from when their events were due: {', '.join(within)}.</p>"
        return text + histogram(self.result.stats.latency)

    def _how(self) -> str:
        settings = {**self.settings, "made": f"{self.made:%Y-%m-%d %H:%M:%S} UTC", "Python": platform.python_version()}
        rows = [[escape(name), escape(str(value))] for name, value in settings.items()]
        line = "" if self.command is None else f"<pre>{escape(self.command)}</pre>"
        return line + table(["setting", "value"], rows, narrow=True)


def _percentiles(figures: Mapping[str, float]) -> Iterator[float]:
    return (value for name, value in figures.items() if name != "outputs")


def _rows(sample: pa.Table) -> str:
    if not sample.num_rows:
        return "<p>No rows.</p>"
    numbers = [n for n, f in enumerate(sample.schema) if pa.types.is_integer(f.type) or pa.types.is_floating(f.type)]
    rows = [[_cell(value) for value in row.values()] for row in sample.to_pylist()]
    return table([escape(name) for name in sample.column_names], rows, right=numbers, narrow=True)


def _cell(value: object) -> str:
    return '<span class="null">null</span>' if value is None else escape(str(value))
