"""Values as text that is the same in every process, so that a run which was killed finds what it was.

``repr`` does not do: sets have another order in every process, and an object without a ``repr`` of its own tells its
address. Where ``repr`` does, the text is that of ``repr``.

>>> canonical(frozenset({"b", "a"})), canonical({"limit": (1, None)})
("frozenset({'a', 'b'})", "{'limit': (1, None)}")
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from types import BuiltinFunctionType, FunctionType
from typing import Any

import numpy as np

_LEAVES = (bool, int, float, complex, str, bytes, type(None))
_ORDERED = (int, str, bytes)
"""Types within which ``<`` is a total order, so that sets of them are sorted as a reader would."""

_UNTOLD = re.compile(r" at 0x|\{|\.\.\.")
"""Addresses, sets, and what was left out, in what a type's own ``repr`` says."""


def canonical(value: object) -> str:
    """Equal texts for equal values, in whatever process they were made.

    Objects whose ``repr`` can't be relied on are told apart by a checksum of what pickling them would keep; those that
    can't be pickled by their type alone.
    """
    return _text(value, ())


def _text(value: object, above: tuple[int, ...]) -> str:
    """``above``: the values that hold this one, which it may hold in turn."""
    kind = type(value)
    if kind in _LEAVES:
        return repr(value)
    if id(value) in above:
        return "..."
    inside = (*above, id(value))
    if isinstance(value, list) and kind is list:
        return f"[{_listed(value, inside)}]"
    if isinstance(value, tuple) and kind is tuple:
        return f"({_listed(value, inside)}{',' if len(value) == 1 else ''})"
    if isinstance(value, dict) and kind is dict:
        return "{" + ", ".join(f"{_text(k, inside)}: {_text(v, inside)}" for k, v in value.items()) + "}"
    if isinstance(value, set | frozenset) and kind in (set, frozenset):
        return _set(value, inside)
    if isinstance(value, type | FunctionType | BuiltinFunctionType):
        return f"{value.__module__}.{value.__qualname__}"
    if is_dataclass(value):
        told = (f"{field.name}={_text(getattr(value, field.name, None), inside)}" for field in fields(value))
        return f"{kind.__qualname__}({', '.join(told)})"
    if isinstance(value, np.ndarray):
        content = _listed(value.tolist(), inside) if value.dtype.hasobject else value.tobytes()
        return f"{kind.__qualname__}({value.dtype}, {value.shape}, content {_checksum(content)})"
    said = repr(value)
    return _content(value, inside) if _UNTOLD.search(said) else said


def _listed(values: Iterable[object], above: tuple[int, ...]) -> str:
    return ", ".join(_text(value, above) for value in values)


def _set(value: set[Any] | frozenset[Any], above: tuple[int, ...]) -> str:
    if not value:
        return repr(value)
    kinds = set(map(type, value))
    natural = len(kinds) == 1 and kinds <= set(_ORDERED)
    told = map(repr, sorted(value)) if natural else sorted(_text(one, above) for one in value)
    text = "{" + ", ".join(told) + "}"
    return text if isinstance(value, set) else f"frozenset({text})"


def _content(value: object, above: tuple[int, ...]) -> str:
    name = type(value).__qualname__
    try:
        kept = value.__reduce_ex__(4)
    except Exception:  # noqa: BLE001 -- a type says with any error at all that its values can't be pickled
        return f"{name}(content not compared: it can't be pickled)"
    if isinstance(kept, str):
        return f"{name}({kept})"
    pieces = (list(piece) if hasattr(piece, "__next__") else piece for piece in kept)
    return f"{name}(content {_checksum(_listed(pieces, above))})"


def _checksum(content: str | bytes) -> str:
    return hashlib.sha256(
        content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    ).hexdigest()[:16]
