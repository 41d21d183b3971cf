"""Commit snapshots as the owner of a checkpoint: one driver at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from flumina.checkpoint.store.layout import Listing, SnapshotId, owner_file
from flumina.checkpoint.store.manifest import BufferedFile, Epoch, EpochManifest, StateFile, library_version
from flumina.checkpoint.store.reader import SnapshotReader
from flumina.checkpoint.store.snapshot import Snapshot, write_state
from flumina.errors import CheckpointError, UsageError
from flumina.storage.checksum import missing
from flumina.storage.checksummed_file import decode, encode
from flumina.storage.owner_token import OwnerToken


class CheckpointOwner:
    """Ownership of a checkpoint, from :meth:`Checkpoints.take_over` until another driver takes over."""

    def __init__(
        self,
        reader: SnapshotReader,
        keep: int,
        token: OwnerToken,
        resumes: Snapshot | None,
        fingerprint: Mapping[str, Any],
        highest: int,
    ) -> None:
        self.token, self.fingerprint = token, fingerprint
        self.resumes = self._parent = None if resumes is None else resumes.manifest.snapshot_id
        self._reader, self._folder, self._keep = reader, reader.folder, keep
        self._named: dict[SnapshotId, frozenset[str]] = {}
        if resumes is not None:
            self._named[resumes.manifest.snapshot_id] = resumes.manifest.named
        """The files that each kept manifest names, as far as they are known."""
        self._last, self._highest = -1 if resumes is None else resumes.number, highest

    @property
    def next_number(self) -> int:
        """The default number of the next snapshot: no other snapshot in the folder has it."""
        return max(self._last, self._highest) + 1

    def snapshot_id(self, number: int | None = None) -> SnapshotId:
        """Return the id of the snapshot with this number, with which tasks write its state."""
        number = self.next_number if number is None else number
        if not isinstance(number, int) or isinstance(number, bool) or number <= self._last:
            before = "a snapshot has a number from 0 on" if self._last < 0 else f"the last one was {self._last}"
            raise UsageError("SNAPSHOT_NUMBER", f"the numbers of snapshots increase: got {number!r}, {before}")
        return SnapshotId(self.token.term, number)

    def write_state(self, number: int, data: bytes) -> StateFile:
        """Write a state as a whole for the epoch with this number; raise if another driver has taken over."""
        self.check()
        return write_state(self._folder, self.snapshot_id(number), data)

    def check(self) -> None:
        """Raise if another driver has taken over, or the checkpoint was deleted."""
        self._check(self._folder.listing())

    def write(self, epoch: Epoch) -> Snapshot:
        """Write the manifest of an epoch whose files are written: from here on the epoch counts."""
        snapshot_id = self.snapshot_id(epoch.number)
        manifest = EpochManifest(
            **vars(epoch),
            term=self.token.term,
            owner=self.token.id,
            run=self.token.run,
            parent=self._parent,
            created=datetime.now(UTC),
            flumina=library_version(),
            fingerprint=self.fingerprint,
        )
        data = encode("manifest", manifest.to_json())
        before = self._folder.listing()
        self._check(before)
        for file in epoch.data_files:
            self._check_written(file, snapshot_id)
        self._folder.write(snapshot_id.manifest, data)
        self._last, self._parent = snapshot_id.number, snapshot_id
        path = self._folder.at(snapshot_id.manifest)
        manifest = EpochManifest.from_json(decode(data, "manifest", path), path)
        self._named[snapshot_id] = manifest.named
        seen = replace(before, manifests=before.manifests | {snapshot_id})
        return Snapshot(manifest, self._folder, seen, hashlib.sha256(data).hexdigest())

    def mark(self, snapshot: Snapshot) -> Snapshot:
        """Mark an epoch as visible; it may be that of an earlier owner."""
        marker = snapshot.manifest.snapshot_id.marker
        self._folder.write(marker, encode("marker", {"manifest": snapshot.digest}))
        return replace(snapshot, seen=self._folder.listing())

    def prune(self, newest: Snapshot) -> None:
        """Delete the oldest snapshots beyond ``keep``, and files that no kept manifest names.

        Deletes nothing if the lineage is damaged. The marker goes first and files last, so that a crash leaves no
        marker of a snapshot without its files.
        """
        listing, newest_id = newest.seen, newest.manifest.snapshot_id
        self._check(listing)  # before files are deleted: another driver may just have resumed from an older snapshot
        kept: list[SnapshotId] = []
        with suppress(CheckpointError):
            for snapshot_id in self._reader.chain(listing.up_to(self.token.term)):
                kept.append(snapshot_id)
                if len(kept) == self._keep:
                    break
            self._named = {snapshot_id: self._names(snapshot_id, listing) for snapshot_id in kept}
            self._delete_all_but(kept, listing, newest_id)

    def _names(self, snapshot_id: SnapshotId, listing: Listing) -> frozenset[str]:
        """Return the files that a manifest names; one that this driver has not written is read."""
        named = self._named.get(snapshot_id)
        return self._reader.read(snapshot_id, listing).manifest.named if named is None else named

    def _check(self, listing: Listing) -> None:
        terms = {owner.term for owner in listing.owners}
        if self.token.is_fenced(terms):
            what = f"another driver took over with term {max(terms)}, this one had {self.token.term}"
            raise in_use(self._folder.path, what)
        if self.token.name not in listing.owners:
            raise missing(self._folder.at(owner_file(self.token.name)))

    def _check_written(self, file: StateFile | BufferedFile, snapshot_id: SnapshotId) -> None:
        if not snapshot_id.wrote(file.name):
            if self._parent is not None and file.name in self._named.get(self._parent, ()):
                return  # a file of an earlier epoch, which the parent names, too
            raise UsageError(
                "STATE_FILES",
                f"{file.name} was not written for snapshot {snapshot_id.number} of term {snapshot_id.term}",
                hint="pass write_state the id that CheckpointOwner.snapshot_id returned, or name a file of the parent",
            )
        size = self._folder.size(file.name)
        if size is None:
            raise missing(self._folder.at(file.name))
        if size != file.size:
            path = self._folder.at(file.name)
            raise CheckpointError(
                "CHECKPOINT_DAMAGED",
                f"{path} has {size:,} bytes, a task wrote {file.size:,}",
                file=path,
                hint="a checkpoint needs storage that the driver and all tasks share",
            )

    def _delete_all_but(self, kept: Sequence[SnapshotId], listing: Listing, newest: SnapshotId) -> None:
        gone = sorted(
            snapshot_id for snapshot_id in listing.snapshot_ids if snapshot_id <= newest and snapshot_id not in kept
        )
        first = min(snapshot_id.term for snapshot_id in kept)
        named = frozenset().union(*self._named.values())
        self._folder.delete(
            [
                *(snapshot_id.marker for snapshot_id in gone if snapshot_id in listing.markers),
                *(snapshot_id.manifest for snapshot_id in gone if snapshot_id in listing.manifests),
                *(name for snapshot_id, name in listing.files if snapshot_id <= newest and name not in named),
                *(owner_file(owner) for owner in listing.owners if owner.term < first),
            ]
        )


def in_use(path: str, what: str) -> CheckpointError:
    """Return the error for a checkpoint that another driver uses."""
    return CheckpointError(
        "CHECKPOINT_IN_USE",
        f"{path} is in use: {what}",
        file=path,
        hint="let one driver at a time work on a checkpoint; if the other one is gone, try again",
    )
