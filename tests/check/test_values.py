import math
import random
from collections import Counter

import pyarrow as pa
import pytest

from flumina.check.choices import Choices
from flumina.check.values import KEYS, value
from flumina.errors import UsageError
from flumina.model.schema import Schema
from flumina.model.tag import KEY_TYPES

EVERY_TYPE = (
    "a boolean, b byte, c short, d int, e long, f float, g double, h string, i binary, j date, k timestamp, "
    "l timestamp_ntz, m decimal(10,2), n array<int>, o map<string,long>, p struct<x: int, y: array<string>>"
)


@pytest.mark.parametrize("field", Schema.parse(EVERY_TYPE).fields, ids=lambda f: str(f.type))
def test_values_fit_their_type_and_vary(field: pa.Field) -> None:
    drawn = [value(Choices(random.Random(n).randbytes(10)), field) for n in range(200)]
    assert pa.array(drawn, field.type).null_count == drawn.count(None) > 0
    assert len({repr(v) for v in drawn}) > 2


def test_columns_that_are_not_null_get_no_nulls() -> None:
    field = Schema.parse("v long NOT NULL").fields[0]
    assert None not in [value(Choices(random.Random(n).randbytes(4)), field) for n in range(200)]


@pytest.mark.parametrize("type_", ["float", "double"])
def test_numbers_that_are_none_are_tried_but_rarely(type_: str) -> None:
    field = Schema.parse(f"v {type_} NOT NULL").fields[0]
    drawn = [value(Choices(random.Random(n).randbytes(4)), field) for n in range(1000)]
    odd = Counter(repr(v) for v in drawn if not math.isfinite(v) or repr(v) == "-0.0")
    assert set(odd) == {"nan", "inf", "-inf", "-0.0"}
    assert odd.total() < 250


def test_the_programs_own_examples_replace_the_pool() -> None:
    field = Schema.parse("v long").fields[0]
    assert {value(Choices(bytes([n])), field, (41, 43)) for n in range(9)} == {41, 43}


def test_a_type_without_values_says_what_to_do() -> None:
    with pytest.raises(UsageError, match="examples = "):
        value(Choices(b""), pa.field("v", pa.duration("s"), nullable=False))


def test_every_key_type_has_keys() -> None:
    assert set(KEYS) == set(KEY_TYPES)
