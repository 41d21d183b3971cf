"""A state that lies in shares: one for each tree of the plan that left it, wherever the task of that tree has put it.

Several shares are in one bundle, one behind the other: what a task hands to the driver, or has written to a file.
Whoever goes on, under the same plan or another, reads the bundles that it needs::

    same trees        each task reads its own share
    other trees       each task reads all shares one by one, and keeps of each what its trees may need; unless they
                      might not agree what that is: then the driver divides the whole
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from flumina.checkpoint.differences import differences
from flumina.checkpoint.store.checkpoints import Checkpoints
from flumina.checkpoint.store.layout import CheckpointDirectory, SnapshotId
from flumina.checkpoint.store.manifest import StateFile
from flumina.checkpoint.store.snapshot import Snapshot, read_state
from flumina.plan.forest import Forest
from flumina.plan.tree import Plan
from flumina.program.definition import Definition, initial_state

Sizes = tuple[tuple[str, int], ...]
"""The trees whose states are in a bundle, by the ids of their roots, and how many bytes each has."""


class StateCodec(Protocol):
    """Converts states of one program to bytes and back."""

    def pack(self, state: Any) -> bytes:  # noqa: ANN401 -- whatever the program's state is
        """Return the bytes of a state, for a process that has the same program."""

    def unpack(self, packed: bytes | bytearray | memoryview) -> Any:  # noqa: ANN401
        """Return the state that was packed."""


@dataclass(frozen=True)
class InMemoryPartition:
    """A bundle at hand."""

    tree_sizes: Sizes
    data: bytes = field(repr=False)

    @property
    def size(self) -> int:
        """In bytes."""
        return len(self.data)

    def read(self) -> bytes:
        """All of it."""
        return self.data

    @staticmethod
    def of(packed: Mapping[str, bytes]) -> InMemoryPartition:
        """States of trees as one bundle."""
        return InMemoryPartition(tuple((tree, len(data)) for tree, data in packed.items()), b"".join(packed.values()))


@dataclass(frozen=True)
class StoredPartition:
    """A bundle in a checkpoint that all tasks reach."""

    folder: CheckpointDirectory
    file: StateFile

    @property
    def tree_sizes(self) -> Sizes:
        """What is in it."""
        return self.file.tree_sizes

    @property
    def size(self) -> int:
        """In bytes."""
        return self.file.size

    def read(self) -> bytes:
        """All of it, if that is what was written."""
        return read_state(self.folder, self.file)


StatePartition = InMemoryPartition | StoredPartition


@dataclass(frozen=True)
class PartitionedState:
    """The state that a run has left, in bundles, and the forest of its plan.

    ``foreign`` are those that another code has left: it may have divided the state otherwise.
    """

    forest: Forest
    partitions: tuple[StatePartition, ...]
    foreign: bool = False

    @staticmethod
    def of(snapshot: Snapshot, fingerprint: Mapping[str, Any] | None = None) -> PartitionedState:
        """The state of a snapshot; ``fingerprint`` are those of the program that goes on with it, if not the same."""
        partitions = [StoredPartition(snapshot.folder, file) for file in snapshot.manifest.states if file.tree_sizes]
        foreign = fingerprint is not None and bool(differences(snapshot.manifest.fingerprint, fingerprint))
        return PartitionedState(snapshot.forest(), tuple(partitions), foreign)

    @property
    def size(self) -> int:
        """In bytes."""
        return sum(partition.size for partition in self.partitions)

    def under(
        self, forest: Forest, trees: Collection[str], definition: Definition, codec: StateCodec
    ) -> dict[str, Any]:
        """The states with which some trees of a plan go on."""
        if self.is_divided_by(forest):
            new = {old.id: tree.id for old, tree in zip(self.forest.trees, forest.trees, strict=True)}
            mine = [old for old, tree in new.items() if tree in trees]
            return {new[tree]: state for tree, state in self._some(mine, codec)}
        return forest.distribute(definition, self.forest, self._all(codec), trees)

    def is_divided_by(self, forest: Forest) -> bool:
        """Whether the trees of a plan just go on with these shares."""
        return self.forest == forest and not self.foreign

    def whole(self, definition: Definition, codec: StateCodec) -> Any:  # noqa: ANN401 -- whatever the program's state is
        """All of it."""
        return self.forest.unite(definition, dict(self._all(codec)))

    def _all(self, codec: StateCodec) -> Iterator[tuple[str, Any]]:
        return self._some([tree.id for tree in self.forest.trees], codec)

    def _some(self, trees: Collection[str], codec: StateCodec) -> Iterator[tuple[str, Any]]:
        for partition in self.partitions:
            if not any(tree in trees for tree, _ in partition.tree_sizes):
                continue
            data, at = memoryview(partition.read()), 0
            for tree, size in partition.tree_sizes:
                if tree in trees:
                    yield tree, codec.unpack(data[at : at + size])
                at += size

    def keep(self, store: Checkpoints, snapshot_id: SnapshotId) -> tuple[list[StateFile], PartitionedState]:
        """The files for a snapshot with this state, and the state as it lies then.

        What is at hand stays so, and is written to one file. What a task has written for this snapshot is there; what
        lies in the files of another one is copied.
        """
        held = [partition for partition in self.partitions if isinstance(partition, InMemoryPartition)]
        kept = [partition for partition in self.partitions if isinstance(partition, StoredPartition)]
        copies = [
            partition
            if partition.file.is_of(snapshot_id)
            else StoredPartition(
                partition.folder, store.write_state(snapshot_id, partition.read(), partition.tree_sizes)
            )
            for partition in kept
        ]
        files = [partition.file for partition in copies]
        if held:
            tree_sizes = tuple(share for partition in held for share in partition.tree_sizes)
            files.append(store.write_state(snapshot_id, b"".join(partition.data for partition in held), tree_sizes))
        return files, replace(self, partitions=(*held, *copies))


def settled(
    state: PartitionedState | None, plan: Plan, definition: Definition, codec: StateCodec
) -> PartitionedState | None:
    """The state with which a run begins, divided so that all tasks agree who has what.

    Each task divides it for itself where that gives the same in every process. A fork of the user's own need not, as it
    may go by the order of a set. Then it is divided here, once.
    """
    forest = Forest.of(plan.root)
    if forest.is_certain(definition) or (state is not None and state.is_divided_by(forest)):
        return state
    whole = initial_state(definition) if state is None else state.whole(definition, codec)
    parts = forest.divide(definition, whole)
    return PartitionedState(forest, (InMemoryPartition.of({tree: codec.pack(part) for tree, part in parts.items()}),))


@dataclass(frozen=True)
class FinalStatePolicy:
    """What becomes of the states at the end: a task hands those of its trees to the driver.

    If they have more than ``most`` bytes, it writes them to a checkpoint, and hands over where they are.
    """

    store: Checkpoints | None = None
    snapshot_id: SnapshotId | None = None
    most: int = 0

    def keep(self, packed: Mapping[str, bytes]) -> StatePartition:
        """The states of a task's trees."""
        partition = InMemoryPartition.of(packed)
        if self.store is None or self.snapshot_id is None or partition.size <= self.most:
            return partition
        return StoredPartition(
            self.store.folder, self.store.write_state(self.snapshot_id, partition.data, partition.tree_sizes)
        )
