"""Who runs a batch, and what that leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from flumina.checkpoint.state_partitions import FinalStatePolicy, PartitionedState
from flumina.engine.results import RunStats
from flumina.input.stream import Stream
from flumina.output.commit import CommittedOutput
from flumina.plan.tree import Plan


@dataclass(frozen=True)
class BatchRun:
    """What a run of the plan has left: the state, staged outputs, and statistics."""

    state: PartitionedState
    results: Mapping[str, CommittedOutput]
    stats: RunStats

    @property
    def rows(self) -> dict[str, int]:
        """How many rows each output has."""
        return {name: result.rows for name, result in self.results.items()}


class BatchEngine(Protocol):
    """Runs a plan on the events of one batch."""

    def slots(self) -> int:
        """How many tasks can run at the same time."""

    def run(
        self,
        batch: int,
        streams: Sequence[Stream],
        plan: Plan,
        state: PartitionedState | None,
        final_state_policy: FinalStatePolicy,
        out: str,
    ) -> BatchRun:
        """Run the plan from a state, with its outputs in a new folder; ``final_state_policy`` says where states go."""
