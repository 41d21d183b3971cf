"""Commit the outputs and dead letters of each micro-batch exactly once."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from flumina.checkpoint.program_compatibility import differences
from flumina.checkpoint.store.batches import MARKER, BatchMarker
from flumina.checkpoint.store.manifest import EpochManifest, EpochOutputs, OutputFile
from flumina.errors import CheckpointError, OutputError
from flumina.model.emit import ONLY_OUTPUT
from flumina.output.commit import OutputCommit
from flumina.output.staged_outputs import DEAD_LETTERS, StagedFile
from flumina.storage.directory import Directory, new_id
from flumina.storage.filesystem import join, storage_errors
from flumina.storage.output_directory import READY, OutputDirectory
from flumina.storage.owner_token import OwnerToken, belongs_to, take
from flumina.storage.staging import Staging

STAGED = "_flumina"
"""The folder below the output directory for staged files, which readers ignore."""

_DEAD_LETTERS = "part-00000.parquet"


class Sink(Protocol):
    """Destination of the outputs of a query, one micro-batch at a time."""

    ordered: bool
    """Whether the rows of a batch have to be in the order of their events."""

    @property
    def folder(self) -> Directory | None:
        """Return the folder of the outputs; None for a sink that is a function."""

    def is_of(self, run: str) -> bool:
        """Return whether this sink holds the outputs of a run so far; a folder may have been moved since."""

    def prepare(self, run: str, program: Mapping[str, Any]) -> None:
        """Bind the sink to a run; called once, before any other method, while another driver may still be running.

        ``program`` holds the parameters and the code that produce the rows.
        """

    def begin(self, owner: OwnerToken) -> None:
        """Get ready for the first batch; called once no other driver may write."""

    def staging(self, batch: int) -> OutputDirectory:
        """Make a new folder in which tasks stage the outputs of a batch."""

    def stage(self, batch: int, written: OutputCommit | None, before: EpochOutputs, lineage: str) -> EpochOutputs:
        """Return the record of a batch's outputs, with the final names of its files; no reader sees them yet.

        ``written`` has the staged files (None: there were no events), ``before`` is the record of the batch before.
        ``lineage`` identifies the batches that produced the outputs, this one included.
        """

    def show(self, epoch: EpochManifest) -> None:
        """Make the outputs that a manifest names visible; called again with the same manifest after a crash."""

    def clear(self, batch: int) -> None:
        """Delete the staged files of a batch that is visible."""


class _BatchFolder:
    """A folder with one subfolder for each batch, which belongs to one query."""

    def __init__(self, path: str | os.PathLike[str], option: str) -> None:
        self.folder: Directory = Directory.of(path, option).exclusive(option)
        self.staged = Staging(self.folder.below(STAGED))
        self._program: Mapping[str, Any] = {}

    def is_of(self, run: str) -> bool:
        """Return whether the owner file in the folder names this run; the file moves with the folder."""
        return belongs_to(self.folder, run)

    def prepare(self, run: str, program: Mapping[str, Any]) -> None:
        """Write the owner file of the run, unless the folder belongs to another one."""
        self._program = program
        take(self.folder, run)

    def begin(self, owner: OwnerToken) -> None:
        """Delete the files that earlier drivers have staged."""
        self.folder.remove_temporary_files()
        self.staged.begin(owner)

    def clear(self, batch: int) -> None:
        """Delete the staged files of a batch that is visible."""
        self.staged.clear(batch)


class ParquetSink(_BatchFolder):
    """Write each batch with outputs to a Parquet folder ``batch=N``; several outputs have a folder each.

    A batch becomes visible by one rename and is never replaced: readers see every batch whole and once. A hidden marker
    file in each batch holds its lineage. It tells the batch from another one of the same number, and from a folder
    that another tool has made.
    """

    ordered = False

    def __init__(self, path: str | os.PathLike[str], outputs: Iterable[str] = (ONLY_OUTPUT,)) -> None:
        super().__init__(path, "sink")
        self.outputs = tuple(outputs)

    def staging(self, batch: int) -> OutputDirectory:
        """Make a new staging folder, which readers ignore."""
        return staging_location(self.folder, self.staged, batch)

    def stage(self, batch: int, written: OutputCommit | None, before: EpochOutputs, lineage: str) -> EpochOutputs:
        """Name the files of each output that has rows, and of the first batch, for its columns."""
        files: list[OutputFile] = []
        rows, last = dict(before.rows), dict(before.last)
        for name in self.outputs:
            marker = BatchMarker(batch, lineage, self._program, before.last.get(name))
            check_same(self._place(name), marker)
            count = 0 if written is None else written.rows[name]
            rows[name] = rows.get(name, 0) + count
            if written is not None and (count or name not in last):
                files += stage_batch(self.folder, _prefix(name), name, written.files[name], marker)
                last[name] = batch
        return EpochOutputs(self.folder.path, tuple(files), rows, last, lineage)

    def show(self, epoch: EpochManifest) -> None:
        """Rename the folder of each output with files in this batch."""
        for name in self.outputs:
            show_batch(self.folder, _prefix(name), [f for f in epoch.outputs.files if f.output == name], epoch)

    def _place(self, name: str) -> Directory:
        return self.folder.below(_prefix(name)) if _prefix(name) else self.folder


class DeadLetters(_BatchFolder):
    """Write the dead letters of each batch to a Parquet folder ``batch=N``, as :class:`ParquetSink` does."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path, "dead_letters")

    def stage(self, batch: int, table: pa.Table, before: EpochOutputs, lineage: str) -> EpochOutputs:
        """Write the dead letters of a batch, and name their files; the first batch is written even if it has none."""
        marker = BatchMarker(batch, lineage, self._program, before.last.get(DEAD_LETTERS))
        check_same(self.folder, marker)
        rows, last = {DEAD_LETTERS: before.rows.get(DEAD_LETTERS, 0) + len(table)}, before.last
        files: list[OutputFile] = []
        if len(table) or DEAD_LETTERS not in last:
            sink = pa.BufferOutputStream()
            pq.write_table(table, sink)
            data: bytes = sink.getvalue().to_pybytes()
            staged = self.staged.new(batch)
            staged.write(_DEAD_LETTERS, data)
            part = StagedFile(staged.at(_DEAD_LETTERS), len(table), len(data), crc=zlib.crc32(data))
            files = stage_batch(self.folder, "", DEAD_LETTERS, {_DEAD_LETTERS: part}, marker)
            last = {DEAD_LETTERS: batch}
        return EpochOutputs(self.folder.path, tuple(files), rows, last)

    def show(self, epoch: EpochManifest) -> None:
        """Rename the folder of a batch that has files."""
        show_batch(self.folder, "", epoch.dead_letters.files, epoch)


