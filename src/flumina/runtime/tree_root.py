"""Start the trees of a plan, take snapshots, and end the run.

A snapshot is an event at a chosen point that changes nothing and depends on everything (DESIGN section 8): a request
for :data:`~flumina.runtime.messages.EVERYTHING`. So is the end of the run. Nothing is joined above the trees: the
states of all of them are the snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flumina.model.order import END, START, Point
from flumina.model.tick import Horizon
from flumina.runtime.mailbox import before
from flumina.runtime.messages import EVERYTHING, ForkState, Item, Message, Request, Response, Stop
from flumina.runtime.worker import Address, Effects
from flumina.state.compare import copied


class TreeRoot:
    """The parent of all trees: sends initial states and requests snapshots and the end.

    Unless it ``ends`` by itself, it asks for the state at the end when :meth:`end` is called: until then, what comes
    last may still be :mod:`truncated <flumina.runtime.truncate>`. ``last`` is the horizon of ticks, if it is known
    before.
    """

    def __init__(
        self,
        states: Mapping[str, Any],
        at: Sequence[Point] = (),
        start: Point = START,
        *,
        ends: bool = True,
        last: Horizon | None = None,
    ) -> None:
        assert list(at) == sorted(set(at)), "snapshots are taken in order, each once"
        assert all(start < point < END for point in at), "snapshots lie ahead"
        self.initial, self.at, self.start = dict(states), tuple(at), start
        self.ends, self.last = ends, last
        self.snapshots: dict[Point, dict[str, Any]] = {point: {} for point in at}
        """The states of the trees at these points, as they arrive."""
        self.final: dict[str, Any] = {}

    @property
    def finished(self) -> bool:
        """Return whether all trees have answered for the end."""
        return len(self.final) == len(self.initial)

    def begin(self) -> Effects:
        """Return the first messages of a run."""
        upto = END if self.ends else before(END)
        items = tuple(Item(point, EVERYTHING) for point in (*self.at, *([END] if self.ends else [])))
        effects = Effects()
        for tree, state in self.initial.items():
            effects.sends += [(tree, ForkState(state, self.start)), (tree, Request(items, upto, upto, last=self.last))]
        return effects

    def end(self, last: Horizon | None = None) -> Effects:
        """Request the final states, after all parts have ended; ticks come up to the horizon ``last``."""
        assert not self.ends, "it has been asked for before"
        self.ends = True
        return Effects([(tree, Request((Item(END, EVERYTHING),), END, END, last=last)) for tree in self.initial])

    def handle(self, sender: Address, message: Message) -> Effects:
        """Record a tree's part of a snapshot, or its final state."""
        assert isinstance(message, Response), f"the tree_root got {message}"
        assert isinstance(sender, str)
        assert sender in self.initial, f"the tree_root does not know {sender}"
        if message.point == END:
            self.final[sender] = message.state
            return Effects([(sender, Stop())])
        self.snapshots[message.point][sender] = copied(message.state)
        return Effects([(sender, ForkState(message.state, message.point))])
