"""Cast columns, and find all values that do not fit.

Arrow's cast stops at the first value that it refuses. Values that do not fit are found on whole columns where the
types say what fits: integers, decimals, timestamps, dates, and lists, maps and structs of them. For other types (texts
read as numbers) distinct values are tried by halves. Either way the result is the same as casting each value alone::

    failed[i]  =  cast(column.slice(i, 1), target) raises
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from flumina.model.decimals import exact_decimals
from flumina.model.schema import cast

Mask = npt.NDArray[np.bool_]

_TICKS = {"s": 1_000_000, "ms": 1_000, "us": 1}
"""Microseconds in a unit of time."""

_DAY = 86_400_000_000
"""Microseconds in a day."""

_WIDEST = 76
"""Digits of Arrow's largest decimals."""


def cast_valid(column: pa.Array, target: pa.DataType) -> tuple[pa.Array, Mask | None]:
    """Cast a column to a type, with null for values that do not fit, and return their mask (None: all fit)."""
    if column.type == target:
        return column, None
    try:
        return cast(column, target), None
    except pa.ArrowException:
        column = _visible(column)
        failed = _failing(column, target)
    try:
        return cast(_without(column, failed), target), failed if failed.any() else None
    except pa.ArrowException:  # the rules for the type missed a value that Arrow refuses
        failed = _by_halves(column, target)
        return cast(_without(column, failed), target), failed


def castable(found: pa.DataType, target: pa.DataType) -> bool:
    """Return whether Arrow can cast from one plain type to the other at all, whatever the values are."""
    try:
        cast(pa.nulls(0, found), target)
    except pa.ArrowException:
        return False
    return True


def _without(column: pa.Array, failed: Mask) -> pa.Array:
    """Return the column with null at these places, too."""
    gone = failed | ~_valid(column)
    return column.take(pa.array(np.arange(len(column)), mask=gone))


def _visible(column: pa.Array) -> pa.Array:
    """Return the column without the values that lie below a null of a struct or a list: Arrow would cast them, too."""
    if not isinstance(column, pa.StructArray | pa.ListArray | pa.LargeListArray | pa.MapArray):
        return column
    column = _without(column, np.zeros(len(column), bool))
    if isinstance(column, pa.StructArray):
        own, children = 1, [_visible(column.field(place)) for place in range(column.type.num_fields)]
    else:
        own, children = 2, [_visible(column.values)]
    return pa.Array.from_buffers(column.type, len(column), column.buffers()[:own], column.null_count, 0, children)


def _valid(column: pa.Array) -> Mask:
    found: Mask = column.is_valid().to_numpy(zero_copy_only=False)
    return found


def _failing(column: pa.Array, target: pa.DataType) -> Mask:
    """Return a mask of the values whose cast fails."""
    if column.type == target:
        return np.zeros(len(column), bool)
    if pa.types.is_nested(target):
        found = _in_struct(column, target) if pa.types.is_struct(target) else _in_items(column, target)
        return found & _valid(column)
    try:
        cast(column, target)
    except pa.ArrowException:
        pass
    else:
        return np.zeros(len(column), bool)
    for is_from, is_to, rule in _RULES:
        if is_from(column.type) and is_to(target):
            try:
                return rule(column, target) & _valid(column)
            except pa.ArrowException:  # the numbers have too many digits for the rule
                break
    encoded = column.dictionary_encode()
    failed = np.append(_by_halves(encoded.dictionary, target), False)
    mask: Mask = failed[pc.fill_null(encoded.indices, len(failed) - 1).to_numpy()]
    return mask


def _in_struct(column: pa.StructArray, target: pa.StructType) -> Mask:
    found = np.zeros(len(column), bool)
    for field in target:
        found |= _failing(column.field(column.type.get_field_index(field.name)), field.type)
    return found


