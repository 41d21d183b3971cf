"""A task's side of a run in segments: it holds its parts where the leader says, and hands in what each segment gave."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flumina.checkpoint import Place, StateFile
from flumina.checkpoint.coordinator import (
    BeginEpoch,
    CheckpointCoordinator,
    Control,
    Drained,
    EndEpoch,
    EpochEnded,
    EpochEntered,
    FinishRun,
    Pause,
    Paused,
    Tally,
    ToAll,
    ToCoordinator,
    Truncate,
)
from flumina.checkpoint.state_partitions import InMemoryPartition
from flumina.output.outputs import Manifest
from flumina.runtime.messages import Credit, Data, Message
from flumina.runtime.topology import TREE_ROOT
from flumina.runtime.truncate import truncated

if TYPE_CHECKING:
    from flumina.engine.job import Snapshots
    from flumina.engine.message_codec import Letter
    from flumina.engine.source_reader import SourceReader
    from flumina.engine.task import Task

TALLY_EVERY = 0.05
"""Seconds after which the leader hears how much has been done, if it is more than before."""


@dataclass(frozen=True)
class TaskCheckpoint:
    """What a task hands in at the end of a segment: its outputs, how far that is, and where its trees' states are."""

    segment: int
    after: int
    manifest: Manifest
    events: int
    states: StateFile | None


