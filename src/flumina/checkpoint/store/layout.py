"""Name the files of a checkpoint directory, and list what they mean.

::

    owner-TERM-ID.json             a driver that took over, and the snapshot it went on from
    state-TERM-NUMBER-ID.bin       a state, as bytes
    snapshot-TERM-NUMBER.json      the manifest of a snapshot: written after its state, it makes the snapshot count
    snapshot-TERM-NUMBER.done      written after the manifest: without the manifest, a proof that it was lost
    .NAME.ID.tmp                   a file being written, where files can be renamed

No file is ever written twice, so that a driver that is late can't change what another one wrote.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

from flumina.errors import CheckpointError, FluminaError
from flumina.storage.checksum import missing
from flumina.storage.directory import Directory, new_id, target_of
from flumina.storage.filesystem import forget_cached, is_file
from flumina.storage.owner import OwnerName

_NAME = re.compile(
    r"(?P<owner>owner-(\d{6,})-([0-9a-f]{16})\.json)"
    r"|(?P<manifest>snapshot-(\d{6,})-(\d{10,})\.json)"
    r"|(?P<marker>snapshot-(\d{6,})-(\d{10,})\.done)"
    r"|(?P<state>state-(\d{6,})-(\d{10,})-[0-9a-f]{16}\.bin)",
    re.ASCII,
)


def owner_file(name: OwnerName) -> str:
    """Return the name of the file in which a driver says that it took over."""
    return f"{name}.json"


class Place(NamedTuple):
    """Which snapshot: the epoch of the driver that made it, and its number; later ones compare greater."""

    epoch: int
    number: int

    def __str__(self) -> str:
        return f"{self.epoch:06d}-{self.number:010d}"

    @property
    def manifest(self) -> str:
        """The file that describes the snapshot."""
        return f"snapshot-{self}.json"

    @property
    def marker(self) -> str:
        """The file that says that the manifest was written."""
        return f"snapshot-{self}.done"

    def new_state(self) -> str:
        """A name for a state of this snapshot that no other attempt to write it has."""
        return f"state-{self}-{new_id()}.bin"


@dataclass(frozen=True)
class Listing:
    """What lies in the folder at one moment, by names alone."""

    claims: frozenset[OwnerName] = frozenset()
    manifests: frozenset[Place] = frozenset()
    markers: frozenset[Place] = frozenset()
    states: frozenset[tuple[Place, str]] = frozenset()
    partial: frozenset[tuple[int, str]] = frozenset()
    """Files that were being written, and the epochs of those who did."""
    foreign: tuple[str, ...] = ()
    """What no checkpoint has written."""

    @staticmethod
    def of(names: Iterable[str]) -> Listing:
        """Sort names by what they mean."""
        claims: set[OwnerName] = set()
        of_places: dict[str, set[Place]] = {"manifest": set(), "marker": set()}
        states: set[tuple[Place, str]] = set()
        partial: set[tuple[int, str]] = set()
        foreign: list[str] = []
        for name in names:
            target = target_of(name)
            match = _NAME.fullmatch(name if target is None else target)
            if match is None:
                foreign.append(name)
                continue
            kind = match.lastgroup
            epoch, *rest = (group for group in match.groups() if group and group != match[0])
            if target is not None:
                partial.add((int(epoch), name))
            elif kind == "owner":
                claims.add(OwnerName(int(epoch), rest[0]))
            elif kind == "state":
                states.add((Place(int(epoch), int(rest[0])), name))
            else:
                of_places[str(kind)].add(Place(int(epoch), int(rest[0])))
        return Listing(
            frozenset(claims),
            frozenset(of_places["manifest"]),
            frozenset(of_places["marker"]),
            frozenset(states),
            frozenset(partial),
            tuple(sorted(foreign)),
        )

    @property
    def places(self) -> frozenset[Place]:
        """Snapshots that were committed, also those whose manifest is gone."""
        return self.manifests | self.markers

    @property
    def epoch(self) -> int:
        """The highest epoch that left anything that counts; 0 if there is none."""
        return max((epoch for epoch, _ in (*self.claims, *self.places)), default=0)

    def up_to(self, epoch: int) -> Listing:
        """Without what later drivers wrote."""
        return replace(
            self,
            claims=frozenset(claim for claim in self.claims if claim.term <= epoch),
            manifests=frozenset(place for place in self.manifests if place.epoch <= epoch),
            markers=frozenset(place for place in self.markers if place.epoch <= epoch),
        )


@dataclass(frozen=True)
class CheckpointDirectory(Directory):
    """The directory of a checkpoint."""

    error: ClassVar[tuple[type[FluminaError], str]] = (CheckpointError, "CHECKPOINT_FAILED")

    def names(self) -> list[str]:
        """List the names in the directory; raise if it is a file."""
        with self._errors("read", self.path):
            forget_cached(self.filesystem)
            is_wrong = is_file(self.filesystem, self.path)
        if is_wrong:
            raise CheckpointError(
                "CHECKPOINT_FOREIGN",
                f"{self.path} is a file",
                file=self.path,
                hint="a checkpoint is a folder: choose another name",
            )
        return super().names()

    def listing(self) -> Listing:
        """List the directory as it is now, by what the names mean."""
        return Listing.of(self.names())

    def fetch(self, name: str) -> bytes:
        """Read a file that other files say was written."""
        data = self.read(name)
        if data is None:
            raise missing(self.at(name))
        return data
