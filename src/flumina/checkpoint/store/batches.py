"""Describe and verify the batches in the sink of a streaming query.

The folder of a batch, ``batch=N``, has a checksummed file that names the batch, its lineage, the program that made the
rows, its files with their sizes, and the batch with rows before it. The last one is named by the newest snapshot. So a
batch that was deleted is noticed, as long as the next one is there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyarrow import fs

from flumina.checkpoint.store.layout import CheckpointDirectory
from flumina.checkpoint.store.manifest import BATCHES
from flumina.checkpoint.store.reader import SnapshotReader
from flumina.checkpoint.store.verify import Finding
from flumina.errors import CheckpointError, FluminaError, UsageError
from flumina.model.emit import ONLY_OUTPUT
from flumina.storage.checksummed_file import decode, encode
from flumina.storage.json_record import from_json, to_json

MARKER = "_flumina-batch.json"
"""The file in the folder of a batch that says of what it is the result; readers of Parquet pass over it."""

_BATCH = re.compile(r"batch=(\d+)", re.ASCII)


@dataclass(frozen=True)
class BatchMarker:
    """The marker of a batch; ``previous`` is the batch with rows before it, ``files`` are given with their sizes."""

    batch: int
    lineage: str
    program: Mapping[str, Any] = field(default_factory=dict)
    previous: int | None = None
    files: Mapping[str, int] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """The file to write."""
        return encode("batch", to_json(self))

    @staticmethod
    def of(data: bytes, path: str) -> BatchMarker:
        """Decode a marker; ``path`` is for error messages."""
        return from_json(BatchMarker, decode(data, "batch", path), path)


def verify_sink(reader: SnapshotReader, path: str | None) -> list[Finding]:
    """Compare names and sizes of files in a query's sink with the markers, and find missing batches.

    Without ``path`` the folders of outputs and of dead letters are read from the newest snapshot.
    """
    newest = reader.latest()
    if newest is None or newest.manifest.inputs.rule != BATCHES:
        raise UsageError(
            "NO_SINK",
            f"{reader.folder.path} is not of a streaming query, so that it has no sink",
            hint="leave out --sink: outputs of a run are verified with its snapshots",
        )
    outputs, dead_letters = newest.manifest.outputs, newest.manifest.dead_letters
    sink = outputs.folder if path is None else path
    if sink is None:
        raise UsageError(
            "NO_SINK", "the outputs of this query go to a function, so that there are no files", hint="leave out --sink"
        )
    found: list[Finding] = []
    for name, last in outputs.last.items():
        found += _verify(_folder(reader, sink), "" if name == ONLY_OUTPUT else name, last)
    for last in dead_letters.last.values():
        assert dead_letters.folder is not None, "dead letters are in files"
        found += _verify(_folder(reader, dead_letters.folder), "", last)
    return found


def _folder(reader: SnapshotReader, path: str) -> CheckpointDirectory:
    return CheckpointDirectory.of(path, "sink", None if "://" in path else reader.folder.filesystem)


def _verify(folder: CheckpointDirectory, output: str, last: int) -> Iterator[Finding]:
    """Compare the batches of one output, the last of which is known."""
    batches = folder.below(output) if output else folder
    try:
        names = batches.names()
    except FluminaError as error:
        yield Finding(batches.path, error.message)
        return
    there = sorted(int(match[1]) for match in map(_BATCH.fullmatch, names) if match)
    expected = {last: "the newest snapshot"}
    for batch in there:
        found = batches.below(f"batch={batch}")
        try:
            marker = BatchMarker.of(found.fetch(MARKER), found.at(MARKER))
        except CheckpointError as error:
            yield Finding(found.path, f"has no {MARKER} that can be read: {error.message}")
            continue
        if marker.batch != batch:
            yield Finding(found.path, f"holds batch {marker.batch}")
        if marker.previous is not None:
            expected[marker.previous] = f"batch={batch}"
        yield from _files(found, marker)
    for batch in sorted(set(expected) - set(there)):
        missing = f"is not there, though {expected[batch]} refers to it: its rows are lost, perhaps also rows before it"
        yield Finding(batches.at(f"batch={batch}"), missing)


def _files(folder: CheckpointDirectory, marker: BatchMarker) -> Iterator[Finding]:
    for name, size in marker.files.items():
        path = folder.at(name)
        try:
            info = folder.filesystem.get_file_info(path)
        except (OSError, pa.ArrowException) as error:
            yield Finding(path, f"can't be read: {error}")
            continue
        if info.type != fs.FileType.File:
            yield Finding(path, f"is not there: {size:,} bytes were committed")
        elif info.size != size:
            yield Finding(path, f"has {info.size:,} bytes, {size:,} were committed")
