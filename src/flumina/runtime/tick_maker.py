"""Make the ticks of an inner worker, of a keyed tag for each of its named keys.

Ticks are made a few ahead, so that children hear of them early, and again when those are served. The last of them is
served with nothing behind it, so that ticks which do nothing can be left out then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from flumina.model.event import Event
from flumina.model.order import Point
from flumina.model.tick import seq_of
from flumina.program.definition import StateKind
from flumina.runtime.key_progress import Entry
from flumina.runtime.messages import Item
from flumina.runtime.run import Run
from flumina.runtime.tick_cursor import Seen, TickCursor, right_before, tick_event
from flumina.runtime.topology import WorkerShape
from flumina.runtime.worker import Worker

AHEAD = 4
"""How many ticks are made before the first of them is served."""


class TickMaker:
    """The cursors of an inner worker, and the ticks that it has made and not admitted to its sequence."""

    def __init__(self, shape: WorkerShape, *, by_key: bool) -> None:
        self.shape, self.by_key = shape, by_key
        self.cursors = {
            (ticks.tag.name, key): TickCursor(ticks, key)
            for ticks in shape.ticks
            for key in ([None] if ticks.tag.key is None else sorted(ticks.keys.flips, key=seq_of))
        }
        self.all = list(self.cursors.values())
        self.groups = self._groups()
        """Cursors whose ticks are made together."""
        self.ready: list[Entry] = []
        self.served = False
        """Whether a tick was served since the last were made."""

    def _groups(self) -> list[list[TickCursor]]:
        """Return the cursors by what they tick: a key, where keys are joined one by one and no tick is of all."""
        if not self.by_key or any(cursor.key is None for cursor in self.all):
            return [self.all] if self.all else []
        return [[cursor for cursor in self.all if cursor.key == key] for key in {c.key: None for c in self.all}]

    def begin(self, point: Point) -> None:
        """Begin behind a point."""
        for cursor in self.all:
            cursor.begin(point)

    def of(self, event: Event) -> TickCursor:
        """Return the cursor that made a tick."""
        return self.cursors[event.tag.name, event.key]

    def make(self, seen: Seen) -> None:
        """Make the next ticks up to the horizon, in their order, where all made before are served.

        Where ticks of all keys and of single ones meet, only those at one place are made: no more of a key is then
        waiting when all states are here, and ticks that do nothing can be left out.
        """
        self.served = False
        for cursors in self.groups:
            if any(cursor.made for cursor in cursors):
                continue
            for cursor in cursors:
                cursor.end(seen)
            mixed = len({cursor.key is None for cursor in cursors}) > 1
            first = min(cursor.frontier for cursor in cursors)
            for _ in range(len(cursors) if mixed else AHEAD):
                cursor = min(cursors, key=attrgetter("frontier"))
                if cursor.ts is None or not cursor.begun or cursor.ts > seen.limit(cursor.shape.tag):
                    break
                if mixed and cursor.frontier != first:
                    break
                self._make(cursor, cursor.ts, seen)
                cursor.end(seen)

    def _make(self, cursor: TickCursor, ts: int, seen: Seen) -> None:
        tag, key = cursor.shape.tag, cursor.key
        cause = (self.shape.id, tag.name)
        item = Item(Point(ts, cursor.shape.rank, seq_of(key)), cause, key if self.by_key else None)
        self.ready.append(Entry(item, tick_event(tag, ts, key, seen, self.shape.all_ticks)))
        cursor.made.append(ts)
        cursor.ts = cursor.following(ts)

    def up_to(self, limit: Point) -> list[Entry]:
        """Remove and return the ticks up to a point."""
        found = [entry for entry in self.ready if entry.item.point <= limit]
        if found:
            self.ready = [entry for entry in self.ready if entry.item.point > limit]
        return found

    def serve(self, tick: Run, kind: StateKind, state: Any, due: int | None, worker: Worker) -> Any:  # noqa: ANN401
        """Return a state after a tick, the first that its cursor made, by when the state is due."""
        ((point, event),) = tick
        self.of(event).made.popleft()
        self.served = True
        if due is None or due > point.ts:
            return state
        worker.counting.ticks += 1
        return tick.fold(kind, state, worker.emit)

    def truncate(self, bound: Point) -> None:
        """Remove the ticks after a point."""
        self.ready = [entry for entry in self.ready if entry.item.point <= bound]
        for cursor in self.all:
            cursor.made = deque(ts for ts in cursor.made if ts <= bound.ts)


def leave_out(cursors: Sequence[tuple[TickCursor, int | None]], bound: Point) -> None:
    """Leave out the ticks up to a point, and before the first that does something, by when they are due."""
    firing = [place for cursor, due in cursors if (place := cursor.firing(due)) is not None]
    if firing:
        bound = min(bound, right_before(min(firing)))
    for cursor, _ in cursors:
        cursor.skip(bound)
