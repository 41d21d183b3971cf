"""Find snapshots of a checkpoint: the latest, by number, or all."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import suppress

from flumina.checkpoint.store.layout import CheckpointDirectory, Listing, SnapshotId, owner_file
from flumina.checkpoint.store.lineage import lineage
from flumina.checkpoint.store.manifest import EpochManifest, OwnerRecord
from flumina.checkpoint.store.snapshot import Snapshot
from flumina.errors import CheckpointError, UsageError
from flumina.storage.checksum import damaged, missing
from flumina.storage.checksummed_file import decode
from flumina.storage.filesystem import join
from flumina.storage.json_record import from_json
from flumina.storage.owner_token import OwnerName

_TRIES = 5
"""Number of retries while a driver may delete files that are about to be read."""


class SnapshotReader:
    """Reader of a checkpoint; it never writes."""

    def __init__(self, folder: CheckpointDirectory) -> None:
        self.folder = folder

    def latest(
        self, *, allow_older: bool = False, check: Callable[[Snapshot], None] = lambda _: None
    ) -> Snapshot | None:
        """Return the snapshot to resume from; None where none was ever committed.

        Raises if it is damaged. With ``allow_older``, returns the newest undamaged snapshot: its state is read, and
        ``check`` raises if files in other folders that belong to it are damaged. Raises if all are damaged.
        """
        listing = self.folder.listing()
        for tries_left in reversed(range(_TRIES)):
            try:
                return self._newest_good(listing, check) if allow_older else self.newest(listing)
            except CheckpointError:
                again = self.folder.listing()
                if again == listing or not tries_left:
                    raise
                listing = again
        raise AssertionError

    def at(self, number: int) -> Snapshot:
        """Return the snapshot of the lineage with this number."""
        listing = self.folder.listing()
        self.check_ours(listing)
        there = []
        for snapshot_id in self.chain(listing):
            if snapshot_id.number == number:
                return self.read(snapshot_id, listing)
            there.append(snapshot_id.number)
        raise UsageError(
            "NO_SNAPSHOT",
            f"{self.folder.path} has no snapshot {number}",
            hint=f"there are {', '.join(map(str, there))}" if there else "nothing was committed yet",
        )

    def all(self) -> list[Snapshot]:
        """Return every snapshot in the folder, the oldest first, also of drivers that had been replaced."""
        found = [snapshot for _, snapshot in self.each()]
        for snapshot in found:
            if isinstance(snapshot, CheckpointError):
                raise snapshot
        return [snapshot for snapshot in found if isinstance(snapshot, Snapshot)]

    def each(self) -> Iterator[tuple[SnapshotId, Snapshot | CheckpointError]]:
        """Return every snapshot in the folder, the oldest first, or the error of a damaged one."""
        listing = self.folder.listing()
        for snapshot_id in sorted(listing.snapshot_ids):
            try:
                yield snapshot_id, self.read(snapshot_id, listing)
            except CheckpointError as error:
                yield snapshot_id, error

    def newest(self, listing: Listing) -> Snapshot | None:
        """Return the snapshot to resume from, by the listing of the folder at one moment."""
        self.check_ours(listing)
        snapshot_id = next(self.chain(listing), None)
        return None if snapshot_id is None else self.read(snapshot_id, listing)

    def _newest_good(self, listing: Listing, check: Callable[[Snapshot], None]) -> Snapshot | None:
        """Return the newest undamaged snapshot of the lineage or, where the lineage is broken, of all."""
        if not listing.snapshot_ids:
            return self.newest(listing)
        try:
            counted = list(self.chain(listing))
        except CheckpointError:
            counted = sorted(listing.snapshot_ids, reverse=True)
        first: CheckpointError | None = None
        for snapshot_id in counted:
            try:
                snapshot = self.read(snapshot_id, listing)
                snapshot.states()
                check(snapshot)
            except CheckpointError as error:
                first = first or error
            else:
                return snapshot
        assert first is not None
        hint = "restore the files from a copy, or begin anew with another checkpoint and another output directory"
        none_whole = CheckpointError(first.condition, first.message, file=first.file, hint=hint)
        none_whole.add_note(f"none of the {len(listing.snapshot_ids)} snapshots in {self.folder.path} is whole")
        raise none_whole from first

    def names(self, listing: Listing, since: SnapshotId | None = None) -> dict[str, str]:
        """Return the staged files of finished runs, whose commit a driver may have begun, with their final names.

        Reads the snapshots from ``since`` on, and skips damaged ones.
        """
        names: dict[str, str] = {}
        for snapshot_id in sorted(listing.manifests):
            if since is None or snapshot_id >= since:
                with suppress(CheckpointError):
                    manifest = self.read(snapshot_id, listing).manifest
                    if manifest.finished and manifest.outputs.folder is not None:
                        folder = manifest.outputs.folder
                        names |= {join(folder, file.path): file.name for file in manifest.files if file.name}
        return names

    def read(self, snapshot_id: SnapshotId, listing: Listing) -> Snapshot:
        """Read a snapshot, and verify its manifest against its own checksum and the one in its marker."""
        data, path = self.folder.fetch(snapshot_id.manifest), self.folder.at(snapshot_id.manifest)
        manifest = EpochManifest.from_json(decode(data, "manifest", path), path)
        if manifest.snapshot_id != snapshot_id:
            raise damaged(path, f"it is the manifest of snapshot {manifest.snapshot_id}")
        digest = hashlib.sha256(data).hexdigest()
        if snapshot_id in listing.markers:
            marker = decode(self.folder.fetch(snapshot_id.marker), "marker", self.folder.at(snapshot_id.marker))
            if marker["manifest"] != digest:
                raise damaged(path, "it is not the manifest that was committed")
        return Snapshot(manifest, self.folder, listing, digest)

    def chain(self, listing: Listing) -> Iterator[SnapshotId]:
        """Return the snapshots of the lineage, the newest first."""
        return lineage(listing, lambda term: self._resumed(term, listing))

    def _resumed(self, term: int, listing: Listing) -> SnapshotId | None:
        """Return the snapshot from which a term resumed.

        A term has two owner files where a driver died while it found that another one took the same term. It has
        written no snapshot, so either file will do, as long as it is always the same.
        """
        records = [self.read_owner(owner) for owner in sorted(listing.owners) if owner.term == term]
        return max((record.resumes for record in records if record.resumes is not None), default=None)

    def read_owner(self, name: OwnerName) -> OwnerRecord:
        """Read the owner file of a driver."""
        path = self.folder.at(owner_file(name))
        record = from_json(OwnerRecord, decode(self.folder.fetch(owner_file(name)), "owner", path), path)
        if (record.term, record.id) != name:
            raise damaged(path, f"it is that of the owner of term {record.term}, {record.id}")
        return record

    def begun(self) -> str | None:
        """Return the run of the last owner, which may have died before its first snapshot."""
        owners = sorted(self.folder.listing().owners)
        return self.read_owner(owners[-1]).run if owners else None

    def check_ours(self, listing: Listing) -> None:
        """Raise unless the folder is empty or a checkpoint, with an owner file for every snapshot."""
        if not listing.owners:
            if listing.snapshot_ids or listing.files:
                raise missing(self.folder.at("owner-*.json"))
            if listing.foreign:
                raise CheckpointError(
                    "CHECKPOINT_FOREIGN",
                    f"{self.folder.path} is no checkpoint: it holds {', '.join(listing.foreign[:3])}",
                    file=self.folder.path,
                    hint="choose a folder that is empty or not there yet",
                )
            return
        latest = max(owner.term for owner in listing.owners)
        if latest < listing.term:
            raise missing(self.folder.at(f"owner-{listing.term:06d}-*.json"))
