"""What stands above the root: it starts the run, takes snapshots on the way, and ends it.

A snapshot is an event at a chosen point that changes nothing and depends on everything (DESIGN section 8): a request
for :data:`~flumina.runtime.messages.EVERYTHING`. So is the end of the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flumina.order import END, START, Point
from flumina.runtime.mailbox import before
from flumina.runtime.messages import EVERYTHING, Handback, Item, Message, Request, Response, Stop
from flumina.runtime.worker import Address, Effects
from flumina.state import copied


@dataclass(frozen=True)
class Snapshot:
    """The state after all events up to a point, and no other."""

    point: Point
    state: Any


class Coordinator:
    """Gives the root its first state, and asks for it at the points given and at the end.

    Unless it ``ends`` by itself, it asks for the state at the end when :meth:`end` is called: until then, what comes
    last may still be :mod:`cut off <flumina.runtime.cut>`.
    """

    def __init__(
        self,
        root: str,
        state: Any,  # noqa: ANN401 -- whatever the program's state is
        at: Sequence[Point] = (),
        start: Point = START,
        *,
        ends: bool = True,
    ) -> None:
        assert list(at) == sorted(set(at)), "snapshots are taken in order, each once"
        assert all(start < point < END for point in at), "snapshots lie ahead"
        self.root, self.initial, self.at, self.start = root, state, tuple(at), start
        self.ends = ends
        self.snapshots: list[Snapshot] = []
        self.final: Any = None
        self.finished = False

    def begin(self) -> Effects:
        """The first messages of a run."""
        upto = END if self.ends else before(END)
        items = tuple(Item(point, EVERYTHING) for point in (*self.at, *([END] if self.ends else [])))
        return Effects(
            [(self.root, Handback(self.initial, self.start)), (self.root, Request(items, upto, upto))],
        )

    def end(self) -> Effects:
        """All parts have ended: ask for the state behind everything."""
        assert not self.ends, "it has been asked for before"
        self.ends = True
        return Effects([(self.root, Request((Item(END, EVERYTHING),), END, END))])

    def handle(self, sender: Address, message: Message) -> Effects:
        """A snapshot, or the end."""
        assert isinstance(message, Response), f"the coordinator got {message}"
        assert sender == self.root
        if message.point == END:
            self.final, self.finished = message.state, True
            return Effects([(self.root, Stop())])
        self.snapshots.append(Snapshot(message.point, copied(message.state)))
        return Effects([(self.root, Handback(message.state, message.point))])