def _in_items(column: pa.Array, target: pa.DataType) -> Mask:
    """Return a mask of the lists or maps that hold an item that does not fit."""
    if not isinstance(column, pa.ListArray | pa.LargeListArray | pa.MapArray):
        return _by_halves(column, target)
    offsets = column.offsets.to_numpy()
    first, last = (int(offsets[0]), int(offsets[-1])) if len(offsets) else (0, 0)
    items = column.values.slice(first, last - first)
    if pa.types.is_map(target):
        held = [(items.field(0), target.key_type), (items.field(1), target.item_type)]
    else:
        held = [(items, target.value_type)]
    found = np.zeros(len(column), bool)
    for values, of in held:
        at = np.flatnonzero(_failing(values, of)) + first
        found[np.searchsorted(offsets, at, side="right") - 1] = True
    return found


def _by_halves(column: pa.Array, target: pa.DataType) -> Mask:
    """Return a mask of the values whose cast fails, by bisection."""
    failed = np.zeros(len(column), bool)
    spans = [(0, len(column))]
    while spans:
        start, stop = spans.pop()
        try:
            cast(column.slice(start, stop - start), target)
        except pa.ArrowException:
            if stop - start == 1:
                failed[start] = True
            else:
                middle = (start + stop) // 2
                spans += [(start, middle), (middle, stop)]
    return failed


def _numbers(column: pa.Array) -> npt.NDArray[np.integer]:
    """Return integers, times and dates as whole numbers, 0 for null."""
    if not pa.types.is_integer(column.type):
        column = column.view(pa.int32() if pa.types.is_date32(column.type) else pa.int64())
    found: npt.NDArray[np.integer] = pc.fill_null(column, 0).to_numpy()
    return found


def _outside(numbers: npt.NDArray[np.integer], low: int, high: int) -> Mask:
    """Return a mask of the numbers outside these bounds, which may exceed their type."""
    ends = np.iinfo(numbers.dtype)
    found = np.zeros(len(numbers), bool)
    if low > ends.min:
        found |= numbers < low
    if high < ends.max:
        found |= numbers > high
    return found


def _integers(column: pa.Array, target: pa.DataType) -> Mask:
    ends = np.iinfo(target.to_pandas_dtype())
    return _outside(_numbers(column), int(ends.min), int(ends.max))


def _scaled(numbers: npt.NDArray[np.integer], ticks: int) -> Mask:
    """Return a mask of the numbers that overflow 64 bits as microseconds."""
    return _outside(numbers, -(2**63 // ticks), (2**63 - 1) // ticks)


def _times(column: pa.Array, target: pa.DataType) -> Mask:  # noqa: ARG001 -- a rule for microseconds
    unit = column.type.unit
    return _numbers(column) % 1000 != 0 if unit == "ns" else _scaled(_numbers(column), _TICKS[unit])


def _dates(column: pa.Array, target: pa.DataType) -> Mask:  # noqa: ARG001 -- a rule for microseconds
    return _scaled(_numbers(column), _DAY if pa.types.is_date32(column.type) else 1_000)


def _decimals(column: pa.Array, target: pa.DataType) -> Mask:
    """Return a mask of the decimals that exceed the scale or the precision."""
    scale = max(column.type.scale, target.scale)
    wide = column.cast(pa.decimal256(_WIDEST, scale))
    with exact_decimals():
        largest = pa.scalar((Decimal(10) ** target.precision - 1).scaleb(-target.scale), wide.type)
    found = pc.greater(pc.abs(wide), largest)
    if column.type.scale > target.scale:
        found = pc.or_(found, pc.not_equal(pc.round(wide, target.scale, "towards_zero"), wide))
    mask: Mask = pc.fill_null(found, False).to_numpy(zero_copy_only=False)  # noqa: FBT003 -- Arrow's own signature
    return mask


def _is_microseconds(type_: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(type_) and type_.unit == "us")


_RULES: tuple[
    tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], bool], Callable[[pa.Array, pa.DataType], Mask]],
    ...,
] = (
    (pa.types.is_integer, pa.types.is_integer, _integers),
    (pa.types.is_decimal, pa.types.is_decimal, _decimals),
    (pa.types.is_timestamp, _is_microseconds, _times),
    (pa.types.is_date, _is_microseconds, _dates),
)
"""Rules: source type, target type, and the mask of values that do not fit."""
