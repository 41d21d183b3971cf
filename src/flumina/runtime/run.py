"""A run: consecutive events of one worker that need no synchronisation between them; the unit of work.

Small runs are lists (``bisect`` on a list of ten points beats numpy); large ones are columns. Both cut and merge by the
order O, and the rest of the runtime does not know which it has.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge as heap_merge
from operator import itemgetter

import numpy as np

from flumina.batch import Batch
from flumina.definition import State, StateKind, fold, fold_batch
from flumina.emit import Emit
from flumina.events import Event
from flumina.order import Point
from flumina.tagsets import Key, TagSet


@dataclass(frozen=True, slots=True)
class Run:
    """Events in O with their points; ``batch`` instead where they are in columns."""

    points: Sequence[Point] = ()
    events: Sequence[Event] = ()
    batch: Batch | None = None
    arrived: float | None = None
    """When a worker got it, if somebody tells the time."""

    def __len__(self) -> int:
        return len(self.points) if self.batch is None else len(self.batch)

    def __bool__(self) -> bool:
        return len(self) > 0

    @property
    def first(self) -> Point:
        """The point of the first event."""
        return self.points[0] if self.batch is None else self.batch.point(0)

    @property
    def last(self) -> Point:
        """The point of the last event."""
        return self.points[-1] if self.batch is None else self.batch.point(len(self.batch) - 1)

    def cut(self, bound: Point) -> tuple[Run, Run]:
        """The events at or before a point, and the rest."""
        if not self or self.first > bound:
            return EMPTY, self
        if self.last <= bound:
            return self, EMPTY
        if self.batch is None:
            at = bisect_right(self.points, bound)
            return (
                Run(self.points[:at], self.events[:at], arrived=self.arrived),
                Run(self.points[at:], self.events[at:], arrived=self.arrived),
            )
        at = self.batch.count_up_to(bound)
        return (
            Run(batch=self.batch.slice(0, at), arrived=self.arrived),
            Run(batch=self.batch.slice(at, len(self.batch)), arrived=self.arrived),
        )

    def only(self, tags: TagSet) -> Run:
        """The events of these tags, whatever their keys."""
        names = set(tags.tags)
        if self.batch is None:
            kept = [(p, e) for p, e in zip(self.points, self.events, strict=True) if e.tag.name in names]
            return (
                Run([p for p, _ in kept], [e for _, e in kept], None, self.arrived) if len(kept) < len(self) else self
            )
        numbers = [number for number, tag in enumerate(self.batch.tags) if tag.name in names]
        if len(numbers) == len(self.batch.tags):
            return self
        if self.batch.table_of is None or not numbers:
            return EMPTY
        rows = np.flatnonzero(np.isin(self.batch.table_of, numbers))
        return Run(batch=self.batch.take(rows), arrived=self.arrived)

    def divert(self, keys: Collection[Key]) -> tuple[Run, dict[Key, Run]]:
        """The events of other keys, and those of each of these keys that has some; all tags are keyed."""
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
        listed = list(keys)
        found = self.batch.index_of_keys(listed)
        if not (found >= 0).any():
            return self, {}
        runs = {
            listed[i]: Run(batch=self.batch.take(np.flatnonzero(found == i)))
            for i in np.unique(found[found >= 0]).tolist()
        }
        rest_rows = np.flatnonzero(found < 0)
        return Run(batch=self.batch.take(rest_rows)) if len(rest_rows) else EMPTY, runs

    def __iter__(self) -> Iterator[tuple[Point, Event]]:
        """(point, event) one by one."""
        if self.batch is None:
            return zip(self.points, self.events, strict=True)
        batch = self.batch
        return ((batch.point(i), event) for i, event in enumerate(batch))

    def fold(self, kind: StateKind, state: State, emit: Emit) -> State:
        """The state after all events of the run."""
        if self.batch is None:
            return fold(kind, state, self.events, emit)
        return fold_batch(kind, state, self.batch, emit)


EMPTY = Run()


def merged(runs: Iterable[Run]) -> Run:
    """All events of several runs as one run in O."""
    filled = [run for run in runs if run]
    if len(filled) <= 1:
        return filled[0] if filled else EMPTY
    streams = next((run.batch.streams for run in filled if run.batch is not None), None)
    if streams is not None:
        return Run(batch=Batch.merge([run.batch or Batch.of_events(run.events, streams) for run in filled]))
    pairs = list(heap_merge(*filled, key=itemgetter(0)))
    return Run([point for point, _ in pairs], [event for _, event in pairs])
