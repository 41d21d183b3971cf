"""Find nulls inside structs, lists and maps that are declared NOT NULL.

Arrow itself lets them through.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Rows = npt.NDArray[np.int64]


@lru_cache(maxsize=256)
def holds_not_null(type_: pa.DataType) -> bool:
    """Return whether something inside values of this type is declared NOT NULL.

    >>> holds_not_null(pa.list_(pa.struct([pa.field("b", pa.int64(), nullable=False)]))), holds_not_null(pa.int64())
    (True, False)
    """
    if pa.types.is_struct(type_):
        return any(not field.nullable or holds_not_null(field.type) for field in type_)
    if pa.types.is_map(type_):
        return holds_not_null(type_.key_type) or holds_not_null(type_.item_type)
    return bool(pa.types.is_list(type_)) and holds_not_null(type_.value_type)


def nullable(type_: pa.DataType) -> pa.DataType:
    """Return the same type with nothing inside it declared NOT NULL."""
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(field.name, nullable(field.type)) for field in type_])
    if pa.types.is_map(type_):
        return pa.map_(nullable(type_.key_type), nullable(type_.item_type))
    return pa.list_(nullable(type_.value_type)) if pa.types.is_list(type_) else type_


def forbidden(array: pa.Array, type_: pa.DataType) -> Iterator[tuple[str, Rows]]:
    """Yield each NOT NULL place of the type that is null somewhere: its name, and the rows in order.

    The array is of that type or of its :func:`nullable` form. Nothing inside a null counts as null.
    """
    if not holds_not_null(type_):
        return
    there = array.is_valid().to_numpy(zero_copy_only=False)
    for path, rows in _inside_struct(array, type_) if pa.types.is_struct(type_) else _inside_items(array, type_):
        found = rows[there[rows]]
        if len(found):
            yield path, found


def first_forbidden(array: pa.Array, type_: pa.DataType) -> tuple[int, str] | None:
    """Return the first row that :func:`forbidden` yields, and the name of the null place."""
    return min(((int(rows[0]), path) for path, rows in forbidden(array, type_)), default=None)


def as_declared(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Give a column of the :func:`nullable` form of a type that type itself; nothing in it is :func:`forbidden`.

    Buffers stay as they are. Arrow's own cast would refuse what is null within a null.
    """
    if array.type == type_:
        return array
    if array.offset:
        array = pa.concat_arrays([array])
    if pa.types.is_struct(type_):
        own = 1
        children = [as_declared(array.field(place), field.type) for place, field in enumerate(type_)]
    else:
        own = 2
        entries = pa.struct([type_.key_field, type_.item_field]) if pa.types.is_map(type_) else type_.value_type
        children = [as_declared(array.values, entries)]
    return pa.Array.from_buffers(type_, len(array), array.buffers()[:own], array.null_count, 0, children)


def _inside_struct(array: pa.StructArray, type_: pa.StructType) -> Iterator[tuple[str, Rows]]:
    for place, field in enumerate(type_):
        child = array.field(place)
        if not field.nullable and child.null_count:
            yield field.name, np.flatnonzero(child.is_null().to_numpy(zero_copy_only=False))
        for path, rows in forbidden(child, field.type):
            yield f"{field.name}.{path}", rows


def _inside_items(array: pa.ListArray, type_: pa.DataType) -> Iterator[tuple[str, Rows]]:
    """Yield what :func:`forbidden` finds in items of lists and maps, at the rows that hold them."""
    offsets = array.offsets.to_numpy()
    if pa.types.is_map(type_):
        keys, values = array.values.field(0), array.values.field(1)
        held = [("key", keys, type_.key_type), ("value", values, type_.item_type)]
    else:
        held = [("element", array.values, type_.value_type)]
    for name, items, of in held:
        for path, found in forbidden(items, of):
            mine = found[(found >= offsets[0]) & (found < offsets[-1])]
            yield f"{name}.{path}", np.unique(np.searchsorted(offsets, mine, side="right") - 1)