class CheckpointParticipant:
    """Keeps one task in step with the others."""

    def __init__(self, task: Task, snapshots: Snapshots) -> None:
        self.task, self.snapshots = task, snapshots
        self.home = task.layout.workers[task.job.plan.root.id]
        self.leader: CheckpointCoordinator | None = None
        if self.home == task.number:
            self.leader = CheckpointCoordinator(task.layout.tasks, snapshots.policy, time.monotonic())
        self.segment = 0
        self.of_peer = dict.fromkeys(task.channels, 0)
        """The segment to which belongs what comes next from a peer."""
        self.early: list[Any] = []
        """What peers have sent that have entered the next segment already."""
        self.frozen = False
        """Whether workers are told nothing for the moment."""
        self.cut: int | None = None
        """The timestamp at which this segment ends, once that is known."""
        self.last_cut: int | None = None
        self.taken_back: list[Letter] = []
        """What has come from behind the cut, for the workers of the next segment."""
        self.drained = False
        self.ending = False
        """Whether the parts of all tasks have ended: until then this segment may still be cut off."""
        self.closed: Manifest | None = None
        """The outputs of this segment, once everything here is done."""
        self.word: BeginEpoch | FinishRun | None = None
        self.pause_due = False
        """Whether the next segment, which this task has yet to enter, is to be cut off already: others are ahead."""
        self.past_syncs = 0
        """Of earlier segments."""
        self.tally = Tally()
        self.told_at = 0.0

    def look(self, now: float) -> None:
        """Tell the leader how much has been done; if it lives here, have it look whether it is time."""
        tally = self._tally()
        if tally != self.tally:
            new = tally.events - self.tally.events
            if new >= self.snapshots.policy.pace or now >= self.told_at + TALLY_EVERY:
                self.tally, self.told_at = tally, now
                self._tell_leader(tally)
        if not self.drained and all(feed.ended for feed in self.task.feeds.values()):
            self.drained = True
            self._tell_leader(Drained())
        if self.leader is not None:
            self._broadcast(self.leader.look(now))

    def hear(self, peer: int, message: Control) -> None:
        """Word from another task, or from this one's own leader."""
        match message:
            case Tally() | Paused() | Drained() | EpochEnded():
                assert self.leader is not None, "only the leader is told"
                self._broadcast(self.leader.hear(peer, message, time.monotonic()))
            case Pause() if isinstance(self.word, BeginEpoch):
                self.pause_due = True
            case Pause():
                self.frozen = True
                for feed in self.task.feeds.values():
                    feed.paused = True
                passed = [worker.passed for worker in self.task.workers.values() if worker.passed is not None]
                self._tell_leader(Paused(max(passed, default=None)))
            case Truncate(ts):
                self._cut_off(ts)
            case EndEpoch():
                self.ending = True
                self.task.perform(TREE_ROOT, self.task.tree_root.end())
            case EpochEntered(segment):
                self.of_peer[peer] = segment
            case BeginEpoch() | FinishRun():
                self.word = message

    def _cut_off(self, ts: int | None) -> None:
        """Take back what lies behind a timestamp, and go on up to there."""
        self.frozen, self.cut = False, ts
        for feed in self.task.feeds.values():
            feed.paused, feed.limit = False, ts
        if ts is not None:
            for name, worker in self.task.workers.items():
                effects, found = worker.truncate(ts)
                self.taken_back += [(name, data.part, data) for data in found]
                self.task.perform(name, effects)

    def seen(self, to: str, message: Message) -> Message:
        """A message as a worker of this segment may see it."""
        if self.cut is None:
            return message
        message, rest = truncated(message, self.cut)
        if rest is not None:
            self.taken_back.append((to, rest.part, rest))
        return message

    def sort(self, peer: int, frame: Any) -> Iterator[Letter]:  # noqa: ANN401 -- what channels carry
        """What of a frame concerns this segment; one of the next segment is kept for then."""
        if self.of_peer[peer] > self.segment:
            self.early.append(frame)
            return
        for to, sender, message in self.task.codec.decode(frame):
            if self.of_peer[peer] == self.segment or isinstance(message, Credit):
                yield to, sender, message
            elif isinstance(message, Data):  # of the segment before: it was on its way when that was cut off
                assert self.last_cut is not None
                _, rest = truncated(message, self.last_cut)
                if rest is not None:
                    yield to, sender, rest

    def over(self) -> bool:
        """Called when nothing is left to do in this segment: whether the run is over; if not, it may go on here."""
        if self.frozen or not self.ending:
            return False
        if self.closed is None:
            self.closed = self.task.sink.close()
            self.tally = self._tally()
            self._tell_leader(self.tally)  # what was done before the cut does not count towards the next one
            self._tell_leader(EpochEnded(all(map(self._is_over, self.task.feeds.values()))))
        if isinstance(self.word, BeginEpoch):
            self._enter(self.word.segment)
        return isinstance(self.word, FinishRun)

    def _is_over(self, feed: SourceReader) -> bool:
        """Whether nothing of a part is left: neither to be sent, nor taken back or on its way from behind the cut."""
        return feed.over and (self.cut is None or feed.highest is None or feed.highest <= self.cut)

    @property
    def manifest(self) -> Manifest:
        """The outputs of the last segment."""
        assert self.closed is not None
        return self.closed

    def _enter(self, segment: int) -> None:
        """Hand in the segment before, and begin this one."""
        task = self.task
        assert self.closed is not None
        assert self.cut is not None, "a segment that is not the last one was cut"
        states = None
        if task.final:
            place = Place(self.snapshots.epoch, task.start.number + self.segment)
            bundle = InMemoryPartition.of(task.packed())
            states = self.snapshots.store.write_state(place, bundle.data, bundle.shares)
        done = self._tally()
        task.member.save(TaskCheckpoint(self.segment, self.cut, self.closed, done.events, states))
        self.past_syncs = done.syncs
        self.segment, self.word, self.closed = segment, None, None
        self.drained = self.ending = False
        self.last_cut, self.cut = self.cut, None
        for peer in task.channels:
            task.control(peer, EpochEntered(segment))
        task.begin_segment(segment)
        task.inbox.extend(self.taken_back)
        early, self.early, self.taken_back = self.early, [], []
        for frame in early:
            task.inbox.extend(task.codec.decode(frame))
        if self.pause_due:
            self.pause_due = False
            self.hear(self.home, Pause())

    def _tally(self) -> Tally:
        workers, past = self.task.workers.values(), self.task.past
        events = sum(w.counting.events for w in workers) + sum(s.events for s in past.values())
        return Tally(events, self.past_syncs + sum(w.counted for w in workers))

    def _tell_leader(self, message: ToCoordinator) -> None:
        if self.home == self.task.number:
            self.hear(self.home, message)
        else:
            self.task.control(self.home, message)

    def _broadcast(self, message: ToAll | None) -> None:
        if message is not None:
            for peer in range(self.task.layout.tasks):
                if peer != self.task.number:
                    self.task.control(peer, message)
            self.hear(self.task.number, message)
