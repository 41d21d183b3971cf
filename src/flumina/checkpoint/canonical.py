"""Convert values to text that is equal in every process if the values are."""

from __future__ import annotations

import hashlib
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import PurePath
from types import MappingProxyType
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

PLAIN = (bool, int, float, str, bytes, type(None))
"""Types of the simplest parameters, written as their ``repr`` at any length."""

_BY_REPR = frozenset((*PLAIN, complex, Decimal, Fraction, date, timedelta, timezone, UUID, range, bytearray))
_UNKNOWN = "..."
"""Stands for a part without canonical text, so that the other parts are still compared."""

_DEPTH = 50
_LONGEST = 200


def canonical(value: object) -> str | None:
    """Return the canonical text of a value; None if it has none.

    Sets are written in order, dicts by their keys; arrays by a checksum, and so is the end of a long text. A part
    without canonical text (an open file, an object known by its address only) is written as dots: it is not compared,
    the rest is.

    >>> canonical({"b": (1, 2.0), "a": {"y", "x"}})
    "{'a': {'x', 'y'}, 'b': (1, 2.0)}"
    >>> canonical([Decimal("0.10"), object()])
    "[Decimal('0.10'), ...]"
    >>> canonical(object())
    """
    text = _Writer().text(value)
    if text == _UNKNOWN or type(value) in PLAIN or len(text) <= _LONGEST:
        return None if text == _UNKNOWN else text
    return f"{text[:_LONGEST]}... ({len(text):,} characters, sha256 {_digest(text.encode())})"


@dataclass(frozen=True)
class _Writer:
    """Writer of one value; ``inside`` are the ids of the values that contain it."""

    inside: tuple[int, ...] = field(default=())

    def text(self, value: object) -> str:
        kind = type(value)
        if kind in _BY_REPR:
            return repr(value)
        if id(value) in self.inside or len(self.inside) >= _DEPTH:
            return _UNKNOWN
        part = _Writer((*self.inside, id(value)))
        if kind in _CONTAINERS:
            return _CONTAINERS[kind](part, value)
        if isinstance(value, Enum):
            return f"{kind.__qualname__}.{value.name}={part.text(value.value)}"
        if isinstance(value, np.generic | np.ndarray | pa.DataType | pa.Scalar | pa.Array | pa.ChunkedArray | pa.Table):
            return part.columns(value)
        if is_dataclass(value) and not isinstance(value, type):
            return part.named(value, {f.name: getattr(value, f.name, None) for f in fields(value)})
        return part.derived(value)

    def each(self, values: Iterable[object]) -> str:
        return ", ".join(map(self.text, values))

    def unordered(self, values: Iterable[object]) -> str:
        return ", ".join(sorted(map(self.text, values)))

    def items(self, value: Mapping[Any, Any], *, ordered: bool = False) -> str:
        texts = [f"{self.text(key)}: {self.text(of_key)}" for key, of_key in value.items()]
        return ", ".join(texts if ordered else sorted(texts))

    def named(self, value: object, parts: Mapping[str, object]) -> str:
        return f"{type(value).__qualname__}({', '.join(f'{name}={self.text(part)}' for name, part in parts.items())})"

    def moment(self, value: datetime | time) -> str:
        naive = repr(value.replace(tzinfo=None))
        return naive if value.tzinfo is None else f"{naive} in {self.text(value.tzinfo)}"

    def derived(self, value: object) -> str:
        """Return the text of an instance of a derived class: named tuples, subclasses of dict and the like."""
        kind = type(value)
        if isinstance(value, PurePath):
            return f"{kind.__qualname__}({str(value)!r})"
        if isinstance(value, date | timedelta | Decimal | ZoneInfo):
            # Their own texts hold more than the texts of their base classes: pandas has nanoseconds.
            return _UNKNOWN if " at 0x" in repr(value) else f"{kind.__qualname__}: {value!r}"
        for base in (int, float, str, bytes, tuple, list, set, frozenset, dict):
            if isinstance(value, base):
                plain = base.__repr__(value) if base in PLAIN else _CONTAINERS[base](self, value)
                return f"{kind.__qualname__}({', '.join([plain, *self._attributes(value)])})"
        return _UNKNOWN

    def _attributes(self, value: object) -> list[str]:
        return [f"{name}={self.text(of_name)}" for name, of_name in sorted(getattr(value, "__dict__", {}).items())]

    def columns(self, value: Any) -> str:  # noqa: ANN401 -- of numpy or pyarrow
        """Return the text of numbers and columns of numpy and pyarrow, with their types."""
        if isinstance(value, np.generic):
            item = value.item()
            return f"numpy.{value.dtype}({value if isinstance(item, np.generic) else self.text(item)})"
        if isinstance(value, np.ndarray):
            kind = f"numpy.{value.dtype}{value.shape}"
            if value.dtype.kind in "OTV":  # their bytes are addresses, or have gaps
                return f"{kind}: {self.text(value.tolist())}"
            return f"{kind}: sha256 {_digest(value.tobytes())}"
        if isinstance(value, pa.DataType):
            return f"pyarrow.{value}"
        if isinstance(value, pa.Scalar):
            return f"pyarrow.{value.type}({self.text(value.as_py())})"
        if isinstance(value, pa.Table):
            return f"pyarrow.Table({', '.join(map(self._column, value.column_names, value.columns))})"
        return f"pyarrow.{value.type}{self.text(value.to_pylist())}"

    def _column(self, name: str, column: pa.ChunkedArray) -> str:
        return f"{name!r}: {self.columns(column)}"


_CONTAINERS: Mapping[type, Callable[[_Writer, Any], str]] = {
    list: lambda part, value: f"[{part.each(value)}]",
    tuple: lambda part, value: f"({part.each(value)})",
    set: lambda part, value: f"{{{part.unordered(value)}}}",
    frozenset: lambda part, value: f"frozenset({{{part.unordered(value)}}})",
    dict: lambda part, value: f"{{{part.items(value)}}}",
    MappingProxyType: lambda part, value: f"{{{part.items(value)}}}",
    Counter: lambda part, value: f"Counter({part.items(value)})",
    OrderedDict: lambda part, value: f"OrderedDict({part.items(value, ordered=True)})",
    defaultdict: lambda part, value: f"defaultdict({part.items(value)})",
    deque: lambda part, value: f"deque([{part.each(value)}], {value.maxlen})",
    datetime: lambda part, value: part.moment(value),
    time: lambda part, value: part.moment(value),
}


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
