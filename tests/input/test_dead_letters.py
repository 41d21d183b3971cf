import json
from typing import Any

import pyarrow as pa
import pytest

from flumina.errors import UsageError
from flumina.input.dead_letters import SCHEMA, RejectedRows, makes_dead_letters
from flumina.input.validation import Fault

FAR = pa.timestamp("us")


def data_of(rows: pa.Table) -> list[dict[str, Any]]:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    count = len(rows)
    fault = Fault("NULL_KEY", "k", "the key is null")
    made = RejectedRows("s", rows, [fault] * count, [None] * count, [0] * count, range(count)).dead_letters()
    return [json.loads(text, parse_constant=refuse) for text in made.column("data").to_pylist()]


def test_a_letter_says_what_is_wrong_and_where() -> None:
    faults = [Fault("NULL_KEY", "k", "the key is null"), Fault("COLUMN_TYPE", "v", "not a long")]
    refused = RejectedRows("s", pa.table({"k": [None, "a"], "v": [1, 2]}), faults, ["f.parquet", None], [3, 4], [17, 0])
    assert len(refused) == 2
    made = refused.dead_letters()
    assert made.schema == SCHEMA
    assert made.to_pylist() == [
        {
            "stream": "s",
            "file": "f.parquet",
            "partition": 3,
            "row": 17,
            "reason": "NULL_KEY",
            "column": "k",
            "message": "the key is null",
            "data": '{"k": null, "v": 1}',
        },
        {
            "stream": "s",
            "file": None,
            "partition": 4,
            "row": 0,
            "reason": "COLUMN_TYPE",
            "column": "v",
            "message": "not a long",
            "data": '{"k": "a", "v": 2}',
        },
    ]


def test_a_time_that_python_can_not_tell_is_not_lost() -> None:
    far = pa.array([{"at": 1 << 58, "all": [1 << 58, 0]}], pa.struct({"at": FAR, "all": pa.list_(FAR)}))
    (row,) = data_of(pa.table({"when": far}))
    assert row["when"]["at"] == row["when"]["all"][0] == 1 << 58


def test_data_is_json_whatever_its_numbers() -> None:
    numbers = [float("nan"), float("inf"), float("-inf"), 1.5]
    inside = pa.array([{"b": numbers}], pa.struct({"b": pa.list_(pa.float64())}))
    (row,) = data_of(pa.table({"a": inside}))
    assert row == {"a": {"b": ["NaN", "Infinity", "-Infinity", 1.5]}}


def test_what_may_become_of_bad_rows() -> None:
    assert makes_dead_letters("dead-letter")
    assert not makes_dead_letters("error")
    for wrong in ("drop", None, True):
        with pytest.raises(UsageError, match=r"BAD_ROWS.*'error' or 'dead-letter'"):
            makes_dead_letters(wrong)  # type: ignore[arg-type]


def test_no_letter_is_lost_whatever_its_values_are() -> None:
    """Bytes that are no text, and times in a zone that nobody knows."""
    offsets, data = pa.array([0, 1, 3], pa.int32()), b"a\xff\xfe"
    texts = pa.Array.from_buffers(pa.string(), 2, [None, offsets.buffers()[1], pa.py_buffer(data)])
    zoned = pa.array([1, 2], pa.int64()).cast(pa.timestamp("us", tz="Middle-earth/Shire"))
    told = data_of(pa.table({"text": texts, "at": zoned}))
    assert [row["text"] for row in told] == ["a", "\\xff\\xfe"]
    assert [row["at"] for row in told] == [1, 2]
