"""Deliberate bugs of the workers of keyed programs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

from flumina.model.order import END, Point
from flumina.model.tag_set import Key
from flumina.runtime import worker as worker_module
from flumina.runtime.inner import Inner
from flumina.runtime.key_progress import NOTHING, KeyProgress
from flumina.runtime.keyed_inner import KeyedInner
from flumina.runtime.keyed_leaf import HotKey, KeyedLeaf
from flumina.runtime.leaf import Leaf
from flumina.runtime.mailbox import Component, before
from flumina.runtime.messages import Data, ForkState, Item, KeyStates, Message
from flumina.runtime.run import Run
from flumina.runtime.topology import ProtocolOptions
from flumina.runtime.worker import Address
from flumina.state.keyed_map import KeyedMap
from tests.sim.mutant import mutant

HALVES, NOTE, GATHER, TOGETHER = KeyedInner.halves, KeyedInner.note, KeyedInner.gather, worker_module.together
DIVIDED, ANNOUNCE = KeyedInner.divided, KeyedInner.announce
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


@mutant((HotKey, "first"), seed=584, is_property=True)
def line_forgotten(self: HotKey) -> Point | None:
    """What waits in the line of a key counts for nothing: not for ``settled``, nor for a snapshot."""
    return None


@mutant((KeyedLeaf, "caught_up"), seed=363)
def everything_while_a_key_is_away(self: KeyedLeaf, point: Point) -> bool:
    """All states are given away though that of one key is somewhere else."""
    return all(component.settled >= point for component in self.components)


@mutant((KeyedLeaf, "on_fork_state"), seed=726)
def keyed_leaf_without_served(self: KeyedLeaf, message: ForkState) -> None:
    """A leaf keeps requests for a key that were settled without it, and answers them."""
    if message.key is None:
        self.state = message.state
    else:
        self.hot[message.key].away = False
        self.gone.pop(message.key)
        self.touched[message.key] = None
        self.state[message.key] = message.state


@mutant((KeyedLeaf, "note"), seed=363)
def due_keys_are_not_woken(self: KeyedLeaf, key: Key, hot: HotKey) -> None:
    """A key that waits for its events to come is not looked at again when they have."""
    self.first_lined.set(key, hot.first)
    self.first_asked.set(key, hot.requests[0].point if hot.requests else None)


# -- inner workers -----------------------------------------------------------------------------------------------------


@mutant((KeyedInner, "may_coalesce_key"), seed=363)
def coalesces_a_key_always(self: KeyedInner, busy: KeyProgress) -> bool:
    """The next event of a key is served while its children may have events before it."""
    return True


@mutant((KeyedInner, "may_coalesce_key"), seed=324)
def ties_of_a_key_apart(self: KeyedInner, busy: KeyProgress) -> bool:
    """Events of a key at one point are served one by one, though the children settle all of that point together."""
    return not busy.sides


@mutant((KeyedInner, "settled_of"), seed=324)
def settled_of_the_children(self: KeyedInner, busy: KeyProgress) -> Point:
    """An inner worker speaks for its children only."""
    return min((busy.settled[side] for side in busy.sides), default=END)


@mutant((KeyedInner, "settled_of"), seed=2509)
def settled_of_the_inner_worker(self: KeyedInner, busy: KeyProgress) -> Point:
    """An inner worker speaks for itself only."""
    own = [before(item.point) for item, event, _ in busy.entries if event is not None]
    own += [before(point) for _, point in self.origins]
    own += [before(queue.first) for queue in self.queues.values() if queue.first is not None]
    return min([self.known, *own])


@mutant((KeyedInner, "halves"), seed=594)
def wrong_halves_of_a_key(self: KeyedInner, key: Key, sides: tuple[int, ...], state: Any) -> tuple[Any, ...]:
    """Each child gets what is for the other."""
    return HALVES(self, key, sides, state)[::-1]


@mutant((KeyedInner, "_sides_of"), seed=726)
def one_side_of_a_key(self: KeyedInner, key: Key) -> tuple[int, ...]:
    """Of two children that have events of a key one is forgotten."""
    return tuple(side for side, child in enumerate(self.shape.children) if child.tags.sees_key(key))[:1]


@mutant((KeyedInner, "put_requests"), options=ONE_AT_A_TIME, seed=196)
def requests_as_they_come(self: KeyedInner, items: Iterable[Item]) -> None:
    """Requests of different keys, which may come in another order than O, are taken in the order in which they come."""
    for item in items:
        latest = max((entry[0] for entry in self.pending), default=item.point)
        self.pending.append((max(latest, item.point), len(self.pending), item))


@mutant((KeyedInner, "done_up_to"), options=ProtocolOptions(), seed=217)
def everything_before_the_keys(self: KeyedInner, point: Point) -> bool:
    """All states are joined while single keys have something before that."""
    return True


@mutant((KeyedInner, "gather"), seed=64)
def everything_before_the_children(self: KeyedInner) -> bool:
    """All states are joined without those of a child that has not answered."""
    for child in self.children:
        if child.state is NOTHING and not child.responses:
            child.state = self.lifted.init()
    return GATHER(self)


@mutant((KeyedInner, "announce"), options=ONE_AT_A_TIME, seed=70)
def everything_before_the_parent_is_known(self: KeyedInner) -> None:
    """Children are asked for all states while requests for single keys before that are held back."""
    options, self.options = self.options, replace(self.options, pipeline=True)
    ANNOUNCE(self)
    self.options = options


@mutant((KeyedInner, "note"), options=ONE_AT_A_TIME, seed=207)
def frontier_past_what_keys_hold_back(self: KeyedInner, key: Key, busy: KeyProgress) -> None:
    """Children are told a frontier after requests of a key for which they were not asked yet."""
    NOTE(self, key, busy)
    self.first_unasked.set(key, None)


@mutant((KeyedInner, "note"), seed=217)
def first_of_a_key_is_not_renewed(self: KeyedInner, key: Key, busy: KeyProgress) -> None:
    """A key that has been served counts as if it still had something to serve: a snapshot waits for ever."""
    self.first_own.set(key, busy.first_own)
    self.first_unasked.set(key, busy.first_unasked)
    if busy.first is not None:
        self.first.set(key, busy.first)


@mutant((worker_module, "together"), seed=726)
def one_of_several_states_is_lost(sends: Sequence[tuple[Address, Message]]) -> list[tuple[Address, Message]]:
    """Of the states of several keys in one message the last is left out."""
    return [(to, KeyStates(m.each[:-1]) if isinstance(m, KeyStates) else m) for to, m in TOGETHER(sends)]


# -- keys and all keys at once -----------------------------------------------------------------------------------------


@mutant((KeyedLeaf, "quiet_before"), seed=342)
def unkeyed_event_before_the_keys(self: KeyedLeaf, point: Point) -> bool:
    """A leaf processes an event that sees all keys while one is away, or has something before it."""
    return True


@mutant((KeyedLeaf, "quiet_before"), seed=343)
def unkeyed_event_while_a_key_is_away(self: KeyedLeaf, point: Point) -> bool:
    """A leaf processes an event that sees all keys while one is away."""
    return all(first is None or first >= point for first in (self.first_lined.first, self.first_asked.first))


@mutant((KeyedLeaf, "quiet_before"), seed=344)
def unkeyed_event_before_a_request(self: KeyedLeaf, point: Point) -> bool:
    """A leaf processes an event that sees all keys before it has answered for a key that is wanted earlier."""
    return not self.gone and (self.first_lined.first is None or self.first_lined.first >= point)


@mutant((KeyedLeaf, "up_to_unkeyed"), seed=584)
def unkeyed_event_with_what_lies_before_it(self: KeyedLeaf, component: Component, point: Point) -> Point:
    """A leaf processes an event that sees all keys in one go with those before it, of which hot keys' go to lines."""
    return point if self.quiet_before(point) else before(point)


