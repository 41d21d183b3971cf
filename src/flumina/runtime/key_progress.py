"""Entries, responses and state of one key at a keyed inner worker."""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from flumina.model.event import Event
from flumina.model.order import START, Point
from flumina.runtime.messages import Item, PartId, Response

NOTHING = object()
"""Where there is no state."""


class Entry(NamedTuple):
    """An own event with its part, or a request of the parent."""

    item: Item
    event: Event | None = None
    part: PartId | None = None


class KeyProgress:
    """A key with entries to serve, or whose state is in transit."""

    def __init__(self, sides: tuple[int, ...]) -> None:
        self.sides = sides
        self.entries: deque[Entry] = deque()
        self.own: deque[Point] = deque()
        """The points of the own events among the entries."""
        self.responses: dict[int, deque[Response]] = {side: deque() for side in sides}
        self.halves: dict[int, Any] = {}
        """States of children that have come, by side."""
        self.answered = dict.fromkeys(sides, START)
        self.settled = dict.fromkeys(sides, START)
        self.quiet = dict.fromkeys(sides, START)
        """Up to where all events of children are in the states that have come."""
        self.state: Any = NOTHING
        self.away = False
        self.served = START
        self.asked = 0
        """How many of the entries the children have been asked for."""
        self.expected = 0
        """How many answers of children that hand over are still to come."""

    def add(self, entry: Entry) -> None:
        """Append an entry."""
        self.entries.append(entry)
        if entry.event is not None:
            self.own.append(entry.item.point)

    def drop_first(self) -> Entry:
        """Remove and return the first entry."""
        entry = self.entries.popleft()
        self.asked = max(0, self.asked - 1)
        if entry.event is not None:
            self.own.popleft()
        return entry

    @property
    def first(self) -> Point | None:
        """Return the point of the first entry."""
        return self.entries[0].item.point if self.entries else None

    @property
    def first_own(self) -> Point | None:
        """Return the point of the first own event."""
        return self.own[0] if self.own else None

    @property
    def first_unasked(self) -> Point | None:
        """Return the point of the first entry that was not requested from the children."""
        return self.entries[self.asked].item.point if self.asked < len(self.entries) else None
