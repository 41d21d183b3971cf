"""Compare tables as multisets of rows, within a tolerance for floats."""

from __future__ import annotations

from collections import Counter
from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from flumina.state.compare import same

_TELLING = ("event_ts",)
"""Columns that differ in most rows, so that sorting by them first is fast."""

_EVENT = ("event_ts", "event_stream")
"""Columns of the causing event: differing rows of the same event are listed side by side."""


def difference(actual: pa.Table, expected: pa.Table, *, tolerance: float = 0.0) -> tuple[list[Any], list[Any]]:
    """Return (rows of expected that actual lacks, rows of actual that expected lacks), as multisets."""
    if actual.column_names != expected.column_names:
        raise AssertionError(f"different columns: {actual.column_names} and {expected.column_names}")
    if _equal_once_sorted(actual, expected):
        return [], []
    found, required = Counter(_rows(actual)), Counter(_rows(expected))
    missing, surplus = list((required - found).elements()), list((found - required).elements())
    if tolerance:
        missing, surplus = _without_alike(missing, surplus, tolerance)
    places = [expected.column_names.index(name) for name in _EVENT if name in expected.column_names]

    def by_event(row: tuple[Any, ...]) -> tuple[Any, ...]:
        return (*(_sortable(row[place]) for place in places), repr(row))

    return sorted(missing, key=by_event), sorted(surplus, key=by_event)


def _equal_once_sorted(actual: pa.Table, expected: pa.Table) -> bool:
    """Return whether sorted columns are equal; False also where columns can't be sorted."""
    if actual.num_rows != expected.num_rows or actual.schema.types != expected.schema.types:
        return False
    names = expected.column_names
    keys = [(name, "ascending") for name in sorted(names, key=lambda name: name not in _TELLING)]
    try:
        left, right = (table.take(pc.sort_indices(table, sort_keys=keys)) for table in (actual, expected))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, KeyError):
        return False  # lists and structs have no order
    return all(one.equals(other) for one, other in zip(left.columns, right.columns, strict=True))


def _without_alike(missing: list[Any], surplus: list[Any], tolerance: float) -> tuple[list[Any], list[Any]]:
    """Drop pairs of rows that agree except for floats within the tolerance."""
    waiting: dict[Any, list[Any]] = {}
    for row in sorted(surplus, key=_floats):
        waiting.setdefault(_but_floats(row), []).append(row)
    lacking = []
    for row in sorted(missing, key=_floats):
        candidates = waiting.get(_but_floats(row), [])
        match = next((n for n, other in enumerate(candidates) if same(row, other, tolerance)), None)
        if match is None:
            lacking.append(row)
        else:
            candidates.pop(match)
    return lacking, [row for rows in waiting.values() for row in rows]


def _floats(value: Any) -> list[float]:  # noqa: ANN401
    if isinstance(value, tuple):
        return [number for one in value for number in _floats(one)]
    return [value] if isinstance(value, float) else []


def _but_floats(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, tuple):
        return tuple(_but_floats(one) for one in value)
    return None if isinstance(value, float) or value is _NAN else value


def _rows(table: pa.Table) -> list[tuple[Any, ...]]:
    columns = [[_hashable(value) for value in column.to_pylist()] for column in table.columns]
    return list(zip(*columns, strict=True))


def _hashable(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, list | tuple):  # a map is a list of pairs
        return tuple(_hashable(v) for v in value)
    if isinstance(value, dict):
        return tuple((k, _hashable(v)) for k, v in value.items())
    return _NAN if value != value else value  # noqa: PLR0124 -- that is what tells it


def _sortable(value: Any) -> tuple[bool, Any]:  # noqa: ANN401
    """Return a sort key: the order of the column's type; nulls and other types first, as text."""
    ordered = isinstance(value, int | float | str | date)
    return (ordered, value if ordered else repr(value))


class _NotANumber:
    """A stand-in for NaN that equals itself."""

    def __repr__(self) -> str:
        return "nan"


_NAN = _NotANumber()
