"""Read a snapshot of a checkpoint, and write its state files."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from flumina.checkpoint.store.layout import CheckpointDirectory, Listing, SnapshotId
from flumina.checkpoint.store.manifest import BufferedFile, EpochManifest, StateFile
from flumina.errors import UsageError
from flumina.plan.forest import Forest
from flumina.plan.render.json import from_json
from flumina.storage.checksum import damaged


@dataclass(frozen=True)
class Snapshot:
    """A snapshot with a valid manifest; its state is read and verified on access.

    ``seen`` is the listing of the folder when the snapshot was chosen: a driver that takes over compares it with the
    current one, to find files that another driver has written since.
    """

    manifest: EpochManifest
    folder: CheckpointDirectory = field(repr=False)
    seen: Listing = field(repr=False)
    digest: str = field(repr=False)
    """SHA-256 of the manifest's file."""

    @property
    def number(self) -> int:
        """The number of the snapshot, which increases over the whole life of a checkpoint."""
        return self.manifest.number

    @property
    def visible(self) -> bool:
        """Tell whether the outputs of the epoch were made visible, and the epoch was marked."""
        return self.manifest.snapshot_id in self.seen.markers

    @property
    def end(self) -> int | None:
        """The timestamp up to which all events are processed."""
        return self.manifest.end

    def state(self) -> bytes:
        """Return the bytes of the only state file."""
        if len(self.manifest.state) != 1:
            raise UsageError(
                "STATE_FILES",
                f"snapshot {self.number} has {len(self.manifest.state)} state files, not one",
                hint="states() gives them all",
            )
        return self.states()[0]

    def forest(self) -> Forest:
        """Return the forest of the plan that made the state; raise unless its trees are those of the state files."""
        where = self.folder.at(self.manifest.snapshot_id.manifest)
        if self.manifest.plan is None:
            raise damaged(where, "it names no plan whose trees have left the state")
        forest = Forest.of(from_json(self.manifest.plan, f"the plan of snapshot {self.number}").root)
        there = sorted(tree for file in self.manifest.state for tree, _ in file.tree_sizes)
        if there != sorted(tree.id for tree in forest.trees):
            raise damaged(where, f"it has the states of {there}, the trees of its plan are others")
        return forest

    def states(self) -> list[bytes]:
        """Return the verified bytes of every state file."""
        return [read_state(self.folder, file) for file in self.manifest.state]


def read_file(folder: CheckpointDirectory, file: StateFile | BufferedFile) -> bytes:
    """Read a file that a manifest names, and verify its size and checksum; raise if it is damaged."""
    data = folder.fetch(file.name)
    if len(data) != file.size:
        raise damaged(folder.at(file.name), f"it has {len(data):,} bytes, {file.size:,} were written")
    if hashlib.sha256(data).hexdigest() != file.sha256:
        raise damaged(folder.at(file.name), "its bytes do not have the checksum that the manifest states")
    return data


def read_state(folder: CheckpointDirectory, file: StateFile) -> bytes:
    """Read and verify a state file; raise if it is damaged."""
    data = read_file(folder, file)
    if file.tree_sizes and sum(size for _, size in file.tree_sizes) != file.size:
        raise damaged(folder.at(file.name), "the sizes of states in the manifest do not add up to its size")
    return data


def write_state(
    folder: CheckpointDirectory, snapshot_id: SnapshotId, data: bytes, tree_sizes: Sequence[tuple[str, int]] = ()
) -> StateFile:
    """Write a new file with a state, or with the states of several trees."""
    file = StateFile(
        snapshot_id.new_file("state", "bin"), len(data), hashlib.sha256(data).hexdigest(), tuple(tree_sizes)
    )
    folder.write(file.name, data)
    return file