def staging_location(folder: Directory, staged: Staging, batch: int) -> OutputDirectory:
    """Make a folder for the outputs of a batch, whose files tasks force to the disk."""
    made = staged.new(batch)
    return OutputDirectory(made.filesystem, folder.path, new_id(), made.path, renames=True, durable=True)


def stage_batch(
    folder: Directory, prefix: str, output: str, files: Mapping[str, StagedFile], marker: BatchMarker
) -> list[OutputFile]:
    """Return the records of an output's files in a batch, and of the marker that is written here beside them.

    Their paths are relative to ``folder``, since it may be moved; ``prefix`` is the folder of the output in it.
    """
    named = {name.rpartition("/")[2]: file for name, file in files.items()}
    marker = replace(marker, files={name: file.size for name, file in named.items()})
    first = next(iter(files.values())).path.removeprefix(f"{folder.path}/")
    data, beside = marker.to_bytes(), _staged_folder(folder, first)
    beside.write(f"{output}.json", data)
    named[MARKER] = StagedFile(beside.at(f"{output}.json"), 0, len(data), crc=zlib.crc32(data))
    records = []
    for name, file in named.items():
        assert file.crc is not None, "files that a manifest names have checksums"
        final, path = join(prefix, f"batch={marker.batch}", name), file.path.removeprefix(f"{folder.path}/")
        records.append(OutputFile(output, path, file.size, file.crc, file.rows, name=final))
    return records


