"""Sort keys and set members of any types."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime
from decimal import Decimal
from typing import Any


def in_order(values: Iterable[Any]) -> list[Any]:
    """Return values sorted; values of several types, or without an order, by type and content.

    >>> in_order({"b", "a"}), in_order([2, "b", 1]), in_order([{2, 1}, {3}, {1}])
    (['a', 'b'], [1, 2, 'b'], [{1}, {1, 2}, {3}])
    """
    listed = list(values)
    if len(kinds := set(map(type, listed))) == 1 and kinds <= _TOTAL:
        return sorted(listed)
    return sorted(listed, key=_rank)


_TOTAL: frozenset[type] = frozenset({int, str, bytes, bool, date})
"""Types with a total order."""


_BY_VALUE = _TOTAL | {float, Decimal}
"""Types with a total order except for NaN."""


def _rank(value: Any) -> tuple[Any, ...]:  # noqa: ANN401
    """Return a sort key: values of one type in their own order, types by name."""
    kind = type(value).__name__
    if value != value:  # noqa: PLR0124 -- it is NaN
        return kind, 1
    if isinstance(value, set | frozenset):
        return kind, 0, tuple(sorted(map(_rank, value)))
    if isinstance(value, list | tuple):
        return kind, 0, tuple(map(_rank, value))
    if isinstance(value, dict):
        return kind, 0, tuple(sorted((_rank(key), _rank(entry)) for key, entry in value.items()))
    if isinstance(value, datetime):
        return kind, 0, value.isoformat()  # times with and without a zone can't be compared
    return kind, 0, value if type(value) in _BY_VALUE else repr(value)
