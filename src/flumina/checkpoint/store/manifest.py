"""What a snapshot says about itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from flumina.checkpoint.store.layout import Place
from flumina.model.order import Point
from flumina.output.outputs import SortedRun

ROWS, FILES, CHECKSUMS = "rows", "publish", "checksums"
"""What the manifest of a run says in ``extra``: rows of each output so far, and at the end the names under which its
files are to be seen, for each output with the path of what is staged for them; and the checksums of those."""


@dataclass(frozen=True)
class StateFile:
    """States that were written, below the folder of the checkpoint.

    ``shares`` are the trees of the plan whose states are in it, one behind the other, and how many bytes each has; none
    where it holds something else, or a state as a whole.
    """

    name: str
    size: int
    sha256: str
    shares: tuple[tuple[str, int], ...] = ()

    @staticmethod
    def from_json(content: Mapping[str, Any]) -> StateFile:
        """What was written as JSON."""
        return StateFile(**{**content, "shares": tuple((tree, size) for tree, size in content["shares"])})

    def is_of(self, place: Place) -> bool:
        """Whether it was written for this snapshot."""
        return self.name.startswith(f"state-{place}-")


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
class SnapshotManifest:
    """Everything about a snapshot but the bytes of its state.

    All events up to the timestamp ``after`` are in it and none behind (None: no timestamp says which), in all
    ``events`` of them. ``outputs`` are the files with what these events caused, below ``folder``. With ``finished``
    the run is over. ``facts`` describe the program, ``plan`` is the one that was run (JSON); ``extra`` is for whoever
    commits the snapshot.
    """

    number: int
    epoch: int
    claim: str
    run: str
    created: datetime
    flumina: str
    after: int | None = None
    events: int = 0
    finished: bool = False
    states: tuple[StateFile, ...] = ()
    folder: str | None = None
    outputs: tuple[OutputFile, ...] = ()
    resumes: Place | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    plan: str | None = None

    @property
    def place(self) -> Place:
        """Which snapshot this is."""
        return Place(self.epoch, self.number)

    @property
    def state_size(self) -> int:
        """The bytes of its state."""
        return sum(file.size for file in self.states)

    @property
    def rows(self) -> dict[str, int]:
        """How many rows of each output belong to it."""
        counted: dict[str, int] = {}
        for file in self.outputs:
            counted[file.output] = counted.get(file.output, 0) + file.rows
        return counted

    def to_json(self) -> dict[str, Any]:
        """As what JSON knows; sorted runs as lists of seven numbers."""
        content = {name: getattr(self, name) for name in self.__dataclass_fields__}
        content["created"] = self.created.isoformat()
        content["states"] = [asdict(file) for file in self.states]
        content["outputs"] = [
            {**asdict(file), "runs": [[*run.first, *run.last, run.rows] for run in file.runs]} for file in self.outputs
        ]
        return content

    @staticmethod
    def from_json(content: Mapping[str, Any]) -> SnapshotManifest:
        """What :meth:`to_json` gave."""
        known = {name: content[name] for name in SnapshotManifest.__dataclass_fields__}
        known["created"] = datetime.fromisoformat(known["created"])
        known["states"] = tuple(map(StateFile.from_json, known["states"]))
        known["outputs"] = tuple(_output(file) for file in known["outputs"])
        known["resumes"] = None if known["resumes"] is None else Place(*known["resumes"])
        return SnapshotManifest(**known)


def _output(file: Mapping[str, Any]) -> OutputFile:
    runs = tuple(SortedRun(Point(*run[:3]), Point(*run[3:6]), run[6]) for run in file["runs"])
    return OutputFile(**{**file, "runs": runs})


def library_version() -> str:
    """The version of this library, if it was installed."""
    try:
        return version("flumina")
    except PackageNotFoundError:
        return "not installed"
