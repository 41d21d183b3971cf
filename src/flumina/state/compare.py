"""Copy and compare states."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from decimal import Decimal
from enum import Enum
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flumina.state.record import Record


def copied(state: Any) -> Any:  # noqa: ANN401
    """Return a state that shares nothing mutable with the first."""
    return copy.deepcopy(state)


class _Backwards(set[Any]):
    """A set that iterates in the reverse of its usual order."""

    def __iter__(self) -> Iterator[Any]:
        return iter(list(set.__iter__(self))[::-1])


class _FrozenBackwards(frozenset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(list(frozenset.__iter__(self))[::-1])


def rearranged(state: Any, seen: set[int] | None = None) -> Any:  # noqa: ANN401
    """Return an equal state whose dicts and plain sets iterate in another order; may consume the argument.

    >>> list(rearranged({"a": 1, "b": [{"x": 1, "y": 2}]}))
    ['b', 'a']
    """
    seen = set() if seen is None else seen
    if type(state) is set:
        return _Backwards(state)
    if type(state) is frozenset:
        return _FrozenBackwards(state)
    if type(state) in _PLAIN or isinstance(state, type | Enum) or id(state) in seen:
        return state
    seen.add(id(state))
    if isinstance(state, dict):
        entries = [(key, rearranged(value, seen)) for key, value in reversed(list(dict.items(state)))]
        state.clear()
        for key, value in entries:
            state[key] = value
    elif isinstance(state, list):
        state[:] = [rearranged(value, seen) for value in state]
    elif isinstance(state, tuple) and (type(state) is tuple or hasattr(state, "_make")):
        values = [rearranged(value, seen) for value in state]
        return tuple(values) if type(state) is tuple else state._make(values)  # type: ignore[attr-defined]
    else:
        for name, value in _attributes(state).items():
            object.__setattr__(state, name, rearranged(value, seen))
    return state


def _attributes(value: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return an object's own dict and slots, without cached properties."""
    kind: type = type(value)
    found = {name: getattr(value, name) for name in _slots(kind) if hasattr(value, name)}
    own = getattr(value, "__dict__", {})
    computed = {name for name in own if isinstance(getattr(kind, name, None), cached_property)}
    return found | {name: held for name, held in own.items() if name not in computed}


@lru_cache(maxsize=1024)
def _slots(kind: type) -> tuple[str, ...]:
    found = []
    for one in kind.__mro__:
        named = vars(one).get("__slots__", ())
        for name in (named,) if isinstance(named, str) else named:
            hidden = name.startswith("__") and not name.endswith("__")
            found.append(f"_{one.__name__.lstrip('_')}{name}" if hidden else name)
    return tuple(name for name in found if name not in ("__dict__", "__weakref__"))


@lru_cache(maxsize=1024)
def _has_equality(kind: type) -> bool:
    """Return whether a class defines equality itself, other than a dataclass or a record."""
    return (
        not is_dataclass(kind)
        and not issubclass(kind, Record)
        and any("__eq__" in vars(one) for one in kind.__mro__[:-1])
    )


_PLAIN = frozenset({int, str, bytes, bool, type(None)})


def same(left: Any, right: Any, tolerance: float = 0.0) -> bool:  # noqa: ANN401
    """Return whether two states (or outputs) are equal, looking into containers, arrays and objects.

    ``tolerance`` is relative (and absolute below 1), for floats only.

    >>> same({"a": [1.0, 2.0]}, {"a": [1.0, 2.0 + 1e-12]}), same(0.1 + 0.2, 0.3, 1e-9)
    (False, True)
    """
    return _alike(left, right, partial(_equal, tolerance=tolerance))


def identical(left: Any, right: Any) -> bool:  # noqa: ANN401
    """Return whether two states are indistinguishable, types, signs of zero and decimal digits included.

    >>> identical(0.0, -0.0), identical(Decimal("0"), Decimal("0.00")), identical([0, None], [0, None])
    (False, False, True)
    """
    return _alike(left, right, _indistinguishable)


