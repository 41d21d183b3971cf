"""Write and read a checkpoint: the folder with the snapshots of one run."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from pyarrow import fs

from flumina.checkpoint.program_compatibility import check_program
from flumina.checkpoint.store.checkpoint_owner import CheckpointOwner, in_use
from flumina.checkpoint.store.layout import CheckpointDirectory, Listing, SnapshotId, owner_file
from flumina.checkpoint.store.manifest import BufferedFile, OwnerRecord, StateFile, library_version
from flumina.checkpoint.store.reader import SnapshotReader
from flumina.checkpoint.store.snapshot import Snapshot, write_state
from flumina.checkpoint.store.verify import Finding, verify
from flumina.errors import CheckpointError, UsageError
from flumina.model.order import Ints
from flumina.storage.checksummed_file import encode
from flumina.storage.json_record import to_json
from flumina.storage.owner_token import OwnerName, OwnerToken

KEEP = 3
"""Default number of snapshots that are kept."""


class Checkpoints(SnapshotReader):
    """The snapshots at a path or URI, which need not exist yet; the last ``keep`` of them are kept.

    It is sent to the tasks, which write states with it; a relative path is resolved in the process that made it.
    """

    def __init__(self, path: str | os.PathLike[str], filesystem: fs.FileSystem | None = None, keep: int = KEEP) -> None:
        if not isinstance(keep, int) or keep < 1:
            raise UsageError("KEEP", f"at least one snapshot is kept, got keep={keep!r}")
        super().__init__(CheckpointDirectory.of(path, "checkpoint", filesystem))
        self.keep = keep

    def take_over(
        self,
        *,
        resumes: Snapshot | None,
        fingerprint: Mapping[str, Any] | None = None,
        run: str | None = None,
        allow_code_change: bool = False,
    ) -> CheckpointOwner:
        """Become the owner of the checkpoint, with a new term that fences off every earlier driver.

        ``resumes`` is the snapshot that :meth:`latest` returned. Raises if another driver has taken over or committed
        since; of two drivers that take over at once, at least one gets the error. ``fingerprint`` (of
        :func:`program_fingerprint`) has to be that of the snapshot's program; with ``allow_code_change``, its code may
        differ.
        """
        if resumes is not None:
            check_program(
                resumes.manifest.fingerprint,
                fingerprint or {},
                allow_code_change=allow_code_change,
                where=self.folder.path,
            )
        self.folder.create()
        before = self.folder.listing()
        if resumes is None:
            self._check_fresh(before)
        name = OwnerName.following(before.term)
        owner = OwnerToken(run or name.id, name)
        snapshot_id = None if resumes is None else resumes.manifest.snapshot_id
        record = OwnerRecord(name.term, name.id, owner.run, snapshot_id, datetime.now(UTC), library_version())
        data = encode("owner", to_json(record))
        try:
            self.folder.write(owner_file(name), data)
            now = self.folder.listing()
            self._check_alone(now, before if resumes is None else resumes.seen, name)
        except BaseException:
            self.folder.delete([owner_file(name)])
            raise
        self._clean(now, name.term)
        highest = max((found.number for found in now.snapshot_ids), default=0)
        return CheckpointOwner(self, self.keep, owner, resumes, dict(fingerprint or {}), highest)

    def write_state(
        self, snapshot_id: SnapshotId, data: bytes, tree_sizes: Sequence[tuple[str, int]] = ()
    ) -> StateFile:
        """Write a state for a snapshot that will be committed; any process may call this, and more than once.

        ``snapshot_id`` is from :meth:`CheckpointOwner.snapshot_id`; for ``tree_sizes`` see :class:`StateFile`.
        """
        return write_state(self.folder, snapshot_id, data, tree_sizes)

    def write_buffered(self, snapshot_id: SnapshotId, stream: str, data: bytes, timestamps: Ints) -> BufferedFile:
        """Write sorted rows of a stream with these timestamps, for an epoch that will be committed."""
        name = snapshot_id.new_file("buffered", "arrow")
        self.folder.write(name, data)
        first, last = int(timestamps[0]), int(timestamps[-1])
        return BufferedFile(name, len(data), hashlib.sha256(data).hexdigest(), stream, 0, len(timestamps), first, last)

    def verify(self) -> list[Finding]:
        """Read all files, and return findings of damaged or needless ones; empty if all is well."""
        return verify(self)

    def _check_fresh(self, listing: Listing) -> None:
        """Raise if the checkpoint has snapshots: a new run begins only where none was committed."""
        found = self.newest(listing)
        if found is not None:
            raise CheckpointError(
                "CHECKPOINT_EXISTS",
                f"{self.folder.path} holds snapshots, up to {found.number}, and can't be begun anew",
                file=self.folder.path,
                hint="go on from the latest, or choose another folder",
            )

    def _check_alone(self, now: Listing, seen: Listing, own: OwnerName) -> None:
        """Raise if another driver has written since ``seen``.

        Two drivers write their owner files and list the folder afterwards, so that at least one of them sees the other.
        A driver commits and checks for other owners before it deletes old snapshots; so either its commit is seen here,
        or it deletes none.
        """
        rivals = sorted(now.owners - seen.owners - {own})
        added = sorted(now.snapshot_ids - seen.snapshot_ids)
        if rivals or added or own not in now.owners:
            what = f"took over with term {rivals[-1].term}" if rivals else f"committed snapshot {added[-1].number}"
            raise in_use(
                self.folder.path, f"another driver {what}" if rivals or added else "the file of this owner was deleted"
            )

    def _clean(self, listing: Listing, term: int) -> None:
        """Delete files that earlier drivers did not finish: half written ones, and such that no manifest names.

        Where a manifest can't be read, files that it may name are kept.
        """
        self.folder.delete([name for of, name in listing.partial if of <= term])
        named: set[str] = set()
        with suppress(CheckpointError):
            for snapshot_id in listing.manifests:
                named |= self.read(snapshot_id, listing).manifest.named
            old = (name for of, name in listing.files if of.term < term and of not in listing.snapshot_ids)
            self.folder.delete([name for name in old if name not in named])
