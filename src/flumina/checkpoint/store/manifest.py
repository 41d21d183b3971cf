"""Describe an epoch: its owner, its end, where its input continues, and its files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

from flumina.checkpoint.store.layout import SnapshotId
from flumina.output.staged_outputs import SortedRun
from flumina.storage.checksum import Checksum
from flumina.storage.json_record import from_json, to_json


@dataclass(frozen=True)
class StateFile:
    """States that were written, below the folder of the checkpoint.

    ``tree_sizes`` are the trees of the plan whose states are in it, one after the other, and how many bytes each has;
    none where it holds a state as a whole. ``buckets`` is the range of hash buckets whose keys are in it, without its
    end; None: all keys. The file may be that of an earlier epoch.
    """

    name: str
    size: int
    sha256: str
    tree_sizes: tuple[tuple[str, int], ...] = ()
    buckets: tuple[int, int] | None = None

    def is_of(self, snapshot_id: SnapshotId) -> bool:
        """Tell whether the file was written for this snapshot."""
        return snapshot_id.wrote(self.name)


class OutputFile(NamedTuple):
    """A staged file of one output; ``path`` is relative to the folder of the outputs.

    ``name`` is the final name, relative to the output directory; None if the file is merged with others first.
    """

    output: str
    path: str
    size: int
    crc32: int
    rows: int
    runs: tuple[SortedRun, ...] = ()
    name: str | None = None

    @property
    def checksum(self) -> Checksum:
        """The checksum of the file when it was written."""
        return Checksum(self.size, self.crc32)


class BufferedFile(NamedTuple):
    """Rows of a stream that wait for a later epoch: a file of sorted rows, of which some may be processed.

    ``rows`` rows from ``first_row`` on wait, with timestamps from ``min_ts`` to ``max_ts``.
    """

    name: str
    size: int
    sha256: str
    stream: str
    first_row: int
    rows: int
    min_ts: int
    max_ts: int


class SeenTimestamps(NamedTuple):
    """The latest timestamp of a stream, and that of its latest heartbeat."""

    newest: int
    heard: int


REPLAY = "replay"
BATCHES = "batches"


@dataclass(frozen=True)
class Inputs:
    """Where the input of the next epoch begins.

    ``rule``    :data:`REPLAY`: sources are read from the first row again, and events up to the end are skipped;
                :data:`BATCHES`: micro-batches follow each other, and the next one has the number of this epoch
    ``seen``    the timestamps that each stream has shown so far, which its watermark follows from
    ``totals``  rows received so far, by what became of them
    """

    rule: str = REPLAY
    seen: Mapping[str, SeenTimestamps] = field(default_factory=dict)
    totals: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class EpochOutputs:
    """Outputs up to the end of an epoch.

    ``folder``   the folder of their files; None if they go to a function, or are discarded
    ``files``    files of this epoch, and of earlier ones whose outputs are not visible yet
    ``rows``     rows of each output so far
    ``last``     the last micro-batch of each output with a folder of its own
    ``lineage``  a digest of all micro-batches so far, with their outputs
    """

    folder: str | None = None
    files: tuple[OutputFile, ...] = ()
    rows: Mapping[str, int] = field(default_factory=dict)
    last: Mapping[str, int] = field(default_factory=dict)
    lineage: str = ""


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """What lies between two manifests, of a whole run or of a streaming query.

    ``number``         the number of its snapshot
    ``end``            the timestamp up to which everything is processed, and nothing after it; None: no timestamp says
    ``events``         the number of events processed so far
    ``inputs``         where the input continues
    ``buffered``       files with rows after the end that the source will not deliver again
    ``state``          files with the state; they may be those of earlier epochs
    ``plan``           the plan whose trees have left the state (JSON)
    ``foreign_state``  whether the state was left by other code, and no epoch has been processed with it since
    ``outputs``        outputs, and ``dead_letters`` rows that could not be processed
    ``finished``       whether this epoch is the last
    """

    number: int
    end: int | None = None
    events: int = 0
    inputs: Inputs = Inputs()
    buffered: tuple[BufferedFile, ...] = ()
    state: tuple[StateFile, ...] = ()
    plan: str | None = None
    foreign_state: bool = False
    outputs: EpochOutputs = EpochOutputs()
    dead_letters: EpochOutputs = EpochOutputs()
    finished: bool = False

    @property
    def state_size(self) -> int:
        """The bytes of its state."""
        return sum(file.size for file in self.state)

    @property
    def data_files(self) -> tuple[StateFile | BufferedFile, ...]:
        """The files of state and of buffered rows."""
        return (*self.state, *self.buffered)

    @property
    def rows(self) -> dict[str, int]:
        """The number of rows of each output so far, where there are any."""
        return {name: rows for name, rows in self.outputs.rows.items() if rows}


@dataclass(frozen=True, kw_only=True)
class EpochManifest(Epoch):
    """The record of an epoch: all about it but the bytes of its files.

    ``term``, ``owner`` and ``run`` are those of the owner token, ``parent`` is the epoch before, and ``fingerprint``
    describes the program.
    """

    term: int
    owner: str
    run: str
    parent: SnapshotId | None
    created: datetime
    flumina: str
    fingerprint: Mapping[str, Any] = field(default_factory=dict)

    @property
    def snapshot_id(self) -> SnapshotId:
        """The id of the snapshot."""
        return SnapshotId(self.term, self.number)

    @property
    def named(self) -> frozenset[str]:
        """The names of all files in the folder of the checkpoint that the manifest refers to."""
        return frozenset(file.name for file in self.data_files)

    @property
    def files(self) -> tuple[OutputFile, ...]:
        """The files of outputs and of dead letters."""
        return (*self.outputs.files, *self.dead_letters.files)

    def to_json(self) -> dict[str, Any]:
        """Return the manifest as a JSON value."""
        content: dict[str, Any] = to_json(self)
        return content

    @staticmethod
    def from_json(content: Mapping[str, Any], file: str) -> EpochManifest:
        """Return what :meth:`to_json` was given; raise for a field that is wrong, with the path of the file."""
        return from_json(EpochManifest, content, file)


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
