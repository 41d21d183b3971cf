"""Commit the outputs and dead letters of each micro-batch exactly once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from flumina.checkpoint.differences import differences
from flumina.checkpoint.store.batches import MARKER, BatchMarker
from flumina.errors import CheckpointError, OutputError
from flumina.model.emit import ONLY_OUTPUT
from flumina.output.commit import CommittedOutput
from flumina.storage.directory import Directory
from flumina.storage.filesystem import storage_errors
from flumina.storage.owner import OwnerToken, belongs_to, take
from flumina.storage.staging import Staging

STAGED = "_flumina"
"""The folder below the output directory for staged files, which readers ignore."""


class Sink(Protocol):
    """Destination of the outputs of a query, one micro-batch at a time."""

    ordered: bool
    """Whether the rows of a batch have to be in the order of their events."""

    place: str | None
    """The folder of the outputs; None for a sink that is a function."""

    def is_of(self, run: str) -> bool:
        """Return whether this sink holds the outputs of a run so far; a folder may have been moved since."""

    def prepare(self, run: str, program: Mapping[str, Any]) -> None:
        """Bind the sink to a run; called once, before any other method, while another driver may still be running.

        ``program`` holds the parameters and the code that produce the rows.
        """

    def begin(self, owner: OwnerToken) -> None:
        """Get ready for the first batch; called once no other driver may write."""

    def staging(self, batch: int) -> str:
        """Return a new path for the staged outputs of a batch."""

    def commit(
        self, batch: int, results: Mapping[str, CommittedOutput], lineage: str, before: Mapping[str, int]
    ) -> None:
        """Make the outputs of a batch visible; called again with the same rows after a crash.

        ``lineage`` identifies the batches that produced the outputs, this one included; ``before`` has, for each
        output, the last earlier batch with rows.
        """

    def holds(self, batch: int, rows: Mapping[str, int], lineage: str) -> bool:
        """Return whether all outputs of a batch are committed; ``rows`` has the number of rows of each output."""


class ParquetSink:
    """Write each batch with outputs to a Parquet folder ``batch=N``; several outputs have a folder each.

    A batch becomes visible by one rename and is never replaced: readers see every batch whole and once. A hidden marker
    file in each batch holds its lineage. It tells the batch from another one of the same number, and from a folder
    that another tool has made.
    """

    ordered = False

    def __init__(self, path: str | os.PathLike[str], outputs: Iterable[str] = (ONLY_OUTPUT,)) -> None:
        self.folder = Directory.of(path, "sink").exclusive("sink")
        self.place: str | None = self.folder.path
        self.outputs = tuple(outputs)
        self.staged = Staging(self.folder.below(STAGED))
        self._program: Mapping[str, Any] = {}

    def is_of(self, run: str) -> bool:
        """Return whether the owner file in the folder names this run; the file moves with the folder."""
        return belongs_to(self.folder, run)

    def prepare(self, run: str, program: Mapping[str, Any]) -> None:
        """Make the folder that of the checkpoint."""
        self._program = program
        take(self.folder, run)

    def begin(self, owner: OwnerToken) -> None:
        """Clear away what drivers before this one have staged."""
        self.folder.remove_temporary_files()
        self.staged.begin(owner)

    def staging(self, batch: int) -> str:
        """Return a new staging folder, which readers ignore."""
        return self.staged.new(batch)

    def commit(
        self, batch: int, results: Mapping[str, CommittedOutput], lineage: str, before: Mapping[str, int]
    ) -> None:
        """Rename the staged folder of each output that has rows, and of the first batch, for its columns."""
        for name in self.outputs:
            place, result = self._place(name), results.get(name)
            marker = BatchMarker(batch, lineage, self._program, before.get(name))
            if check_same(place, marker) or result is None:
                continue
            if result.rows or not any(found.startswith("batch=") for found in place.names()):
                assert result.path is not None, "outputs are staged in files"
                place.filesystem.create_dir(place.path, recursive=True)
                make_visible(place, result.path, marker)
        self.staged.clear(batch)

    def holds(self, batch: int, rows: Mapping[str, int], lineage: str) -> bool:
        """Return whether the folder of each output with rows exists; a rename leaves no partial folders."""
        marker = BatchMarker(batch, lineage, self._program)
        return all(check_same(self._place(name), marker) for name, count in rows.items() if count)

    def _place(self, name: str) -> Directory:
        return self.folder if name == ONLY_OUTPUT else self.folder.below(name)


class DeadLetters:
    """Write the dead letters of each batch to a Parquet folder ``batch=N``, as :class:`ParquetSink` does."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.folder = Directory.of(path, "dead_letters").exclusive("dead_letters")
        self.staged = Staging(self.folder.below(STAGED))
        self._program: Mapping[str, Any] = {}
        self._begun = False
        """Whether a batch is known to exist, so that readers find the columns."""

    def is_of(self, run: str) -> bool:
        """Return whether this folder holds the dead letters of a run so far; it may have been moved since."""
        return belongs_to(self.folder, run)

    def commit(self, batch: int, table: pa.Table, lineage: str, before: int | None) -> None:
        """Write the dead letters of a batch, unless they are there; the first batch is written even if it has none."""
        self._begun = self._begun or any(name.startswith("batch=") for name in self.folder.names())
        marker = BatchMarker(batch, lineage, self._program, before)
        if check_same(self.folder, marker) or (self._begun and not len(table)):
            return
        staged = Directory(self.folder.filesystem, self.staged.new(batch))
        with storage_errors("write to", staged.path):
            staged.filesystem.create_dir(staged.path, recursive=True)
            pq.write_table(table, staged.at("part-00000.parquet"), filesystem=staged.filesystem)
        make_visible(self.folder, staged.path, marker)

    def prepare(self, run: str, program: Mapping[str, Any]) -> None:
        """Make the folder that of the checkpoint."""
        self._program = program
        take(self.folder, run)

    def begin(self, owner: OwnerToken) -> None:
        """Clear away what drivers before this one have staged."""
        self.folder.remove_temporary_files()
        self.staged.begin(owner)


def make_visible(place: Directory, staged: str, marker: BatchMarker) -> None:
    """Rename the staged folder of a batch into place, with a marker that names its lineage and its files."""
    directory = Directory(place.filesystem, staged)
    marker = replace(marker, files=directory.files())
    directory.write(MARKER, marker.to_bytes())
    if not place.move_in(staged, f"batch={marker.batch}"):
        check_same(place, marker)


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
