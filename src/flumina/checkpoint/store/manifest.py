"""Describe a snapshot: owner, files, and progress of the run or query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

from flumina.checkpoint.store.layout import SnapshotId
from flumina.output.outputs import SortedRun
from flumina.storage.checksum import Checksum
from flumina.storage.record import from_json, to_json


@dataclass(frozen=True)
class StateFile:
    """States that were written, below the folder of the checkpoint.

    ``tree_sizes`` are the trees of the plan whose states are in it, one behind the other, and how many bytes each has;
    none where it holds something else, or a state as a whole.
    """

    name: str
    size: int
    sha256: str
    tree_sizes: tuple[tuple[str, int], ...] = ()

    def is_of(self, snapshot_id: SnapshotId) -> bool:
        """Tell whether the file was written for this snapshot."""
        return self.name.startswith(f"state-{snapshot_id}-")


@dataclass(frozen=True)
class OutputFile:
    """Rows that belong to a snapshot: a staged file of one output; ``path`` is relative to the folder of them all."""

    output: str
    path: str
    size: int
    crc32: int
    rows: int
    runs: tuple[SortedRun, ...] = ()


@dataclass(frozen=True)
class ResultFiles:
    """The files that become the results of a run: for each output their names, and where they are staged.

    ``checksums`` are those of the staged files, by their paths.
    """

    files: Mapping[str, Mapping[str, str]]
    checksums: Mapping[str, Checksum] = field(default_factory=dict)

    @property
    def names(self) -> dict[str, str]:
        """The name of each staged file, by its path."""
        return {staged: name for named in self.files.values() for name, staged in named.items()}


@dataclass(frozen=True)
class RunProgress:
    """Progress of a whole run: rows of each output so far and, once all events are processed, its results."""

    rows: Mapping[str, int]
    results: ResultFiles | None = None


class BufferedRows(NamedTuple):
    """Rows of a stream that wait for the next batch: bytes in the last state file, one stream behind the other."""

    stream: str
    size: int
    rows: int


class SeenTimestamps(NamedTuple):
    """The latest timestamp of a stream, and that of its latest heartbeat."""

    newest: int
    heard: int


@dataclass(frozen=True)
class BatchProgress:
    """Progress of a streaming query after a batch.

    ``done``               the timestamp up to which everything is processed
    ``seen``               what each stream has shown so far
    ``buffered``           the rows that wait for the next batch
    ``totals``             counts of rows since the query began
    ``outputs``            rows of each output in this batch
    ``last_batches``       the last batch with rows of each output, ``last_dead_letters`` of dead letters
    ``lineage``            a digest of all batches so far
    ``sink``               the folder of the outputs (None: a function), ``dead_letters`` that of dead letters, if any
    ``foreign_state``      whether the state was left by other code, and no batch has been processed with it since
    ``closed``             whether the streams have ended
    """

    done: int
    seen: Mapping[str, SeenTimestamps]
    buffered: tuple[BufferedRows, ...]
    totals: Mapping[str, int]
    outputs: Mapping[str, int]
    last_batches: Mapping[str, int]
    last_dead_letters: int | None
    lineage: str
    sink: str | None
    dead_letters: str | None
    foreign_state: bool
    closed: bool


@dataclass(frozen=True)
class SnapshotManifest:
    """Everything about a snapshot but the bytes of its state.

    All events up to the timestamp ``after`` are in it and none behind (None: no timestamp says which), in all
    ``events`` of them. ``outputs`` are the files with what these events caused, below ``folder``. With ``finished``
    the run is over. ``fingerprint`` describe the program, ``plan`` is the one that was run (JSON). ``run_progress`` is
    that of a whole run, ``batch_progress`` that of a streaming query.
    """

    number: int
    term: int
    owner: str
    run: str
    created: datetime
    flumina: str
    after: int | None = None
    events: int = 0
    finished: bool = False
    states: tuple[StateFile, ...] = ()
    folder: str | None = None
    outputs: tuple[OutputFile, ...] = ()
    resumes: SnapshotId | None = None
    run_progress: RunProgress | None = None
    batch_progress: BatchProgress | None = None
    fingerprint: Mapping[str, Any] = field(default_factory=dict)
    plan: str | None = None

    @property
    def snapshot_id(self) -> SnapshotId:
        """The id of the snapshot."""
        return SnapshotId(self.term, self.number)

    @property
    def state_size(self) -> int:
        """The bytes of its state."""
        return sum(file.size for file in self.states)

    @property
    def rows(self) -> dict[str, int]:
        """The number of rows of each output."""
        counted: dict[str, int] = {}
        for file in self.outputs:
            counted[file.output] = counted.get(file.output, 0) + file.rows
        return counted

    @property
    def results(self) -> ResultFiles | None:
        """The files that become the results, once all events of a whole run are processed."""
        return None if self.run_progress is None else self.run_progress.results

    def to_json(self) -> dict[str, Any]:
        """Return the manifest as a JSON value."""
        content: dict[str, Any] = to_json(self)
        return content

    @staticmethod
    def from_json(content: Mapping[str, Any], file: str) -> SnapshotManifest:
        """Return what :meth:`to_json` was given; raise for a field that is wrong, with the path of the file."""
        return from_json(SnapshotManifest, content, file)


@dataclass(frozen=True)
class OwnerRecord:
    """The owner file of a driver: its owner token, and the snapshot from which it resumes."""

    term: int
    id: str
    run: str
    resumes: SnapshotId | None
    created: datetime
    flumina: str


def library_version() -> str:
    """The version of this library, if it was installed."""
    try:
        return version("flumina")
    except PackageNotFoundError:
        return "not installed"
