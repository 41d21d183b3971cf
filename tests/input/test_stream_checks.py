from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

import flumina as fl
from flumina.errors import InputError
from flumina.input.stream_checks import one_ts_type


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
