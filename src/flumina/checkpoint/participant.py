"""A task's side of a run in segments: it holds its parts where the leader says, and hands in what each segment gave."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

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
from flumina.checkpoint.start import Snapshots
from flumina.checkpoint.state_partitions import InMemoryPartition
from flumina.checkpoint.store.layout import SnapshotId
from flumina.checkpoint.store.manifest import StateFile
from flumina.output.outputs import Manifest
from flumina.runtime.messages import Credit, Data, Message
from flumina.runtime.truncate import truncated
from flumina.runtime.worker import Address

Delivery = tuple[Address, Address, Any]
"""A message: its receiver, its sender, and what it says."""

TALLY_EVERY = 0.05
"""Seconds after which the leader hears how much has been done, if it is more than before."""


@dataclass(frozen=True)
class TaskCheckpoint:
    """What a task hands in at the end of a segment: its outputs, how far that is, and where its trees' states are."""

    epoch: int
    after: int
    manifest: Manifest
    events: int
    states: StateFile | None


class TaskControl(Protocol):
    """What a checkpoint participant needs of the task that it is a part of."""

    def tally(self) -> Tally:
        """Count what the workers here have done, in all segments."""

    def sources_ended(self) -> bool:
        """Tell whether the parts read here have sent everything of this segment."""

    def sources_exhausted(self, ts: int | None) -> bool:
        """Tell whether the parts read here have nothing behind a timestamp: neither unread nor sent."""

    def pause(self) -> int | None:
        """Hold the parts read here back, and return the highest timestamp that a worker has passed."""

    def truncate(self, ts: int | None) -> list[Delivery]:
        """Go on up to a timestamp (None: as before); return the messages from behind it that workers had."""

    def drain(self) -> None:
        """Have the trees whose roots are here hand over their final states: all parts have ended."""

    def close_outputs(self) -> Manifest:
        """Write the outputs of this segment to their end, and say what there is."""

    def packed(self) -> Mapping[str, bytes]:
        """Return the final states of the trees whose roots are here, as bytes."""

    def restart(self, epoch: int) -> None:
        """Begin a segment, with new workers, from the final states of the segment before."""

    def requeue(self, messages: Iterable[Delivery]) -> None:
        """Take messages in, as if they had just arrived."""

    def decode(self, frame: Any) -> Iterable[Delivery]:  # noqa: ANN401 -- what channels carry
        """Return the messages of a frame."""

    def control(self, peer: int, message: Control) -> None:
        """Say something to another task itself, behind all that its workers have been sent."""

    def hand_in(self, saved: TaskCheckpoint) -> None:
        """Send the driver what this task has saved of a segment."""


