"""A state that lies in shares: one for each tree of the plan that left it, wherever the task of that tree has put it.

Several shares are in one bundle, one behind the other: what a task hands to the driver, or has written to a file.
Whoever goes on, under the same plan or another, reads the bundles that it needs::

    same trees        each task reads its own share
    other trees       each task reads all shares one by one, and keeps of each what its trees may need
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from flumina.definition import Definition
from flumina.engine.checkpoint import Checkpoints, Place, Snapshot, StateFile
from flumina.engine.checkpoint.folder import Folder
from flumina.engine.checkpoint.sealed import damaged
from flumina.engine.checkpoint.snapshot import read_state
from flumina.engine.codec import Codec
from flumina.plan.crown import Crown
from flumina.plan.render.json import from_json

Sizes = tuple[tuple[str, int], ...]
"""The trees whose states are in a bundle, by the ids of their roots, and how many bytes each has."""


@dataclass(frozen=True)
class Held:
    """A bundle at hand."""

    shares: Sizes
    data: bytes = field(repr=False)

    @property
    def size(self) -> int:
        """In bytes."""
        return len(self.data)

    def read(self) -> bytes:
        """All of it."""
        return self.data

    @staticmethod
    def of(packed: Mapping[str, bytes]) -> Held:
        """States of trees as one bundle."""
        return Held(tuple((tree, len(data)) for tree, data in packed.items()), b"".join(packed.values()))


@dataclass(frozen=True)
class Kept:
    """A bundle in a checkpoint that all tasks reach."""

    folder: Folder
    file: StateFile

    @property
    def shares(self) -> Sizes:
        """What is in it."""
        return self.file.shares

    @property
    def size(self) -> int:
        """In bytes."""
        return self.file.size

    def read(self) -> bytes:
        """All of it, if that is what was written."""
        return read_state(self.folder, self.file)


Bundle = Held | Kept


@dataclass(frozen=True)
class Shares:
    """The state that a run has left, in bundles, and the crown of its plan."""

    crown: Crown
    bundles: tuple[Bundle, ...]

    @staticmethod
    def of(snapshot: Snapshot) -> Shares:
        """The state of a snapshot."""
        manifest, folder = snapshot.manifest, snapshot.folder
        files = [file for file in manifest.states if file.shares]
        where = folder.at(manifest.place.manifest)
        if manifest.plan is None:
            raise damaged(where, "it names states, and no plan that has left them")
        crown = Crown.of(from_json(manifest.plan, f"the plan of snapshot {snapshot.number}").root)
        there = sorted(tree for file in files for tree, _ in file.shares)
        if there != sorted(tree.id for tree in crown.trees):
            raise damaged(where, f"it has the states of {there}, the trees of its plan are others")
        return Shares(crown, tuple(Kept(folder, file) for file in files))

    @property
    def size(self) -> int:
        """In bytes."""
        return sum(bundle.size for bundle in self.bundles)

    def under(self, crown: Crown, trees: Collection[str], definition: Definition, codec: Codec) -> dict[str, Any]:
        """The states with which some trees of a plan go on."""
        return crown.share_out(definition, self.crown, lambda wanted: self._some(wanted, codec), trees)

    def whole(self, definition: Definition, codec: Codec) -> Any:  # noqa: ANN401 -- whatever the program's state is
        """All of it."""
        trees = [tree.id for tree in self.crown.trees]
        return self.crown.unite(definition, dict(self._some(trees, codec)))

    def _some(self, trees: Collection[str], codec: Codec) -> Iterator[tuple[str, Any]]:
        for bundle in self.bundles:
            if not any(tree in trees for tree, _ in bundle.shares):
                continue
            data, at = memoryview(bundle.read()), 0
            for tree, size in bundle.shares:
                if tree in trees:
                    yield tree, codec.unpack(data[at : at + size])
                at += size

    def keep(self, store: Checkpoints, place: Place) -> tuple[list[StateFile], Shares]:
        """The files for a snapshot with this state, and the state as it lies then.

        What is at hand stays so, and is written to one file. What a task has written for this snapshot is there; what
        lies in the files of another one is copied.
        """
        held = [bundle for bundle in self.bundles if isinstance(bundle, Held)]
        kept = [bundle for bundle in self.bundles if isinstance(bundle, Kept)]
        copies = [
            bundle
            if bundle.file.is_of(place)
            else Kept(bundle.folder, store.write_state(place, bundle.read(), bundle.shares))
            for bundle in kept
        ]
        files = [bundle.file for bundle in copies]
        if held:
            shares = tuple(share for bundle in held for share in bundle.shares)
            files.append(store.write_state(place, b"".join(bundle.data for bundle in held), shares))
        return files, Shares(self.crown, (*held, *copies))


@dataclass(frozen=True)
class Ending:
    """What becomes of the states at the end: a task hands those of its trees to the driver.

    If they have more than ``most`` bytes, it writes them to a checkpoint, and hands over where they are.
    """

    store: Checkpoints | None = None
    place: Place | None = None
    most: int = 0

    def keep(self, packed: Mapping[str, bytes]) -> Bundle:
        """The states of a task's trees."""
        bundle = Held.of(packed)
        if self.store is None or self.place is None or bundle.size <= self.most:
            return bundle
        return Kept(self.store.folder, self.store.write_state(self.place, bundle.data, bundle.shares))
