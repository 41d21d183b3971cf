"""Log of a query: its id, and the watermark of every batch."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

from flumina.checkpoint.store.layout import WATERMARKS
from flumina.errors import CheckpointError
from flumina.storage.checksum import damaged
from flumina.storage.checksummed_file import decode, encode
from flumina.storage.directory import Directory
from flumina.storage.json_record import from_json, to_json
from flumina.streaming.batch_watermark import BatchWatermark

MAX_ENTRIES = 100
"""How many entries of a log are kept."""

Given = ParamSpec("Given")

_QUERY = "query.json"


class BatchLog:
    """Log in the folder of a checkpoint: one file per entry, each written once."""

    def __init__(self, folder: Directory) -> None:
        self.folder = folder
        self.watermarks = folder.below(WATERMARKS)

    def create(self) -> None:
        """Make the folders."""
        for folder in (self.folder, self.watermarks):
            folder.create()

    def remove_temporary_files(self) -> None:
        """Delete files that a crash has left half written; called once no other driver may write."""
        for folder in (self.folder, self.watermarks):
            folder.remove_temporary_files()

    def register_query(self, query: str) -> None:
        """Record the id of Spark's query, from whose beginning batch ids count.

        Raises CheckpointError if the log was begun by another query.
        """
        self.folder.write_once(_QUERY, encode("query", {"query": query}))
        found = decode(self.folder.read(_QUERY) or b"", "query", self.folder.at(_QUERY)).get("query")
        if found != query:
            raise CheckpointError(
                "CHANGED",
                f"the checkpoint in {self.folder.path} is of Spark's query {found}, not of {query}: a part of it was "
                "deleted or replaced",
                hint="restore it as a whole, or begin with a new checkpoint and a new sink",
            )

    def watermark(self, batch: int) -> BatchWatermark | None:
        """Return the logged watermark of a batch; None if there is none."""
        found, path = self.watermarks.read(_name(batch)), self.watermarks.at(_name(batch))
        if found is None:
            return None
        content = decode(found, "watermark", path)
        if content["batch"] != batch:
            raise damaged(path, f"it is the watermark of batch {content['batch']}")
        return from_json(BatchWatermark, content, path)

    def decide(self, watermark: BatchWatermark) -> BatchWatermark:
        """Log a watermark and return the one that applies: the one logged first.

        Raises CheckpointError if that one was chosen for other rows.
        """
        if self.watermarks.write_once(_name(watermark.batch), encode("watermark", to_json(watermark))):
            return watermark
        logged = self.watermark(watermark.batch)
        assert logged is not None, "write_once found the file"
        logged.check_same_rows(watermark)
        return logged

    def forget(self, batch: int) -> None:
        """Delete the watermark of a batch whose outputs no reader can have seen."""
        self.watermarks.remove(_name(batch))

    def prune(self, batch: int) -> None:
        """Delete entries of all but the last :data:`MAX_ENTRIES` batches; at every tenth batch."""
        if batch % 10 == 0:
            for name in self.watermarks.names():
                if name < _name(batch - MAX_ENTRIES):
                    self.watermarks.remove(name)

    def drained_error(self, batch: int) -> CheckpointError:
        """Return the error for rows that arrive after the end of a drained query."""
        return CheckpointError(
            "DRAINED",
            f"batch {batch} has new rows, but the query was started with drain=True, and has ended",
            file=self.watermarks.path,
            hint="leave out drain= until the streams are complete; these rows need a new checkpoint and a new sink",
        )


def restoring(method: Callable[Given, None]) -> Callable[Given, None]:
    """Replace the hint of checkpoint errors by one that holds for a query.

    A query can't resume from an older snapshot, since its sink and Spark's part of the checkpoint are newer.
    """

    @wraps(method)
    def with_hint(*given: Given.args, **named: Given.kwargs) -> None:
        try:
            method(*given, **named)
        except CheckpointError as error:
            if "allow_older=True" not in (error.hint or ""):
                raise
            raise CheckpointError(
                error.condition,
                error.message,
                file=error.file,
                hint="restore the checkpoint as a whole from a copy, with Spark's part of it, or begin with a new "
                "checkpoint and a new sink",
            ) from error

    return with_hint


def _name(batch: int) -> str:
    return f"{max(batch, 0):012d}.json"
