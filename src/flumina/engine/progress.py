"""Show the progress of a run: one line on a terminal, log lines elsewhere."""

from __future__ import annotations

import logging
import sys
import threading
import time
from dataclasses import dataclass
from typing import TextIO

from flumina.model.order import Point

log = logging.getLogger("flumina")

LOG_EVERY = 10.0
"""Seconds between two log lines, without a terminal."""


@dataclass(frozen=True, slots=True)
class TaskProgress:
    """Progress of one task."""

    events: int
    joins: int
    read: int
    frontier: Point | None
    """The lowest frontier of the parts that the task reads."""
    stall: str | None


class ProgressLine:
    """Progress line of a run, from the reports of its tasks; refreshed at most once a second."""

    def __init__(self, name: str, *, shown: bool | None = None, stream: TextIO | None = None) -> None:
        self.name = name
        self.stream = sys.stderr if stream is None else stream
        self.terminal = self.stream.isatty()
        self.shown = True if shown is None else shown
        self.tasks: dict[int, TaskProgress] = {}
        self.began = self.last = time.monotonic()
        self.last_events = 0
        self.width = 0
        self.phase: str | None = None
        """The reason why the run waits before its tasks have begun."""
        self._lock = threading.Lock()

    def update(self, task: int, progress: object) -> None:
        """Add the report of a task, and refresh the line if it is due."""
        assert isinstance(progress, TaskProgress)
        with self._lock:
            self.tasks[task] = progress
            self.phase = None
            now = time.monotonic()
            if self.shown and now - self.last >= (1.0 if self.terminal else LOG_EVERY):
                self._show(now)

    def wait(self, phase: str) -> None:
        """Show why the run waits before its tasks have begun; without a terminal, log each phase once."""
        with self._lock:
            new, self.phase = phase != self.phase, phase
            if self.shown and new:
                self._show(time.monotonic())

    def notice(self, text: str) -> None:
        """Show a message that stays above the line; without a terminal, log it as a warning."""
        with self._lock:
            if self.terminal and self.shown:
                self.stream.write(f"\r{f'{self.name}: {text}':<{self.width}}\n")
                self.stream.flush()
                self.width = 0
            elif self.shown:
                log.warning("%s: %s", self.name, text)

    def _show(self, now: float) -> None:
        text = self.text(now)
        self.last, self.last_events = now, self.events
        if self.terminal:
            self.stream.write(f"\r{text:<{self.width}}")
            self.stream.flush()
            self.width = len(text)
        else:
            log.info(text)

    @property
    def events(self) -> int:
        """Events processed so far."""
        return sum(progress.events for progress in self.tasks.values())

    def text(self, now: float) -> str:
        """Return the line: events, events a second since the last line, joins, and the slowest task."""
        if self.phase is not None:
            return f"{self.name}: {self.phase}"
        rate = (self.events - self.last_events) / max(now - self.last, 1e-9)
        joins = sum(progress.joins for progress in self.tasks.values())
        parts = [f"{self.name}: {self.events:,} events", f"{rate:,.0f}/s", f"{joins:,} joins"]
        reading = {task: p.frontier for task, p in self.tasks.items() if p.frontier is not None}
        if len(reading) > 1 and len(set(reading.values())) > 1:
            parts.append(f"slowest: task {min(reading, key=lambda task: reading[task])}")
        stalls = [p.stall for p in self.tasks.values() if p.stall is not None]
        if stalls and self.events == self.last_events:
            parts.append(f"waiting: {stalls[0]}")
        return ", ".join(parts)

    def close(self) -> None:
        """Clear the line."""
        if self.width:
            self.stream.write("\r" + " " * self.width + "\r")
            self.stream.flush()
