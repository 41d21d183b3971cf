"""What becomes of rows that could not be processed: dead letters, or an error that names the first of them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from flumina.errors import InputError
from flumina.input.dead_letters import SCHEMA, RejectedRows
from flumina.model.order import Ints
from flumina.streaming.validation import LATE, PLACE, ROW, ValidatedRows


def dead_letters(stream: str, validated: ValidatedRows, *, late: bool, bad: bool) -> pa.Table:
    """The dead letters of one stream: late rows, bad rows, or both."""
    wanted = _wanted(validated, late=late, bad=bad)
    if not len(wanted):
        return SCHEMA.empty_table()
    rows = validated.bad.take(pa.array(wanted))
    faults = [validated.faults[which] for which in validated.fault_of[wanted].tolist()]
    places, numbers = rows.column(PLACE).to_pylist(), rows.column(ROW).to_pylist()
    files = list(map(validated.files().get, places))
    return RejectedRows(stream, rows.drop_columns([PLACE, ROW]), faults, files, places, numbers).dead_letters()


def first_error(stream: str, validated: ValidatedRows, *, late: bool, bad: bool) -> InputError | None:
    """The error of the first row that must not be there, if there is one."""
    found = _wanted(validated, late=late, bad=bad)
    if not len(found):
        return None
    places, rows = (validated.bad.column(name).to_numpy()[found] for name in (PLACE, ROW))
    lowest = int(np.lexsort((rows, places))[0])
    place, row, number = int(places[lowest]), int(rows[lowest]), int(found[lowest])
    fault = validated.faults[validated.fault_of[number]]
    told = fault.at(validated.bad, number)
    file = validated.files().get(place)
    hint = (
        "other rows were before it: say how far each stream is with watermarks=, fl.BoundedDelay(0) if each is sorted "
        "by itself, in a new checkpoint and sink, since what has been processed stays so; or what to do with late "
        "rows, with late="
        if fault.condition == LATE
        else 'repair the data, or set bad_rows="dead-letter"'
    )
    message = told if file is None else f"{told} (in {file})"
    return InputError(fault.condition, message, stream=stream, part=place, row=row, column=fault.column, hint=hint)


def _wanted(validated: ValidatedRows, *, late: bool, bad: bool) -> Ints:
    """Return the numbers of the late rows among the bad ones, of the others, or of both."""
    is_late = np.array([fault.condition == LATE for fault in validated.faults], bool)[validated.fault_of]
    return np.flatnonzero(np.where(is_late, late, bad))
