"""Frontier policies: how far a stream has come when a batch ends, so that what lies before can be put in order.

A frontier is a timestamp t: nothing at or before t is still to come on the stream::

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
"""The frontier of a stream that has not said anything."""

EVERYTHING = 2**63 - 1
"""The frontier of a stream that holds nobody up."""


@dataclass(frozen=True)
class InOrder:
    """Batches follow each other in time, over all streams: what comes later is later. The default.

    Nothing is ever held up. A row of a later batch that lies at or before the latest timestamp of an earlier one is
    late; unless ``late=`` says otherwise that ends the query, rather than have the answer depend on how the input was
    cut into batches.
    """


@dataclass(frozen=True)
class BoundedDelay:
    """Rows may be out of order by so much: seconds (or a ``timedelta``) for times, ticks for whole numbers.

    A stream that has shown t may still show everything after ``t - delay``, and that timestamp itself; what lies before
    can be processed. With delay 0 the rows of a stream are in order, and only its latest timestamp is not over yet.
    """

    delay: float | timedelta = 0

    def __post_init__(self) -> None:
        """Refuse what is no delay."""
        seconds = self.delay.total_seconds() if isinstance(self.delay, timedelta) else self.delay
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
            raise UsageError(
                "DELAY",
                f"a delay is a number of seconds (of ticks, if timestamps are numbers), 0 or more, got {self.delay!r}",
            )

    def ticks(self, ts_type: pa.DataType) -> int:
        """The delay in units of the timestamps."""
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
    """Rows of the stream itself say how far it is: if ``column`` is ``value``, nothing at or before ``ts`` will come.

    Such a row is no event. In a stream with a tag column, that can be the column: ``Heartbeats("kind", "heartbeat")``.
    """

    column: str
    value: object = True

    def __post_init__(self) -> None:
        """Refuse what names no column."""
        if not isinstance(self.column, str) or not self.column or self.value is None:
            raise UsageError(
                "HEARTBEATS", f"fl.Heartbeats needs a column and a value, got {self.column!r} and {self.value!r}"
            )


@dataclass(frozen=True)
class ClosedBatches:
    """What a batch holds is complete: the batch leads the order of events, and timestamps order what is within it.

    Nothing is held up by such a stream, and nothing of it is ever late. The answer depends on what came together in a
    batch; a batch that is tried again holds the same rows.
    """


WatermarkPolicy = InOrder | BoundedDelay | Heartbeats | ClosedBatches


@dataclass(frozen=True)
class Seen:
    """What a stream has shown so far: its latest timestamp, and that of its latest heartbeat."""

    newest: int = NOTHING
    heard: int = NOTHING

    def and_then(self, other: Seen) -> Seen:
        """The same after more rows."""
        return Seen(max(self.newest, other.newest), max(self.heard, other.heard))


def watermark_of(policy: WatermarkPolicy, seen: Seen, newest: int, ts_type: pa.DataType) -> int:
    """How far a stream has come; ``newest`` is the latest timestamp that any stream has shown.

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
