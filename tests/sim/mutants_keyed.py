"""Deliberate bugs of the workers of keyed programs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from flumina.model.order import END, Point
from flumina.model.tag_set import Key
from flumina.runtime import worker as worker_module
from flumina.runtime.busy import Busy
from flumina.runtime.keyed_inner import KeyedInner
from flumina.runtime.keyed_leaf import HotKey, KeyedLeaf
from flumina.runtime.mailbox import before
from flumina.runtime.messages import EVERYTHING, ForkState, KeyStates, Message, Request
from flumina.runtime.run import Run
from flumina.runtime.topology import ProtocolOptions
from flumina.runtime.worker import Address
from tests.sim.mutant import mutant

HALVES, NOTE, TOGETHER = KeyedInner.halves, KeyedInner.note, worker_module.together
ONE_AT_A_TIME = ProtocolOptions(pipeline=False, hand_over=False)


# -- leaves ----------------------------------------------------------------------------------------------------------


@mutant((KeyedLeaf, "come"), seed=363)
def key_answered_at_once(self: KeyedLeaf, key: Key) -> Point:
    """A leaf gives the state of a key before the key's events have come."""
    return END


@mutant((Run, "divert"), seed=363)
def hot_key_goes_on(self: Run, keys: Collection[Key]) -> tuple[Run, dict[Key, Run]]:
    """Events of a key are processed while its state is wanted or away."""
    return self, {}


@mutant((HotKey, "first"), seed=594, is_property=True)
def line_forgotten(self: HotKey) -> Point | None:
    """What waits in the line of a key counts for nothing: not for ``clear``, nor for a snapshot."""
    return None


@mutant((KeyedLeaf, "quiet_up_to"), seed=363)
def everything_while_a_key_is_away(self: KeyedLeaf, point: Point) -> bool:
    """All states are given away though that of one key is somewhere else."""
    return self.parent_frontier >= point and all(component.clear >= point for component in self.components)


@mutant((KeyedLeaf, "quiet_up_to"), options=ONE_AT_A_TIME, seed=363)
def everything_before_the_parent_is_known(self: KeyedLeaf, point: Point) -> bool:
    """All states are given away while a request for one key may be on its way."""
    return all(component.clear >= point for component in self.components) and not any(
        hot.away or hot.requests or hot.first is not None for hot in self.hot.values()
    )


@mutant((KeyedLeaf, "on_fork_state"), seed=726)
def keyed_leaf_without_served(self: KeyedLeaf, message: ForkState) -> None:
    """A leaf keeps requests for a key that were settled without it, and answers them."""
    if message.key is None:
        self.away, self.states = False, message.state
    else:
        self.hot[message.key].away = False
        self.gone.pop(message.key)
        self.touched[message.key] = None
        self.states[message.key] = message.state


@mutant((KeyedLeaf, "note"), seed=363)
def due_keys_are_not_woken(self: KeyedLeaf, key: Key, hot: HotKey) -> None:
    """A key that waits for its events to come is not looked at again when they have."""
    self.first_lined.set(key, hot.first)
    self.first_asked.set(key, hot.requests[0].point if hot.requests else None)


# -- inner workers -----------------------------------------------------------------------------------------------------


@mutant((KeyedInner, "may_coalesce"), seed=363)
def coalesces_a_key_always(self: KeyedInner, busy: Busy) -> bool:
    """The next event of a key is served while its children may have events before it."""
    return True


@mutant((KeyedInner, "may_coalesce"), seed=208)
def ties_of_a_key_apart(self: KeyedInner, busy: Busy) -> bool:
    """Events of a key at one point are served one by one, though the children settle all of that point together."""
    return not busy.sides


@mutant((KeyedInner, "clear_of"), seed=3664)
def clear_of_the_children(self: KeyedInner, busy: Busy) -> Point:
    """An inner worker speaks for its children only."""
    return min((busy.clear[side] for side in busy.sides), default=END)


@mutant((KeyedInner, "clear_of"), seed=336)
def clear_of_the_inner_worker(self: KeyedInner, busy: Busy) -> Point:
    """An inner worker speaks for itself only."""
    own = [before(item.point) for item, event, _ in (*busy.entries, *self.sequence) if event is not None]
    own += [before(queue.first) for queue in self.queues.values() if queue.first is not None]
    return min([self.known, *own])


@mutant((KeyedInner, "halves"), seed=594)
def wrong_halves_of_a_key(self: KeyedInner, key: Key, sides: tuple[int, ...], state: Any) -> tuple[Any, ...]:
    """Each child gets what is for the other."""
    return HALVES(self, key, sides, state)[::-1]


@mutant((KeyedInner, "_sides_of"), seed=726)
def one_side_of_a_key(self: KeyedInner, key: Key) -> tuple[int, ...]:
    """Of two children that have events of a key one is forgotten."""
    return tuple(side for side, child in enumerate(self.shape.children) if child.tags.has_key(key))[:1]


@mutant((KeyedInner, "on_request"), options=ONE_AT_A_TIME, seed=207)
def requests_as_they_come(self: KeyedInner, message: Request) -> None:
    """Requests of different keys, which may come in another order than O, are taken in the order in which they come."""
    self.hidden.extend(item.point for item in message.items if item.cause == EVERYTHING)
    for item in message.items:
        latest = max((entry[0] for entry in self.requests), default=item.point)
        self.requests.append((max(latest, item.point), item.cause == EVERYTHING, len(self.requests), item))


@mutant((KeyedInner, "settled"), options=ProtocolOptions(), seed=217)
def everything_before_the_keys(self: KeyedInner) -> bool:
    """A request for everything is answered while single keys have something before it."""
    return len(self.gathered) == len(self.shape.children)


@mutant((KeyedInner, "settled"), seed=64)
def everything_before_the_children(self: KeyedInner) -> bool:
    """A request for everything is answered without a child's states."""
    return bool(self.gathered) and not any(busy.entries or busy.away for busy in self.busy.values())


@mutant((KeyedInner, "note"), options=ONE_AT_A_TIME, seed=207)
def frontier_past_what_keys_hold_back(self: KeyedInner, key: Key, busy: Busy) -> None:
    """Children are told a frontier behind requests of a key for which they were not asked yet."""
    NOTE(self, key, busy)
    self.first_unasked.set(key, None)


@mutant((KeyedInner, "note"), seed=217)
def first_of_a_key_is_not_renewed(self: KeyedInner, key: Key, busy: Busy) -> None:
    """A key that has been served counts as if it still had something to serve: a snapshot waits for ever."""
    self.first_own.set(key, busy.first_own)
    self.first_unasked.set(key, busy.first_unasked)
    if busy.first is not None:
        self.first.set(key, busy.first)


@mutant((worker_module, "together"), seed=726)
def one_of_several_states_is_lost(sends: Sequence[tuple[Address, Message]]) -> list[tuple[Address, Message]]:
    """Of the states of several keys in one message the last is left out."""
    return [(to, KeyStates(m.each[:-1]) if isinstance(m, KeyStates) else m) for to, m in TOGETHER(sends)]