def _staged_folder(folder: Directory, path: str) -> Directory:
    """Return the folder of one batch among the staged files: ``_flumina/OWNER/BATCH-ID``."""
    return Directory(folder.filesystem, folder.at(*path.split("/")[:3]))


def show_batch(folder: Directory, prefix: str, files: Sequence[OutputFile], epoch: EpochManifest) -> None:
    """Move the staged files of an output in a batch to one folder, and rename that to its final name.

    A driver that died may have moved some files, or all of them, or renamed the folder.
    """
    name, place = f"batch={epoch.number - 1}", folder.below(prefix) if prefix else folder
    program = {part: epoch.fingerprint[part] for part in ("parameters", "code") if part in epoch.fingerprint}
    if check_same(place, BatchMarker(epoch.number - 1, epoch.outputs.lineage, program)) or not files:
        return
    ready = _staged_folder(folder, files[0].path).below(READY).below(files[0].output)
    with storage_errors("commit", place.at(name)):
        for made in (place, ready):
            made.filesystem.create_dir(made.path, recursive=True)
        for file in files:
            assert file.name is not None, "the files of a batch have names"
            inside = file.name.rpartition("/")[2]
            if not ready.has(inside):
                check_staged(folder, file)
                folder.filesystem.move(folder.at(file.path), ready.at(inside))
    place.move_in(ready.path, name)


def check_staged(folder: Directory, file: OutputFile) -> None:
    """Raise unless a file that a manifest names is staged, with the size that it had when it was written."""
    size = folder.size(file.path)
    if size != file.size:
        state = "is missing" if size is None else f"has {size:,} bytes"
        raise CheckpointError(
            "NOT_COMMITTED",
            f"the newest batch is not visible yet, and {folder.at(file.path)} of {file.size:,} bytes {state}",
            file=folder.at(file.path),
            hint="restore the checkpoint and its sink from a copy, or begin with a new checkpoint and a new sink",
        )


def _prefix(name: str) -> str:
    """Return the folder of an output in the sink; empty for the only output."""
    return "" if name == ONLY_OUTPUT else name


def check_same(place: Directory, marker: BatchMarker) -> bool:
    """Return whether a batch is there.

    Raises OutputError if the folder holds another batch of the same number, or was not written by a query.
    """
    name = f"batch={marker.batch}"
    found = place.below(name)
    if not place.has(name):
        return False
    there = _marker(found)
    if there.lineage == marker.lineage:
        return True
    again = f"delete {name} and all later batches there, and the query writes them again"
    changes = differences(there.program, marker.program)
    if changes:
        raise OutputError(
            "OUT_OTHER_PROGRAM",
            f"{found.path} holds rows of batch {marker.batch} that another program has written:"
            + "".join(f"\n  - {line}" for line in changes),
            hint=f"to replace them by the rows of this program, {again}; to keep them, continue with that program",
        )
    raise OutputError(
        "OUT_OTHER_BATCH",
        f"{found.path} holds the outputs of another batch {marker.batch}: of other rows, or after other batches",
        hint=f"the checkpoint was restored from a copy, or two copies of it write to one folder; if it was restored, "
        f"{again} from the rows that the source has now; else give each query its own checkpoint and folders",
    )


def _marker(found: Directory) -> BatchMarker:
    data = found.read(MARKER)
    if data is None:
        inside = found.names()
        what = f"{len(inside)} other files" if inside else "an empty folder"
        raise _not_ours(found, f"got {what}")
    try:
        return BatchMarker.of(data, found.at(MARKER))
    except CheckpointError as error:
        raise _not_ours(found, error.message) from error


def _not_ours(found: Directory, what: str) -> OutputError:
    return OutputError(
        "OUT_NOT_OURS",
        f"expected {MARKER} in {found.path}, as in every batch that a query has committed; {what}",
        hint="another tool has made the folder, or a copy has left out files whose names begin with an underscore: "
        "copy that file as well, or delete the folder, and the query writes the batch again",
    )
