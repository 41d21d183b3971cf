"""When snapshots are taken, and where they go."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from flumina.errors import UsageError
from flumina.program.definition import user_error

DEFAULT_SECONDS = 30.0


class CheckpointProgress(NamedTuple):
    """What has happened since the last snapshot (or since the start), for a function that decides.

    ``events``     that were processed
    ``syncs``      of those, the ones that synchronize: for which the states of workers are joined, if several have them
    ``seconds``    that have passed
    ``snapshots``  that were taken in this run so far

    Which events synchronize is a matter of ``depends`` and not of the plan: of two tags that depend on each other it is
    the one whose own events depend on each other, as barriers do and values don't (if that is true of both or of
    neither, it is both). Own events of which only those with equal keys depend on each other count for less than such
    that all do. Of a program for one key, the events of all keys are counted, and no tag that depends on itself alone.
    """

    events: int
    syncs: int
    seconds: float
    snapshots: int


@dataclass(frozen=True)
class Policy:
    """When it is time for a snapshot: as soon as one of these says so."""

    seconds: float | None = None
    events: int | None = None
    syncs: int | None = None
    when: Callable[[CheckpointProgress], bool] | None = None

    def due(self, since: CheckpointProgress) -> bool:
        """Whether it is time."""
        if self.seconds is not None and since.seconds >= self.seconds:
            return True
        if self.events is not None and since.events >= self.events:
            return True
        if self.syncs is not None and since.syncs >= self.syncs:
            return True
        if self.when is None:
            return False
        try:
            return bool(self.when(since))
        except Exception as error:
            raise user_error(self.when, error) from error

    @property
    def counts_syncs(self) -> bool:
        """Whether anybody wants to know how many events synchronize."""
        return self.syncs is not None or self.when is not None

    @property
    def pace(self) -> int:
        """After how many events those who decide want to hear of it."""
        counts = [count for count in (self.events, self.syncs) if count is not None]
        if self.counts_syncs:
            return 1
        return max(1, min(counts) // 16) if counts else 1 << 62


@dataclass(frozen=True)
class Checkpoint:
    """Where a run keeps snapshots, and when it takes them: for ``checkpoint=``.

    ``path``        a folder that all tasks and the driver can reach
    ``seconds``     so long after the last one; 30 unless something else is given
    ``events``      after so many events
    ``syncs``       after so many events that synchronize, under every plan, as :class:`CheckpointProgress` says
    ``when``        whenever this function of :class:`CheckpointProgress` says so
    ``keep``        how many are kept
    ``filesystem``  one of pyarrow's or fsspec's, in which the folder lies; else the path or URI tells
    ``allow_older``        go on from an older snapshot if the newest, or an output that belongs to it, is damaged
    ``allow_code_change``  go on although the code of the program has changed
    """

    path: str | os.PathLike[str]
    seconds: float | None = None
    events: int | None = None
    syncs: int | None = None
    when: Callable[[CheckpointProgress], bool] | None = None
    keep: int = 3
    filesystem: object = field(default=None, repr=False)
    allow_older: bool = False
    allow_code_change: bool = False

    def __post_init__(self) -> None:
        """Refuse what can't be meant."""
        if not isinstance(self.path, str | os.PathLike) or not os.fspath(self.path):
            raise UsageError("CHECKPOINT", f"a checkpoint needs the path of a folder, got {self.path!r}")
        if self.seconds is not None and not (_is_number(self.seconds, float) and self.seconds > 0):
            raise UsageError("CHECKPOINT", f"seconds= is a time above 0, got {self.seconds!r}")
        for name in ("events", "syncs", "keep"):
            value = getattr(self, name)
            if not (value is None and name != "keep") and not (_is_number(value) and value >= 1):
                raise UsageError("CHECKPOINT", f"{name}= is a number, at least one, got {value!r}")
        if self.when is not None and not callable(self.when):
            raise UsageError("CHECKPOINT", f"when= is a function of fl.CheckpointProgress, got {self.when!r}")

    @staticmethod
    def of(given: Checkpoint | str | os.PathLike[str]) -> Checkpoint:
        """What a user gave: a path has the usual policy."""
        return given if isinstance(given, Checkpoint) else Checkpoint(given)

    @property
    def policy(self) -> Policy:
        """When snapshots are taken."""
        given = (self.seconds, self.events, self.syncs, self.when)
        seconds = DEFAULT_SECONDS if all(one is None for one in given) else self.seconds
        return Policy(seconds, self.events, self.syncs, self.when)


def _is_number(value: object, *more: type) -> bool:
    return isinstance(value, (int, *more)) and not isinstance(value, bool)
