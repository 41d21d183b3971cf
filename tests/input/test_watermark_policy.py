from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

import flumina as fl
from flumina.input.watermark_policy import EVERYTHING, NOTHING, Seen, watermark_of

US = pa.timestamp("us")


@pytest.mark.parametrize(
    ("policy", "seen", "expected"),
    [
        (fl.InOrder(), Seen(10), 99),
        (fl.InOrder(), Seen(), 99),
        (fl.BoundedDelay(), Seen(10), 9),
        (fl.BoundedDelay(3), Seen(10, 50), 6),
        (fl.BoundedDelay(3), Seen(), NOTHING),
        (fl.Heartbeats("beat"), Seen(10, 4), 4),
        (fl.Heartbeats("beat"), Seen(10), NOTHING),
        (fl.ClosedBatches(), Seen(10), EVERYTHING),
    ],
)
def test_how_far_a_stream_has_come(policy: Any, seen: Seen, expected: int) -> None:
    assert watermark_of(policy, seen, 99, pa.int64()) == expected


def test_delays_are_seconds_for_times_and_ticks_for_numbers() -> None:
    assert fl.BoundedDelay(1.5).ticks(US) == 1_500_000
    assert fl.BoundedDelay(timedelta(minutes=1)).ticks(US) == 60_000_000
    assert fl.BoundedDelay(7.0).ticks(pa.int64()) == 7
    for delay in (1.5, timedelta(seconds=1)):
        with pytest.raises(fl.UsageError, match="DELAY"):
            fl.BoundedDelay(delay).ticks(pa.int64())


@pytest.mark.parametrize("delay", [-1, True, "1", float("inf"), float("nan"), timedelta(seconds=-1)])
def test_what_is_no_delay(delay: Any) -> None:
    with pytest.raises(fl.UsageError, match="DELAY"):
        fl.BoundedDelay(delay)


@pytest.mark.parametrize("column", ["", 3])
def test_heartbeats_need_a_column_and_a_value(column: Any) -> None:
    with pytest.raises(fl.UsageError, match="HEARTBEATS"):
        fl.Heartbeats(column)
    with pytest.raises(fl.UsageError, match="HEARTBEATS"):
        fl.Heartbeats("kind", None)


def test_what_was_seen_grows() -> None:
    assert Seen(3, 9).and_then(Seen(5, 2)) == Seen(5, 9)
