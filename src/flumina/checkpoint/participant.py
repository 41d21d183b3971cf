"""Participate in checkpoints: pause, truncate and end epochs of one task for the coordinator."""

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
from flumina.checkpoint.resume_point import Snapshots
from flumina.checkpoint.state_partitions import InMemoryPartition
from flumina.checkpoint.store.layout import SnapshotId
from flumina.checkpoint.store.manifest import StateFile
from flumina.output.staged_outputs import Manifest
from flumina.runtime.messages import Credit, Data, Message
from flumina.runtime.truncate import truncated
from flumina.runtime.worker import Address

Delivery = tuple[Address, Address, Any]
"""A message with its receiver and its sender: receiver, sender, message."""

TALLY_EVERY = 0.05
"""Seconds after which a task reports a changed tally to the coordinator."""


@dataclass(frozen=True)
class TaskCheckpoint:
    """A task's part of a snapshot: the outputs of its epoch, the timestamp of the end, and its state file."""

    epoch: int
    after: int
    manifest: Manifest
    events: int
    states: StateFile | None


class TaskControl(Protocol):
    """Operations of a task that its checkpoint participant calls."""

    def tally(self) -> Tally:
        """Count the events that the workers of this task have processed, in all epochs."""

    def sources_ended(self) -> bool:
        """Tell whether the parts read here have sent all events of this epoch."""

    def sources_exhausted(self, ts: int | None) -> bool:
        """Tell whether the parts read here have no events after a timestamp, neither unread nor sent."""

    def pause(self) -> int | None:
        """Pause the source readers, and return the highest timestamp that a worker has passed."""

    def truncate(self, ts: int | None) -> list[Delivery]:
        """Continue up to a timestamp (None: without end); return the messages after it that workers had."""

    def drain(self) -> None:
        """Request the final states of the trees whose roots are here: all parts have ended."""

    def close_outputs(self) -> Manifest:
        """Finish the output files of this epoch, and return their manifest."""

    def packed(self) -> Mapping[str, bytes]:
        """Return the final states of the trees whose roots are here, as bytes."""

    def restart(self, epoch: int) -> None:
        """Begin an epoch, with new workers, from the final states of the epoch before."""

    def requeue(self, messages: Iterable[Delivery]) -> None:
        """Add messages to the task's queue, as if they had just been received."""

    def decode(self, frame: Any) -> Iterable[Delivery]:  # noqa: ANN401 -- what channels carry
        """Return the messages of a frame."""

    def control(self, peer: int, message: Control) -> None:
        """Send a control message to another task, after all messages to its workers."""

    def send_checkpoint(self, saved: TaskCheckpoint) -> None:
        """Send the driver this task's part of a snapshot."""


