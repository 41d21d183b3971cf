"""Every value that Arrow refuses is found, and no other, without a cast for each value."""

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flumina.input import casting
from flumina.input.casting import cast_valid, castable
from flumina.model.schema import cast

D = Decimal
UTC = "UTC"
PAIRS: dict[str, tuple[pa.DataType, pa.DataType, list[Any]]] = {
    "uint64 to int64": (pa.uint64(), pa.int64(), [0, 2**63 - 1, 2**63, 2**64 - 1]),
    "uint8 to int8": (pa.uint8(), pa.int8(), [0, 127, 128, 255]),
    "int64 to int32": (pa.int64(), pa.int32(), [0, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1]),
    "int64 to uint16": (pa.int64(), pa.uint16(), [0, -1, 65535, 65536]),
    "decimal, less precision": (
        pa.decimal128(9, 1),
        pa.decimal128(4, 1),
        [D("999.9"), D("1000.0"), D("-1000.0"), D(1)],
    ),
    "decimal, less scale": (pa.decimal128(9, 3), pa.decimal128(9, 1), [D("1.100"), D("1.110"), D("-1.001"), D(0)]),
    "decimal, more scale": (pa.decimal128(38, 0), pa.decimal128(38, 30), [D(10**8 - 1), D(10**8), D(-(10**37)), D(0)]),
    "decimal of 256 bits": (
        pa.decimal256(40, 2),
        pa.decimal128(10, 2),
        [D("99999999.99"), D("100000000.00"), D(10**37)],
    ),
    "very long decimal": (pa.decimal256(76, 0), pa.decimal128(38, 2), [D(10**35), D(10**36), D(-(10**75))]),
    "seconds": (
        pa.timestamp("s"),
        pa.timestamp("us"),
        [0, 2**63 // 10**6, 2**63 // 10**6 + 1, -(2**63 // 10**6), -(2**62)],
    ),
    "milliseconds": (pa.timestamp("ms", UTC), pa.timestamp("us", UTC), [0, (2**63 - 1) // 1000, 2**62, -(2**62)]),
    "nanoseconds": (pa.timestamp("ns"), pa.timestamp("us"), [0, 1000, 1001, -1000, -1001, -(2**63)]),
    "days": (pa.date32(), pa.timestamp("us"), [0, 106_751_991, 106_751_992, -106_751_992, 2**31 - 1]),
    "days as milliseconds": (pa.date64(), pa.timestamp("us"), [0, 86_400_000 * 106_751_991, 86_400_000 * 106_751_992]),
    "texts to numbers": (pa.string(), pa.int32(), ["1", "x", "", "99999999999"]),
    "floats to numbers": (pa.float64(), pa.int32(), [1.0, 1.5, 1e300, float("nan"), float("inf")]),
    "numbers to floats": (pa.int64(), pa.float64(), [0, 2**53, 2**53 + 1]),
    "numbers to floats of 32 bits": (pa.int64(), pa.float32(), [0, 2**24, 2**24 + 1]),
    "nulls": (pa.null(), pa.int64(), [None]),
    "long texts": (pa.large_string(), pa.string(), ["a", ""]),
}
TIMES = {"seconds", "milliseconds", "nanoseconds", "days", "days as milliseconds"}


def array_of(name: str, values: list[Any]) -> pa.Array:
    found, _, _ = PAIRS[name]
    plain = pa.int32() if found == pa.date32() else pa.int64()
    return pa.array(values, plain).view(found) if name in TIMES else pa.array(values, found)


def one_by_one(column: pa.Array, wanted: pa.DataType) -> list[tuple[bool, Any]]:
    """What Arrow says of each value alone: whether it fails, and what it becomes."""
    told = []
    for row in range(len(column)):
        try:
            told.append((False, cast(column.slice(row, 1), wanted)))
        except pa.ArrowException:
            told.append((True, pa.nulls(1, wanted)))
    return told


def check(column: pa.Array, wanted: pa.DataType) -> None:
    """Nothing is hidden below a null here: Arrow by itself would cast that, too."""
    found, failed = cast_valid(column, wanted)
    told = one_by_one(column, wanted)
    assert (failed.tolist() if failed is not None else [False] * len(column)) == [bad for bad, _ in told]
    if told:
        assert found.equals(pa.concat_arrays([value for _, value in told]))


@pytest.mark.parametrize("name", PAIRS)
@given(data=st.data())
def test_the_same_as_each_value_alone(name: str, data: st.DataObject) -> None:
    _, wanted, values = PAIRS[name]
    column = array_of(name, data.draw(st.lists(st.sampled_from([*values, None]), max_size=8)))
    start = data.draw(st.integers(0, len(column)))
    check(column.slice(start), wanted)


def becomes(name: str, value: Any) -> Any:
    """What Arrow makes of a value alone; "bad" if it does not fit."""
    try:
        (made,) = array_of(name, [value]).cast(PAIRS[name][1]).to_pylist()
    except pa.ArrowException:
        return "bad"
    return made


@pytest.mark.parametrize("name", [name for name in PAIRS if name not in TIMES])
@given(data=st.data())
def test_the_same_inside_lists_maps_and_structs(name: str, data: st.DataObject) -> None:
    leaf, wanted, values = PAIRS[name]
    item = st.none() | st.fixed_dictionaries({"a": st.sampled_from([*values, None]), "b": st.just(1)})
    lists = data.draw(st.lists(st.none() | st.lists(item, max_size=3), max_size=6))
    start = data.draw(st.integers(0, len(lists)))
    kind, target = pa.struct([("b", pa.int64()), ("a", leaf)]), pa.struct([("a", wanted)])
    maps = [None if row is None else [("k", one) for one in row] for row in lists]
    for rows, found, to in (
        (lists, pa.list_(kind), pa.list_(target)),
        (lists, pa.large_list(kind), pa.list_(target)),
        (maps, pa.map_(pa.string(), kind), pa.map_(pa.string(), target)),
        ([None if not row else row[0] for row in lists], kind, target),
    ):
        column, failed = cast_valid(pa.array(rows, found).slice(start), to)
        expected = [_each(row, lambda value: becomes(name, value)) for row in rows[start:]]
        bad = ["'bad'" in repr(row) for row in expected]
        assert (failed.tolist() if failed is not None else [False] * len(column)) == bad
        told = pa.array([None if is_bad else row for row, is_bad in zip(expected, bad, strict=True)], to)
        assert repr(column.to_pylist()) == repr(told.to_pylist())


def _each(row: Any, change: Any) -> Any:
    """A row with the leaves changed that are cast."""
    if isinstance(row, dict):
        return {"a": change(row["a"])}
    if isinstance(row, tuple):
        return row[0], _each(row[1], change)
    return None if row is None else [_each(one, change) for one in row]


def test_what_lies_below_a_null_does_not_matter() -> None:
    hidden = pa.StructArray.from_arrays([pa.array([1, 2**40, 2**40])], ["a"], mask=pa.array([False, True, False]))
    found, failed = cast_valid(hidden, pa.struct([("a", pa.int32())]))
    assert failed is not None
    assert failed.tolist() == [False, False, True]
    assert found.to_pylist() == [{"a": 1}, None, None]


@pytest.mark.parametrize("name", ["uint64 to int64", "decimal, less precision", "seconds", "days", "texts to numbers"])
def test_the_number_of_casts_does_not_grow_with_bad_values(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, wanted, values = PAIRS[name]
    calls = 0

    def counted(column: pa.Array, to: pa.DataType) -> pa.Array:
        nonlocal calls
        calls += 1
        return cast(column, to)

    monkeypatch.setattr(casting, "cast", counted)
    counts = []
    for rows in (1_000, 100_000):
        calls = 0
        column = array_of(name, values).take(pa.array(np.arange(rows) % len(values)))
        _, failed = cast_valid(column, wanted)
        assert failed is not None
        assert failed.sum() >= rows // len(values)
        counts.append(calls)
    assert counts[0] == counts[1] < 20


def test_types_that_arrow_can_not_cast() -> None:
    assert castable(pa.string(), pa.int64())
    assert not castable(pa.bool_(), pa.date32())
