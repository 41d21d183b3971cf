"""States: the record of declared fields, and how states are copied and compared."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


class Record:
    """The state of a program with declared fields: one attribute a field."""

    def __init__(self, fields: Mapping[str, object]) -> None:
        self.__dict__.update(fields)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 -- only reached for names that are no field
        raise AttributeError(f"the state has no field {name!r}; declared: {list(self.__dict__)}")

    if TYPE_CHECKING:  # the fields of a program are known at run time only

        def __setattr__(self, name: str, value: Any) -> None: ...  # noqa: ANN401

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]

    def __deepcopy__(self, memo: dict[int, Any]) -> Record:
        return Record({name: copy.deepcopy(value, memo) for name, value in self.__dict__.items()})

    def __repr__(self) -> str:
        return f"({', '.join(f'{name}={value!r}' for name, value in self.__dict__.items())})"


def copied(state: Any) -> Any:  # noqa: ANN401
    """A state that shares nothing mutable with the first."""
    return copy.deepcopy(state)


class _Backwards(set[Any]):
    """A set that is iterated over in the opposite of its usual order."""

    def __iter__(self) -> Iterator[Any]:
        return iter(list(set.__iter__(self))[::-1])


def rearranged(state: Any) -> Any:  # noqa: ANN401
    """An equal state whose dicts and plain sets are iterated over in another order; may consume the one given.

    >>> list(rearranged({"a": 1, "b": [{"x": 1, "y": 2}]}))
    ['b', 'a']
    """
    if type(state) is set:
        return _Backwards(state)
    if isinstance(state, dict):
        entries = [(key, rearranged(value)) for key, value in reversed(list(dict.items(state)))]
        state.clear()
        for key, value in entries:
            state[key] = value
    elif isinstance(state, list):
        state[:] = [rearranged(value) for value in state]
    elif type(state) is tuple:
        return tuple(rearranged(value) for value in state)
    elif isinstance(state, Record) or (is_dataclass(state) and not isinstance(state, type)):
        for name, value in list(vars(state).items()) if hasattr(state, "__dict__") else ():
            state.__dict__[name] = rearranged(value)
    return state


_PLAIN = frozenset({int, str, bytes, bool, type(None)})


def same(left: Any, right: Any, tolerance: float = 0.0) -> bool:  # noqa: ANN401
    """Whether two states (or outputs) are equal, looking into containers, arrays and objects.

    ``tolerance`` is relative (and absolute below 1), for floats only.

    >>> same({"a": [1.0, 2.0]}, {"a": [1.0, 2.0 + 1e-12]}), same(0.1 + 0.2, 0.3, 1e-9)
    (False, True)
    """
    if type(left) is type(right) and type(left) in _PLAIN:
        return bool(left == right)
    if isinstance(left, float) or isinstance(right, float):
        return _same_number(left, right, tolerance)
    if type(left) is not type(right):
        alike = (isinstance(left, set) and isinstance(right, set)) or (_is_number(left) and _is_number(right))
        return alike and bool(left == right)
    if isinstance(left, np.ndarray):
        return _same_array(left, right, tolerance)
    if isinstance(left, pa.Array | pa.ChunkedArray | pa.Table | pa.RecordBatch):
        return bool(left.equals(right))
    if isinstance(left, Record):
        left, right = left.__dict__, right.__dict__
    if isinstance(left, dict):
        if hasattr(left, "pruned"):  # a KeyMap: entries equal to the identity do not count
            left, right = left.pruned(), right.pruned()
        return left.keys() == right.keys() and all(same(v, right[k], tolerance) for k, v in left.items())
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(same(a, b, tolerance) for a, b in zip(left, right, strict=True))
    if is_dataclass(left):
        return all(same(getattr(left, f.name), getattr(right, f.name), tolerance) for f in dataclass_fields(left))
    if "__eq__" not in {name for c in type(left).__mro__[:-1] for name in vars(c)}:
        return left is right or (hasattr(left, "__dict__") and same(vars(left), vars(right), tolerance))
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
