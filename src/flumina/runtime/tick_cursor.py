"""Make the ticks of a worker: which comes next, and how far the input has been seen.

Ticks have no source. A worker knows their schedules, and makes a tick when everything before it has come and the input
is known to have reached it. Ticks that do nothing are skipped, not made::

    seen      the highest timestamp of an event that the worker has heard of, by its own events (Data), by those below
              (Shown) or above it (requests); at the end of an epoch or run the final horizon
    next      the first tick that was neither made nor skipped; the frontier of a cursor lies right before it
    AtEnd     stands at the last timestamp there is, so that everything comes before it
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from flumina.model.event import Event
from flumina.model.order import END, LAST, START, Point
from flumina.model.tag_set import Key, KeySet
from flumina.model.tick import NOWHERE, AtEnd, Every, Horizon, Tick, end_of
from flumina.program.candidates import Candidates
from flumina.program.ticks import ALWAYS_DUE, TickRule
from flumina.state.keyed_map import KeyedMap

Place = tuple[int, int]
"""The timestamp and the rank of a tick; ticks of several keys at one place do not depend on each other."""


@dataclass(frozen=True)
class TickShape:
    """A tick tag of a worker, with its keys there; ``one_key`` if its rule is about the state of one key."""

    tag: Tick
    rank: int
    rule: TickRule
    keys: KeySet
    one_key: bool

    def due(self, state: object, key: Key = None) -> int | None:
        """Return from when on a tick does something to a whole state; None if it does nothing."""
        if not self.one_key:
            return self.rule.due(state)
        assert isinstance(state, KeyedMap)
        if key is None:
            return ALWAYS_DUE if state else None
        return self.rule.due(dict.__getitem__(state, key)) if dict.__contains__(state, key) else None


class Seen:
    """How far the input has been seen, as far as a worker knows."""

    def __init__(self) -> None:
        self.ts = NOWHERE.ts
        self.last: Horizon | None = None
        """The final horizon, once it is known."""

    def raise_to(self, ts: int) -> bool:
        """Note an event; return whether it was the highest so far."""
        if self.last is not None or ts <= self.ts:
            return False
        self.ts = ts
        return True

    def ends_at(self, last: Horizon) -> None:
        """Note that nothing more will be seen."""
        if self.last is None:
            self.last = last

    def limit(self, tag: Tick) -> int:
        """Return the timestamp up to which ticks of a tag come."""
        if self.last is None:
            return NOWHERE.ts if isinstance(tag, AtEnd) else self.ts
        if isinstance(tag, AtEnd):
            return LAST if self.last.closed and self.last != NOTHING_SEEN else NOWHERE.ts
        assert isinstance(tag, Every)
        return NOWHERE.ts if self.last == NOTHING_SEEN else self.last.last(tag)


NOTHING_SEEN = Horizon(NOWHERE.ts, closed=True)
"""The horizon of ended input without any event: no tick comes."""


class TickCursor:
    """The next tick of a tag, of all its keys or of one."""

    def __init__(self, shape: TickShape, key: Key = None) -> None:
        self.shape, self.key = shape, key
        self.ts: int | None = None
        """The timestamp of the next tick; None if there is none."""
        self.begun = False
        self.made: deque[int] = deque()
        """The timestamps of ticks that were made and not served, at an inner worker."""
        by_key = shape.one_key and shape.tag.key is not None
        self.candidates = Candidates(shape.rule, shape.keys) if by_key and key is None else None
        """At a leaf the keys for which a tick has something to do."""

    def due(self, state: Any) -> int | None:  # noqa: ANN401 -- whatever the program's state is
        """Return from when on a tick does something to a state; None if it does nothing."""
        if self.candidates is None:
            return self.shape.due(state, self.key)
        self.candidates.look(state)
        return self.candidates.first

    def begin(self, point: Point) -> None:
        """Begin behind a point."""
        if not self.begun:
            self.begun = True
            self.ts = self.following(self.passed(point))

    def passed(self, point: Point) -> int:
        """Return the timestamp up to which ticks lie at or before a point, or at its place."""
        return point.ts if self.shape.rank <= point.rank else point.ts - 1

    def following(self, ts: int) -> int | None:
        """Return the first tick behind a timestamp."""
        tag = self.shape.tag
        if isinstance(tag, Every):
            return tag.schedule.after(ts)
        return LAST if ts < LAST else None

    @property
    def frontier(self) -> Point:
        """Return the point right before the next tick."""
        if not self.begun:
            return START
        return END if self.ts is None else Point(self.ts, self.shape.rank, -1)

    def skip(self, point: Point) -> bool:
        """Leave out the ticks up to a point; return whether there were any."""
        if self.ts is None or not self.begun or self.passed(point) < self.ts:
            return False
        self.ts = self.following(self.passed(point))
        return True

    def firing(self, due: int | None) -> Place | None:
        """Return the place of the next tick that does something, by when the state is due."""
        first = self.made[0] if self.made else self.ts
        if due is None or first is None:
            return None
        ts = first if due <= first else self.following(due - 1)
        return None if ts is None else (ts, self.shape.rank)

    def end(self, seen: Seen) -> bool:
        """Leave out the ticks that never come; return whether there were any."""
        if seen.last is None or self.ts is None or not self.begun or self.ts <= seen.limit(self.shape.tag):
            return False
        self.ts = None
        return True


def tick_event(tag: Tick, ts: int, key: Key, seen: Seen, all_ticks: tuple[Tick, ...]) -> Event:
    """Return a tick; that at the end has the timestamp of the last event or tick."""
    if isinstance(tag, AtEnd):
        assert seen.last is not None, "the end is known"
        ts = end_of(all_ticks, seen.last.ts)
    return tag.tick(ts, key)


def right_before(place: Place) -> Point:
    """Return the last point before the ticks at a place."""
    return Point(place[0], place[1] - 1, LAST)


def within(place: Place, point: Point) -> bool:
    """Return whether a tick at a place comes up to a point."""
    return place <= (point.ts, point.rank)
