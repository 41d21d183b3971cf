"""Define the total order O on events.

``O`` orders events by ``(timestamp, rank of the declared stream, seq)``. A :data:`Point` is a place in that
order; a *frontier* is a point p such that nothing at or before p is still to come::

    after an event (t, rank, n)            the frontier is (t, rank, n)
    after a heartbeat of that stream at t  the frontier is (t, rank, LAST)

``seq`` is a column where the stream has one, else the position inside the part.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

LAST = 2**63 - 1
"""A sequence number after every real one at the same timestamp and rank."""

Ints = npt.NDArray[np.int64]


class Point(NamedTuple):
    """A place in O; compares like the order itself.

    >>> Point(3, 0, 7) < Point(3, 1, 0) < heartbeat(3, 1) < Point(4, 0, 0) < END
    True
    """

    ts: int
    rank: int
    seq: int


START = Point(-(2**63), -1, 0)
"""Before every event."""

END = Point(LAST, LAST, LAST)
"""After every event: the frontier of a stream that has ended."""


def heartbeat(ts: int, rank: int) -> Point:
    """Return the frontier that a heartbeat of the stream with this rank states."""
    return Point(ts, rank, LAST)


def argsort(ts: Ints, rank: Ints, seq: Ints) -> Ints:
    """Return the permutation that brings columns into O; equal points keep their places.

    >>> argsort(np.array([2, 1, 1]), np.array([0, 1, 0]), np.array([0, 0, 0])).tolist()
    [2, 1, 0]
    """
    return np.lexsort((seq, rank, ts))
