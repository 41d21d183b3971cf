import copy
import math
import pickle
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from flumina.fields import Count
from flumina.keymap import KeyMap
from flumina.state import Record, copied, same


class TestRecord:
    def test_fields_are_attributes(self) -> None:
        state = Record({"total": 1, "seen": {2}})
        state.total += 1
        assert (state.total, state.seen) == (2, {2})
        assert repr(state) == "(total=2, seen={2})"
        assert state == Record({"total": 2, "seen": {2}})
        assert state != Record({"total": 2})
        assert state != {"total": 2, "seen": {2}}

    def test_no_such_field(self) -> None:
        with pytest.raises(AttributeError, match=r"no field 'totl'; declared: \['total'\]"):
            Record({"total": 1}).totl  # noqa: B018

    def test_copies_and_pickles(self) -> None:
        state = Record({"seen": {1}, "counts": KeyMap(Count(), {"a": 1})})
        for again in (copied(state), copy.deepcopy(state), pickle.loads(pickle.dumps(state))):  # noqa: S301
            assert again == state
            assert again.seen is not state.seen
            assert again.counts is not state.counts


@dataclass
class Point:
    x: float
    y: list[int]


class Plain:
    def __init__(self, x: object) -> None:
        self.x = x


class Odd:
    """Equal to everything."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


EQUAL: list[tuple[Any, Any]] = [
    (1, 1),
    (1, np.int64(1)),
    (1, 1.0),
    (1.5, Decimal("1.5")),
    (math.nan, math.nan),
    ([1, (2, {"a": {3}})], [1, (2, {"a": {3}})]),
    (np.array([1.0, math.nan]), np.array([1.0, math.nan])),
    (np.array(["a"]), np.array(["a"])),
    (pa.array([1, None]), pa.array([1, None])),
    (Point(math.nan, [1]), Point(math.nan, [1])),
    (Plain([math.nan]), Plain([math.nan])),
    (Record({"a": math.nan}), Record({"a": math.nan})),
    (KeyMap(Count(), {"a": 0, "b": 1}), KeyMap(Count(), {"b": 1})),
    (Odd(), Odd()),
    (None, None),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
]
DIFFERENT: list[tuple[Any, Any]] = [
    (1, 2),
    (True, 1),
    (0.0, None),
    ("1", 1),
    ([1], (1,)),
    ([1], [1, 2]),
    ({"a": 1}, {"b": 1}),
    ({1}, {1, 2}),
    (1.0, 1.0 + 1e-15),
    (np.array([1.0]), np.array([1.0, 2.0])),
    (np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0])),
    (np.array([1]), np.array([2])),
    (pa.array([1]), pa.array([2])),
    (Point(1, [1]), Point(1, [2])),
    (Plain(1), Plain(2)),
    (Record({"a": 1}), Record({"a": 2})),
    (KeyMap(Count(), {"a": 1}), KeyMap(Count(), {"b": 1})),
]


@pytest.mark.parametrize(("left", "right"), EQUAL, ids=range(len(EQUAL)))
def test_equal(left: object, right: object) -> None:
    assert same(left, right)
    assert same(right, left)


@pytest.mark.parametrize(("left", "right"), DIFFERENT, ids=range(len(DIFFERENT)))
def test_different(left: object, right: object) -> None:
    assert not same(left, right)
    assert not same(right, left)


def test_tolerance_is_for_floats_only_and_relative() -> None:
    assert same({"a": [1e9]}, {"a": [1e9 + 1]}, 1e-8)
    assert not same({"a": [1e9]}, {"a": [1e9 + 1]}, 1e-10)
    assert same(np.array([1e-12]), np.array([0.0]), 1e-9)
    assert same(Record({"a": 0.1 + 0.2}), Record({"a": 0.3}), 1e-12)
    assert not same(10**9, 10**9 + 1, 1e-3)
