"""Maintain the minimum of many points, one for each key."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from flumina.model.order import Point
from flumina.model.tag_set import Key

_SLACK = 64


class Lowest:
    """One point for each of some keys, and the lowest of them.

    A heap with lazy deletion: an entry counts while its point is still that of its key. A point that is replaced or
    dropped stays in the heap until it comes up, or until most of the heap is like that::

        set, drop    O(log n), amortized        first, pop_up_to    O(log n) for each entry that leaves the heap

    >>> points = Lowest()
    >>> points.set("a", Point(5, 0, 0)), points.set("b", Point(3, 0, 0)), points.set("b", Point(7, 0, 0))
    (None, None, None)
    >>> points.first
    Point(ts=5, rank=0, seq=0)
    >>> points.pop_up_to(Point(6, 0, 0)), points.first
    (['a'], Point(ts=7, rank=0, seq=0))
    """

    def __init__(self) -> None:
        self.of: dict[Key, Point] = {}
        self.heap: list[tuple[Point, int, Key]] = []
        self.pushes = 0
        """Orders entries with equal points: keys may have no order."""

    def set(self, key: Key, point: Point | None) -> None:
        """Set the point of a key; None drops it."""
        if self.of.get(key) == point:
            return
        if point is None:
            del self.of[key]
        else:
            self.of[key] = point
            self.pushes += 1
            heappush(self.heap, (point, self.pushes, key))
        if len(self.heap) > 2 * len(self.of) + _SLACK:
            self.heap = [(at, number, key) for number, (key, at) in enumerate(self.of.items())]
            self.pushes = len(self.heap)
            heapify(self.heap)

    @property
    def first(self) -> Point | None:
        """Return the lowest point."""
        while self.heap:
            point, _, key = self.heap[0]
            if self.of.get(key) == point:
                return point
            heappop(self.heap)
        return None

    def pop_up_to(self, bound: Point) -> list[Key]:
        """Remove the keys with points at or before a bound, and return them in the order of their points."""
        keys = []
        while self.heap and self.heap[0][0] <= bound:
            point, _, key = heappop(self.heap)
            if self.of.get(key) == point:
                del self.of[key]
                keys.append(key)
        return keys