class CheckpointParticipant:
    """Keeps one task in step with the others.

    ``number``  of this task, ``tasks`` how many there are, ``peers`` those that this one has a line to
    ``home``    the task of the plan's root, in which the leader lives
    ``first``   the number of the first snapshot to come
    """

    def __init__(
        self,
        task: TaskControl,
        snapshots: Snapshots,
        *,
        number: int,
        home: int,
        tasks: int,
        peers: Iterable[int],
        first: int,
    ) -> None:
        self.task, self.snapshots = task, snapshots
        self.number, self.home, self.tasks, self.first = number, home, tasks, first
        self.coordinator: CheckpointCoordinator | None = None
        if home == number:
            self.coordinator = CheckpointCoordinator(tasks, snapshots.policy, time.monotonic())
        self.epoch = 0
        self.of_peer = dict.fromkeys(peers, 0)
        """The segment to which belongs what comes next from a peer."""
        self.early: list[Any] = []
        """What peers have sent that have entered the next segment already."""
        self.frozen = False
        """Whether workers are told nothing for the moment."""
        self.truncation: int | None = None
        """The timestamp at which this segment ends, once that is known."""
        self.last_truncation: int | None = None
        self.taken_back: list[Delivery] = []
        """What has come from behind the cut, for the workers of the next segment."""
        self.drained = False
        self.final_state_policy = False
        """Whether the parts of all tasks have ended: until then this segment may still be cut off."""
        self.closed: Manifest | None = None
        """The outputs of this segment, once everything here is done."""
        self.word: BeginEpoch | FinishRun | None = None
        self.pause_due = False
        """Whether the next segment, which this task has yet to enter, is to be cut off already: others are ahead."""
        self.tally = Tally()
        self.told_at = 0.0

    def look(self, now: float) -> None:
        """Tell the leader how much has been done; if it lives here, have it look whether it is time."""
        tally = self.task.tally()
        if tally != self.tally:
            new = tally.events - self.tally.events
            if new >= self.snapshots.policy.pace or now >= self.told_at + TALLY_EVERY:
                self.tally, self.told_at = tally, now
                self._tell_coordinator(tally)
        if not self.drained and self.task.sources_ended():
            self.drained = True
            self._tell_coordinator(Drained())
        if self.coordinator is not None:
            self._broadcast(self.coordinator.look(now))

    def hear(self, peer: int, message: Control) -> None:
        """Word from another task, or from this one's own leader."""
        match message:
            case Tally() | Paused() | Drained() | EpochEnded():
                assert self.coordinator is not None, "only the leader is told"
                self._broadcast(self.coordinator.hear(peer, message, time.monotonic()))
            case Pause() if isinstance(self.word, BeginEpoch):
                self.pause_due = True
            case Pause():
                self.frozen = True
                self._tell_coordinator(Paused(self.task.pause()))
            case Truncate(ts):
                self.frozen, self.truncation = False, ts
                self.taken_back += self.task.truncate(ts)
            case EndEpoch():
                self.final_state_policy = True
                self.task.drain()
            case EpochEntered(epoch):
                self.of_peer[peer] = epoch
            case BeginEpoch() | FinishRun():
                self.word = message

    def seen(self, to: str, message: Message) -> Message:
        """A message as a worker of this segment may see it."""
        if self.truncation is None:
            return message
        message, rest = truncated(message, self.truncation)
        if rest is not None:
            self.taken_back.append((to, rest.part, rest))
        return message

    def sort(self, peer: int, frame: Any) -> Iterator[Delivery]:  # noqa: ANN401 -- what channels carry
        """What of a frame concerns this segment; one of the next segment is kept for then."""
        if self.of_peer[peer] > self.epoch:
            self.early.append(frame)
            return
        for to, sender, message in self.task.decode(frame):
            if self.of_peer[peer] == self.epoch or isinstance(message, Credit):
                yield to, sender, message
            elif isinstance(message, Data):  # of the segment before: it was on its way when that was cut off
                assert self.last_truncation is not None
                _, rest = truncated(message, self.last_truncation)
                if rest is not None:
                    yield to, sender, rest

    def over(self) -> bool:
        """Called when nothing is left to do in this segment: whether the run is over; if not, it may go on here."""
        if self.frozen or not self.final_state_policy:
            return False
        if self.closed is None:
            self.closed = self.task.close_outputs()
            self.tally = self.task.tally()
            self._tell_coordinator(self.tally)  # what was done before the cut does not count towards the next one
            self._tell_coordinator(EpochEnded(self.task.sources_exhausted(self.truncation)))
        if isinstance(self.word, BeginEpoch):
            self._enter(self.word.epoch)
        return isinstance(self.word, FinishRun)

    @property
    def manifest(self) -> Manifest:
        """The outputs of the last segment."""
        assert self.closed is not None
        return self.closed

    def _enter(self, epoch: int) -> None:
        """Hand in the segment before, and begin this one."""
        task = self.task
        assert self.closed is not None
        assert self.truncation is not None, "a segment that is not the last one was cut"
        states, packed = None, task.packed()
        if packed:
            snapshot_id = SnapshotId(self.snapshots.term, self.first + self.epoch)
            partition = InMemoryPartition.of(packed)
            states = self.snapshots.store.write_state(snapshot_id, partition.data, partition.tree_sizes)
        task.hand_in(TaskCheckpoint(self.epoch, self.truncation, self.closed, task.tally().events, states))
        self.epoch, self.word, self.closed = epoch, None, None
        self.drained = self.final_state_policy = False
        self.last_truncation, self.truncation = self.truncation, None
        for peer in self.of_peer:
            task.control(peer, EpochEntered(epoch))
        task.restart(epoch)
        task.requeue(self.taken_back)
        early, self.early, self.taken_back = self.early, [], []
        for frame in early:
            task.requeue(task.decode(frame))
        if self.pause_due:
            self.pause_due = False
            self.hear(self.home, Pause())

    def _tell_coordinator(self, message: ToCoordinator) -> None:
        if self.home == self.number:
            self.hear(self.home, message)
        else:
            self.task.control(self.home, message)

    def _broadcast(self, message: ToAll | None) -> None:
        if message is not None:
            for peer in range(self.tasks):
                if peer != self.number:
                    self.task.control(peer, message)
            self.hear(self.number, message)