def _alike(left: Any, right: Any, values: Callable[[Any, Any], bool]) -> bool:  # noqa: ANN401
    """Return whether two objects have the same structure, and ``values`` holds for all their contents."""
    kind: Any = type(left)
    if kind is not type(right):
        return values(left, right)
    if kind in _PLAIN:
        return bool(left == right)
    if isinstance(left, dict):
        if hasattr(left, "pruned"):  # a KeyedMap: a missing key has the identity
            return _entries_alike(left, right, values)
        alike = left.keys() == right.keys() and all(_alike(value, right[key], values) for key, value in left.items())
        return alike and (kind is dict or _alike(_attributes(left), _attributes(right), values))
    if isinstance(left, list | tuple):
        alike = len(left) == len(right) and all(_alike(a, b, values) for a, b in zip(left, right, strict=True))
        return alike and (kind in (list, tuple) or _alike(_attributes(left), _attributes(right), values))
    if _is_opaque(left):
        return values(left, right)
    return left is right or _alike(_attributes(left), _attributes(right), values)


def _is_opaque(value: Any) -> bool:  # noqa: ANN401
    """Return whether only the object's own ``__eq__`` can compare it."""
    kind: type = type(value)
    return _has_equality(kind) or not (hasattr(value, "__dict__") or _slots(kind))


def _entries_alike(left: Any, right: Any, values: Callable[[Any, Any], bool]) -> bool:  # noqa: ANN401 -- two KeyMaps
    """Return whether two maps agree on every key of either."""
    ours, theirs = left.pruned(), right.pruned()
    return all(
        _alike(
            ours[key] if key in ours else left.field.identity(),
            theirs[key] if key in theirs else left.field.identity(),
            values,
        )
        for key in ours.keys() | theirs.keys()
    )


def _indistinguishable(left: Any, right: Any) -> bool:  # noqa: ANN401
    if type(left) is not type(right):  # a program may have replaced our set by a plain one
        return isinstance(left, set) and isinstance(right, set) and left == right
    if isinstance(left, float):
        return bool(left.hex() == right.hex())
    if isinstance(left, Decimal):
        return bool(left.as_tuple() == right.as_tuple())
    if isinstance(left, np.ndarray | np.generic):
        if left.dtype != right.dtype or left.shape != right.shape:
            return False
        if left.dtype.kind == "O":
            return all(map(identical, left.ravel().tolist(), right.ravel().tolist()))
        return bool(left.tobytes() == right.tobytes())
    return _equal(left, right, 0.0)


def _equal(left: Any, right: Any, tolerance: float) -> bool:  # noqa: ANN401
    if isinstance(left, float) or isinstance(right, float):
        return _same_number(left, right, tolerance)
    if type(left) is not type(right):
        alike = (isinstance(left, set) and isinstance(right, set)) or (_is_number(left) and _is_number(right))
        return alike and bool(left == right)
    if isinstance(left, np.ndarray):
        return _same_array(left, right, tolerance)
    if isinstance(left, pa.Array | pa.ChunkedArray | pa.Table | pa.RecordBatch):
        return bool(left.equals(right))
    return bool(left == right)


def _same_array(left: npt.NDArray[Any], right: npt.NDArray[Any], tolerance: float) -> bool:
    if left.shape != right.shape:
        return False
    if left.dtype.kind == "f":
        return bool(np.isclose(left, right, rtol=tolerance, atol=tolerance, equal_nan=True).all())
    return bool((left == right).all())


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | Decimal | np.number) and not isinstance(value, bool)


def _same_number(left: object, right: object, tolerance: float) -> bool:
    if not (_is_number(left) and _is_number(right)):
        return False
    a, b = float(left), float(right)  # type: ignore[arg-type]
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    return a == b or math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance)
