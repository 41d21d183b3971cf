"""Describe the resume point of a run, and how it takes snapshots."""

from __future__ import annotations

from dataclasses import dataclass

from flumina.checkpoint.policy import Policy
from flumina.checkpoint.state_partitions import PartitionedState
from flumina.checkpoint.store.checkpoints import Checkpoints


@dataclass(frozen=True)
class Start:
    """The resume point of a run: its state (None: the initial one) and timestamp (None: before all events).

    ``number`` is the number of the next snapshot.
    """

    state: PartitionedState | None = None
    after: int | None = None
    number: int = 1

    def began(self, started: float) -> float:
        """Return when a paced run would have started without the interruption: its events are due from then on."""
        return started if self.after is None else started - self.after / 1e6


@dataclass(frozen=True)
class Snapshots:
    """When snapshots are taken, and where their states are written; ``term`` is that of the driver."""

    policy: Policy
    store: Checkpoints
    term: int
