"""Bugs of workers that are cut off in the middle of their work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flumina.model.order import Point
from flumina.runtime import inner as inner_module
from flumina.runtime import keyed_inner as keyed_module
from flumina.runtime import leaf as leaf_module
from flumina.runtime.inner import Inner
from flumina.runtime.keyed_inner import KeyedInner
from flumina.runtime.keyed_leaf import KeyedLeaf
from flumina.runtime.leaf import Leaf
from flumina.runtime.messages import Data, Item, Message, Request
from flumina.runtime.topology import ProtocolOptions
from flumina.runtime.truncate import truncated, truncated_queues
from flumina.runtime.worker import Worker
from flumina.sim import epochs
from tests.sim.mutant import WAITING, mutant


@mutant((leaf_module, "drop_after"), options=WAITING, truncations=True)
def requests_survive_the_cut(items: Sequence[Item], bound: Point) -> list[Item]:
    """A leaf still answers requests after the cut."""
    return list(items)


TRUNCATED = truncated


@mutant((epochs, "truncated"), options=WAITING, truncations=True, seed=24)
def requests_on_their_way_survive_the_cut(message: Message, ts: int) -> tuple[Message, Data | None]:
    """A request after the cut that was on its way arrives."""
    return (message, None) if isinstance(message, Request) else TRUNCATED(message, ts)


@mutant((epochs, "truncated"), options=WAITING, truncations=True)
def events_on_their_way_are_lost(message: Message, ts: int) -> tuple[Message, Data | None]:
    """Events after the cut that were on their way are dropped."""
    return TRUNCATED(message, ts)[0], None


@mutant((leaf_module, "truncated_queues"), options=WAITING, truncations=True)
def events_of_leaves_are_lost(queues: Any, ts: int, more: Mapping[Any, Any] | None = None) -> list[Data]:
    """Events after the cut that a leaf had are dropped."""
    return truncated_queues(queues, ts, more)[:0]


@mutant((inner_module, "truncated_queues"), options=WAITING, truncations=True)
def events_of_the_sequence_are_lost(queues: Any, ts: int, more: Mapping[Any, Any] | None = None) -> list[Data]:
    """Own events after the cut that were settled already are dropped."""
    del more
    return truncated_queues(queues, ts)


@mutant((Leaf, "pass_by"), (KeyedLeaf, "pass_by"), options=WAITING, truncations=True)
def leaves_pass_nothing(self: Worker, point: Point) -> None:
    """The cut may lie before events that a leaf has processed."""


@mutant((Inner, "pass_by"), (KeyedInner, "pass_by"), options=WAITING, truncations=True, seed=1208)
def inner_workers_pass_nothing(self: Worker, point: Point) -> None:
    """The cut may lie before events that an inner worker has processed."""


FORGET = Inner.forget


@mutant((Inner, "forget"), options=ProtocolOptions(pipeline=False, hand_over=False), truncations=True, seed=24)
def announced_is_not_adjusted(self: Inner, ts: int) -> list[Data]:
    """An inner worker takes requests for announced of which the children have never heard."""
    before = self.announced
    found = FORGET(self, ts)
    self.announced = before
    return found


@mutant((keyed_module, "drop_after"), options=WAITING, truncations=True, seed=4051)
def keyed_requests_survive_the_cut(items: Sequence[Item], bound: Point) -> list[Item]:
    """An inner worker of keyed programs still serves requests after the cut."""
    return list(items)
