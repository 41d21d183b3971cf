"""Protocol of the engine that runs a batch, and the result of a run."""

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
    """Result of a batch: its final state, staged outputs, and statistics."""

    state: PartitionedState
    results: Mapping[str, CommittedOutput]
    stats: RunStats

    @property
    def rows(self) -> dict[str, int]:
        """Return the number of rows of each output."""
        return {name: result.rows for name, result in self.results.items()}


class BatchEngine(Protocol):
    """Runs a plan on the events of one batch."""

    def slots(self) -> int:
        """Return the number of tasks that can run at the same time."""

    def run(
        self,
        batch: int,
        streams: Sequence[Stream],
        plan: Plan,
        state: PartitionedState | None,
        final_state_policy: FinalStatePolicy,
        out: str,
    ) -> BatchRun:
        """Run the plan from a state, and stage its outputs in the new folder ``out``.

        ``final_state_policy`` says where tasks write their final states.
        """
