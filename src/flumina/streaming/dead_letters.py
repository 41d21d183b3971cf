"""Turn rejected rows of a micro-batch into dead letters or an error."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from flumina.errors import InputError
from flumina.input.dead_letters import SCHEMA, RejectedRows
from flumina.model.order import Ints
from flumina.streaming.validation import LATE, PLACE, ROW, ValidatedRows


def dead_letters_of(stream: str, validated: ValidatedRows, *, late: bool, bad: bool) -> pa.Table:
    """Return the dead letters of one stream: late rows, bad rows, or both."""
    selected = _select(validated, late=late, bad=bad)
    if not len(selected):
        return SCHEMA.empty_table()
    rows = validated.bad.take(pa.array(selected))
    faults = [validated.faults[which] for which in validated.fault_of[selected].tolist()]
    places, numbers = rows.column(PLACE).to_pylist(), rows.column(ROW).to_pylist()
    files = list(map(validated.files().get, places))
    return RejectedRows(stream, rows.drop_columns([PLACE, ROW]), faults, files, places, numbers).dead_letters()


def first_error(stream: str, validated: ValidatedRows, *, late: bool, bad: bool) -> InputError | None:
    """Return the error of the first late or bad row, in the order of the input; None if there is no such row."""
    found = _select(validated, late=late, bad=bad)
    if not len(found):
        return None
    places, rows = (validated.bad.column(name).to_numpy()[found] for name in (PLACE, ROW))
    lowest = int(np.lexsort((rows, places))[0])
    place, row, number = int(places[lowest]), int(rows[lowest]), int(found[lowest])
    fault = validated.faults[validated.fault_of[number]]
    message = fault.at(validated.bad, number)
    file = validated.files().get(place)
    hint = (
        "rows with later timestamps were processed before it: set a policy per stream with watermarks=, for example "
        "fl.BoundedDelay(0) if each stream is sorted by itself, with a new checkpoint and a new sink, since processed "
        "rows are not processed again; or choose with late= what happens to late rows"
        if fault.condition == LATE
        else 'repair the data, or set bad_rows="dead-letter"'
    )
    message = message if file is None else f"{message} (in {file})"
    return InputError(fault.condition, message, stream=stream, part=place, row=row, column=fault.column, hint=hint)


def _select(validated: ValidatedRows, *, late: bool, bad: bool) -> Ints:
    """Return the indices into ``validated.bad`` of the late rows, of the bad rows, or of both."""
    is_late = np.array([fault.condition == LATE for fault in validated.faults], bool)[validated.fault_of]
    return np.flatnonzero(np.where(is_late, late, bad))
