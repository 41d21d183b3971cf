"""Track the keys for which a tick has something to do, so that a tick never walks over all keys.

A key enters when an event may have changed it, and is looked at before the next tick. It leaves when the fields that
the tick touches are initial again::

    first    the least timestamp from which on a tick does something to a key; None if there is none
    pop      the keys to which a tick at a timestamp does something
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from flumina.program.ticks import ALWAYS_DUE, TickRule
from flumina.state.keyed_map import KeyedMap

if TYPE_CHECKING:
    from flumina.model.tag_set import Key, KeySet


class Candidates:
    """The keys, among some, for which the ticks of one tag have something to do."""

    def __init__(self, rule: TickRule, among: KeySet) -> None:
        self.rule, self.among = rule, among
        self.fresh: set[Key] = set()
        """Keys that an event may have changed."""
        self.always: set[Key] = set()
        """Keys to which every tick does something."""
        self.due: dict[Key, int] = {}
        self.heap: list[tuple[int, int, Key]] = []
        self.pushes = 0
        """Orders entries that are due at the same time: keys may have no order."""

    def add(self, keys: Iterable[Key]) -> None:
        """Note keys that may have changed."""
        self.fresh.update(keys)

    def look(self, states: KeyedMap) -> None:
        """Find out when a tick does something to the keys that have changed."""
        for key in self.fresh:
            if key not in self.among:
                continue
            due = self.rule.due(dict.__getitem__(states, key)) if dict.__contains__(states, key) else None
            if due is None or due != ALWAYS_DUE:
                self.always.discard(key)
            if due is None:
                self.due.pop(key, None)
            elif due == ALWAYS_DUE:
                self.always.add(key)
            elif self.due.get(key) != due:
                self.due[key] = due
                self.pushes += 1
                heappush(self.heap, (due, self.pushes, key))
        self.fresh.clear()

    @property
    def first(self) -> int | None:
        """Return the least timestamp from which on a tick does something; call :meth:`look` first."""
        if self.always:
            return ALWAYS_DUE
        while self.heap and self.due.get(self.heap[0][2]) != self.heap[0][0]:
            heappop(self.heap)
        return self.heap[0][0] if self.heap else None

    def pop(self, ts: int) -> list[Key]:
        """Return the keys to which a tick at a timestamp does something; they are looked at again behind it."""
        keys = list(self.always)
        while self.heap and self.heap[0][0] <= ts:
            due, _, key = heappop(self.heap)
            if self.due.get(key) == due:
                del self.due[key]
                keys.append(key)
        self.fresh.update(keys)
        return keys
