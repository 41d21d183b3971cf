"""Choose the batch watermark: rows up to it are processed now, and the others buffered for a later batch.

The watermark is logged before anything is processed, with the number and a digest of the rows that it was chosen for:
a batch that is tried again uses the same one, and rows that differ from those of the first time are noticed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from flumina.errors import CheckpointError
from flumina.input.watermarks import EVERYTHING, NOTHING, Seen, WatermarkPolicy, watermark_of


@dataclass(frozen=True)
class BatchWatermark:
    """What was decided for one batch, before it was processed.

    ``ts``         rows up to and including this timestamp are processed
    ``watermarks``  how far each stream had come
    ``rows``       how many rows of each stream came in, before anything was sorted out
    ``good``       and how many of those were events that could be ordered
    ``digests``    what these rows were, and their order where something depends on it
    ``closed``     the streams are over: everything is processed
    """

    batch: int
    ts: int
    watermarks: Mapping[str, int]
    rows: Mapping[str, int]
    good: Mapping[str, int]
    digests: Mapping[str, int]
    closed: bool = False

    def check_same_rows(self, again: BatchWatermark) -> None:
        """A batch that is tried again has to hold the rows it held before."""
        for stream in self.rows:
            for what, before, now in (("rows", self.rows, again.rows), ("events", self.good, again.good)):
                if before[stream] != now.get(stream):
                    raise self._others(f"{before[stream]} {what} of stream {stream!r}", f"{now.get(stream)} now")
            if self.digests[stream] != again.digests.get(stream):
                raise self._others(
                    f"{self.rows[stream]} rows of stream {stream!r}",
                    "as many now, but not the same, or in another order",
                )

    def _others(self, before: str, now: str) -> CheckpointError:
        return CheckpointError(
            "NOT_REPLAYED",
            f"batch {self.batch} had {before} the first time, and has {now}",
            hint="the source does not give the same rows again: were files changed or deleted, or was a part of the "
            "checkpoint replaced by an older one? Restore them, or begin with a new checkpoint and a new sink",
        )


@dataclass(frozen=True)
class Holding:
    """Which streams hold up which: those at the watermark, while others have come further and wait."""

    streams: tuple[str, ...] = ()
    silent: tuple[str, ...] = field(default=())
    """Of these, those that have not said anything yet."""


def choose(
    batch: int,
    policies: Mapping[str, WatermarkPolicy],
    seen: Mapping[str, Seen],
    before: int,
    ts_type: pa.DataType,
    *,
    rows: Mapping[str, int],
    good: Mapping[str, int],
    digests: Mapping[str, int],
    closed: bool = False,
) -> BatchWatermark:
    """Choose the watermark of a batch: the lowest of its streams, never behind what was processed ``before``."""
    newest = max(max(s.newest, s.heard) for s in seen.values())
    watermarks = {name: watermark_of(policies[name], seen[name], newest, ts_type) for name in policies}
    lowest = EVERYTHING if closed else min(watermarks.values())
    return BatchWatermark(batch, max(lowest, before), watermarks, dict(rows), dict(good), dict(digests), closed)


def holding(watermark: BatchWatermark, buffered: int) -> Holding:
    """Who is waited for, if rows are buffered."""
    if not buffered:
        return Holding()
    lowest = min(watermark.watermarks.values())
    streams = tuple(name for name, ts in watermark.watermarks.items() if ts == lowest)
    return Holding(streams, tuple(name for name in streams if watermark.watermarks[name] == NOTHING))
