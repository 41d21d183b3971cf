"""A task in step with the others: nothing after a cut is lost, and nobody is over too early."""

from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa

from flumina.apps import ValueBarrier
from flumina.checkpoint.coordinator import (
    BeginEpoch,
    EndEpoch,
    EpochEnded,
    EpochEntered,
    Pause,
    Paused,
    Tally,
    Truncate,
)
from flumina.checkpoint.participant import CheckpointParticipant, TaskCheckpoint
from flumina.engine.message_codec import Codec, EncodedMessage
from flumina.model.batch import Batch
from flumina.model.order import Point
from flumina.output.staged_outputs import Manifest
from flumina.program.base import define
from flumina.runtime.messages import EVERYTHING, Credit, Data, Item, Message, Request
from flumina.runtime.run import Run

CODEC = Codec(define(ValueBarrier), ("values", "barriers"))
PART = ("values", 0)
CUT = 10


class FakeTask:
    """A task that has read one part up to a timestamp; what it says to others and hands in is noted."""

    def __init__(self, highest: int | None = None) -> None:
        self.highest, self.done = highest, Tally()
        self.told: list[object] = []
        self.saved: list[TaskCheckpoint] = []
        self.steps: list[object] = []

    def tally(self) -> Tally:
        return self.done

    def sources_ended(self) -> bool:
        return True

    def sources_exhausted(self, ts: int | None) -> bool:
        return ts is None or self.highest is None or self.highest <= ts

    def pause(self) -> int | None:
        self.steps.append("pause")
        return None

    def truncate(self, ts: int | None) -> list[EncodedMessage]:
        self.steps.append(("truncate", ts))
        return []

    def drain(self) -> None:
        self.steps.append("drain")

    def close_outputs(self) -> Manifest:
        self.steps.append("close")
        return OUTPUTS

    def packed(self) -> dict[str, bytes]:
        return {}

    def restart(self, epoch: int) -> None:
        self.steps.append(("restart", epoch))

    def requeue(self, messages: Iterable[EncodedMessage]) -> None:
        self.steps.append(("requeue", list(messages)))

    def decode(self, frame: Any) -> Iterable[EncodedMessage]:
        return CODEC.decode(frame)

    def control(self, peer: int, message: object) -> None:
        assert peer == 0, "the leader's task"
        self.told.append(message)

    def send_checkpoint(self, saved: TaskCheckpoint) -> None:
        self.saved.append(saved)


OUTPUTS = Manifest("run", 1, "a", {}, {}, {})


def participant_of(task: FakeTask, *peers: int) -> CheckpointParticipant:
    """Of task 1; the leader is in task 0."""
    snapshots = cast("Any", SimpleNamespace(policy=SimpleNamespace(pace=1)))
    return CheckpointParticipant(task, snapshots, number=1, coordinator_task=0, tasks=3, peers=peers, first=1)


def participant() -> CheckpointParticipant:
    """Of task 1, which has entered segment 1, where segment 0 was cut off at 10; task 2 may still be in that."""
    made = participant_of(FakeTask(), 0, 2)
    made.epoch, made.last_truncation = 1, CUT
    made.peer_epochs = {0: 1, 2: 0}
    return made


def values(*ts: int) -> Data:
    table = pa.record_batch({"v": pa.array(ts, pa.int64())})
    batch = Batch.one_tag(ValueBarrier.value, table, np.array(ts), 0, np.arange(len(ts)), ("values", "barriers"))
    return Data(PART, Run(batch=batch), Point(ts[-1], 0, len(ts)))


def frame(*messages: Message) -> list[bytes]:
    return [bytes(buffer) for buffer in CODEC.encode([("w2", "w1", message) for message in messages])]


def told(letters: Sequence[EncodedMessage]) -> list[tuple[object, list[int]]]:
    data = [(to, message.run.batch) for to, _, message in letters if isinstance(message, Data)]
    return [(to, batch.ts.tolist()) for to, batch in data if batch is not None]


def test_what_was_on_its_way_when_a_segment_was_cut_off_belongs_to_the_next() -> None:
    here = participant()
    request = Request((Item(Point(9, 0, 0), EVERYTHING),), Point(9, 0, 0), Point(9, 0, 0))
    found = list(here.decode_frame(2, frame(values(11, 12, 14), request, Credit(PART, 3))))
    assert told(found) == [("w2", [11, 12, 14])]
    assert [message for _, _, message in found if not isinstance(message, Data)] == [Credit(PART, 3)]
    assert here.early_frames == []


def test_what_lies_before_the_cut_has_been_processed() -> None:
    assert told(list(participant().decode_frame(2, frame(values(9, 10, 11))))) == [("w2", [11])]


def test_what_comes_from_the_next_segment_waits_for_it() -> None:
    here = participant()
    here.peer_epochs[2] = 2
    early = frame(values(30))
    assert list(here.decode_frame(2, early)) == []
    assert here.early_frames == [early]


def test_what_is_of_this_segment_passes_whole() -> None:
    here = participant()
    assert told(list(here.decode_frame(0, frame(values(3, 11))))) == [("w2", [3, 11])]


def reading(highest: int) -> tuple[CheckpointParticipant, FakeTask]:
    """Of task 1, which has read a part up to a timestamp and has no workers."""
    task = FakeTask(highest)
    made = participant_of(task, 0)
    made.report_progress(0.0)
    task.told.clear()
    return made, task


def test_a_task_that_only_reads_is_not_over_before_all_parts_have_ended() -> None:
    """A cut may still come, and what was read after it belongs to the next segment."""
    here, task = reading(highest=20)
    told = task.told
    assert not here.advance()
    assert told == []
    here.handle(0, Pause())
    here.handle(0, EndEpoch())
    assert not here.advance()
    assert told == [Paused(None)], "it stands still"
    here.handle(0, Truncate(CUT))
    assert not here.advance()
    assert told[1:] == [Tally(), EpochEnded(over=False)]


def test_what_was_done_up_to_the_end_is_told_before_it() -> None:
    """Else events from before the cut would count towards the next snapshot."""
    here, task = reading(highest=20)
    task.done = Tally(7, 3)
    here.handle(0, EndEpoch())
    assert not here.advance()
    assert task.told == [Tally(7, 3), EpochEnded(over=True)]


def test_a_task_that_has_yet_to_enter_a_segment_is_not_paused_in_the_one_before() -> None:
    """Others may be so far ahead that the next snapshot is due: its cut is none of the segment that is over here."""
    here, task = reading(highest=20)
    for message in (Pause(), EndEpoch(), Truncate(CUT)):
        here.handle(0, message)
    assert not here.advance()
    assert task.steps == ["pause", "drain", ("truncate", CUT), "close"]
    task.told.clear()
    task.steps.clear()
    here.handle(0, BeginEpoch(1))
    here.handle(0, Pause())
    assert not here.paused
    assert task.told == []
    assert not here.advance()
    assert [one.after for one in task.saved] == [CUT]
    assert here.paused
    assert task.told == [EpochEntered(1), Paused(None)]
    assert task.steps == [("restart", 1), ("requeue", []), "pause"]
