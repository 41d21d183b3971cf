"""Partition the state of a run by the trees of its plan, in memory or in files.

A state partition holds the states of some trees, one after the other, as a task sends them to the driver or writes
them to a file. A run that resumes, under the same plan or another, reads the partitions that it needs::

    same trees        each task reads the states of its own trees
    other trees       each task reads the states of all trees one by one, and keeps of each the part for its own trees;
                      if the program's forks are not certain to agree in every task, the driver divides the whole state
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from flumina.checkpoint.program_compatibility import differences
from flumina.checkpoint.store.checkpoints import Checkpoints
from flumina.checkpoint.store.layout import CheckpointDirectory, SnapshotId
from flumina.checkpoint.store.manifest import StateFile
from flumina.checkpoint.store.snapshot import Snapshot, read_state
from flumina.plan.forest import Forest
from flumina.plan.tree import Plan
from flumina.program.definition import Definition, initial_state

Sizes = tuple[tuple[str, int], ...]
"""The trees in a state partition, by the ids of their roots, with the size of each state in bytes."""


class StateCodec(Protocol):
    """Converts states of one program to bytes and back."""

    def pack(self, state: Any) -> bytes:  # noqa: ANN401 -- whatever the program's state is
        """Return the bytes of a state, for a process that has the same program."""

    def unpack(self, packed: bytes | bytearray | memoryview) -> Any:  # noqa: ANN401
        """Return the state that was packed."""


@dataclass(frozen=True)
class InMemoryPartition:
    """A state partition in memory."""

    tree_sizes: Sizes
    data: bytes = field(repr=False)

    @property
    def size(self) -> int:
        """The size in bytes."""
        return len(self.data)

    def read(self) -> bytes:
        """Return all bytes."""
        return self.data

    @staticmethod
    def of(packed: Mapping[str, bytes]) -> InMemoryPartition:
        """Concatenate the packed states of trees."""
        return InMemoryPartition(tuple((tree, len(data)) for tree, data in packed.items()), b"".join(packed.values()))


@dataclass(frozen=True)
class StoredPartition:
    """A state partition in a file of a checkpoint that all tasks can reach."""

    folder: CheckpointDirectory
    file: StateFile

    @property
    def tree_sizes(self) -> Sizes:
        """The trees in the partition, with their sizes."""
        return self.file.tree_sizes

    @property
    def size(self) -> int:
        """The size in bytes."""
        return self.file.size

    def read(self) -> bytes:
        """Read and verify all bytes; raise if they are damaged."""
        return read_state(self.folder, self.file)


StatePartition = InMemoryPartition | StoredPartition


@dataclass(frozen=True)
class PartitionedState:
    """The state of a run in partitions, and the forest of its plan.

    ``foreign`` is the state of a program with other code, which may have divided the state in another way.
    """

    forest: Forest
    partitions: tuple[StatePartition, ...]
    foreign: bool = False
    stored: tuple[StateFile, ...] | None = None
    """The files of all partitions, once :meth:`keep` has written those in memory."""

    @staticmethod
    def of(snapshot: Snapshot, fingerprint: Mapping[str, Any] | None = None) -> PartitionedState:
        """Return the state of a snapshot; ``fingerprint`` is that of the resuming program, if it may differ."""
        partitions = [StoredPartition(snapshot.folder, file) for file in snapshot.manifest.state if file.tree_sizes]
        foreign = fingerprint is not None and bool(differences(snapshot.manifest.fingerprint, fingerprint))
        return PartitionedState(snapshot.forest(), tuple(partitions), foreign)

    @property
    def size(self) -> int:
        """The size in bytes."""
        return sum(partition.size for partition in self.partitions)

    def under(
        self, forest: Forest, trees: Collection[str], definition: Definition, codec: StateCodec
    ) -> dict[str, Any]:
        """Return the states with which some trees of a plan begin."""
        if self.is_divided_by(forest):
            new = {old.id: tree.id for old, tree in zip(self.forest.trees, forest.trees, strict=True)}
            mine = [old for old, tree in new.items() if tree in trees]
            return {new[tree]: state for tree, state in self._some(mine, codec)}
        return forest.distribute(definition, self.forest, self._all(codec), trees)

    def is_divided_by(self, forest: Forest) -> bool:
        """Tell whether the trees of a plan can begin with these states as they are."""
        return self.forest == forest and not self.foreign

    def whole(self, definition: Definition, codec: StateCodec) -> Any:  # noqa: ANN401 -- whatever the program's state is
        """Return the joined state of all trees."""
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

    def keep(self, store: Checkpoints, snapshot_id: SnapshotId) -> tuple[tuple[StateFile, ...], PartitionedState]:
        """Store this state for a snapshot; return its files, and the state with the names of these files.

        Partitions in memory stay in memory, and are written to one file, once. Partitions in files are referred to,
        even if they were written for an earlier snapshot.
        """
        if self.stored is not None:
            return self.stored, self
        held = [partition for partition in self.partitions if isinstance(partition, InMemoryPartition)]
        files = [partition.file for partition in self.partitions if isinstance(partition, StoredPartition)]
        if held:
            tree_sizes = tuple(tree for partition in held for tree in partition.tree_sizes)
            files.append(store.write_state(snapshot_id, b"".join(partition.data for partition in held), tree_sizes))
        return tuple(files), replace(self, stored=tuple(files))


def settled(
    state: PartitionedState | None, plan: Plan, definition: Definition, codec: StateCodec
) -> PartitionedState | None:
    """Return the state with which a run begins, divided so that all tasks agree on the division.

    Tasks divide the state themselves where the result is the same in every process. A fork of the user's own need not
    give the same result, as it may depend on the order of a set. Then the driver divides the state here, once.
    """
    forest = Forest.of(plan.root)
    if forest.is_certain(definition) or (state is not None and state.is_divided_by(forest)):
        return state
    whole = initial_state(definition) if state is None else state.whole(definition, codec)
    parts = forest.divide(definition, whole)
    return PartitionedState(forest, (InMemoryPartition.of({tree: codec.pack(part) for tree, part in parts.items()}),))


@dataclass(frozen=True)
class FinalStatePolicy:
    """How tasks pass final states to the driver: in memory, or in a file of a checkpoint above ``most`` bytes."""

    store: Checkpoints | None = None
    snapshot_id: SnapshotId | None = None
    most: int = 0

    def keep(self, packed: Mapping[str, bytes]) -> StatePartition:
        """Return the states of a task's trees as a partition, in memory or in a file."""
        partition = InMemoryPartition.of(packed)
        if self.store is None or self.snapshot_id is None or partition.size <= self.most:
            return partition
        return StoredPartition(
            self.store.folder, self.store.write_state(self.snapshot_id, partition.data, partition.tree_sizes)
        )
