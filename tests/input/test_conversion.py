from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from flumina.errors import InputError, UsageError
from flumina.input.conversion import Converter, is_pandas

CONVERT = Converter("clicks", {"ts": None, "user": pa.int32()})


def test_each_shape_becomes_tables() -> None:
    columns: dict[str, list[Any]] = {"ts": [1, 2], "user": [3, None]}
    expected = pa.table({"ts": pa.array([1, 2]), "user": pa.array([3, None], pa.int32())})
    for data in (columns, expected.to_pylist(), expected, [expected], expected.to_batches()):
        (table,) = CONVERT.tables(data)
        assert table.equals(expected)
    assert [table.num_rows for table in CONVERT.tables([expected, pd.DataFrame(columns)])] == [2, 2]
    assert [table.num_rows for table in CONVERT.tables([])] == [0]


def test_what_nobody_looks_at_keeps_its_name_only() -> None:
    table = CONVERT.columns({"ts": [1], "user": [2], "other": [object()]})
    assert table.column_names == ["ts", "user", "other"]
    assert table.column("other").type == pa.null()


def test_rows_of_errors_count_from_the_start_of_the_part() -> None:
    with pytest.raises(InputError) as caught:
        CONVERT.columns({"ts": [1, 2], "user": [1, "x"]}, part=4, first=100)
    assert (caught.value.part, caught.value.row, caught.value.column) == (4, 101, "user")
    moments = [pd.Timestamp("2026-01-01"), pd.Timestamp("2026-01-01", tz="UTC")]
    with pytest.raises(InputError, match="time zone") as caught:
        CONVERT.columns({"ts": moments, "user": [1, 2]}, part=4, first=100)
    assert (caught.value.part, caught.value.row) == (4, 101)


def test_other_data() -> None:
    with pytest.raises(UsageError, match=r"STREAM_DATA.*'clicks': data is a set\n.*fl\.Parquet or fl\.GeneratorSource"):
        CONVERT.tables({1, 2})


def test_pandas_is_told_by_its_name() -> None:
    assert is_pandas(pd.DataFrame())
    assert not is_pandas(pd.Series([1]))
    assert not is_pandas(pa.table({}))
