from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

import flumina as fl
from flumina.errors import InputError, UsageError
from flumina.input.stream_checks import one_ts_type
from tests.program.tick_programs import Dense, Hourly, Tumbling

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)


class InBerlin(fl.Program):
    sale, day = fl.Tag("cents long NOT NULL"), fl.Every("1 day", zone="Europe/Berlin")
    depends = fl.depends((day, day), (day, sale))
    output = "cents long"
    cents = fl.Sum("long")

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        if event.tag is self.sale:
            state.cents += event.cents
        else:
            emit(state.cents)


def test_times_and_numbers_do_not_mix() -> None:
    numbers = fl.Stream("loads", Hourly.load, [{"ts": 1, "house": 1, "watts": 1}])
    times = fl.Stream("loads", Tumbling.load, [{"ts": NOON, "house": 1, "watts": 1}])
    with pytest.raises(UsageError, match="are whole numbers, but the period of 'hour' is a time") as error:
        fl.spec(Hourly, [numbers])
    assert error.value.condition == "TICK_UNIT"
    with pytest.raises(UsageError, match=r"are times .* but the period of 'hour' is a number"):
        fl.spec(Tumbling, [times])


def test_a_zone_needs_times_with_a_zone() -> None:
    plain = pa.table({"ts": pa.array([NOON.replace(tzinfo=None)], pa.timestamp("us")), "cents": [5]})
    with pytest.raises(UsageError, match="TICK_ZONE"):
        fl.spec(InBerlin, [fl.Stream("sales", InBerlin.sale, plain)])
    result = fl.spec(InBerlin, [fl.Stream("sales", InBerlin.sale, [{"ts": NOON, "cents": 5}])])
    assert result.output.column("event_ts").to_pylist() == [datetime(2024, 1, 1, 23, tzinfo=UTC)]


def test_no_stream_is_given_for_a_tick() -> None:
    with pytest.raises(UsageError, match="TICK_STREAM"):
        fl.spec(Dense, [fl.Stream("days", Dense.day, [{"ts": 1}])])
    with pytest.raises(UsageError, match="has the name of a tick"):
        fl.spec(Dense, [fl.Stream("day", Dense.sale, [{"ts": 1, "cents": 1}])])


def test_a_horizon_is_not_before_the_last_event() -> None:
    with pytest.raises(UsageError, match="HORIZON"):
        fl.spec(Dense, [fl.Stream("sales", Dense.sale, [{"ts": 9, "cents": 1}])], horizon=8)


class Tags:
    view = fl.Tag("user long")


ROWS = pa.table({"ts": [1, 2], "user": [3, 4]})
MOMENTS = pa.table({"ts": [datetime(2026, 1, 1, tzinfo=UTC)], "user": [3]})
UTC_TYPE = pa.timestamp("us", tz="UTC")


def stream(data: Any, name: str = "s") -> fl.Stream:
    return fl.Stream(name, Tags.view, data)


def test_all_timestamps_are_of_one_kind() -> None:
    numbers, moments = stream(ROWS), stream(MOMENTS, "other")
    assert one_ts_type([]) is None
    assert one_ts_type([(numbers, None), (moments, UTC_TYPE)]) == UTC_TYPE
    with pytest.raises(InputError, match=r"TIMESTAMP_TYPES.*'other'.*but int64 in stream 's'"):
        one_ts_type([(numbers, pa.int64()), (moments, UTC_TYPE)])