@mutant((KeyedLeaf, "up_to_unkeyed"), seed=204)
def unkeyed_event_never(self: KeyedLeaf, component: Component, point: Point) -> Point:
    """A leaf never processes an event that sees all keys while one is hot."""
    return before(point)


@mutant((KeyedLeaf, "on_data"), seed=344)
def unkeyed_events_unnoticed(self: KeyedLeaf, message: Data) -> None:
    """A leaf takes an event that sees all keys for one that concerns no hot key."""
    Leaf.on_data(self, message)


@mutant((KeyedLeaf, "components_of"), seed=4185)
def key_without_what_sees_all_keys(self: KeyedLeaf, key: Key) -> tuple[int, ...]:
    """A leaf gives a key's state away before events that see all keys have come."""
    return tuple(n for n, c in enumerate(self.components) if any(tags.has_key(key) for tags in c.tags.values()))


@mutant((KeyedLeaf, "barrier"), seed=196, is_property=True)
def key_before_all_states(self: KeyedLeaf) -> Point:
    """A leaf answers for a key though all states are wanted before."""
    return END


@mutant((KeyedInner, "barrier"), seed=200, is_property=True)
def keys_past_the_sequence(self: KeyedInner) -> Point:
    """Keys are served past an event that sees all keys."""
    return END


