from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import flumina as fl
from flumina.errors import InputError
from flumina.input.stream_info import StreamInfo, describe, one_ts_type


class Tags:
    view = fl.Tag("user long")


ROWS = pa.table({"ts": [1, 2], "user": [3, 4]})
MOMENTS = pa.table({"ts": [datetime(2026, 1, 1, tzinfo=UTC)], "user": [3]})
UTC_TYPE = pa.timestamp("us", tz="UTC")


def stream(data: Any, name: str = "s") -> fl.Stream:
    return fl.Stream(name, Tags.view, data)


def test_tables() -> None:
    assert describe(stream([ROWS, ROWS.slice(0, 0), MOMENTS.slice(0, 0)])) == StreamInfo(3, pa.int64(), (2, 0, 0))
    assert describe(stream(MOMENTS)) == StreamInfo(1, UTC_TYPE, (1,))
    assert describe(stream([])) == StreamInfo(1, None, (0,))


def test_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        pq.write_table(ROWS, tmp_path / f"{name}.parquet")
    assert describe(stream(fl.Parquet(tmp_path))) == StreamInfo(2, pa.int64(), (2, 2))


def test_files_of_different_schemas(tmp_path: Path) -> None:
    pq.write_table(ROWS, tmp_path / "a.parquet")
    pq.write_table(pa.table({"ts": [1], "user": pa.array([1], pa.int32()), "other": [1]}), tmp_path / "b.parquet")
    with pytest.raises(InputError, match=r"FILE_SCHEMAS.*'user'.*int32 in .*b\.parquet, but int64 in .*a\.parquet"):
        describe(stream(fl.Parquet(tmp_path)))
    pq.write_table(pa.table({"ts": [1]}), tmp_path / "b.parquet")
    with pytest.raises(InputError, match=r"MISSING_COLUMN.*part 1.*'user'"):
        describe(stream(fl.Parquet(tmp_path)))


def test_a_generator_is_asked_for_its_first_rows_only() -> None:
    asked = []

    def forever(part: int) -> Iterator[dict[str, Any]]:
        n = 0
        while True:
            asked.append((part, n))
            yield {"ts": [n] if n else [], "user": [n] if n else []}
            n += 1

    assert describe(stream(fl.GeneratorSource(forever, parts=3))) == StreamInfo(3, pa.int64(), (None, None, None))
    assert asked == [(0, 0), (0, 1)]
    assert describe(stream(fl.GeneratorSource(lambda _: [], parts=2))) == StreamInfo(2, None, (None, None))
    paced = fl.GeneratorSource(lambda _: [{"user": [1]}], rate=5)
    assert describe(stream(paced)) == StreamInfo(1, pa.int64(), (None,), paced=True)


def test_columns_that_do_not_fit_are_refused_before_any_row_is_read(tmp_path: Path) -> None:
    bad = pa.table({"ts": [1], "user": ["x"]})
    pq.write_table(bad, tmp_path / "a.parquet")
    for data in (bad, fl.Parquet(tmp_path), fl.GeneratorSource(lambda _: [bad])):
        with pytest.raises(InputError, match=r"COLUMN_TYPE.*'user'"):
            describe(stream(data))


def test_all_timestamps_are_of_one_kind() -> None:
    numbers, moments = stream(ROWS), stream(MOMENTS, "other")
    assert one_ts_type([]) is None
    assert one_ts_type([(numbers, None), (moments, UTC_TYPE)]) == UTC_TYPE
    with pytest.raises(InputError, match=r"TIMESTAMP_TYPES.*'other'.*but int64 in stream 's'"):
        one_ts_type([(numbers, pa.int64()), (moments, UTC_TYPE)])
    with pytest.raises(InputError, match="TIMESTAMP_TYPES"):
        describe(stream([ROWS, MOMENTS]))
