"""Runs: consecutive events of one worker without synchronization between them.

Small runs are lists (``bisect`` on a list of ten points beats numpy); large ones are columns. Both split and merge by
the order O, and the rest of the runtime does not know which it has.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from heapq import merge as heap_merge
from operator import itemgetter

import numpy as np

from flumina.model.batch import Batch
from flumina.model.emit import Emit
from flumina.model.event import Event
from flumina.model.order import Point
from flumina.model.tag_set import Key, TagSet
from flumina.program.definition import State, StateKind, fold, fold_batch


class Run:
    """Events in O with their points; ``batch`` instead where they are in columns.

    A run never changes. One in columns is a range of rows: splitting it copies nothing, and its rows become a batch of
    their own on first access. ``arrived`` is the time of arrival at a worker, if it is measured.
    """

    __slots__ = ("_batch", "_first", "_start", "_stop", "_whole", "arrived", "events", "points")

    def __init__(
        self,
        points: Sequence[Point] = (),
        events: Sequence[Event] = (),
        batch: Batch | None = None,
        arrived: float | None = None,
    ) -> None:
        self.points, self.events, self.arrived = points, events, arrived
        self._batch = self._whole = batch
        self._start = 0
        self._stop = len(points) if batch is None else len(batch)
        self._first: Point | None = None

    def _rows(self, start: int, stop: int) -> Run:
        """Return a range of the rows."""
        part = Run(arrived=self.arrived)
        part._whole, part._start, part._stop = self._whole, start, stop
        return part

    def stamped(self, arrived: float) -> Run:
        """Return the same events with an arrival time."""
        run = self._rows(self._start, self._stop) if self._whole is not None else Run(self.points, self.events)
        run.arrived = arrived
        return run

    @property
    def batch(self) -> Batch | None:
        """Return the events as a batch; None where they are a list."""
        if self._batch is None and self._whole is not None:
            self._batch = self._whole.slice(self._start, self._stop)
        return self._batch

    def __len__(self) -> int:
        return self._stop - self._start

    def __bool__(self) -> bool:
        return self._stop > self._start

    @property
    def first(self) -> Point:
        """Return the point of the first event."""
        if self._first is None:
            self._first = self.points[0] if self._whole is None else self._whole.point(self._start)
        return self._first

    @property
    def last(self) -> Point:
        """Return the point of the last event."""
        return self.points[-1] if self._whole is None else self._whole.point(self._stop - 1)

    def split(self, bound: Point) -> tuple[Run, Run]:
        """Return the events at or before a point, and the rest."""
        if not self or self.first > bound:
            return EMPTY, self
        if self._whole is None:
            at = bisect_right(self.points, bound)
            if at == len(self.points):
                return self, EMPTY
            return (
                Run(self.points[:at], self.events[:at], arrived=self.arrived),
                Run(self.points[at:], self.events[at:], arrived=self.arrived),
            )
        at = self._whole.count_up_to(bound, self._start, self._stop)
        if at == self._stop:
            return self, EMPTY
        return self._rows(self._start, at), self._rows(at, self._stop)

    def only(self, tags: TagSet) -> Run:
        """Return the events of some tags, whatever their keys."""
        names = set(tags.tags)
        if self.batch is None:
            chosen = [(p, e) for p, e in zip(self.points, self.events, strict=True) if e.tag.name in names]
            return (
                Run([p for p, _ in chosen], [e for _, e in chosen], None, self.arrived)
                if len(chosen) < len(self)
                else self
            )
        numbers = [number for number, tag in enumerate(self.batch.tags) if tag.name in names]
        if len(numbers) == len(self.batch.tags):
            return self
        if self.batch.table_of is None or not numbers:
            return EMPTY
        rows = np.flatnonzero(np.isin(self.batch.table_of, numbers))
        return Run(batch=self.batch.take(rows), arrived=self.arrived)

    def count(self, tags: TagSet) -> int:
        """Return the number of events in a tag set."""
        if self.batch is None:
            return sum(tags.has(event.tag, event.key) for event in self.events)
        return self.batch.count(tags)

    def keys(self) -> set[Key] | None:
        """Return the keys of the events; None if some see all keys."""
        if self.batch is None:
            found = {event.key for event in self.events}
            return None if any(event.tag.key is None for event in self.events) else found
        if any(tag.key is None for tag in self.batch.tags):
            return None
        return {key for one in self.batch.runs() for key in one.keys.unique().to_pylist()}

    def divert(self, keys: Collection[Key]) -> tuple[Run, dict[Key, Run]]:
        """Return the events of other keys, and the events of each given key; all tags are keyed."""
        if not keys:
            return self, {}
        if self.batch is None:
            rest = [(p, e) for p, e in zip(self.points, self.events, strict=True) if e.key not in keys]
            if len(rest) == len(self.points):
                return self, {}
            diverted: dict[Key, tuple[list[Point], list[Event]]] = {}
            for point, event in zip(self.points, self.events, strict=True):
                if event.key in keys:
                    points, events = diverted.setdefault(event.key, ([], []))
                    points.append(point)
                    events.append(event)
            return Run([p for p, _ in rest], [e for _, e in rest]), {k: Run(*both) for k, both in diverted.items()}
        found, listed = self.batch.places_of_keys(keys)
        rows = np.flatnonzero(found >= 0)
        if not len(rows):
            return self, {}
        rows = rows[np.argsort(found[rows], kind="stable")]  # events of one key together, and in O
        places, starts = np.unique(found[rows], return_index=True)
        of_keys = zip(places.tolist(), np.split(rows, starts[1:]), strict=True)
        others = Run(batch=self.batch.take(np.flatnonzero(found < 0))) if len(rows) < len(found) else EMPTY
        return others, {listed[place]: Run(batch=self.batch.take(mine)) for place, mine in of_keys}

    def __iter__(self) -> Iterator[tuple[Point, Event]]:
        """Iterate over (point, event)."""
        if self.batch is None:
            return zip(self.points, self.events, strict=True)
        return zip(self.batch.points(), self.batch, strict=True)

    def fold(self, kind: StateKind, state: State, emit: Emit) -> State:
        """Return the state after all events of the run."""
        if self.batch is None:
            return fold(kind, state, self.events, emit)
        return fold_batch(kind, state, self.batch, emit)


EMPTY = Run()


def merged(runs: Iterable[Run]) -> Run:
    """Merge several runs into one run in O."""
    filled = [run for run in runs if run]
    if len(filled) <= 1:
        return filled[0] if filled else EMPTY
    streams = next((run.batch.streams for run in filled if run.batch is not None), None)
    if streams is not None:
        return Run(batch=Batch.merge([run.batch or Batch.of_events(run.events, streams) for run in filled]))
    pairs = list(heap_merge(*filled, key=itemgetter(0)))
    return Run([point for point, _ in pairs], [event for _, event in pairs])
