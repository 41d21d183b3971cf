"""Say where a run begins, and how it takes snapshots on the way."""

from __future__ import annotations

from dataclasses import dataclass

from flumina.checkpoint.policy import Policy
from flumina.checkpoint.state_partitions import PartitionedState
from flumina.checkpoint.store.checkpoints import Checkpoints


@dataclass(frozen=True)
class Start:
    """Where a run begins: with a state (None: the initial one), behind a timestamp (None: any).

    ``number`` is that of the first snapshot to come.
    """

    state: PartitionedState | None = None
    after: int | None = None
    number: int = 1

    def began(self, started: float) -> float:
        """When a paced run would have started, had it not been interrupted: its events are due from then on."""
        return started if self.after is None else started - self.after / 1e6


@dataclass(frozen=True)
class Snapshots:
    """When snapshots are taken, and where their states go; ``term`` counts the drivers that have tried this run."""

    policy: Policy
    store: Checkpoints
    term: int
