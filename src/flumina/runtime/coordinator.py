"""What stands above the root: it starts the run, takes snapshots on the way, and ends it.

A snapshot is an event at a chosen point that changes nothing and depends on everything (DESIGN section 8): a request
for :data:`~flumina.runtime.messages.EVERYTHING`. So is the end of the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flumina.order import END, START, Point
from flumina.runtime.messages import EVERYTHING, Handback, Item, Message, Request, Response, Stop
from flumina.runtime.worker import Address, Effects
from flumina.state import copied


@dataclass(frozen=True)
class Snapshot:
    """The state after all events up to a point, and no other."""

    point: Point
    state: Any


class Coordinator:
    """Gives the root its first state, and asks for it at the points given and at the end."""

    def __init__(self, root: str, state: Any, at: Sequence[Point] = (), start: Point = START) -> None:  # noqa: ANN401
        assert list(at) == sorted(set(at)), "snapshots are taken in order, each once"
        assert all(start < point < END for point in at), "snapshots lie ahead"
        self.root, self.initial, self.at, self.start = root, state, tuple(at), start
        self.snapshots: list[Snapshot] = []
        self.final: Any = None
        self.finished = False

    def begin(self) -> Effects:
        """The first messages of a run."""
        items = tuple(Item(point, EVERYTHING) for point in (*self.at, END))
        return Effects(
            [(self.root, Handback(self.initial, self.start)), (self.root, Request(items, END, END))],
        )

    def handle(self, sender: Address, message: Message) -> Effects:
        """A snapshot, or the end."""
        assert isinstance(message, Response), f"the coordinator got {message}"
        assert sender == self.root
        if message.point == END:
            self.final, self.finished = message.state, True
            return Effects([(self.root, Stop())])
        self.snapshots.append(Snapshot(message.point, copied(message.state)))
        return Effects([(self.root, Handback(message.state, message.point))])
