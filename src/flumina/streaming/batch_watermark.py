"""Choose the batch watermark: rows up to it are processed, later rows buffered.

The watermark is logged before any row is processed, with the number and a digest of the rows that it was chosen for: a
retried batch uses the same watermark, and is refused if its rows differ from the first attempt's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from flumina.errors import CheckpointError, InputError
from flumina.input.watermark_policy import EVERYTHING, NOTHING, Seen, WatermarkPolicy, watermark_of
from flumina.streaming.rows import split


@dataclass(frozen=True)
class BatchWatermark:
    """Watermark of one batch, and the rows that it was chosen for.

    ``ts``          rows up to and including this timestamp are processed
    ``watermarks``  the watermark of each stream
    ``rows``        the number of rows of each stream in the batch, before validation
    ``good``        the number of them that passed validation as events
    ``digests``     a digest of the rows of each stream, and of their order where results depend on it
    ``closed``      the streams are complete: all rows are processed
    """

    batch: int
    ts: int
    watermarks: Mapping[str, int]
    rows: Mapping[str, int]
    good: Mapping[str, int]
    digests: Mapping[str, int]
    closed: bool = False

    def check_same_rows(self, again: BatchWatermark) -> None:
        """Raise CheckpointError if a retried batch has other rows than before."""
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
            hint="the source does not return the same rows again: were files changed or deleted, or was a part of the "
            "checkpoint replaced by an older one? Restore them, or start with a new checkpoint and a new sink",
        )


@dataclass(frozen=True)
class Holding:
    """Streams with the lowest watermark, for which buffered rows of other streams wait."""

    streams: tuple[str, ...] = ()
    silent: tuple[str, ...] = field(default=())
    """The streams among them without a watermark so far."""


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
    """Choose the watermark of a batch: the lowest of its streams', at least the one ``before``."""
    newest = max(max(s.newest, s.heard) for s in seen.values())
    watermarks = {name: watermark_of(policies[name], seen[name], newest, ts_type) for name in policies}
    lowest = EVERYTHING if closed else min(watermarks.values())
    return BatchWatermark(batch, max(lowest, before), watermarks, dict(rows), dict(good), dict(digests), closed)


def holding(watermark: BatchWatermark, buffered: int) -> Holding:
    """Return the streams for which buffered rows wait; none if no rows are buffered."""
    if not buffered:
        return Holding()
    lowest = min(watermark.watermarks.values())
    streams = tuple(name for name, ts in watermark.watermarks.items() if ts == lowest)
    return Holding(streams, tuple(name for name in streams if watermark.watermarks[name] == NOTHING))


def check_buffered(watermark: BatchWatermark, rows: Mapping[str, pa.Table], most: int) -> None:
    """Raise InputError if more than ``most`` rows are after the watermark, and would be buffered."""
    count = sum(len(split(table, watermark.ts)[1]) for table in rows.values())
    if count > most:
        held, lowest = holding(watermark, count), min(watermark.watermarks.values())
        raise InputError(
            "STALLED",
            f"{count:,} buffered rows wait for it, more than max_buffered_rows={most:,}: "
            + ("it has no watermark yet" if held.silent else f"its watermark is {lowest}"),
            stream=held.streams[0],
            hint="set another policy for it with watermarks={...}, or increase max_buffered_rows=",
        )
