"""Sum values up to the next barrier: windows that events define.

The barrier gives out the sum *and resets it*, and depends on itself: without either, plans that are valid on paper
give wrong outputs.
"""

from __future__ import annotations

from dataclasses import dataclass

import flumina as fl
from flumina.apps.app import App
from flumina.apps.workload import Columns, Flow, Steady, below, noise, parameter
from flumina.model.order import Ints


class ValueBarrier(fl.Program):
    """The sum of the values since the last barrier, given out at each barrier."""

    value = fl.Tag("v long NOT NULL")
    barrier = fl.Tag()
    depends = fl.depends((barrier, barrier), (barrier, value))
    output = "total long"
    total = fl.Sum("long")

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        """Add a value; give out the sum at a barrier and start again."""
        if event.tag is self.value:
            state.total += event.v
        else:
            emit(state.total)
            state.total = 0

    def update_batch(self, state: fl.State, batch: fl.Batch, emit: fl.Emit) -> None:
        """Only the first barrier of a run can find anything."""
        if batch.tag is self.value:
            state.total += fl.total(batch["v"])
        elif len(batch):
            emit.columns([state.total] + [0] * (len(batch) - 1))
            state.total = 0


class ValueBarrierByHand(fl.Program):
    """The same with an integer as state and its own fork and join."""

    value = fl.Tag("v long NOT NULL")
    barrier = fl.Tag()
    depends = fl.depends((barrier, barrier), (barrier, value))
    output = "total long"

    def init(self) -> int:
        """Return 0."""
        return 0

    def update(self, state: int, event: fl.Event, emit: fl.Emit) -> int:
        """Add a value; give out the sum at a barrier and start again."""
        if event.tag is self.value:
            return state + int(event.v)
        emit(state)
        return 0

    def fork(self, state: int, left: fl.TagSet, right: fl.TagSet) -> tuple[int, int]:
        """Give the sum to the side with the barrier; the other starts from 0."""
        return (0, state) if right.has(self.barrier) else (state, 0)

    def join(self, left: int, right: int) -> int:
        """Add the sums."""
        return left + right


@dataclass(frozen=True, kw_only=True)
class Values(Steady):
    """Numbers, and a barrier now and then."""

    ratio: int = parameter(10_000, "values on each part for one barrier")

    def flows(self) -> list[Flow]:
        """Return values in parts, and one stream of barriers."""
        return [
            self.often("values", ValueBarrier.value, self._values),
            self.rare("barriers", ValueBarrier.barrier, self._barriers, self.ratio),
        ]

    def _values(self, numbers: Ints) -> Columns:
        return {"v": below(1 << 32, noise(self.seed, "v", numbers))}

    def _barriers(self, numbers: Ints) -> Columns:
        return {}


APP = App("value-barrier", ValueBarrier, Values, by_hand=ValueBarrierByHand)
