"""Name the files of a checkpoint directory, and list what they mean.

::

    owner-TERM-ID.json             a driver that took over, and the snapshot it went on from
    state-TERM-NUMBER-ID.bin       a state, as bytes
    buffered-TERM-NUMBER-ID.arrow  rows that wait for a later epoch
    snapshot-TERM-NUMBER.json      the manifest of an epoch: written after its files, it makes the epoch count
    snapshot-TERM-NUMBER.done      the marker: the outputs of the epoch are visible; it proves a lost manifest, too
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
from flumina.storage.owner_token import OwnerName

WATERMARKS = "watermarks"
"""The folder in the log of a streaming query with the watermark of each batch."""

_NAME = re.compile(
    r"(?P<owner>owner-(\d{6,})-([0-9a-f]{16})\.json)"
    r"|(?P<manifest>snapshot-(\d{6,})-(\d{10,})\.json)"
    r"|(?P<marker>snapshot-(\d{6,})-(\d{10,})\.done)"
    r"|(?P<file>(?:state|buffered)-(\d{6,})-(\d{10,})-[0-9a-f]{16}\.(?:bin|arrow))",
    re.ASCII,
)


def owner_file(name: OwnerName) -> str:
    """Return the name of a driver's owner file."""
    return f"{name}.json"


class SnapshotId(NamedTuple):
    """Identifier of a snapshot: the term of its driver, and its number; later ones compare greater."""

    term: int
    number: int

    def __str__(self) -> str:
        return f"{self.term:06d}-{self.number:010d}"

    @property
    def manifest(self) -> str:
        """The name of the manifest."""
        return f"snapshot-{self}.json"

    @property
    def marker(self) -> str:
        """The name of the file that marks the outputs of the epoch as visible."""
        return f"snapshot-{self}.done"

    def new_file(self, kind: str, suffix: str) -> str:
        """Return a new, unique name for a file of this snapshot, of a kind such as ``state``."""
        return f"{kind}-{self}-{new_id()}.{suffix}"

    def wrote(self, name: str) -> bool:
        """Tell whether a file was written for this snapshot, by its name."""
        return name.partition("-")[2].startswith(f"{self}-")


@dataclass(frozen=True)
class Listing:
    """The files in the folder at one moment, by their names alone."""

    owners: frozenset[OwnerName] = frozenset()
    manifests: frozenset[SnapshotId] = frozenset()
    markers: frozenset[SnapshotId] = frozenset()
    files: frozenset[tuple[SnapshotId, str]] = frozenset()
    """Files that manifests name, and the snapshots they were written for."""
    partial: frozenset[tuple[int, str]] = frozenset()
    """Temporary files, and the terms of the drivers that wrote them."""
    foreign: tuple[str, ...] = ()
    """Names that do not belong to a checkpoint."""

    @staticmethod
    def of(names: Iterable[str]) -> Listing:
        """Sort names by what they mean."""
        owners: set[OwnerName] = set()
        of_snapshot_ids: dict[str, set[SnapshotId]] = {"manifest": set(), "marker": set()}
        files: set[tuple[SnapshotId, str]] = set()
        partial: set[tuple[int, str]] = set()
        foreign: list[str] = []
        for name in names:
            target = target_of(name)
            match = _NAME.fullmatch(name if target is None else target)
            if match is None:
                foreign.append(name)
                continue
            kind = match.lastgroup
            term, *rest = (group for group in match.groups() if group and group != match[0])
            if target is not None:
                partial.add((int(term), name))
            elif kind == "owner":
                owners.add(OwnerName(int(term), rest[0]))
            elif kind == "file":
                files.add((SnapshotId(int(term), int(rest[0])), name))
            else:
                of_snapshot_ids[str(kind)].add(SnapshotId(int(term), int(rest[0])))
        return Listing(
            frozenset(owners),
            frozenset(of_snapshot_ids["manifest"]),
            frozenset(of_snapshot_ids["marker"]),
            frozenset(files),
            frozenset(partial),
            tuple(sorted(foreign)),
        )

    @property
    def snapshot_ids(self) -> frozenset[SnapshotId]:
        """The committed snapshots, also with a missing manifest."""
        return self.manifests | self.markers

    @property
    def term(self) -> int:
        """The highest term of an owner or a snapshot; 0 if there is none."""
        return max((term for term, _ in (*self.owners, *self.snapshot_ids)), default=0)

    def up_to(self, term: int) -> Listing:
        """Return the listing without files of later drivers."""
        return replace(
            self,
            owners=frozenset(owner for owner in self.owners if owner.term <= term),
            manifests=frozenset(snapshot_id for snapshot_id in self.manifests if snapshot_id.term <= term),
            markers=frozenset(snapshot_id for snapshot_id in self.markers if snapshot_id.term <= term),
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
        """Read a file that other files refer to; raise if it is missing."""
        data = self.read(name)
        if data is None:
            raise missing(self.at(name))
        return data
