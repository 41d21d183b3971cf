"""Verify all files of a checkpoint against their checksums."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
from pyarrow import fs

from flumina.checkpoint.store.layout import WATERMARKS, CheckpointDirectory, Listing, SnapshotId
from flumina.checkpoint.store.manifest import BATCHES, StateFile
from flumina.checkpoint.store.reader import SnapshotReader
from flumina.checkpoint.store.snapshot import Snapshot, read_file, read_state
from flumina.errors import CheckpointError, FluminaError
from flumina.storage.checksum import Checksum, missing
from flumina.storage.checksummed_file import decode
from flumina.storage.filesystem import join, resolve
from flumina.storage.output_directory import READY


@dataclass(frozen=True)
class Finding:
    """One finding about a file of a checkpoint; not ``damaged`` if no data is lost."""

    file: str
    what: str
    damaged: bool = True


def verify(reader: SnapshotReader) -> list[Finding]:
    """Return findings of damaged and of needless files in a checkpoint.

    Output files are read where their folder can be reached. A driver may be running: files that it deletes meanwhile
    are not damage.
    """
    listing = reader.folder.listing()
    found = list(_look(reader, listing))
    gone = listing.snapshot_ids - reader.folder.listing().snapshot_ids
    return [finding for snapshot_id, finding in found if snapshot_id not in gone]


def verify_log(folder: CheckpointDirectory) -> list[Finding]:
    """Return findings of damaged entries in the log of a streaming query; every entry has a checksum."""
    found: list[Finding] = []
    for kind, log in {"query": folder, "watermark": folder.below(WATERMARKS)}.items():
        for name in log.names():
            if name.endswith(".json"):
                try:
                    decode(log.fetch(name), kind, log.at(name))
                except CheckpointError as error:
                    if name in log.names():  # a driver at work deletes old ones
                        found.append(_found(error))
    return found


def _look(reader: SnapshotReader, listing: Listing) -> Iterator[tuple[SnapshotId | None, Finding]]:
    counted: set[SnapshotId] | None = None
    try:
        reader.check_ours(listing)
        counted = set(reader.chain(listing))
    except CheckpointError as error:
        yield None, _found(error)
    for owner in sorted(listing.owners):
        try:
            reader.read_owner(owner)
        except CheckpointError as error:
            yield None, _found(error)
    owned = {owner.term for owner in listing.owners}
    for term in sorted({snapshot_id.term for snapshot_id in counted or ()} - owned):
        yield None, _found(missing(reader.folder.at(f"owner-{term:06d}-*.json")))
    checked: set[tuple[str | None, str]] = set()
    names = reader.names(listing)
    named: set[str] = set()
    for snapshot_id in sorted(listing.snapshot_ids | (counted or set())):
        counts = counted is None or snapshot_id in counted
        if not counts:
            path = reader.folder.at(snapshot_id.manifest)
            yield snapshot_id, Finding(path, "does not count: its driver had been replaced before", damaged=False)
        for finding in _look_at(reader, snapshot_id, listing, checked, names, named):
            yield snapshot_id, finding if counts else Finding(finding.file, finding.what, damaged=False)
    yield from _without_need(reader, listing, named)


class _Written(NamedTuple):
    """A file of outputs as it was written; ``path`` is relative to the folder of them all."""

    path: str
    checksum: Checksum
    what: str
    name: str | None
    """The final name, once a driver has begun to commit the file."""


def _look_at(
    reader: SnapshotReader,
    snapshot_id: SnapshotId,
    listing: Listing,
    checked: set[tuple[str | None, str]],
    names: Mapping[str, str],
    named: set[str],
) -> Iterator[Finding]:
    """One snapshot with its files; files that belong to many snapshots are read once, and added to ``named``."""
    try:
        snapshot = reader.read(snapshot_id, listing)
    except CheckpointError as error:
        yield _found(error)
        return
    manifest = snapshot.manifest
    for file in manifest.data_files:
        if file.name not in named:
            try:
                read_state(reader.folder, file) if isinstance(file, StateFile) else read_file(reader.folder, file)
            except CheckpointError as error:
                yield _found(error)
    named |= manifest.named
    if any(file.tree_sizes for file in manifest.state):
        try:
            snapshot.forest()
        except CheckpointError as error:
            yield _found(error)
    new = {file.path: file for file in _written(snapshot, names) if (manifest.outputs.folder, file.path) not in checked}
    checked |= {(manifest.outputs.folder, path) for path in new}
    if new:
        yield from _outputs(snapshot, list(new.values()))


def _written(snapshot: Snapshot, names: Mapping[str, str]) -> Iterator[_Written]:
    """Return the staged files of a snapshot; visible outputs of a query are verified in its sink."""
    manifest, folder = snapshot.manifest, snapshot.manifest.outputs.folder
    is_query = manifest.inputs.rule == BATCHES
    if is_query and (snapshot.visible or folder is None):
        return
    for file in manifest.outputs.files if is_query else manifest.files:
        final = file.name if is_query else names.get(join(folder or "", file.path))
        yield _Written(file.path, file.checksum, f"{file.rows:,} rows of output {file.output!r}", final)


def _outputs(snapshot: Snapshot, files: list[_Written]) -> Iterator[Finding]:
    folder = snapshot.manifest.outputs.folder or ""
    try:
        filesystem, inside = resolve(folder, None if "://" in folder else snapshot.folder.filesystem)
        there = filesystem.get_file_info(inside).type == fs.FileType.Directory
    except (FluminaError, OSError, pa.ArrowException):
        there = False
    if not there:
        count = f"{len(files)} file{'s' if len(files) > 1 else ''} of outputs"
        why = "is not there or not in reach"
        if snapshot.manifest.finished:
            why = "is gone, as the run has ended and its outputs are where they should be"
        yield Finding(folder, f"{why}: {count} can't be checked", damaged=False)
        return
    for file in files:
        yield from _output(filesystem, inside, file)


def _output(filesystem: fs.FileSystem, folder: str, file: _Written) -> Iterator[Finding]:
    """One file, staged or moved to where it waits to be seen; elsewhere it is the next run that looks."""
    path = join(folder, file.path)
    if file.name is not None and filesystem.get_file_info(path).type == fs.FileType.NotFound:
        path = join(folder, READY, file.name)
    try:
        found = Checksum.of(filesystem, path)
    except FileNotFoundError:
        if file.name is None:
            yield Finding(path, f"is not there: {file.what} are lost")
        else:
            yield Finding(path, "is not there: if it was committed already, the next run checks it", damaged=False)
    except (OSError, pa.ArrowException) as error:
        yield Finding(path, f"can't be read: {error}")
    else:
        if found.size != file.checksum.size:
            yield Finding(path, f"has {found.size:,} bytes, {file.checksum.size:,} were written")
        elif found != file.checksum:
            yield Finding(path, "does not have the checksum that the manifest states")


def _without_need(
    reader: SnapshotReader, listing: Listing, named: Collection[str]
) -> Iterator[tuple[SnapshotId | None, Finding]]:
    for snapshot_id, name in sorted(listing.files):
        if name not in named:
            what = "belongs to a snapshot that was not committed"
            if snapshot_id in listing.snapshot_ids:
                what = "belongs to no snapshot: a task that was lost wrote it"
            yield snapshot_id, Finding(reader.folder.at(name), what, damaged=False)
    for _, name in sorted(listing.partial):
        yield None, Finding(reader.folder.at(name), "was not written to its end", damaged=False)
    for name in listing.foreign if listing.owners else ():
        yield None, Finding(reader.folder.at(name), "is no file of a checkpoint", damaged=False)


def _found(error: CheckpointError) -> Finding:
    what = error.message.removeprefix(f"{error.file} ")
    return Finding(error.file or "", what)