class CheckpointParticipant:
    """Checkpoint participant of one task: pauses sources, truncates the epoch, and sends states and outputs.

    ``number``            the number of this task, of ``tasks`` tasks
    ``peers``             the numbers of the tasks that this one is connected to
    ``coordinator_task``  the number of the task of the plan's root, which has the coordinator
    ``first``             the number of the next snapshot
    """

    def __init__(
        self,
        task: TaskControl,
        snapshots: Snapshots,
        *,
        number: int,
        coordinator_task: int,
        tasks: int,
        peers: Iterable[int],
        first: int,
    ) -> None:
        self.task, self.snapshots = task, snapshots
        self.number, self.coordinator_task, self.tasks, self.first = number, coordinator_task, tasks, first
        self.coordinator: CheckpointCoordinator | None = None
        if coordinator_task == number:
            self.coordinator = CheckpointCoordinator(tasks, snapshots.policy, time.monotonic())
        self.epoch = 0
        self.peer_epochs = dict.fromkeys(peers, 0)
        """The epoch of the next frame from each peer."""
        self.early_frames: list[Any] = []
        """Frames of peers that have already entered the next epoch."""
        self.paused = False
        """Whether the task is paused: no messages are delivered to workers."""
        self.truncation: int | None = None
        """The timestamp at which this epoch ends, once it is known."""
        self.last_truncation: int | None = None
        self.truncated_messages: list[Delivery] = []
        """Messages that lie after the truncation, for the workers of the next epoch."""
        self.drained = False
        self.all_drained = False
        """Whether the parts of all tasks have ended: until then this epoch may still be truncated."""
        self.closed: Manifest | None = None
        """The outputs of this epoch, once this task has processed it."""
        self.announced: BeginEpoch | FinishRun | None = None
        self.pause_due = False
        """Whether to pause as soon as this task enters the next epoch: other tasks have entered it."""
        self.tally = Tally()
        self.reported_at = 0.0

    def report_progress(self, now: float) -> None:
        """Report progress to the coordinator; if it is in this task, have it check whether a snapshot is due."""
        tally = self.task.tally()
        if tally != self.tally:
            new = tally.events - self.tally.events
            if new >= self.snapshots.policy.pace or now >= self.reported_at + TALLY_EVERY:
                self.tally, self.reported_at = tally, now
                self._report(tally)
        if not self.drained and self.task.sources_ended():
            self.drained = True
            self._report(Drained())
        if self.coordinator is not None:
            self._broadcast(self.coordinator.pause_if_due(now))

    def handle(self, peer: int, message: Control) -> None:
        """Handle a control message from another task, or from this task itself."""
        match message:
            case Tally() | Paused() | Drained() | EpochEnded():
                assert self.coordinator is not None, "tasks report to the coordinator's task only"
                self._broadcast(self.coordinator.handle(peer, message, time.monotonic()))
            case Pause() if isinstance(self.announced, BeginEpoch):
                self.pause_due = True
            case Pause():
                self.paused = True
                self._report(Paused(self.task.pause()))
            case Truncate(ts):
                self.paused, self.truncation = False, ts
                self.truncated_messages += self.task.truncate(ts)
            case EndEpoch():
                self.all_drained = True
                self.task.drain()
            case EpochEntered(epoch):
                self.peer_epochs[peer] = epoch
            case BeginEpoch() | FinishRun():
                self.announced = message

    def truncate_message(self, to: str, message: Message) -> Message:
        """Return the part of a message that belongs to this epoch; keep the rest for the next one."""
        if self.truncation is None:
            return message
        message, rest = truncated(message, self.truncation)
        if rest is not None:
            self.truncated_messages.append((to, rest.part, rest))
        return message

    def decode_frame(self, peer: int, frame: Any) -> Iterator[Delivery]:  # noqa: ANN401 -- what channels carry
        """Yield the messages of a frame that belong to this epoch; keep a frame of the next epoch."""
        if self.peer_epochs[peer] > self.epoch:
            self.early_frames.append(frame)
            return
        for to, sender, message in self.task.decode(frame):
            if self.peer_epochs[peer] == self.epoch or isinstance(message, Credit):
                yield to, sender, message
            elif isinstance(message, Data):  # of the epoch before: it was in flight when that was truncated
                assert self.last_truncation is not None
                _, rest = truncated(message, self.last_truncation)
                if rest is not None:
                    yield to, sender, rest

    def advance(self) -> bool:
        """End the epoch, and enter the next, once all tasks can; return whether the run is over."""
        if self.paused or not self.all_drained:
            return False
        if self.closed is None:
            self.closed = self.task.close_outputs()
            self.tally = self.task.tally()
            self._report(self.tally)  # events of this epoch do not count towards the next snapshot
            self._report(EpochEnded(self.task.sources_exhausted(self.truncation)))
        if isinstance(self.announced, BeginEpoch):
            self._enter(self.announced.epoch)
        return isinstance(self.announced, FinishRun)

    @property
    def manifest(self) -> Manifest:
        """The outputs of the last epoch."""
        assert self.closed is not None
        return self.closed

    def _enter(self, epoch: int) -> None:
        """Send this task's part of the snapshot, and begin the next epoch."""
        task = self.task
        assert self.closed is not None
        assert self.truncation is not None, "every epoch but the last is truncated"
        states, packed = None, task.packed()
        if packed:
            snapshot_id = SnapshotId(self.snapshots.term, self.first + self.epoch)
            partition = InMemoryPartition.of(packed)
            states = self.snapshots.store.write_state(snapshot_id, partition.data, partition.tree_sizes)
        task.send_checkpoint(TaskCheckpoint(self.epoch, self.truncation, self.closed, task.tally().events, states))
        self.epoch, self.announced, self.closed = epoch, None, None
        self.drained = self.all_drained = False
        self.last_truncation, self.truncation = self.truncation, None
        for peer in self.peer_epochs:
            task.control(peer, EpochEntered(epoch))
        task.restart(epoch)
        task.requeue(self.truncated_messages)
        early, self.early_frames, self.truncated_messages = self.early_frames, [], []
        for frame in early:
            task.requeue(task.decode(frame))
        if self.pause_due:
            self.pause_due = False
            self.handle(self.coordinator_task, Pause())

    def _report(self, message: ToCoordinator) -> None:
        if self.coordinator_task == self.number:
            self.handle(self.coordinator_task, message)
        else:
            self.task.control(self.coordinator_task, message)

    def _broadcast(self, message: ToAll | None) -> None:
        if message is not None:
            for peer in range(self.tasks):
                if peer != self.number:
                    self.task.control(peer, message)
            self.handle(self.number, message)
