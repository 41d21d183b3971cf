"""Lift programs written for one key to all keys.

The lifted state is a map from keys to one-key states; a key that was never seen has the initial state. Where only one
side of a fork has a key's events, that key's state goes there whole; where both have some, the one-key fork divides
it; a side with an unkeyed tag sees all keys. The first event of a key may come on either side of a fork, so the
one-key program must satisfy::

    join(init, init) = init

Fields do by construction; own ``init`` and ``join`` are checked (it is C2 for a key without events).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from flumina.model.tag_set import TagSet
from flumina.model.tick import Tick
from flumina.program.base import Program, StateT
from flumina.program.decorators import members_of
from flumina.program.definition import Definition, Fork, Join, StateKind, fold
from flumina.program.handlers import Dispatch, handled_by
from flumina.state.compare import identical
from flumina.state.keyed_map import KeyedMap, merge

if TYPE_CHECKING:
    from flumina.model.batch import Batch
    from flumina.model.emit import Emit
    from flumina.model.event import Event

State = Any

FEW = 16
"""Cost of one call for a batch, in calls for single events..."""

MANY = 64
"""... which matters with more keys than this."""


_NEW: Any = object()
"""Marks a key without a state."""


if TYPE_CHECKING:

    class _KeyedMethods(Program[StateT]):
        """Declare the methods that only one-key programs may write, for editors and type checkers."""

        def update_all(self, states: dict[Any, StateT], event: Event, emit: Emit) -> dict[Any, StateT] | None:
            """Handle an event without a key: ``states`` has the state of every key that is not at its initial one."""
            raise NotImplementedError

        def on_expire(self, state: StateT, event: Event, emit: Emit) -> None:
            """Read the state of a key that expires by its ``ttl``, and call ``emit``; it is set back behind this."""
            raise NotImplementedError

else:
    _KeyedMethods = Program


class KeyedProgram(_KeyedMethods[StateT], abstract=True):
    """A program written for one key, which Flumina runs for every key.

    Write ``update`` (and ``fork`` and ``join``, if state is not declared) as if there were one key only. ``depends``
    means "for equal keys". Tags without a key see all keys: they go to ``update_all(self, states, event, emit)`` with
    a map from keys to states. Keys at their initial values are not listed in it, whether they were seen before or not.
    """

    _one_key: ClassVar[bool] = True

    def _define(self) -> Definition:
        one = super()._define()
        handlers = handled_by(members_of(type(self), Program), self._tags, keyed=False)
        dispatched = handlers and "update" not in handlers
        lifted = Lifted(one, Dispatch(self, handlers) if dispatched else getattr(self, "update_all", None))
        kind = StateKind(
            "States",
            one.everything,
            lifted.update if one.ticking is None else lifted.update_ticked,
            None if one.kinds[one.initial].update_batch is None else lifted.update_batch,
            one.kinds[one.initial].fresh,
        )
        return replace(
            one,
            kinds={kind.name: kind},
            initial=kind.name,
            init=lifted.init,
            forks=(Fork(kind.name, kind.name, kind.name, lifted.fork),),
            joins=(Join(kind.name, kind.name, kind.name, lifted.join),),
            narrow=lifted.narrow,
            lifted=lifted,
        )


@dataclass(frozen=True)
class Lifted:
    """A one-key program over a map of keys; also the default value of that map's entries."""

    one: Definition
    update_all: Callable[[KeyedMap, Event, Emit], State | None] | None

    mutable: ClassVar[bool] = True

    def identity(self) -> State:
        """Return the state of a key before its first event."""
        return self.one.init()

    def is_identity(self, state: State) -> bool:
        """Return whether a key's state is indistinguishable from the initial one, so that it need not be stored."""
        known = self.one.is_initial
        return identical(state, self.one.init()) if known is None else known(state)

    @property
    def kind(self) -> StateKind:
        """The state type of one key."""
        return self.one.kinds[self.one.initial]

    def init(self) -> KeyedMap:
        """Return the state without keys."""
        return KeyedMap(self)

    def update(self, states: KeyedMap, event: Event, emit: Emit) -> State | None:
        """Handle one event: with the state of its key, or all states for an unkeyed tag."""
        if event.tag.key is None:
            assert self.update_all is not None, "checked when the class was made"
            given = self.update_all(states, event, emit)
            return given if given is None or isinstance(given, KeyedMap) else KeyedMap(self, given)
        result = self.kind.update(states[event.key], event, emit)
        if result is not None:
            states[event.key] = result
        return None

    def update_ticked(self, states: KeyedMap, event: Event, emit: Emit) -> State | None:
        """Handle one event of a program with ticks, which do nothing to an initial state."""
        if not isinstance(event.tag, Tick):
            return self.update(states, event, emit)
        if event.tag.key is None:
            return self.update(states, event, emit) if states else None
        self.update(states, event, emit)
        if self.is_identity(states[event.key]):
            dict.pop(states, event.key)  # else memory would never shrink
        return None

    def _update_key(self) -> Callable[[KeyedMap, Event, Emit], None]:
        """Handle one keyed event; optimized for speed.

        An initial state that an event has only read is not stored for its key but used again for the next new one:
        keys that are merely looked up cost neither time nor memory.
        """
        update, init, untouched = self.kind.update, self.one.init, self.one.untouched
        spare = init()

        def update_key(states: KeyedMap, event: Event, emit: Emit) -> None:
            nonlocal spare
            key = event.key
            known = dict.get(states, key, _NEW)
            result = update(spare if known is _NEW else known, event, emit)
            if known is not _NEW:
                if result is not None:
                    states[key] = result
            elif result is not None or untouched is None or not untouched(spare):
                states[key] = spare if result is None else result
                spare = init()

        return update_key

    def update_batch(self, states: KeyedMap, batch: Batch, emit: Emit) -> State | None:
        """Handle a run of one tag: one call for each key, and event by event where a key has few."""
        if batch.tag.key is None:
            emit.batch = None
            return fold(StateKind("States", self.one.everything, self.update), states, batch, emit)
        encoded = batch.keys.dictionary_encode()
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        few = np.flatnonzero(np.bincount(codes)[codes] < FEW)
        if len(few) and len(encoded.dictionary) > MANY:
            emit.batch = None
            fold(StateKind("States", self.one.everything, self._update_key()), states, batch.take(few), emit)
            if len(few) == len(batch):
                return None
            many = np.ones(len(batch), bool)
            many[few] = False
            return self.update_batch(states, batch.take(np.flatnonzero(many)), emit)
        keys = encoded.dictionary.to_pylist()
        by_key = np.argsort(codes, kind="stable")
        cuts = np.searchsorted(codes[by_key], np.arange(len(keys) + 1))
        assert self.kind.update_batch is not None
        for key, start, stop in zip(keys, cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
            emit.batch = batch.take(by_key[start:stop])
            result = self.kind.update_batch(states[key], emit.batch, emit)
            if result is not None:
                states[key] = result
        return None

    def fork(self, states: KeyedMap, left: TagSet, right: TagSet) -> tuple[KeyedMap, KeyedMap]:
        """Give each key to the side with its events; the one-key fork divides keys of both."""
        halves = KeyedMap(self), KeyedMap(self)
        divide = self.one.forks[0].split
        for key, state in states.pruned().items():
            of_left, of_right = left.at(key), right.at(key)
            if of_right.is_empty():
                halves[0][key] = state
            elif of_left.is_empty():
                halves[1][key] = state
            else:
                halves[0][key], halves[1][key] = divide(state, of_left, of_right)
        return halves

    def narrow(self, states: KeyedMap, tags: TagSet, among: TagSet | None) -> KeyedMap:
        """Drop the keys that only other tags have: see :attr:`Definition.narrow`."""
        kept = {
            key: state
            for key, state in dict.items(states)
            if not tags.at(key).is_empty() or (among is not None and among.at(key).is_empty())
        }
        return KeyedMap(self, kept)

    def join(self, left: KeyedMap, right: KeyedMap) -> KeyedMap:
        """Join the states of keys that both sides hold; keep all others."""
        return merge(left, right, self.one.joins[0].function)
