"""Protocol of the engine that runs a batch, and the result of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from flumina.checkpoint.state_partitions import FinalStatePolicy, PartitionedState
from flumina.engine.results import RunStats
from flumina.input.stream import Stream
from flumina.output.staged_outputs import Manifest, Outputs
from flumina.plan.tree import Plan
from flumina.storage.output_directory import OutputDirectory


@dataclass(frozen=True)
class BatchRun:
    """Parts of the epoch of a batch: its final state, the outputs that tasks have staged, and statistics."""

    state: PartitionedState
    outputs: Outputs
    manifests: Sequence[Manifest]
    stats: RunStats

    @property
    def rows(self) -> dict[str, int]:
        """Return the number of rows of each output."""
        return {name: sum(part.rows.get(name, 0) for part in self.manifests) for name in self.outputs.names}


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
        location: OutputDirectory,
    ) -> BatchRun:
        """Run the plan from a state, and stage its outputs in ``location``.

        ``final_state_policy`` says where tasks write their final states.
        """
