"""Commit epochs in the driver, of whole runs and of micro-batches.

Each step is on the disk before the next begins::

    1  files of the epoch are staged, by tasks and driver
    2  the manifest is written, whole or not at all: from here on the epoch counts
    3  the outputs that the manifest names are made visible
    4  a marker is written: this epoch is visible; files that no kept manifest names are deleted

The owner is checked before 2 and before 3. A driver that dies before 2 leaves staged files, which the next driver
deletes. After 2, the next driver repeats 3, from the manifest alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from flumina.checkpoint.store.checkpoint_owner import CheckpointOwner
from flumina.checkpoint.store.manifest import Epoch, EpochManifest
from flumina.checkpoint.store.snapshot import Snapshot


class Destination(Protocol):
    """Where the outputs of epochs become visible."""

    def show(self, epoch: EpochManifest) -> None:
        """Make the outputs that a manifest names visible; called again after a crash."""

    def clear(self, epoch: EpochManifest) -> None:
        """Delete staged files of an epoch that is marked as visible."""


@dataclass
class Committer:
    """Commits epochs one after the other."""

    owner: CheckpointOwner
    destination: Destination
    reached: Callable[[str], None] = field(default_factory=lambda: _pass)
    """Called with the name of each step, for tests of crashes."""

    def commit(self, epoch: Epoch) -> Snapshot:
        """Commit an epoch whose files are staged."""
        self.reached("before-state")
        snapshot = self.owner.write(epoch)
        self.reached("after-state")
        return self.complete(snapshot)

    def complete(self, snapshot: Snapshot) -> Snapshot:
        """Make the outputs of an epoch visible, and mark it; completes the epoch of a driver that died."""
        self.owner.check()
        self.reached("before-sink")
        self.destination.show(snapshot.manifest)
        self.reached("after-sink")
        self.reached("before-commit")
        snapshot = self.owner.mark(snapshot)
        self.reached("after-commit")
        self.owner.prune(snapshot)
        self.destination.clear(snapshot.manifest)
        self.reached("pruned")
        return snapshot


def _pass(step: str) -> None:
    """Do nothing at a step."""
