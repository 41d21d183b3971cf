"""Configure when snapshots are taken, and where they are stored."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from flumina.errors import UsageError
from flumina.program.definition import user_error

DEFAULT_SECONDS = 30.0


class CheckpointProgress(NamedTuple):
    """Progress since the last snapshot (or since the start), for the function ``when`` of a checkpoint.

    ``events``     processed events
    ``syncs``      processed events that synchronize: the states of workers are joined for them, if several have them
    ``seconds``    time that has passed
    ``snapshots``  snapshots taken in this run so far

    Whether events synchronize follows from ``depends``, under every plan: of two tags that depend on each other it is
    the one whose own events depend on each other, as barriers do and values don't (if that is true of both or of
    neither, it is both). A tag whose events depend on each other at equal keys only ranks below a tag whose events all
    do. Of a program for one key, the events of all keys are counted, and no tag that depends on itself alone.
    """

    events: int
    syncs: int
    seconds: float
    snapshots: int


@dataclass(frozen=True)
class Policy:
    """Conditions for a snapshot: it is due as soon as one of them holds."""

    seconds: float | None = None
    events: int | None = None
    syncs: int | None = None
    when: Callable[[CheckpointProgress], bool] | None = None

    def due(self, since: CheckpointProgress) -> bool:
        """Tell whether a snapshot is due; an exception in ``when`` is raised as an error of the user's code."""
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
        """Tell whether the policy depends on the number of synchronizing events."""
        return self.syncs is not None or self.when is not None

    @property
    def pace(self) -> int:
        """The number of events after which a task reports its tally to the coordinator."""
        counts = [count for count in (self.events, self.syncs) if count is not None]
        if self.counts_syncs:
            return 1
        return max(1, min(counts) // 16) if counts else 1 << 62


@dataclass(frozen=True)
class Checkpoint:
    """Where a run stores snapshots, and when it takes them: for ``checkpoint=``.

    ``path``        a folder that all tasks and the driver can reach
    ``seconds``     take a snapshot after so many seconds; 30 if no other condition is given
    ``events``      take a snapshot after so many events
    ``syncs``       take a snapshot after so many events that synchronize, as :class:`CheckpointProgress` counts them
    ``when``        take a snapshot when this function of :class:`CheckpointProgress` returns true
    ``keep``        number of snapshots to keep
    ``filesystem``  file system of pyarrow or fsspec that holds the folder; by default that of the path or URI
    ``allow_older``        resume from an older snapshot if the newest, or an output that belongs to it, is damaged
    ``allow_code_change``  resume although the code of the program has changed
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
        """Validate the parameters."""
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
        """Return a checkpoint for ``checkpoint=``: a path gets the default policy."""
        return given if isinstance(given, Checkpoint) else Checkpoint(given)

    @property
    def policy(self) -> Policy:
        """The conditions for snapshots."""
        given = (self.seconds, self.events, self.syncs, self.when)
        seconds = DEFAULT_SECONDS if all(one is None for one in given) else self.seconds
        return Policy(seconds, self.events, self.syncs, self.when)


def _is_number(value: object, *more: type) -> bool:
    return isinstance(value, (int, *more)) and not isinstance(value, bool)
