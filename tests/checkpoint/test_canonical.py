import io
import subprocess
import sys
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, Flag, IntEnum
from fractions import Fraction
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from flumina.checkpoint.canonical import canonical


class Tier(Enum):
    GOLD = Decimal("0.1")
    SILVER = Decimal("0.2")


class Level(IntEnum):
    LOW = 1


class Rights(Flag):
    READ = 1
    WRITE = 2


@dataclass(frozen=True)
class Fee:
    rate: Decimal
    tiers: frozenset[str] = frozenset()
    of: Any = field(default=None, repr=False)


class Plus(int):
    pass


class Noted(dict[str, int]):
    def __init__(self, note: str, **items: int) -> None:
        super().__init__(items)
        self.note = note


Pair = namedtuple("Pair", "a b")  # noqa: PYI024 -- both kinds are met
BERLIN = ZoneInfo("Europe/Berlin")
NOON = datetime(2024, 1, 1, 12)  # noqa: DTZ001 -- without a time zone on purpose

DIFFERENT: list[tuple[Any, Any]] = [
    (Decimal("0.01"), Decimal("0.99")),
    (Decimal(1), 1),
    (1, True),
    (1, 1.0),
    (1, Plus(1)),
    (1, Level.LOW),
    ("1", 1),
    ("...", "...."),
    (0.1, 0.1 + 1e-16),
    ({"a": 1}, {"a": 1000}),
    ({"a": 1}, {"b": 1}),
    ({"a": {"b": [1, (2,)]}}, {"a": {"b": [1, (3,)]}}),
    (date(2024, 1, 1), date(2024, 1, 31)),
    (date(2024, 1, 1), datetime(2024, 1, 1)),  # noqa: DTZ001
    (NOON, NOON.replace(tzinfo=UTC)),
    (NOON.replace(tzinfo=BERLIN), NOON.replace(tzinfo=UTC)),
    (time(1), time(1, tzinfo=UTC)),
    (timedelta(1), timedelta(2)),
    ([1, 2], [2, 1]),
    ([1, 2], (1, 2)),
    ({1, 2}, {1, 3}),
    ({1, 2}, frozenset({1, 2})),
    (Fee(Decimal(1)), Fee(Decimal(2))),
    (Fee(Decimal(1), frozenset("ab")), Fee(Decimal(1), frozenset("ac"))),
    (Fee(Decimal(1), of=1), Fee(Decimal(1), of=2)),
    (Tier.GOLD, Tier.SILVER),
    (Rights.READ, Rights.READ | Rights.WRITE),
    (np.float64(0.1), np.float64(0.2)),
    (np.float64(0.1), np.float32(0.1)),
    (np.float64(0.1), 0.1),
    (np.longdouble(1), np.longdouble(2)),
    (np.datetime64("2024-01-01"), np.datetime64("2024-01-02")),
    (np.arange(3), np.arange(4)),
    (np.arange(4), np.arange(4).reshape(2, 2)),
    (np.array([1, "a"], object), np.array([1, "b"], object)),
    (np.array([(1, 2)], "i1,i8"), np.array([(1, 3)], "i1,i8")),
    (Pair(1, 2), Pair(1, 3)),
    (Pair(1, 2), (1, 2)),
    (Noted("x", a=1), Noted("y", a=1)),
    (Noted("x", a=1), Noted("x", a=2)),
    (OrderedDict(a=1, b=2), OrderedDict(b=2, a=1)),
    (Counter("aab"), Counter("abb")),
    (defaultdict(int, a=1), defaultdict(int, a=2)),
    (MappingProxyType({"a": 1}), MappingProxyType({"a": 2})),
    (deque([1], 5), deque([1], 6)),
    (Fraction(1, 2), Fraction(1, 3)),
    (PurePosixPath("a"), PurePosixPath("b")),
    (pd.Timestamp("2024-01-01", unit="ns"), pd.Timestamp(1704067200000000001)),
    (pa.int64(), pa.int32()),
    (pa.scalar(1), pa.scalar(2)),
    (pa.array([1, None]), pa.array([1, 0])),
    (pa.table({"a": [1]}), pa.table({"a": [2]})),
    (pa.table({"a": [1]}), pa.table({"b": [1]})),
    (list(range(1000)), [*range(999), 1000]),
    ([object(), 1], [object(), 2]),
]


@pytest.mark.parametrize(("one", "other"), DIFFERENT, ids=[str(n) for n in range(len(DIFFERENT))])
def test_different_values_have_different_texts(one: Any, other: Any) -> None:
    texts = canonical(one), canonical(other)
    assert None not in texts
    assert texts[0] != texts[1]
    assert canonical({"x": [one]}) != canonical({"x": [other]})


SAME: list[tuple[Any, Any]] = [
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    ({8, 0, 16}, {16, 8, 0}),
    (pa.chunked_array([[1], [2]]), pa.chunked_array([[1, 2]])),
    (np.arange(6)[::2], np.array([0, 2, 4])),
    ([object(), 1], [object(), 1]),
    (Fee(Decimal(1), of=io.BytesIO()), Fee(Decimal(1), of=io.BytesIO())),
]


@pytest.mark.parametrize(("one", "other"), SAME, ids=[str(n) for n in range(len(SAME))])
def test_equal_values_have_equal_texts(one: Any, other: Any) -> None:
    assert canonical(one) == canonical(other) is not None


def test_texts_are_the_same_in_every_process() -> None:
    """Where texts have other hashes, so that sets have another order."""
    script = (
        "from tests.checkpoint.test_canonical import DIFFERENT\n"
        "from flumina.checkpoint.canonical import canonical\n"
        "for pair in [*DIFFERENT, (set('abcdefgh'), {frozenset('xyz'): set('uvw')})]:\n"
        "    for value in pair: print(canonical(value))\n"
    )
    told = [
        subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            check=True,
            timeout=500,
        ).stdout
        for seed in "12"
    ]
    assert told[0] == told[1]
    assert len(told[0].splitlines()) == 2 * (len(DIFFERENT) + 1)


@pytest.mark.parametrize(
    "value",
    [object(), io.BytesIO(), len, lambda: 1, Fee, iter([1]), NotImplemented],
    ids=["object", "file", "built in", "function", "class", "iterator", "constant"],
)
def test_what_can_not_be_told(value: Any) -> None:
    assert canonical(value) is None
    assert canonical([value, 1]) == "[..., 1]"


def test_what_contains_itself() -> None:
    value: list[Any] = [1]
    value.append(value)
    assert canonical(value) == "[1, ...]"
    for _ in range(10_000):
        value = [value]
    assert canonical(value) is not None


def test_long_texts_are_short_but_for_plain_ones() -> None:
    text = canonical(list(range(100_000)))
    assert text is not None
    assert text.startswith("[0, 1, 2")
    assert len(text) < 300
    assert canonical("x" * 1000) == repr("x" * 1000), "as it always was"
