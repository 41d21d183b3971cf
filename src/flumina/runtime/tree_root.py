"""What stands above the trees of a plan: it starts the run, takes snapshots on the way, and ends it.

A snapshot is an event at a chosen point that changes nothing and depends on everything (DESIGN section 8): a request
for :data:`~flumina.runtime.messages.EVERYTHING`. So is the end of the run. Nothing is joined above the trees: the
states of all of them are the snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flumina.model.order import END, START, Point
from flumina.runtime.mailbox import before
from flumina.runtime.messages import EVERYTHING, ForkState, Item, Message, Request, Response, Stop
from flumina.runtime.worker import Address, Effects
from flumina.state.compare import copied


class TreeRoot:
    """Gives trees their first states, by the ids of their roots, and asks for them at the points given and at the end.

    Unless it ``ends`` by itself, it asks for the state at the end when :meth:`end` is called: until then, what comes
    last may still be :mod:`cut off <flumina.runtime.truncate>`.
    """

    def __init__(
        self,
        states: Mapping[str, Any],
        at: Sequence[Point] = (),
        start: Point = START,
        *,
        ends: bool = True,
    ) -> None:
        assert list(at) == sorted(set(at)), "snapshots are taken in order, each once"
        assert all(start < point < END for point in at), "snapshots lie ahead"
        self.initial, self.at, self.start = dict(states), tuple(at), start
        self.ends = ends
        self.snapshots: dict[Point, dict[str, Any]] = {point: {} for point in at}
        """The states of the trees at these points, as far as they have come."""
        self.final: dict[str, Any] = {}

    @property
    def finished(self) -> bool:
        """Whether all trees have answered for the end."""
        return len(self.final) == len(self.initial)

    def begin(self) -> Effects:
        """The first messages of a run."""
        upto = END if self.ends else before(END)
        items = tuple(Item(point, EVERYTHING) for point in (*self.at, *([END] if self.ends else [])))
        effects = Effects()
        for tree, state in self.initial.items():
            effects.sends += [(tree, ForkState(state, self.start)), (tree, Request(items, upto, upto))]
        return effects

    def end(self) -> Effects:
        """All parts have ended: ask for the states behind everything."""
        assert not self.ends, "it has been asked for before"
        self.ends = True
        return Effects([(tree, Request((Item(END, EVERYTHING),), END, END)) for tree in self.initial])

    def handle(self, sender: Address, message: Message) -> Effects:
        """A tree's part of a snapshot, or its end."""
        assert isinstance(message, Response), f"the tree_root got {message}"
        assert isinstance(sender, str)
        assert sender in self.initial, f"the tree_root does not know {sender}"
        if message.point == END:
            self.final[sender] = message.state
            return Effects([(sender, Stop())])
        self.snapshots[message.point][sender] = copied(message.state)
        return Effects([(sender, ForkState(message.state, message.point))])
