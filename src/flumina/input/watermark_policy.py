"""Define watermark policies: how far a stream is complete when a batch ends.

A watermark is a timestamp t: nothing at or before t is still to come on the stream::

    InOrder()            the latest timestamp that any stream has shown: batches follow each other in time
    BoundedDelay(d)      the latest timestamp of this stream, minus d, minus one tick
    Heartbeats(c, v)     the latest timestamp of a row whose column c is v
    ClosedBatches()      infinite: what a batch holds is complete, and nothing is ever late
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta

import pyarrow as pa

from flumina.errors import UsageError

NOTHING = -(2**63)
"""The watermark of a stream without rows."""

EVERYTHING = 2**63 - 1
"""The watermark of a stream that delays no other."""


@dataclass(frozen=True)
class InOrder:
    """Batches follow each other in time, over all streams. The default.

    No row is buffered. A row of a later batch that lies at or before the latest timestamp of an earlier one is
    late; unless ``late=`` says otherwise that ends the query, rather than let the outputs depend on how the input was
    divided into batches.
    """


@dataclass(frozen=True)
class BoundedDelay:
    """Rows may be out of order by a delay: seconds (or a ``timedelta``), or ticks.

    A stream that has shown t may still show everything after ``t - delay``, and that timestamp itself; what lies before
    can be processed. With delay 0 the rows of a stream are in order, and only its latest timestamp is not over yet.
    """

    delay: float | timedelta = 0

    def __post_init__(self) -> None:
        """Refuse an invalid delay."""
        seconds = self.delay.total_seconds() if isinstance(self.delay, timedelta) else self.delay
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
            raise UsageError(
                "DELAY",
                f"a delay is a number of seconds (of ticks, if timestamps are numbers), 0 or more, got {self.delay!r}",
            )

    def ticks(self, ts_type: pa.DataType) -> int:
        """Return the delay in units of the timestamps."""
        if not pa.types.is_integer(ts_type):
            seconds = self.delay.total_seconds() if isinstance(self.delay, timedelta) else self.delay
            return round(seconds * 1e6)
        if isinstance(self.delay, timedelta) or self.delay != int(self.delay):
            raise UsageError(
                "DELAY",
                f"timestamps are whole numbers, and so is their delay; got {self.delay!r}",
                hint="give a number of ticks, or a stream whose timestamps are times",
            )
        return int(self.delay)


@dataclass(frozen=True)
class Heartbeats:
    """Rows with ``column`` equal to ``value`` state that nothing at or before ``ts`` will come.

    Such a row is not an event. In a stream with a tag column, ``column`` can be that one:
    ``Heartbeats("kind", "heartbeat")``.
    """

    column: str
    value: object = True

    def __post_init__(self) -> None:
        """Refuse a column without a name."""
        if not isinstance(self.column, str) or not self.column or self.value is None:
            raise UsageError(
                "HEARTBEATS", f"fl.Heartbeats needs a column and a value, got {self.column!r} and {self.value!r}"
            )


@dataclass(frozen=True)
class ClosedBatches:
    """Each batch is complete: batches come first in the order, timestamps order events within.

    Such a stream delays no other, and its rows are never late. The outputs depend on which rows share a batch; a
    retried batch holds the same rows.
    """


WatermarkPolicy = InOrder | BoundedDelay | Heartbeats | ClosedBatches


@dataclass(frozen=True)
class Seen:
    """The latest timestamp of a stream so far, and of its latest heartbeat."""

    newest: int = NOTHING
    heard: int = NOTHING

    def and_then(self, other: Seen) -> Seen:
        """Return the latest timestamps after more rows."""
        return Seen(max(self.newest, other.newest), max(self.heard, other.heard))


def watermark_of(policy: WatermarkPolicy, seen: Seen, newest: int, ts_type: pa.DataType) -> int:
    """Return the watermark of a stream; ``newest`` is the latest timestamp of any stream.

    >>> watermark_of(BoundedDelay(2), Seen(10), 50, pa.int64()), watermark_of(InOrder(), Seen(10), 50, pa.int64())
    (7, 50)
    """
    match policy:
        case InOrder():
            return newest
        case BoundedDelay():
            return NOTHING if seen.newest == NOTHING else seen.newest - policy.ticks(ts_type) - 1
        case Heartbeats():
            return seen.heard
        case ClosedBatches():
            return EVERYTHING
