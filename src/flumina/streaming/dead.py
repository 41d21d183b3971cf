"""Dead letters: rows that could not be processed, each with its stream, its position, and what is wrong with it."""

from __future__ import annotations

import base64
import json
import math
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from flumina.errors import InputError
from flumina.streaming.sieve import LATE, PLACE, ROW, Sifted

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
"""Where the row stood in its batch: its file, if that is known; the number of that file, else of the partition; and the
number of the row there. ``data`` is the row as JSON.

JSON has no NaN and no infinity: they are the texts "NaN", "Infinity" and "-Infinity".
"""


def letters(stream: str, sifted: Sifted, *, late: bool, bad: bool) -> pa.Table:
    """The dead letters of one stream: late rows, bad rows, or both."""
    wanted = [
        number
        for number, which in enumerate(sifted.fault_of.tolist())
        if (late if sifted.faults[which].condition == LATE else bad)
    ]
    if not wanted:
        return SCHEMA.empty_table()
    rows = sifted.bad.take(pa.array(wanted))
    faults = [sifted.faults[which] for which in sifted.fault_of[wanted].tolist()]
    shown = rows.drop_columns([PLACE, ROW])
    columns = [
        pa.array([stream] * len(rows)),
        pa.array(list(map(sifted.files().get, rows.column(PLACE).to_pylist())), pa.string()),
        rows.column(PLACE).cast(pa.int64()),
        rows.column(ROW).cast(pa.int64()),
        pa.array([fault.condition for fault in faults]),
        pa.array([fault.column for fault in faults]),
        pa.array([fault.message for fault in faults]),
        pa.array([_json(row) for row in _rows(shown)]),
    ]
    return pa.table(columns, schema=SCHEMA)


def first_error(stream: str, sifted: Sifted, *, late: bool, bad: bool) -> InputError | None:
    """The error of the first row that must not be there, if there is one."""
    if not (late or bad):
        return None
    found = [
        (int(place), int(row), sifted.faults[which])
        for place, row, which in zip(
            sifted.bad.column(PLACE).to_pylist(),
            sifted.bad.column(ROW).to_pylist(),
            sifted.fault_of.tolist(),
            strict=True,
        )
        if (late if sifted.faults[which].condition == LATE else bad)
    ]
    if not found:
        return None
    place, row, fault = min(found, key=lambda entry: entry[:2])
    file = sifted.files().get(place)
    hint = (
        "other rows were before it: say how far each stream is with frontiers=, fl.BoundedDelay(0) if each is sorted "
        "by itself, in a new checkpoint and sink, since what has been processed stays so; or what to do with late "
        "rows, with late="
        if fault.condition == LATE
        else 'repair the data, or set bad_rows="dead-letter"'
    )
    message = fault.message if file is None else f"{fault.message} (in {file})"
    return InputError(fault.condition, message, stream=stream, part=place, row=row, column=fault.column, hint=hint)


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    """Rows as dicts; a time that Python can't tell as its number of ticks."""
    try:
        found: list[dict[str, Any]] = table.to_pylist()
    except (OverflowError, ValueError):
        columns = [[_value(scalar) for scalar in column] for column in table.columns]
        found = [dict(zip(table.column_names, values, strict=True)) for values in zip(*columns, strict=True)]
    return found


def _value(scalar: pa.Scalar) -> object:
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
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
    """The same, with texts for the numbers that JSON does not have."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    return [_finite(inner) for inner in value] if isinstance(value, list | tuple) else value


def _plain(value: Any) -> object:  # noqa: ANN401 -- whatever a column can hold
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, date | datetime):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal) else repr(value)
