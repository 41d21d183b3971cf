from flumina.checkpoint.coordinator import (
    BeginEpoch,
    CheckpointCoordinator,
    Drained,
    EndEpoch,
    EpochEnded,
    FinishRun,
    Pause,
    Paused,
    Tally,
    Truncate,
)
from flumina.checkpoint.policy import Policy


def coordinator(tasks: int = 2, **policy: float) -> CheckpointCoordinator:
    return CheckpointCoordinator(tasks, Policy(**policy), 0.0)  # type: ignore[arg-type]


def test_a_segment_from_its_beginning_to_the_next() -> None:
    made = coordinator(events=10)
    assert made.handle(0, Tally(4, 0), 1.0) is None
    assert made.handle(1, Tally(6, 0), 1.0) == Pause()
    assert made.handle(0, Paused(70), 1.1) is None
    assert made.handle(1, Paused(80), 1.1) == Truncate(80)
    assert made.handle(1, EpochEnded(over=True), 1.2) is None
    assert made.handle(0, EpochEnded(over=False), 1.3) == BeginEpoch(1)
    # Everything is counted from there.
    assert made.handle(0, Tally(10, 0), 2.0) is None
    assert made.handle(1, Tally(10, 0), 2.0) == Pause()


def test_it_is_over_when_nobody_has_anything_left() -> None:
    made = coordinator(events=10)
    assert made.handle(0, EpochEnded(over=True), 1.0) is None
    assert made.handle(1, EpochEnded(over=True), 1.0) == FinishRun()


def test_one_pause_at_a_time() -> None:
    made = coordinator(seconds=5)
    made.handle(0, Tally(1, 0), 0.1)
    assert made.pause_if_due(4.9) is None
    assert made.pause_if_due(5.0) == Pause()
    assert made.pause_if_due(6.0) is None
    assert made.handle(0, Paused(3), 6.0) is None
    made.handle(1, Paused(3), 6.0)
    assert made.pause_if_due(20.0) is None  # until the segment has ended everywhere


def test_no_pause_once_the_state_at_the_end_was_asked_for() -> None:
    made = coordinator(seconds=5)
    made.handle(0, Tally(1, 0), 0.1)
    assert made.handle(1, Drained(), 1.0) is None
    assert made.handle(0, Drained(), 1.0) == EndEpoch()
    assert made.pause_if_due(100.0) is None
    made.handle(0, EpochEnded(over=False), 101.0)
    made.handle(1, EpochEnded(over=True), 101.0)
    made.handle(0, Tally(2, 0), 101.1)
    assert made.pause_if_due(107.0) == Pause()  # in the next segment


def test_no_snapshot_without_events() -> None:
    made = coordinator(seconds=1)
    assert made.pause_if_due(100.0) is None
    made.handle(0, Tally(1, 0), 0.1)
    assert made.pause_if_due(100.0) == Pause()


def test_a_cut_that_nothing_was_sent_for() -> None:
    made = coordinator(1, seconds=1)
    made.handle(0, Tally(1, 0), 0.1)
    assert made.pause_if_due(2.0) == Pause()
    assert made.handle(0, Paused(None), 2.0) == Truncate(None)
    assert made.pause_if_due(2.5) is None
    assert made.pause_if_due(3.0) == Pause()


def test_some_parts_have_sent_nothing() -> None:
    made = coordinator(events=1)
    assert made.handle(0, Tally(1, 0), 0.1) == Pause()
    made.handle(0, Paused(None), 0.1)
    assert made.handle(1, Paused(-5), 0.1) == Truncate(-5)
