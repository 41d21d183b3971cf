"""Report the progress of a query: row counts, durations, and delaying streams."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from flumina.input.watermark_policy import EVERYTHING, NOTHING
from flumina.streaming.batch_engine import BatchRun
from flumina.streaming.batch_watermark import BatchWatermark, holding
from flumina.streaming.epoch_state import EpochState
from flumina.streaming.planner import Change, Planner
from flumina.streaming.rules import Rules
from flumina.streaming.validation import ValidatedRows

log = logging.getLogger("flumina")

RECENT = 100
"""How many batches are remembered."""


class Stopwatch:
    """Measures the seconds that each phase of a batch takes."""

    def __init__(self) -> None:
        self.began = time.perf_counter()
        self.seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time of the ``with`` block to a phase, without that of phases within it."""
        began, others = time.perf_counter(), sum(self.seconds.values())
        try:
            yield
        finally:
            within = sum(self.seconds.values()) - others
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began - within

    def milliseconds(self) -> dict[str, int]:
        """Return the milliseconds of all phases, and of the whole batch as ``total``."""
        whole = time.perf_counter() - self.began
        return {name: round(1e3 * took) for name, took in [*self.seconds.items(), ("total", whole)]}


class ProgressLog:
    """Progress of the latest batches; logs a warning where a stream delays others."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.recent: deque[dict[str, Any]] = deque(maxlen=RECENT)
        self.waiting = 0
        """The number of consecutive batches with buffered rows in which the watermark did not advance."""

    def add(self, entry: dict[str, Any]) -> None:
        """Add the progress of a batch, and log a warning where a stream delays others."""
        before = self.recent[-1]["batchWatermark"] if self.recent else None
        stuck = bool(entry["heldUpBy"]) and (entry["batchWatermark"] == before or entry["processed"] == 0)
        self.waiting = self.waiting + 1 if stuck else 0
        entry["batchesWaiting"] = self.waiting
        entry["timestamp"] = datetime.now(UTC).isoformat(timespec="milliseconds")
        self.recent.append(entry)
        if self.waiting and self.waiting & (self.waiting - 1) == 0:  # 1, 2, 4, 8 ...
            streams = ", ".join(map(repr, entry["heldUpBy"]))
            log.warning(
                "%s, batch %d: %s rows are buffered, and nothing could be processed for %s: waiting for %s, which %s",
                self.name,
                entry["batchId"],
                f"{sum(entry['buffered'].values()):,}",
                "a batch" if self.waiting == 1 else f"{self.waiting} batches",
                streams,
                "has no watermark yet" if entry["silent"] else f"is at {entry['batchWatermark']}",
            )
        if entry["planChange"] is not None:
            log.info("%s, batch %d: new plan: %s", self.name, entry["batchId"], entry["planChange"])


def entry(
    batch: int,
    watermark: BatchWatermark,
    validated: Mapping[str, ValidatedRows],
    ready: Mapping[str, tuple[pa.Table, pa.Table]],
    ran: BatchRun | None,
    change: Change | None,
    after: EpochState,
    planner: Planner,
    rules: Rules,
) -> dict[str, Any]:
    """Return the progress of a batch, an entry of ``recentProgress``.

    ``ready`` has, for each stream, the rows that were processed and the rows that are buffered.
    """
    buffered = {name: len(later) for name, (_, later) in ready.items()}
    held = holding(watermark, sum(buffered.values()))
    bad = {name: len(found.bad) - found.late for name, found in validated.items()}
    late = {name: found.late for name, found in validated.items()}
    dead_lettered = (sum(bad.values()) if rules.bad_rows == "dead-letter" else 0) + (
        sum(late.values()) if rules.late == "dead-letter" else 0
    )
    return {
        "batchId": batch,
        "numInputRows": sum(found.rows for found in validated.values()),
        "rows": {name: found.rows for name, found in validated.items()},
        "processed": sum(len(now) for now, _ in ready.values()),
        "buffered": buffered,
        "late": late,
        "bad": bad,
        "deadLettered": dead_lettered,
        "heartbeats": {name: found.heartbeats for name, found in validated.items()},
        "outputs": {} if ran is None else ran.rows,
        "batchWatermark": _finite(watermark.ts),
        "watermarks": {name: _finite(ts) for name, ts in watermark.watermarks.items()},
        "heldUpBy": list(held.streams),
        "silent": list(held.silent),
        "joins": 0 if ran is None else ran.stats.joins,
        "leaves": 0 if planner.plan is None else len(planner.plan.leaves),
        "planChange": None if change is None else change.as_dict(),
        "planChanges": planner.changes,
        "stateBytes": after.size,
        "totals": after.totals,
    }


def _finite(ts: int) -> int | None:
    """Return a watermark for display: None before the first and after the last timestamp."""
    return None if ts in (NOTHING, EVERYTHING) else ts
