"""What becomes of rows that could not be processed: dead letters, or an error that names the first of them."""

from __future__ import annotations

import pyarrow as pa

from flumina.errors import InputError
from flumina.input.dead_letters import SCHEMA, RejectedRows
from flumina.streaming.validation import LATE, PLACE, ROW, ValidatedRows


def letters(stream: str, validated: ValidatedRows, *, late: bool, bad: bool) -> pa.Table:
    """The dead letters of one stream: late rows, bad rows, or both."""
    wanted = [
        number
        for number, which in enumerate(validated.fault_of.tolist())
        if (late if validated.faults[which].condition == LATE else bad)
    ]
    if not wanted:
        return SCHEMA.empty_table()
    rows = validated.bad.take(pa.array(wanted))
    faults = [validated.faults[which] for which in validated.fault_of[wanted].tolist()]
    places, numbers = rows.column(PLACE).to_pylist(), rows.column(ROW).to_pylist()
    files = list(map(validated.files().get, places))
    return RejectedRows(stream, rows.drop_columns([PLACE, ROW]), faults, files, places, numbers).letters()


def first_error(stream: str, validated: ValidatedRows, *, late: bool, bad: bool) -> InputError | None:
    """The error of the first row that must not be there, if there is one."""
    if not (late or bad):
        return None
    found = [
        (int(place), int(row), validated.faults[which])
        for place, row, which in zip(
            validated.bad.column(PLACE).to_pylist(),
            validated.bad.column(ROW).to_pylist(),
            validated.fault_of.tolist(),
            strict=True,
        )
        if (late if validated.faults[which].condition == LATE else bad)
    ]
    if not found:
        return None
    place, row, fault = min(found, key=lambda entry: entry[:2])
    file = validated.files().get(place)
    hint = (
        "other rows were before it: say how far each stream is with frontiers=, fl.BoundedDelay(0) if each is sorted "
        "by itself, in a new checkpoint and sink, since what has been processed stays so; or what to do with late "
        "rows, with late="
        if fault.condition == LATE
        else 'repair the data, or set bad_rows="dead-letter"'
    )
    message = fault.message if file is None else f"{fault.message} (in {file})"
    return InputError(fault.condition, message, stream=stream, part=place, row=row, column=fault.column, hint=hint)
