"""Where the outputs of batches go, and how each of them gets there once."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from flumina.emit import ONLY_OUTPUT
from flumina.engine.location import telling
from flumina.engine.publish import Result
from flumina.errors import OutputError
from flumina.streaming.folder import Folder

STAGED = "_flumina"
"""The folder, below that of the results, for what nobody is to see yet."""

OWNER = "_flumina_owner"
"""The file that says of which checkpoint the batches in a folder are."""


class Sink(Protocol):
    """Takes the outputs of one batch after the other."""

    ordered: bool
    """Whether the rows of a batch have to be in the order of their events."""

    def prepare(self, owner: str) -> None:
        """Called once before the first batch, with the id of the checkpoint."""

    def staging(self, batch: int) -> str:
        """A new path, for the outputs of a batch on their way."""

    def publish(self, batch: int, results: Mapping[str, Result]) -> None:
        """Give on the outputs of a batch; called again with the same rows if it is not certain that it was done."""

    def holds(self, batch: int, rows: Mapping[str, int]) -> bool:
        """Whether all outputs of a batch, so many of each, have certainly been given on."""


class ParquetSink:
    """A folder with a folder ``batch=N`` for each batch that has outputs; several outputs have a folder each.

    A batch becomes visible by one rename, and one that is there stays: whoever reads the folder sees every batch once,
    whole.
    """

    ordered = False

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.folder = Folder.of(path, "sink")
        self.staged = self.folder.below(STAGED)

    def prepare(self, owner: str) -> None:
        """Make the folder ours, and clear away what was staged before a crash."""
        claim(self.folder, owner)
        self.folder.remove(STAGED)
        self.staged.make()

    def staging(self, batch: int) -> str:
        """A folder out of sight."""
        return self.staged.at(f"{batch}-{uuid.uuid4().hex[:8]}")

    def publish(self, batch: int, results: Mapping[str, Result]) -> None:
        """Rename the folder of each output that has rows, or else, so that readers find columns, the first of all."""
        for name, result in results.items():
            if result.rows or not any(found.startswith("batch=") for found in self._place(name).names()):
                assert result.path is not None, "outputs are staged in files"
                place = self._place(name)
                place.filesystem.create_dir(place.path, recursive=True)
                place.move_folder(result.path, f"batch={batch}")
        for name in self.staged.names():
            if name.startswith(f"{batch}-"):
                self.staged.remove(name)

    def holds(self, batch: int, rows: Mapping[str, int]) -> bool:
        """Folders are there whole or not at all."""
        return all(self._place(name).has(f"batch={batch}") for name, count in rows.items() if count)

    def _place(self, name: str) -> Folder:
        return self.folder if name == ONLY_OUTPUT else self.folder.below(name)


class DeadLetters:
    """A folder of the same kind for rows that could not be processed."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.folder = Folder.of(path, "dead_letters")
        self._begun = False
        """Whether there is certainly a batch, so that readers find columns."""

    def publish(self, batch: int, table: pa.Table) -> None:
        """Write the dead letters of a batch, unless they are there; none, too, if they would be the first of all."""
        self._begun = self._begun or any(name.startswith("batch=") for name in self.folder.names())
        if (self._begun and not len(table)) or self.folder.has(f"batch={batch}"):
            return
        staged = self.folder.below(f"{STAGED}-{batch}-{uuid.uuid4().hex[:8]}")
        with telling("write to", staged.path):
            staged.filesystem.create_dir(staged.path, recursive=True)
            pq.write_table(table, staged.at("part-00000.parquet"), filesystem=staged.filesystem)
        self.folder.move_folder(staged.path, f"batch={batch}")

    def prepare(self, owner: str) -> None:
        """Make the folder ours, and clear away what was staged before a crash."""
        claim(self.folder, owner)
        for name in self.folder.names():
            if name.startswith(f"{STAGED}-"):
                self.folder.remove(name)


def claim(folder: Folder, owner: str) -> None:
    """Make a folder that of one checkpoint: batches of two would be taken for each other."""
    folder.make()
    taken = [name for name in folder.names() if not name.startswith(("_", "."))]
    if folder.read(OWNER) is None and taken:
        raise OutputError(
            "OUT_EXISTS",
            f"{folder.path} is not empty: {taken[0]} is there",
            hint="choose a new folder for the outputs of the query",
        )
    folder.write(OWNER, [owner.encode()], once=True)
    found = folder.read(OWNER)
    if found != owner.encode():
        raise OutputError(
            "OUT_TAKEN",
            f"{folder.path} holds the batches of a query with another checkpoint",
            hint="go on with that checkpoint, or choose a new folder",
        )
    folder.sweep()
