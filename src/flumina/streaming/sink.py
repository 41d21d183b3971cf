"""Where the outputs of batches go, and how each of them gets there once."""

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
"""The folder, below that of the results, for what nobody is to see yet."""


class Sink(Protocol):
    """Takes the outputs of one batch after the other."""

    ordered: bool
    """Whether the rows of a batch have to be in the order of their events."""

    place: str | None
    """The folder of the outputs; None where they go to a function."""

    def is_of(self, run: str) -> bool:
        """Tell whether the outputs of a run so far are certainly there, wherever they were before."""

    def prepare(self, run: str, program: Mapping[str, Any]) -> None:
        """Called once before anything else, with the id of the run; another driver may still be at work.

        ``program`` are the parameters and the code that make the rows.
        """

    def begin(self, owner: OwnerToken) -> None:
        """Called before the first batch, once no other driver may write."""

    def staging(self, batch: int) -> str:
        """A new path, for the outputs of a batch on their way."""

    def commit(
        self, batch: int, results: Mapping[str, CommittedOutput], lineage: str, before: Mapping[str, int]
    ) -> None:
        """Give on the outputs of a batch; called again with the same rows if it is not certain that it was done.

        ``lineage`` says of what they are the result, ``before`` which batch had the rows before it, for each output.
        """

    def holds(self, batch: int, rows: Mapping[str, int], lineage: str) -> bool:
        """Whether all outputs of a batch, so many of each, have certainly been given on."""


class ParquetSink:
    """A folder with a folder ``batch=N`` for each batch that has outputs; several outputs have a folder each.

    A batch becomes visible by one rename, and one that is there stays: whoever reads the folder sees every batch once,
    whole. A hidden file in it says of what it is the result, so that no batch is taken for another of the same number,
    and no folder that another tool has made for a batch.
    """

    ordered = False

    def __init__(self, path: str | os.PathLike[str], outputs: Iterable[str] = (ONLY_OUTPUT,)) -> None:
        self.folder = Directory.of(path, "sink").exclusive("sink")
        self.place: str | None = self.folder.path
        self.outputs = tuple(outputs)
        self.staged = Staging(self.folder.below(STAGED))
        self._program: Mapping[str, Any] = {}

    def is_of(self, run: str) -> bool:
        """Its file says so, which goes with a folder that is moved."""
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
        """A folder out of sight."""
        return self.staged.new(batch)

    def commit(
        self, batch: int, results: Mapping[str, CommittedOutput], lineage: str, before: Mapping[str, int]
    ) -> None:
        """Rename the folder of each output that has rows, or else, so that readers find columns, the first of all."""
        for name in self.outputs:
            place, result = self._place(name), results.get(name)
            marker = BatchMarker(batch, lineage, self._program, before.get(name))
            if check_same(place, marker) or result is None:
                continue
            if result.rows or not any(found.startswith("batch=") for found in place.names()):
                assert result.path is not None, "outputs are staged in files"
                place.filesystem.create_dir(place.path, recursive=True)
                show(place, result.path, marker)
        self.staged.clear(batch)

    def holds(self, batch: int, rows: Mapping[str, int], lineage: str) -> bool:
        """Folders are there whole or not at all."""
        marker = BatchMarker(batch, lineage, self._program)
        return all(check_same(self._place(name), marker) for name, count in rows.items() if count)

    def _place(self, name: str) -> Directory:
        return self.folder if name == ONLY_OUTPUT else self.folder.below(name)


class DeadLetters:
    """A folder of the same kind for rows that could not be processed."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.folder = Directory.of(path, "dead_letters").exclusive("dead_letters")
        self.staged = Staging(self.folder.below(STAGED))
        self._program: Mapping[str, Any] = {}
        self._begun = False
        """Whether there is certainly a batch, so that readers find columns."""

    def is_of(self, run: str) -> bool:
        """Whether the dead letters of a checkpoint so far are there, wherever they were before."""
        return belongs_to(self.folder, run)

    def commit(self, batch: int, table: pa.Table, lineage: str, before: int | None) -> None:
        """Write the dead letters of a batch, unless they are there; none, too, if they would be the first of all."""
        self._begun = self._begun or any(name.startswith("batch=") for name in self.folder.names())
        marker = BatchMarker(batch, lineage, self._program, before)
        if check_same(self.folder, marker) or (self._begun and not len(table)):
            return
        staged = Directory(self.folder.filesystem, self.staged.new(batch))
        with storage_errors("write to", staged.path):
            staged.filesystem.create_dir(staged.path, recursive=True)
            pq.write_table(table, staged.at("part-00000.parquet"), filesystem=staged.filesystem)
        show(self.folder, staged.path, marker)

    def prepare(self, run: str, program: Mapping[str, Any]) -> None:
        """Make the folder that of the checkpoint."""
        self._program = program
        take(self.folder, run)

    def begin(self, owner: OwnerToken) -> None:
        """Clear away what drivers before this one have staged."""
        self.folder.remove_temporary_files()
        self.staged.begin(owner)


def show(place: Directory, staged: str, marker: BatchMarker) -> None:
    """Make the folder of a batch visible, with a marker that says of what it is the result and which files it has."""
    directory = Directory(place.filesystem, staged)
    marker = replace(marker, files=directory.files())
    directory.write(MARKER, marker.to_bytes())
    if not place.move_in(staged, f"batch={marker.batch}"):
        check_same(place, marker)


def check_same(place: Directory, marker: BatchMarker) -> bool:
    """Whether a batch is there; an error if the folder is another one's of the same number, or is not ours."""
    name = f"batch={marker.batch}"
    found = place.below(name)
    if not place.has(name):
        return False
    there = _marker(found)
    if there.lineage == marker.lineage:
        return True
    again = f"delete {name} and all later batches there, and they are made again"
    changes = differences(there.program, marker.program)
    if changes:
        raise OutputError(
            "OUT_OTHER_PROGRAM",
            f"{found.path} holds rows of batch {marker.batch} that another program has made:"
            + "".join(f"\n  - {line}" for line in changes),
            hint=f"to have the rows of this program, {again}; to keep the others, go on with that program",
        )
    raise OutputError(
        "OUT_OTHER_BATCH",
        f"{found.path} holds what another batch {marker.batch} has made: of other rows, or after other batches",
        hint=f"the checkpoint was restored from a copy, or two copies of it go on with one folder; if it was restored, "
        f"{again} from the rows that the source gives now; else give each query a checkpoint and folders of its own",
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
        f"expected {MARKER} in {found.path}, as in every batch that a query has published; {what}",
        hint="another tool has made the folder, or a copy has left out files whose names begin with an underscore: "
        "copy that file as well, or delete the folder, and the batch is made again",
    )
