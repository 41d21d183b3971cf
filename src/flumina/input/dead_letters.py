"""Make dead letters: rejected rows with stream, position and reason."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Literal, get_args

import pyarrow as pa

from flumina.errors import UsageError
from flumina.input.validation import Fault

BadRows = Literal["error", "dead-letter"]
"""How bad rows are handled: an error, or dead letters."""

SCHEMA = pa.schema(
    [
        pa.field("stream", pa.string(), nullable=False),
        pa.field("file", pa.string()),
        pa.field("partition", pa.int64(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("column", pa.string(), nullable=False),
        pa.field("message", pa.string(), nullable=False),
        pa.field("data", pa.string(), nullable=False),
    ]
)
"""Position of the row: its file, if that is known; the number of that file, else of the part; and the number of the row
in it. ``data`` is the row as JSON.

JSON has no NaN and no infinity: they are the texts "NaN", "Infinity" and "-Infinity".
"""


def makes_dead_letters(bad_rows: str) -> bool:
    """Return whether ``bad_rows=`` asks for dead letters; refuse unknown values."""
    known = get_args(BadRows)
    if bad_rows not in known:
        raise UsageError("BAD_ROWS", f"expected bad_rows= as {' or '.join(map(repr, known))}, got {bad_rows!r}")
    return bad_rows == "dead-letter"


@dataclass(frozen=True)
class RejectedRows:
    """Rows of a stream that can't be processed, each with its reason and position."""

    stream: str
    rows: pa.Table
    faults: Sequence[Fault]
    files: Sequence[str | None]
    parts: Sequence[int]
    numbers: Sequence[int]

    def __len__(self) -> int:
        return len(self.rows)

    def dead_letters(self) -> pa.Table:
        """Return these rows as dead letters; a Python loop over rows."""
        columns = [
            pa.array([self.stream] * len(self), pa.string()),
            pa.array(self.files, pa.string()),
            pa.array(self.parts, pa.int64()),
            pa.array(self.numbers, pa.int64()),
            pa.array([fault.condition for fault in self.faults], pa.string()),
            pa.array([fault.column for fault in self.faults], pa.string()),
            pa.array([fault.message for fault in self.faults], pa.string()),
            pa.array([_json(row) for row in _rows(self.rows)], pa.string()),
        ]
        return pa.table(columns, schema=SCHEMA)


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    """Return rows as dicts; times that Python can't hold as ticks, bytes that are not UTF-8 as escapes."""
    try:
        found: list[dict[str, Any]] = table.to_pylist()
    except Exception:  # noqa: BLE001 -- no value may lose its dead letter
        columns = [[_value(scalar) for scalar in column] for column in table.columns]
        found = [dict(zip(table.column_names, values, strict=True)) for values in zip(*columns, strict=True)]
    return found


def _value(scalar: pa.Scalar) -> object:
    try:
        return scalar.as_py()
    except Exception:  # noqa: BLE001 -- out of range, no UTF-8, an unknown time zone ...
        if isinstance(scalar, pa.StringScalar | pa.LargeStringScalar):
            return scalar.as_buffer().to_pybytes().decode(errors="backslashreplace")
        if isinstance(scalar, pa.StructScalar):
            return {name: _value(scalar[name]) for name in scalar}
        if isinstance(scalar, pa.ListScalar):  # maps are lists of their entries
            return [_value(one) for one in scalar.values]
        return scalar.value


def _json(row: dict[str, Any]) -> str:
    try:
        return json.dumps(row, default=_plain, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(row), default=_plain, ensure_ascii=False, allow_nan=False)


def _finite(value: Any) -> object:  # noqa: ANN401
    """Return the value with texts for NaN and infinity, which JSON lacks."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    return [_finite(inner) for inner in value] if isinstance(value, list | tuple) else value


def _plain(value: Any) -> object:  # noqa: ANN401 -- any value of a column
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, date | datetime):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal) else repr(value)
