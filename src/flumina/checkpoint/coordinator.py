"""Coordinate the epochs of a run: decide when each ends, and at which timestamp.

A snapshot holds everything up to a timestamp and nothing after it. To take one, the coordinator pauses all tasks. The
epoch is truncated at the highest timestamp that any worker has passed: workers give back the events after it
(:mod:`flumina.runtime.truncate`), and the tasks continue up to it, as if the run ended there. The final state is the
snapshot, and the next epoch begins with it. Events with equal timestamps are always in the same epoch.

::

    coordinator  Pause ──▶  Truncate(ts) ──▶    EndEpoch ──▶     BeginEpoch (or FinishRun, if all sources are exhausted)
    every task      Paused(ts) ──▶      … Drained ──▶     … EpochEnded(over) ──▶

The coordinator is in the task of the plan's root, and every task has a connection to it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from flumina.checkpoint.policy import CheckpointProgress, Policy


@dataclass(frozen=True, slots=True)
class Tally:
    """Numbers of events that a task has processed so far: all, and (if the policy counts them) synchronizing ones."""

    events: int = 0
    syncs: int = 0


@dataclass(frozen=True, slots=True)
class Pause:
    """Asks a task to pause, and to answer with :class:`Paused`."""


@dataclass(frozen=True, slots=True)
class Paused:
    """The highest timestamp that a worker of the paused task has passed; None if there is none."""

    ts: int | None


@dataclass(frozen=True, slots=True)
class Truncate:
    """Asks a task to continue, up to this timestamp; None: without end, as no worker has passed any."""

    ts: int | None


@dataclass(frozen=True, slots=True)
class Drained:
    """Reports that the parts read by the task have ended, for this epoch."""


@dataclass(frozen=True, slots=True)
class EndEpoch:
    """Announces that all parts have ended: tree roots may request the final states."""


@dataclass(frozen=True, slots=True)
class EpochEnded:
    """Reports that the task has processed the epoch; ``over`` if its sources have nothing after it."""

    over: bool


@dataclass(frozen=True, slots=True)
class BeginEpoch:
    """Announces that all tasks have ended the epoch before this one."""

    epoch: int


@dataclass(frozen=True, slots=True)
class FinishRun:
    """Announces that all tasks have ended the last epoch."""


@dataclass(frozen=True, slots=True)
class EpochEntered:
    """Announces that the messages after this one on the connection belong to this epoch."""

    epoch: int


ToCoordinator = Tally | Paused | Drained | EpochEnded
ToAll = Pause | Truncate | EndEpoch | BeginEpoch | FinishRun
Control = ToCoordinator | ToAll | EpochEntered


class CheckpointCoordinator:
    """State machine that ends epochs; it returns messages for all tasks, its own included."""

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

    def handle(self, task: int, message: ToCoordinator, now: float) -> ToAll | None:
        """Handle a message from a task; return the message for all tasks, if any."""
        match message:
            case Tally():
                self.tallies[task] = message
                return self.pause_if_due(now)
            case Paused(ts):
                self.paused[task] = ts
                return self._all_paused(now) if len(self.paused) == self.tasks else None
            case Drained():
                self.drained.add(task)
                return EndEpoch() if len(self.drained) == self.tasks else None
            case EpochEnded(over):
                self.ended[task] = over
                return self._all_ended(now) if len(self.ended) == self.tasks else None

    def pause_if_due(self, now: float) -> ToAll | None:
        """Return :class:`Pause` if the policy says that a snapshot is due."""
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
        """The tally of all tasks together."""
        events = sum(tally.events for tally in self.tallies.values())
        return Tally(events, sum(tally.syncs for tally in self.tallies.values()))

    def _all_paused(self, now: float) -> Truncate:
        highest = max((ts for ts in self.paused.values() if ts is not None), default=None)
        self.paused, self.pausing, self.truncation = {}, False, highest is not None
        if highest is None:
            self.began = now
        return Truncate(highest)

    def _all_ended(self, now: float) -> BeginEpoch | FinishRun:
        over = all(self.ended.values())
        self.ended, self.drained, self.truncation = {}, set(), False
        self.began, self.before = now, replace(self.total)
        if over:
            return FinishRun()
        self.epoch += 1
        return BeginEpoch(self.epoch)
