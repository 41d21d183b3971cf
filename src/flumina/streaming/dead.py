"""What becomes of rows that could not be processed: dead letters, or an error that names the first of them."""

from __future__ import annotations

import pyarrow as pa

from flumina.errors import InputError
from flumina.letters import SCHEMA, Refused
from flumina.streaming.sieve import LATE, PLACE, ROW, Sifted


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
    places, numbers = rows.column(PLACE).to_pylist(), rows.column(ROW).to_pylist()
    files = list(map(sifted.files().get, places))
    return Refused(stream, rows.drop_columns([PLACE, ROW]), faults, files, places, numbers).letters()


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
