"""Who runs a batch, and what that leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from flumina.engine.publish import Result
from flumina.engine.results import RunStats
from flumina.engine.shares import Ending, Shares
from flumina.plan.tree import Plan
from flumina.streams import Stream


@dataclass(frozen=True)
class Ran:
    """What a run of the plan has left: the state, staged outputs, and statistics."""

    state: Shares
    results: Mapping[str, Result]
    stats: RunStats

    @property
    def rows(self) -> dict[str, int]:
        """How many rows each output has."""
        return {name: result.rows for name, result in self.results.items()}


class Engine(Protocol):
    """Runs a plan on the events of one batch."""

    def slots(self) -> int:
        """How many tasks can run at the same time."""

    def run(
        self, batch: int, streams: Sequence[Stream], plan: Plan, state: Shares | None, ending: Ending, out: str
    ) -> Ran:
        """Run the plan from a state, with its outputs in a new folder; ``ending`` says where states go."""
