"""Buffer events until everything that they depend on is known.

A :class:`Queue` holds the undelivered runs of one part; a :class:`Component` the queues of a leaf whose events depend
on each other, directly or not. Components never wait for one another.
"""

from __future__ import annotations

from collections import deque

from flumina.model.order import END, LAST, START, Point, heartbeat
from flumina.runtime.messages import PartId
from flumina.runtime.run import EMPTY, Run, merged
from flumina.runtime.tick_cursor import TickCursor
from flumina.runtime.tie_watch import TieWatch
from flumina.runtime.topology import ComponentShape


def before(point: Point) -> Point:
    """Return the last point before this one."""
    return Point(point.ts, point.rank, point.seq - 1)


class Queue:
    """Runs of one part that have arrived and were not taken yet, in O; ``frontier`` is the part's."""

    def __init__(self) -> None:
        self.runs: deque[Run] = deque()
        self.frontier = START
        self.length = 0
        self.arrivals: list[tuple[int, float]] = []
        """Counts and arrival times of taken events that were not accounted for yet."""

    def put(self, run: Run, frontier: Point) -> None:
        """Append a run."""
        assert frontier >= self.frontier, "a frontier never goes back"
        if run:
            assert not self.runs or self.runs[-1].last <= run.first, "a part's runs arrive in order"
            self.runs.append(run)
            self.length += len(run)
        self.frontier = frontier

    def take(self, bound: Point) -> Run:
        """Remove and return all events at or before a point."""
        if not self.runs or self.runs[0].first > bound:
            return EMPTY
        taken: list[Run] = []
        while self.runs and self.runs[0].first <= bound:
            head, rest = self.runs.popleft().split(bound)
            taken.append(head)
            if head.arrived is not None:
                self.arrivals.append((len(head), head.arrived))
            if rest:
                self.runs.appendleft(rest)
                break
        run = taken[0] if len(taken) == 1 else merged(taken)
        self.length -= len(run)
        return run

    def truncate(self, ts: int) -> tuple[list[Run], Point]:
        """Remove and return the events after a timestamp, and the old frontier."""
        frontier, runs = self.frontier, list(self.runs)
        bound = Point(ts, LAST, LAST)
        halves = [run.split(bound) for run in runs]
        self.runs = deque(head for head, _ in halves if head)
        self.length = sum(map(len, self.runs))
        if frontier >= heartbeat(ts, frontier.rank):
            self.frontier = END
        return [rest for _, rest in halves if rest], frontier

    @property
    def first(self) -> Point | None:
        """Return the point of the first waiting event."""
        return self.runs[0].first if self.runs else None


class Component:
    """The queues of one connected component of a leaf's itags."""

    def __init__(self, shape: ComponentShape) -> None:
        self.shape = shape
        self.queues: dict[PartId, Queue] = {part: Queue() for part, _ in shape.parts}
        self.cursors = [TickCursor(ticks) for ticks in shape.ticks]
        self.tags = dict(shape.parts)
        self.stops: deque[Point] = deque()
        """Points of the waiting requests that these events depend on."""
        self.watch = None if shape.ties is None else TieWatch(shape.ties)
        self.only = next(iter(self.queues.values())) if len(self.queues) == 1 else None
        self.plain = None if self.cursors else self.only

    def put(self, part: PartId, run: Run, frontier: Point) -> None:
        """Append a part's events of this component's tags, and advance its frontier."""
        self.queues[part].put(run.only(self.tags[part]), frontier)

    @property
    def frontier(self) -> Point:
        """Return the least frontier of the parts and of the ticks."""
        if self.plain is not None:
            return self.plain.frontier
        return min([self.arrived, *(cursor.frontier for cursor in self.cursors)])

    @property
    def arrived(self) -> Point:
        """Return the least frontier of the parts."""
        return min((queue.frontier for queue in self.queues.values()), default=END)

    @property
    def first(self) -> Point | None:
        """Return the point of the first waiting event."""
        if self.only is not None:
            return self.only.first
        heads = [queue.runs[0].first for queue in self.queues.values() if queue.runs]
        return min(heads) if heads else None

    @property
    def settled(self) -> Point:
        """Return the point up to which everything has arrived and was taken."""
        first, frontier = self.first, self.frontier
        return frontier if first is None or first > frontier else before(first)

    def take(self, bound: Point) -> dict[PartId, Run]:
        """Remove and return the events up to ``bound`` and the frontier, by part."""
        bound = min(bound, self.frontier)
        first = self.first
        runs: dict[PartId, Run] = {}
        if first is not None and first <= bound:
            runs = {part: queue.take(bound) for part, queue in self.queues.items()}
            if self.only is None:
                runs = {part: run for part, run in runs.items() if run}
        if self.watch is not None:
            self.watch.released_runs(runs, bound)
        return runs