@mutant((KeyedInner, "may_coalesce"), seed=200)
def coalesces_past_the_keys(self: KeyedInner) -> bool:
    """The next event that sees all keys is served with the states that are here, though keys have events before it."""
    return Inner.may_coalesce(self)


@mutant((KeyedInner, "settled_of"), seed=324)
def settled_past_own_events_for_all_keys(self: KeyedInner, busy: KeyProgress) -> Point:
    """Of a key that is given away it is not told that an own event that sees all keys waits."""
    own = [self.known]
    own += [before(busy.own[0])] if busy.own else []
    own += [before(queue.first) for queue in self.queues.values() if queue.first is not None]
    return min(*own, END, *(busy.settled[side] for side in busy.sides))


@mutant((KeyedInner, "_sides_of"), seed=324)
def sides_without_what_sees_all_keys(self: KeyedInner, key: Key) -> tuple[int, ...]:
    """A child that has no events of a key, but such that see all keys, is not asked for it."""
    return tuple(side for side, child in enumerate(self.shape.children) if child.tags.has_key(key))


@mutant((KeyedInner, "state_for_child"), options=ProtocolOptions(), seed=None)
def late_contributions_of_all_keys_forgotten(self: KeyedInner, side: int) -> KeyedMap:
    """What a child that hands over has contributed to a request for all states that was settled above is left out."""
    child = self.children[side]
    if child.state is NOTHING:
        child.state = self.lifted.init()
    kept: KeyedMap = child.state
    return kept


@mutant((KeyedInner, "note"), seed=200)
def blocked_keys_are_not_woken(self: KeyedInner, key: Key, busy: KeyProgress) -> None:
    """A key that waits for the sequence is not looked at again when that has been served."""
    NOTE(self, key, busy)
    self.blocked.set(key, None)


@mutant((KeyedInner, "divided"), seed=320)
def keys_of_no_child_are_lost(self: KeyedInner, state: KeyedMap) -> tuple[KeyedMap, KeyedMap]:
    """States of keys that no child can see are dropped when all states are handed back."""
    parts = DIVIDED(self, state)
    self.local = self.lifted.init()
    return parts


@mutant((KeyedInner, "gather"), seed=320)
def local_keys_are_left_out(self: KeyedInner) -> bool:
    """States of keys that no child can see are not joined to the others."""
    return self.done_up_to(self.sequence[0][0].point) and Inner.gather(self)
