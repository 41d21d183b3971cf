"""A run in segments: what lies between two snapshots, and who decides where one ends.

A snapshot holds everything up to a timestamp and nothing behind it. To take one, all tasks stand still a moment; the
highest timestamp that any worker has passed is the cut; all take back what lies behind it
(:mod:`flumina.runtime.truncate`) and go on up to there, as if the run ended. Its final state is the snapshot, and the
next segment begins with it. Equal timestamps never lie on two sides of a cut.

::

    leader      Pause  ──▶  Cut(ts)  ──▶             End  ──▶           Begin (or Finish, if nothing is left)
    every task      Paused(ts) ──▶     … Drained ──▶    … Ended(over) ──▶

The leader lives in the task of the root, and every task has a line to it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from flumina.checkpoint.policy import CheckpointProgress, Policy


@dataclass(frozen=True, slots=True)
class Tally:
    """How much a task has done so far: events, and of those the ones that synchronize, where somebody asks for them."""

    events: int = 0
    syncs: int = 0


@dataclass(frozen=True, slots=True)
class Pause:
    """Do nothing more for now, and say how far you are."""


@dataclass(frozen=True, slots=True)
class Paused:
    """The highest timestamp that a worker has passed; None if there is none."""

    ts: int | None


@dataclass(frozen=True, slots=True)
class Truncate:
    """Go on, up to this timestamp and no further; None: it was for nothing."""

    ts: int | None


@dataclass(frozen=True, slots=True)
class Drained:
    """The parts that are read here have ended, for this segment."""


@dataclass(frozen=True, slots=True)
class EndEpoch:
    """All parts have ended: the state may be asked for."""


@dataclass(frozen=True, slots=True)
class EpochEnded:
    """Everything up to the cut is processed here; ``over`` if nothing is left behind it."""

    over: bool


@dataclass(frozen=True, slots=True)
class BeginEpoch:
    """All tasks have ended the segment before this one."""

    epoch: int


@dataclass(frozen=True, slots=True)
class FinishRun:
    """All tasks have ended the last segment."""


@dataclass(frozen=True, slots=True)
class EpochEntered:
    """What follows on this line belongs to this segment."""

    epoch: int


ToCoordinator = Tally | Paused | Drained | EpochEnded
ToAll = Pause | Truncate | EndEpoch | BeginEpoch | FinishRun
Control = ToCoordinator | ToAll | EpochEntered


class CheckpointCoordinator:
    """Decides when a segment ends; what it returns is for all tasks, its own included."""

    def __init__(self, tasks: int, policy: Policy, now: float) -> None:
        self.tasks, self.policy = tasks, policy
        self.epoch = 0
        self.began = now
        self.tallies: dict[int, Tally] = {}
        self.before = Tally()
        self.pausing = self.truncation = False
        self.paused: dict[int, int | None] = {}
        self.drained: set[int] = set()
        self.ended: dict[int, bool] = {}

    def hear(self, task: int, message: ToCoordinator, now: float) -> ToAll | None:
        """What a task has to say."""
        match message:
            case Tally():
                self.tallies[task] = message
                return self.look(now)
            case Paused(ts):
                self.paused[task] = ts
                return self._everyone_paused(now) if len(self.paused) == self.tasks else None
            case Drained():
                self.drained.add(task)
                return EndEpoch() if len(self.drained) == self.tasks else None
            case EpochEnded(over):
                self.ended[task] = over
                return self._everyone_ended(now) if len(self.ended) == self.tasks else None

    def look(self, now: float) -> ToAll | None:
        """Whether it is time for a snapshot."""
        if self.pausing or self.truncation or len(self.drained) == self.tasks:
            return None
        done = self.total
        since = CheckpointProgress(
            events=done.events - self.before.events,
            syncs=done.syncs - self.before.syncs,
            seconds=now - self.began,
            snapshots=self.epoch,
        )
        if not since.events or not self.policy.due(since):
            return None
        self.pausing = True
        return Pause()

    @property
    def total(self) -> Tally:
        """What all tasks have done."""
        events = sum(tally.events for tally in self.tallies.values())
        return Tally(events, sum(tally.syncs for tally in self.tallies.values()))

    def _everyone_paused(self, now: float) -> Truncate:
        highest = max((ts for ts in self.paused.values() if ts is not None), default=None)
        self.paused, self.pausing, self.truncation = {}, False, highest is not None
        if highest is None:
            self.began = now
        return Truncate(highest)

    def _everyone_ended(self, now: float) -> BeginEpoch | FinishRun:
        over = all(self.ended.values())
        self.ended, self.drained, self.truncation = {}, set(), False
        self.began, self.before = now, replace(self.total)
        if over:
            return FinishRun()
        self.epoch += 1
        return BeginEpoch(self.epoch)
