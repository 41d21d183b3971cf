"""Channels that keep the order between two ends and nothing else, and sources that feed them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from flumina.order import END, START, Point
from flumina.runtime.messages import Credit, Data, Message, PartId
from flumina.runtime.run import EMPTY, Run
from flumina.runtime.worker import Address
from flumina.sim.case import Entry

Link = tuple[Address, Address]


class Network:
    """Messages on their way: first in, first out for each pair of ends."""

    def __init__(self) -> None:
        self.links: dict[Link, deque[Message]] = {}
        self.busy: list[Link] = []

    def send(self, sender: Address, receiver: Address, message: Message) -> None:
        """Put a message on its way."""
        queue = self.links.setdefault((sender, receiver), deque())
        if not queue:
            self.busy.append((sender, receiver))
        queue.append(message)

    def deliver(self, which: int) -> tuple[Address, Address, Message]:
        """Take the first message of the link that stands at this place among the busy ones."""
        link = self.busy[which]
        queue = self.links[link]
        message = queue.popleft()
        if not queue:
            self.busy[which] = self.busy[-1]
            self.busy.pop()
        return (*link, message)


@dataclass(frozen=True, slots=True)
class Cut:
    """How far a source goes in one step: events up to here, and then perhaps a heartbeat."""

    events: int
    heartbeat: Point | None


class Source:
    """One part: sends its events in order, to every receiver what is for it and to all of them the frontier.

    A receiver is sent no more events than it has credits for; one that has none holds the source back.
    """

    def __init__(
        self, part: PartId, entries: Sequence[Entry], routes: Sequence[str], receivers: Sequence[str], credits_: int
    ) -> None:
        self.part, self.entries, self.routes, self.receivers = part, entries, routes, receivers
        self.next = 0
        self.frontier = START
        self.credits = dict.fromkeys(receivers, credits_)

    @property
    def ended(self) -> bool:
        """Whether everything was sent, the end included."""
        return self.frontier == END

    def room(self) -> int:
        """How many of the next events there are credits for."""
        left = dict(self.credits)
        count = 0
        for receiver in self.routes[self.next :]:
            if not left[receiver]:
                break
            left[receiver] -= 1
            count += 1
        return count

    def ready(self) -> bool:
        """Whether something can be sent now."""
        return not self.ended and (self.next == len(self.entries) or self.room() > 0)

    def advance(self, cut: Cut) -> list[tuple[str, Data]]:
        """Send the next events and the frontier behind them."""
        entries = self.entries[self.next : self.next + cut.events]
        routes = self.routes[self.next : self.next + cut.events]
        self.next += cut.events
        if self.next == len(self.entries) and cut.heartbeat == END:
            self.frontier = END
        elif cut.heartbeat is not None:
            self.frontier = max(self.frontier, cut.heartbeat)
        elif entries:
            self.frontier = entries[-1][0]
        sends = []
        for receiver in self.receivers:
            mine = [entry for entry, route in zip(entries, routes, strict=True) if route == receiver]
            self.credits[receiver] -= len(mine)
            run = Run([point for point, _ in mine], [event for _, event in mine]) if mine else EMPTY
            sends.append((receiver, Data(self.part, run, self.frontier)))
        return sends

    def credit(self, sender: str, message: Credit) -> None:
        """A receiver has taken events out of its buffer."""
        self.credits[sender] += message.events
