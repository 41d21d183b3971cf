"""A task's side of a run in segments: it holds its parts where the leader says, and hands in what each segment gave."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flumina.engine.checkpoint import Place, StateFile
from flumina.engine.outputs import Manifest
from flumina.engine.segment import (
    Begin,
    Control,
    Cut,
    Ended,
    Entered,
    Finish,
    Leader,
    Pause,
    Paused,
    Tally,
    ToAll,
    ToLeader,
)

if TYPE_CHECKING:
    from flumina.engine.job import Snapshots
    from flumina.engine.task import Task

TALLY_EVERY = 0.05
"""Seconds after which the leader hears how much has been done, if it is more than before."""


@dataclass(frozen=True)
class Saved:
    """What a task hands in at the end of a segment: its outputs, how far that is, and (the root's task) the state."""

    segment: int
    after: int
    manifest: Manifest
    events: int
    state: StateFile | None


class Follower:
    """Keeps one task in step with the others."""

    def __init__(self, task: Task, snapshots: Snapshots) -> None:
        self.task, self.snapshots = task, snapshots
        self.home = task.layout.workers[task.job.plan.root.id]
        self.leader: Leader | None = None
        if self.home == task.number:
            self.leader = Leader(task.layout.tasks, snapshots.policy, time.monotonic())
        self.segment = 0
        self.of_peer = dict.fromkeys(task.channels, 0)
        """The segment to which belongs what comes next from a peer."""
        self.early: list[Any] = []
        """What peers have sent that have entered the next segment already."""
        self.cut: int | None = None
        self.closed: Manifest | None = None
        """The outputs of this segment, once everything here is done."""
        self.word: Begin | Finish | None = None
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
        if self.leader is not None:
            self._broadcast(self.leader.look(now))

    def hear(self, peer: int, message: Control) -> None:
        """Word from another task, or from this one's own leader."""
        match message:
            case Tally() | Paused() | Ended():
                assert self.leader is not None, "only the leader is told"
                self._broadcast(self.leader.hear(peer, message, time.monotonic()))
            case Pause():
                for feed in self.task.feeds.values():
                    feed.paused = True
                reached = [feed.reached for feed in self.task.feeds.values() if feed.reached is not None]
                self._tell_leader(Paused(max(reached, default=None)))
            case Cut(ts):
                self.cut = ts
                for feed in self.task.feeds.values():
                    feed.paused, feed.limit = False, ts
            case Entered(segment):
                self.of_peer[peer] = segment
            case Begin() | Finish():
                self.word = message

    def sort(self, peer: int, frame: Any) -> bool:  # noqa: ANN401 -- what channels carry
        """Whether a frame belongs to this segment; one of the next is kept, one of those before is of no use."""
        if self.of_peer[peer] > self.segment:
            self.early.append(frame)
        return self.of_peer[peer] == self.segment

    def over(self) -> bool:
        """Called when nothing is left to do in this segment: whether the run is over; if not, the next one may begin."""
        if self.closed is None:
            self.closed = self.task.sink.close()
            self._tell_leader(Ended(all(feed.over for feed in self.task.feeds.values())))
        if isinstance(self.word, Begin):
            self._enter(self.word.segment)
        return isinstance(self.word, Finish)

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
        state = None
        if task.coordinator is not None:
            place = Place(self.snapshots.epoch, task.start.number + self.segment)
            state = self.snapshots.store.write_state(place, task.codec.pack(task.final))
        task.member.save(Saved(self.segment, self.cut, self.closed, self._tally().events, state))
        self.segment, self.word, self.closed, self.cut = segment, None, None, None
        for peer in task.channels:
            task.control(peer, Entered(segment))
        task.begin_segment(segment)
        early, self.early = self.early, []
        for frame in early:
            task.inbox.extend(task.codec.decode(frame))

    def _tally(self) -> Tally:
        workers, past = self.task.workers.values(), self.task.past
        events = sum(w.counting.events for w in workers) + sum(s.events for s in past.values())
        inner = [w for w in workers if w.shape.children]
        syncs = sum(w.counting.events + (past[w.id].events if w.id in past else 0) for w in inner)
        return Tally(events, syncs)

    def _tell_leader(self, message: ToLeader) -> None:
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
