"""What a query tells about its batches: numbers, how long each phase took, and who is waited for."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from flumina.input.watermarks import EVERYTHING, NOTHING
from flumina.streaming.batch_state import BatchState
from flumina.streaming.batch_watermark import BatchWatermark, holding
from flumina.streaming.engine import BatchRun
from flumina.streaming.planner import Change, Planner
from flumina.streaming.rules import Rules
from flumina.streaming.validation import ValidatedRows

log = logging.getLogger("flumina")

RECENT = 100
"""How many batches are remembered."""


class Stopwatch:
    """How many seconds each phase of a batch took."""

    def __init__(self) -> None:
        self.began = time.perf_counter()
        self.seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """One phase, or a piece of one."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began

    def milliseconds(self) -> dict[str, int]:
        """All phases, and the whole."""
        whole = time.perf_counter() - self.began
        return {name: round(1e3 * took) for name, took in [*self.seconds.items(), ("total", whole)]}


class ProgressLog:
    """The latest batches, and a warning in the log where a stream holds up others."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.recent: deque[dict[str, Any]] = deque(maxlen=RECENT)
        self.waiting = 0
        """For how many batches in a row rows have been buffered without the watermark moving."""

    def add(self, entry: dict[str, Any]) -> None:
        """A batch is done."""
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
                "has not said anything yet" if entry["silent"] else f"has come to {entry['batchWatermark']} only",
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
    after: BatchState,
    planner: Planner,
    rules: Rules,
) -> dict[str, Any]:
    """What there is to tell of a batch; ``ready`` has the rows that were processed, and those that are buffered."""
    buffered = {name: len(behind) for name, (_, behind) in ready.items()}
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
        "batchWatermark": _told(watermark.ts),
        "watermarks": {name: _told(ts) for name, ts in watermark.watermarks.items()},
        "heldUpBy": list(held.streams),
        "silent": list(held.silent),
        "joins": 0 if ran is None else ran.stats.joins,
        "leaves": 0 if planner.plan is None else len(planner.plan.leaves),
        "planChange": None if change is None else change.as_dict(),
        "planChanges": planner.changes,
        "stateBytes": after.size,
        "totals": dict(after.totals),
    }


def _told(ts: int) -> int | None:
    """A frontier as people see it: None at either end of time."""
    return None if ts in (NOTHING, EVERYTHING) else ts
