"""Run a program sequentially: sort all events by O, then fold ``update``.

This is the oracle: the outputs of every engine must be equal to these as multisets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from flumina.errors import UsageError
from flumina.input.dead_letters import SCHEMA, BadRows, RejectedRows, makes_dead_letters
from flumina.input.decode import OnBadRows, Part, decode
from flumina.input.stream import Stream
from flumina.input.stream_checks import check_streams, check_units, one_ts_type
from flumina.input.tie_checks import check_ties
from flumina.model import emit as emitting
from flumina.model.batch import Batch
from flumina.model.emit import ONLY_OUTPUT, Emit, Row
from flumina.model.order import END, Point
from flumina.model.tick import Horizon
from flumina.program.base import AnyProgram, define
from flumina.program.definition import Definition, fold, initial_state
from flumina.program.tick_fold import TickFold

_POINT = "for example fl.Point(ts, rank, seq)"


@dataclass(frozen=True)
class SpecResult:
    """Outputs, final state and dead letters of a sequential run.

    ``outputs`` holds one Arrow table for each declared output, in O: the declared columns, then ``event_ts`` and
    ``event_stream`` of the event that caused the row. ``state`` is the state after the last event. ``dead_letters`` are
    the rows that could not be processed, with ``bad_rows="dead-letter"``.
    """

    outputs: Mapping[str, pa.Table] = field(repr=False)
    rows: Sequence[Row] = field(repr=False)
    state: Any
    events: int
    ticks: int = 0
    """How many ticks did something."""
    dead_letters: pa.Table = field(default_factory=SCHEMA.empty_table, repr=False)

    @property
    def output(self) -> pa.Table:
        """The table of the only output."""
        if ONLY_OUTPUT not in self.outputs:
            raise UsageError("NAMED_OUTPUTS", f"the program has the outputs {list(self.outputs)}; use .outputs[name]")
        return self.outputs[ONLY_OUTPUT]


def spec(
    program: AnyProgram,
    streams: Sequence[Stream],
    *,
    until: Point = END,
    horizon: int | None = None,
    bad_rows: BadRows = "error",
) -> SpecResult:
    """Run the sequential program: all events up to the point ``until``, in the order O.

    Of a program with ticks, all input is there: each tick tag comes up to the first tick behind the last event, then
    :class:`~flumina.AtEnd`. ``horizon`` is for input that goes on: a timestamp, not before the last event, up to which
    ticks come; then there is no end.

    ``bad_rows`` says how rows that do not fit their declaration are handled: "error" raises, "dead-letter" keeps them.
    """
    definition = define(program)
    if not isinstance(until, Point):
        raise UsageError("UNTIL", f"until= is a point in the order of events, got {until!r}", hint=_POINT)
    refused: list[RejectedRows] = []
    parts = read(definition, streams, refused.append if makes_dead_letters(bad_rows) else None)
    check_ties(definition, parts)
    batches = [part.batch for part in parts if len(part.batch)]
    emit = Emit(definition.outputs)
    state, count, ticks = initial_state(definition), 0, 0
    merged = Batch.merge(batches) if batches else None
    if merged is not None:
        count = merged.count_up_to(until)
    if definition.ticking is not None:
        if merged is not None:
            check_units(definition, ts_type_of(parts), streams[0].name)
        folded = TickFold(definition, state, len(streams), emit, until)
        folded.run(merged, _horizon(merged, horizon))
        state, ticks = folded.state, folded.fired
    elif merged is not None:
        state = fold(definition.kinds[definition.initial], state, merged.slice(0, count), emit)
    rows = emitting.rows(emit.drain())
    letters = pa.concat_tables([SCHEMA.empty_table(), *(some.dead_letters() for some in refused)])
    return SpecResult(tables(definition, rows, ts_type_of(parts)), rows, state, count, ticks, letters)


def _horizon(events: Batch | None, given: int | None) -> Horizon | None:
    """Return how far ticks come; None if nothing has been seen."""
    last = None if events is None else int(events.ts[-1])
    if given is None:
        return None if last is None else Horizon(last, closed=True)
    if isinstance(given, bool) or not isinstance(given, int) or (last is not None and given < last):
        message = f"expected horizon= as a timestamp that is not before the last event, {last}, got {given!r}"
        raise UsageError("HORIZON", message)
    return Horizon(given)


def read(definition: Definition, streams: Sequence[Stream], on_bad_rows: OnBadRows | None = None) -> list[Part]:
    """Return all parts of all streams as validated events; a bad row is an error or a dead letter."""
    check_streams(definition, streams)
    names = [stream.name for stream in streams]
    parts = [
        decode(stream, rank, number, table, names, on_bad_rows)
        for rank, stream in enumerate(streams)
        for number, table in enumerate(stream.parts())
    ]
    ts_type_of(parts)
    return parts


def ts_type_of(parts: Iterable[Part]) -> pa.DataType:
    """Return the type of all timestamps; parts without rows do not count."""
    return one_ts_type((part.stream, part.ts_type) for part in parts if part.rows) or pa.int64()


def tables(definition: Definition, rows: Sequence[Row], ts_type: pa.DataType) -> dict[str, pa.Table]:
    """Return one table for each output, with event timestamps of the input's type."""
    out = {}
    for name, schema in definition.outputs.items():
        table = emitting.table(schema, [row for row in rows if row.output == name])
        if ts_type != pa.int64():
            index = table.schema.get_field_index("event_ts")
            table = table.set_column(
                index, pa.field("event_ts", ts_type, nullable=False), table.column(index).cast(ts_type)
            )
        out[name] = table
    return out
