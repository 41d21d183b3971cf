"""Choose values for a column of a type: few, so that they collide, some unusual."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from flumina.check.choices import Choices
from flumina.errors import UsageError
from flumina.model.schema import type_name

_DAY = dt.date(2024, 2, 28)
_NOON = dt.datetime(2024, 2, 28, 12, tzinfo=dt.UTC)

_ODD_FLOATS = (-0.0, math.inf, -math.inf, math.nan)
"""Tried rarely: values that arithmetic never removes would mask other findings."""

_POOLS: dict[pa.DataType, Sequence[Any]] = {
    pa.bool_(): (False, True),
    pa.int8(): (1, 0, 2, 3, -1, 7, 100),
    pa.int16(): (1, 0, 2, 3, -1, 7, 1000),
    pa.int32(): (1, 0, 2, 3, -1, 7, 1000, 100_003),
    pa.int64(): (1, 0, 2, 3, -1, 7, 1000, 100_003),
    pa.float32(): (1.0, 0.0, 0.5, -1.5, 3.0, 0.1) * 4 + _ODD_FLOATS,
    pa.float64(): (1.0, 0.0, 0.1, 0.2, 0.3, -1.5, 1e16) * 4 + _ODD_FLOATS,
    pa.string(): ("a", "b", "", "c", "ü"),
    pa.binary(): (b"a", b"b", b"", b"\x00\xff"),
    pa.date32(): (_DAY, _DAY + dt.timedelta(days=1), _DAY + dt.timedelta(days=2)),
    pa.timestamp("us", tz="UTC"): (_NOON, _NOON + dt.timedelta(seconds=1), _NOON + dt.timedelta(days=1)),
    pa.timestamp("us"): tuple((_NOON + dt.timedelta(seconds=s)).replace(tzinfo=None) for s in (0, 1, 86400)),
}

KEYS: dict[pa.DataType, Sequence[Any]] = {
    pa.int32(): (1, 2, 3),
    pa.int64(): (1, 2, 3),
    pa.string(): ("a", "b", "c"),
    pa.binary(): (b"a", b"b", b"c"),
}
"""Keys to try: few enough that events meet."""

POWERS = tuple(10**n for n in range(1, 12))
"""Steps in time up to more than a day in microseconds: some exceed any window in any unit."""

_YEAR = 400 * 86_400 * 10**6
"""Longer than a year in microseconds: the longest period of ticks."""

_MOST_JUMPS = 256


def jumps(named: Sequence[int]) -> Sequence[int]:
    """Return steps in time to try, the smallest first: powers of ten, these numbers and their doubles."""
    lengths = [n for n in named if 1 < n <= max(POWERS[-1], _YEAR)]
    return sorted({*POWERS, *lengths[: _MOST_JUMPS // 3], *(2 * n for n in lengths[: _MOST_JUMPS // 3])})


def value(
    choices: Choices,
    field: pa.Field,
    given: Sequence[Any] | None = None,
    constants: Mapping[type, Sequence[Any]] | None = None,
) -> Any:  # noqa: ANN401
    """Return a value for one column; ``given`` replaces the pool of its type. A nullable column is sometimes null.

    ``constants`` are values that the program itself names; they are tried now and then.
    """
    if given is not None:
        return choices.pick(given)
    if field.nullable and choices.chance(10):
        return None
    named = fitting(field.type, constants or {})
    if named and choices.chance(4):
        return choices.pick(named)
    return _of_type(choices, field.type)


def fitting(type_: pa.DataType, constants: Mapping[type, Sequence[Any]]) -> list[Any]:
    """Return the constants that a column of this type can hold."""
    if pa.types.is_integer(type_):
        most = 2 ** (type_.bit_width - 1)
        return [value for value in constants.get(int, ()) if -most <= value < most]
    if pa.types.is_floating(type_):
        return [*constants.get(float, ()), *map(float, constants.get(int, ()))]
    return list(
        constants.get(str, ()) if type_ == pa.string() else constants.get(bytes, ()) if type_ == pa.binary() else ()
    )


def _of_type(choices: Choices, type_: pa.DataType) -> Any:  # noqa: ANN401
    pool = _POOLS.get(type_)
    if pool is not None:
        return choices.pick(pool)
    if pa.types.is_decimal(type_):
        unit = Decimal(1).scaleb(-type_.scale)
        return choices.pick((unit, Decimal(0) * unit, 3 * unit, -unit))
    if pa.types.is_list(type_):
        return [_of_type(choices, type_.value_type) for _ in range(choices.below(3))]
    if pa.types.is_map(type_):
        return [
            (_of_type(choices, type_.key_type), _of_type(choices, type_.item_type)) for _ in range(choices.below(2))
        ]
    if pa.types.is_struct(type_):
        return {inner.name: value(choices, inner) for inner in type_}
    raise UsageError(
        "NO_EXAMPLES",
        f"the checker has no values for the type {type_name(type_)}",
        hint="give some: examples = {'column': [value, ...]} in the program",
    )
