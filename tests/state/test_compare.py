import copy
import math
import pickle
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from flumina.state.compare import copied, identical, rearranged, same
from flumina.state.fields import Count, Sum
from flumina.state.keyed_map import KeyedMap
from flumina.state.record import Record


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
        state = Record({"seen": {1}, "counts": KeyedMap(Count(), {"a": 1})})
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
    (KeyedMap(Count(), {"a": 0, "b": 1}), KeyedMap(Count(), {"b": 1})),
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
    (KeyedMap(Count(), {"a": 1}), KeyedMap(Count(), {"b": 1})),
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


@dataclass
class Base:
    total: int = 0


class Extended(Base):
    """Has an attribute that is no field."""

    def __init__(self) -> None:
        super().__init__()
        self.fees = 0


class Slotted:
    __slots__ = ("__seen", "total")

    def __init__(self, total: int = 0, seen: int = 0) -> None:
        self.total, self.__seen = total, seen


class Labeled(list[int]):
    label = ""


class Pair(NamedTuple):
    left: frozenset[str]
    right: dict[str, int]


class Looped:
    def __init__(self) -> None:
        self.seen = {"a": 1, "b": 2}
        self.me = self


def test_all_that_an_object_holds_counts() -> None:
    one, other = Extended(), Extended()
    assert same(one, other)
    other.fees = 3
    assert not same(one, other)
    assert not identical(one, other)
    assert same(Slotted(1, 2), Slotted(1, 2))
    assert not same(Slotted(1, 2), Slotted(1, 3))
    labeled = Labeled([1])
    labeled.label = "x"
    assert not same(labeled, Labeled([1]))
    assert not identical(labeled, Labeled([1]))


def test_what_was_computed_from_the_rest_does_not_count() -> None:
    class Sized:
        def __init__(self) -> None:
            self.seen = [1]

        @cached_property
        def size(self) -> int:
            return len(self.seen)

    one, other = Sized(), Sized()
    assert one.size == 1
    assert same(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (0.0, -0.0),
        (0, False),
        (0, 0.0),
        (Decimal(0), Decimal("0.00")),
        ([0.0], [-0.0]),
        (np.float64(0.0), np.float64(-0.0)),
        (np.array([0.0]), np.array([-0.0])),
        (np.array([1, "a"], object), np.array([1, "b"], object)),
        (Record({"x": 0}), Record({"x": 0.0})),
        ((0.0, 1e-12), (0.0, 0.0)),
    ],
)
def test_states_that_can_be_told_apart(one: object, other: object) -> None:
    assert not identical(one, other)
    assert identical(one, copy.deepcopy(one))


def test_nan_is_identical_to_nan() -> None:
    assert identical(math.nan, float("nan"))
    assert identical(Decimal("nan"), Decimal("nan"))


def test_maps_are_compared_with_what_missing_keys_have() -> None:
    assert same(KeyedMap(Sum("double"), {"a": 1e-17, "b": 1.0}), KeyedMap(Sum("double"), {"b": 1.0}), 1e-9)
    assert not same(KeyedMap(Sum("double"), {"a": 1e-3}), KeyedMap(Sum("double")), 1e-9)


def test_everything_with_an_order_is_rearranged() -> None:
    state = Looped()
    assert list(rearranged(state).seen) == ["b", "a"]  # and the reference to itself does no harm
    letters = frozenset("abcdefgh")
    pair = rearranged(Pair(letters, {"a": 1, "b": 2}))
    assert isinstance(pair, Pair)
    assert pair.left == letters
    assert list(pair.left) == list(letters)[::-1]
    assert list(pair.right) == ["b", "a"]
    assert rearranged(Color.RED) is Color.RED


class Color(Enum):
    RED = frozenset({1, 2})


def test_what_a_base_class_has_computed_does_not_count_either() -> None:
    class Sized:
        def __init__(self) -> None:
            self.seen = [1]

        @cached_property
        def size(self) -> int:
            return len(self.seen)

    class Other(Sized):
        pass

    one, other = Other(), Other()
    assert one.size == 1
    assert same(one, other)
    assert identical(one, other)
