"""Deliver messages in order for each link, and send events of parts."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from flumina.model.event import Event
from flumina.model.order import END, START, Point
from flumina.runtime.messages import Data, Message, PartId
from flumina.runtime.run import EMPTY, Run
from flumina.runtime.worker import Address
from flumina.sim.case import Entry

Link = tuple[Address, Address]

UNLIMITED = 1_000_000_000
"""So many credits that none is ever waited for."""


class Network:
    """Messages on their way: first in, first out for each pair of ends."""

    def __init__(self) -> None:
        self.links: dict[Link, deque[Message]] = {}
        self.busy: list[Link] = []

    def send(self, sender: Address, receiver: Address, message: Message) -> None:
        """Send a message."""
        link = sender, receiver
        queue = self.links.get(link)
        if queue is None:
            queue = self.links[link] = deque()
        if not queue:
            self.busy.append(link)
        queue.append(message)

    def deliver(self, which: int) -> tuple[Address, Address, Message]:
        """Remove and return the first message of a busy link."""
        link = self.busy[which]
        queue = self.links[link]
        message = queue.popleft()
        if not queue:
            last = self.busy.pop()
            if which < len(self.busy):
                self.busy[which] = last
        return (*link, message)

    def drain(self) -> list[tuple[Address, Address, Message]]:
        """Remove and return all messages in transit, in the order of each link."""
        found = [(*link, message) for link in self.busy for message in self.links[link]]
        self.links, self.busy = {}, []
        return found


@dataclass(frozen=True, slots=True)
class Delivery:
    """How far a source goes in one step: so many events, and then perhaps a heartbeat."""

    events: int
    heartbeat: Point | None = None


@dataclass(frozen=True, slots=True)
class Lane:
    """What a part has for one worker: places in the part, points and events."""

    places: Sequence[int]
    points: Sequence[Point]
    events: Sequence[Event]


class PartSource:
    """One part: sends its events in order, to every receiver what is for it and to all of them the frontier.

    A receiver is sent no more events than it has credits for; one that has none holds the source back.
    """

    def __init__(
        self,
        part: PartId,
        entries: Sequence[Entry],
        routes: Sequence[str],
        receivers: Sequence[str],
        credits_: int = UNLIMITED,
    ) -> None:
        self.part, self.entries, self.routes, self.receivers = part, entries, routes, receivers
        places: dict[str, list[int]] = {receiver: [] for receiver in receivers}
        for place, receiver in enumerate(routes):
            places[receiver].append(place)
        self.lanes = {
            receiver: Lane(mine, [entries[i][0] for i in mine], [entries[i][1] for i in mine])
            for receiver, mine in places.items()
        }
        self.next = 0
        self.stop = len(entries)
        """After the last event that may be sent in this epoch."""
        self.frontier = START
        self.promised = START
        """The frontier over all epochs, the ends of earlier epochs aside."""
        self.limited = credits_ < UNLIMITED
        self.credits = dict.fromkeys(receivers, credits_)

    @property
    def left(self) -> int:
        """Return the number of events that were not sent yet."""
        return self.stop - self.next

    @property
    def ended(self) -> bool:
        """Return whether everything was sent, the end included."""
        return self.frontier == END

    def room(self, most: int) -> int:
        """Return how many of the next events have credits."""
        stop = min(self.stop, self.next + most)
        if self.limited:
            left = dict(self.credits)
            for place in range(self.next, stop):
                receiver = self.routes[place]
                if not left[receiver]:
                    return place - self.next
                left[receiver] -= 1
        return stop - self.next

    def ready(self) -> bool:
        """Return whether the source can send now."""
        return self.frontier != END and (self.next == self.stop or self.room(1) > 0)

    def stop_at(self, bound: Point) -> None:
        """Send nothing after a point in this epoch."""
        self.stop = max(self.next, sum(point <= bound for point, _ in self.entries))

    def go_on(self) -> None:
        """Begin the next epoch."""
        self.stop, self.frontier = len(self.entries), START

    def advance(self, delivery: Delivery) -> list[tuple[str, Data]]:
        """Send the next events, and after them the frontier, or a heartbeat that promises more."""
        events, beat = delivery.events, delivery.heartbeat
        start, stop = self.next, self.next + events
        self.next = stop
        if events:
            self.frontier = self.promised = self.entries[stop - 1][0]
        if beat is not None:
            assert self.frontier <= beat, "a frontier never goes back"
            assert stop == self.stop or beat < self.entries[stop][0], "a heartbeat keeps its word"
            self.frontier = beat
            self.promised = self.promised if beat == END else beat
        sends = []
        for receiver, lane in self.lanes.items():
            run = EMPTY
            if events:
                low = bisect_left(lane.places, start)
                high = bisect_left(lane.places, stop, low)
                if low < high:
                    self.credits[receiver] -= high - low
                    run = Run(lane.points[low:high], lane.events[low:high])
            sends.append((receiver, Data(self.part, run, self.frontier)))
        return sends
