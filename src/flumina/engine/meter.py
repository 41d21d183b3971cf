"""Measure time, memory, traffic and output latency of a task."""

from __future__ import annotations

import resource
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from flumina.engine.job import TaskStats
from flumina.model.emit import Chunk, Row
from flumina.runtime.histogram import Histogram, bucket_of
from flumina.runtime.stats import WorkerStats


class TaskMeter:
    """The measurements of one task, from :meth:`start` on."""

    def __init__(self) -> None:
        self.idle = 0.0
        """Seconds in which the task waited."""
        self.largest_state: int | None = None
        """Largest number of bytes of states that a worker of the task has sent at once; None if none has."""
        self._began = self._cpu = self._loop = self._seconds = 0.0
        self._bytes = self._messages = 0
        self._latency: Counter[int] = Counter()

    def start(self) -> None:
        """Begin to measure time."""
        self._began, self._cpu, self._loop = time.perf_counter(), time.process_time(), time.thread_time()

    def stop(self) -> None:
        """Record the time of the last output."""
        self._seconds = time.perf_counter() - self._began

    def sent(self, messages: int, size: int, state_sizes: Collection[int]) -> None:
        """Count messages that are sent together; ``state_sizes`` are the sizes of the states in them, by sender."""
        self._messages += messages
        self._bytes += size
        self.largest_state = max([*state_sizes, self.largest_state or 0]) if state_sizes else self.largest_state

    def time_outputs(self, items: Iterable[Row | Chunk], started: float) -> None:
        """Record the latency of outputs, from when their events were due, in a paced run begun at ``started``."""
        now = time.time() - started
        for item in items:
            if isinstance(item, Row):
                self._latency[bucket_of(now - item.event.ts / 1e6)] += 1
            else:
                for ts in item.batch.ts[item.at].tolist():
                    self._latency[bucket_of(now - ts / 1e6)] += 1

    def stats(self, workers: Mapping[str, WorkerStats], *, read: int, rows: int, dead_letters: int) -> TaskStats:
        """Return the measurements, with the counts of the task."""
        return TaskStats(
            workers=workers,
            read=read,
            rows=rows,
            dead_letters=dead_letters,
            seconds=self._seconds,
            idle_seconds=self.idle,
            cpu_seconds=time.process_time() - self._cpu,
            loop_seconds=time.thread_time() - self._loop,
            peak_memory=peak_memory(),
            sent_bytes=self._bytes,
            sent_messages=self._messages,
            latency=Histogram(dict(self._latency)),
        )


def peak_memory() -> int:
    """Return the peak memory of this process; on Linux without that of the process that started it."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
