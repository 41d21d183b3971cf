"""Log of a query: its id, the watermark of every batch, and the batches that are committed."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec

from flumina.checkpoint.store.layout import LOGS
from flumina.errors import CheckpointError
from flumina.storage.checksum import damaged
from flumina.storage.checksummed_file import decode, encode
from flumina.storage.directory import Directory
from flumina.storage.record import from_json, to_json
from flumina.streaming.batch_watermark import BatchWatermark

KEPT = 100
"""How many entries of a log are kept."""

Given = ParamSpec("Given")

_QUERY = "query.json"


class Log:
    """The logs in the folder of a checkpoint."""

    def __init__(self, folder: Directory) -> None:
        self.folder = folder
        self.watermarks, self.commits = folder.below(LOGS["watermark"]), folder.below(LOGS["commit"])

    def create(self) -> None:
        """Make the folders."""
        for folder in (self.folder, self.watermarks, self.commits):
            folder.create()

    def remove_temporary_files(self) -> None:
        """Delete what crashes have left half written, once no other driver may write."""
        for folder in (self.folder, self.watermarks, self.commits):
            folder.remove_temporary_files()

    def register_query(self, query: str) -> None:
        """Batch ids count from where Spark's own part of the checkpoint began, so that the two belong together."""
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
        """The watermark that was chosen for a batch, if one was."""
        content = _entry(self.watermarks, "watermark", batch)
        return None if content is None else from_json(BatchWatermark, content, self.watermarks.at(_name(batch)))

    def decide(self, watermark: BatchWatermark) -> BatchWatermark:
        """Log a watermark; if there is one already, that one counts."""
        if self.watermarks.write_once(_name(watermark.batch), encode("watermark", to_json(watermark))):
            return watermark
        logged = self.watermark(watermark.batch)
        assert logged is not None, "somebody has written it"
        logged.check_same_rows(watermark)
        return logged

    def forget(self, batch: int) -> None:
        """Take back the watermark of a batch of which nobody can have seen anything."""
        self.watermarks.remove(_name(batch))

    def committed(self, batch: int) -> bool:
        """Whether a batch is done, its outputs included."""
        return _entry(self.commits, "commit", batch) is not None

    def commit(self, batch: int) -> None:
        """A batch is done."""
        self.commits.write_once(_name(batch), encode("commit", {"batch": batch}))

    def prune(self, batch: int) -> None:
        """Forget entries from long before a batch; every tenth time."""
        if batch % 10 == 0:
            for log in (self.watermarks, self.commits):
                for name in log.names():
                    if name < _name(batch - KEPT):
                        log.remove(name)

    def over(self, batch: int) -> CheckpointError:
        """The error for rows that come after the end."""
        return CheckpointError(
            "DRAINED",
            f"batch {batch} has new rows, but the query was started with drain=True, and has ended",
            file=self.watermarks.path,
            hint="leave out drain= as long as there is more to come; these rows need a new checkpoint and a new sink",
        )


def restoring(method: Callable[Given, None]) -> Callable[Given, None]:
    """Tell of damage what helps a query: an older snapshot does not, since its sink and Spark are further."""

    @wraps(method)
    def told(*given: Given.args, **named: Given.kwargs) -> None:
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

    return told


def _entry(log: Directory, kind: str, batch: int) -> dict[str, Any] | None:
    """What a log says of a batch, if it says anything."""
    found, path = log.read(_name(batch)), log.at(_name(batch))
    if found is None:
        return None
    content = decode(found, kind, path)
    if content["batch"] != batch:
        raise damaged(path, f"it is the {kind} of batch {content['batch']}")
    return content


def _name(batch: int) -> str:
    return f"{max(batch, 0):012d}.json"
