"""Count by key, with reads that reset: figure 1 of the paper.

Increments of one key commute, so even a single hot key can be counted by many workers; a read of a key is the point
where they meet.
"""

from __future__ import annotations

from dataclasses import dataclass

import flumina as fl
from flumina.apps.app import App
from flumina.apps.workload import Columns, Flow, Steady, below, noise, parameter
from flumina.model.order import Ints


class KeyCounter(fl.KeyedProgram):
    """The counter of one key; flumina keeps one for every key."""

    inc = fl.Tag(key="k long")
    read = fl.Tag(key="k long")
    depends = fl.depends((read, read), (read, inc))
    output = "k long, n long"
    count = fl.Count()

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        """Count an increment; give out the count and start again on a read."""
        if event.tag is self.inc:
            state.count += 1
        else:
            emit(event.k, state.count)
            state.count = 0

    def update_batch(self, state: fl.State, batch: fl.Batch, emit: fl.Emit) -> None:
        """Only the first read of a run can find anything."""
        if batch.tag is self.inc:
            state.count += len(batch)
        elif len(batch):
            emit.columns(batch.keys, [state.count] + [0] * (len(batch) - 1))
            state.count = 0


class KeyCounterMap(fl.Program):
    """The same with one map for all keys."""

    inc = fl.Tag(key="k long")
    read = fl.Tag(key="k long")
    depends = fl.depends((read, read), (read, inc))
    output = "k long, n long"
    counts = fl.PerKey(fl.Count())

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        """Count an increment; give out the count and start again on a read."""
        if event.tag is self.inc:
            state.counts[event.key] += 1
        else:
            emit(event.k, state.counts[event.key])
            state.counts[event.key] = 0


class KeyCounterByHand(fl.Program):
    """The same with the fork and join that the paper prints."""

    inc = fl.Tag(key="k long")
    read = fl.Tag(key="k long")
    depends = fl.depends((read, read), (read, inc))
    output = "k long, n long"

    def init(self) -> dict[int, int]:
        """Return the map without keys."""
        return {}

    def update(self, state: dict[int, int], event: fl.Event, emit: fl.Emit) -> None:
        """Count an increment; give out the count and start again on a read."""
        if event.tag is self.inc:
            state[event.key] = state.get(event.key, 0) + 1
        else:
            emit(event.k, state.pop(event.key, 0))

    def fork(self, state: dict[int, int], left: fl.TagSet, right: fl.TagSet) -> tuple[dict[int, int], dict[int, int]]:
        """Give a key's count to the side that reads it, the rest to the right, as in the paper."""
        halves: tuple[dict[int, int], dict[int, int]] = ({}, {})
        for key, count in state.items():
            halves[0 if left.has(self.read, key) else 1][key] = count
        return halves

    def join(self, left: dict[int, int], right: dict[int, int]) -> dict[int, int]:
        """Add the counts."""
        for key, count in right.items():
            left[key] = left.get(key, 0) + count
        return left


@dataclass(frozen=True, kw_only=True)
class Counting(Steady):
    """Increments of random keys, and reads of them."""

    keys: int = parameter(10, "how many keys there are")
    ratio: int = parameter(1_000, "increments on each part for one read")

    def flows(self) -> list[Flow]:
        """Return increments in parts, and one stream of reads."""
        return [
            self.often("increments", KeyCounter.inc, self._increments),
            self.rare("reads", KeyCounter.read, self._reads, self.ratio),
        ]

    def _increments(self, numbers: Ints) -> Columns:
        return {"k": below(self.keys, noise(self.seed, "inc", numbers))}

    def _reads(self, numbers: Ints) -> Columns:
        return {"k": below(self.keys, noise(self.seed, "read", numbers))}


APP = App("key-counter", KeyCounter, Counting, by_hand=KeyCounterByHand)
