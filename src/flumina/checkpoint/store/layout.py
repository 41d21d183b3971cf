"""The files of a checkpoint: what they are called, and how they are written whole or not at all.

::

    claim-EPOCH-ID.json            a driver that took over, and the snapshot it went on from
    state-EPOCH-NUMBER-ID.bin      a state, as bytes
    snapshot-EPOCH-NUMBER.json     the manifest of a snapshot: written after its state, it makes the snapshot count
    snapshot-EPOCH-NUMBER.done     written after the manifest: without the manifest, a proof that it was lost
    partial-EPOCH-ID.tmp           a file being written, where files can be renamed

No file is ever written twice, so that a driver that is late can't change what another one wrote.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

import pyarrow as pa
from pyarrow import fs

from flumina.errors import CheckpointError
from flumina.storage.filesystem import can_rename, join, resolve, settle, telling

_NAME = re.compile(
    r"(?P<claim>claim-(\d{6,})-([0-9a-f]{16})\.json)"
    r"|(?P<manifest>snapshot-(\d{6,})-(\d{10,})\.json)"
    r"|(?P<marker>snapshot-(\d{6,})-(\d{10,})\.done)"
    r"|(?P<state>state-(\d{6,})-(\d{10,})-[0-9a-f]{16}\.bin)"
    r"|(?P<partial>partial-(\d{6,})-[0-9a-f]{16}\.tmp)",
    re.ASCII,
)


def new_id() -> str:
    """Sixteen digits that nobody else will choose."""
    return secrets.token_hex(8)


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


class ClaimName(NamedTuple):
    """Who claimed which epoch."""

    epoch: int
    id: str

    def __str__(self) -> str:
        return f"claim-{self.epoch:06d}-{self.id}.json"


@dataclass(frozen=True)
class Listing:
    """What lies in the folder at one moment, by names alone."""

    claims: frozenset[ClaimName] = frozenset()
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
        claims: set[ClaimName] = set()
        of_places: dict[str, set[Place]] = {"manifest": set(), "marker": set()}
        states: set[tuple[Place, str]] = set()
        partial: set[tuple[int, str]] = set()
        foreign: list[str] = []
        for name in names:
            match = _NAME.fullmatch(name)
            if match is None:
                foreign.append(name)
                continue
            kind = match.lastgroup
            epoch, *rest = (group for group in match.groups() if group and group != name)
            if kind == "claim":
                claims.add(ClaimName(int(epoch), rest[0]))
            elif kind == "partial":
                partial.add((int(epoch), name))
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
            claims=frozenset(claim for claim in self.claims if claim.epoch <= epoch),
            manifests=frozenset(place for place in self.manifests if place.epoch <= epoch),
            markers=frozenset(place for place in self.markers if place.epoch <= epoch),
        )


@dataclass(frozen=True)
class Folder:
    """A folder in a file system; travels to the tasks that write states."""

    filesystem: fs.FileSystem
    path: str

    @staticmethod
    def of(path: str | os.PathLike[str], filesystem: fs.FileSystem | None) -> Folder:
        """Find the file system of a path or URI; relative paths are those of the process that calls this."""
        found, inside = resolve(path, filesystem, "checkpoint")
        return Folder(found, inside.rstrip("/") or inside)

    def at(self, name: str) -> str:
        """The path of a file."""
        return join(self.path, name)

    def below(self, name: str) -> Folder:
        """A folder in this one."""
        return Folder(self.filesystem, self.at(name))

    def create(self) -> None:
        """Make the folder, if it is not there."""
        with _telling("make the folder", self.path):
            self.filesystem.create_dir(self.path, recursive=True)

    def names(self) -> list[str] | None:
        """What lies in the folder; None if there is no folder."""
        with _telling("read", self.path):
            _forget_cached(self.filesystem)
            info = self.filesystem.get_file_info(self.path)
            if info.type == fs.FileType.File:
                raise CheckpointError(
                    "CHECKPOINT_FOREIGN",
                    f"{self.path} is a file",
                    file=self.path,
                    hint="a checkpoint is a folder: choose another name",
                )
            found = self.filesystem.get_file_info(fs.FileSelector(self.path, allow_not_found=True))
        if info.type == fs.FileType.NotFound and not found:
            return None
        return [item.base_name for item in found]

    def listing(self) -> Listing:
        """What lies in the folder now."""
        return Listing.of(self.names() or ())

    def read(self, name: str) -> bytes:
        """The bytes of a file that should be there."""
        path = self.at(name)
        with _telling("read", path):
            try:
                with self.filesystem.open_input_stream(path) as stream:
                    data: bytes = stream.read()
            except FileNotFoundError:
                raise missing(path) from None
        return data

    def size(self, name: str) -> int | None:
        """How long a file is; None if it is not there."""
        with _telling("read", self.at(name)):
            info = self.filesystem.get_file_info(self.at(name))
        return info.size if info.type == fs.FileType.File else None

    def write(self, name: str, data: bytes, epoch: int) -> None:
        """A new file, whole or not at all: renamed when it is complete, or put in one piece where that is all there is.

        On a local disk it is there to stay when this returns, even if the power fails.
        """
        path = self.at(name)
        with _telling("write", path):
            if not can_rename(self.filesystem):
                self._put(path, data)
                return
            partial = f"partial-{epoch:06d}-{new_id()}.tmp"
            try:
                self._put(self.at(partial), data)
                settle(self.filesystem, self.at(partial))
                self.filesystem.move(self.at(partial), path)
                settle(self.filesystem, self.path)
            except BaseException:
                self.delete([partial])
                raise

    def delete(self, names: Iterable[str]) -> None:
        """Delete files as far as that can be done; what is left is tried again by who comes next."""
        for name in names:
            with suppress(OSError, pa.ArrowException):
                self.filesystem.delete_file(self.at(name))

    def _put(self, path: str, data: bytes) -> None:
        with self.filesystem.open_output_stream(path) as stream:
            stream.write(data)


def missing(path: str) -> CheckpointError:
    """The error for a file that others say was written."""
    return CheckpointError(
        "CHECKPOINT_MISSING_FILE",
        f"{path} is not there, though other files of the checkpoint say that it was written",
        file=path,
        hint="ask for an older snapshot (allow_older=True), or restore it from a copy; all tasks must reach the folder",
    )


def _telling(what: str, path: str) -> AbstractContextManager[None]:
    return telling(what, path, CheckpointError, "CHECKPOINT_FAILED")


def _forget_cached(filesystem: fs.FileSystem) -> None:
    """File systems of fsspec remember what they have listed, and would not see what others write."""
    while isinstance(filesystem, fs.SubTreeFileSystem):
        filesystem = filesystem.base_fs
    if isinstance(filesystem, fs.PyFileSystem) and isinstance(filesystem.handler, fs.FSSpecHandler):
        filesystem.handler.fs.invalidate_cache()
