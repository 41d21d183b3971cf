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
from flumina.input.stream_checks import check_streams, one_ts_type
from flumina.input.ties import check_ties
from flumina.model import emit as emitting
from flumina.model.batch import Batch
from flumina.model.emit import ONLY_OUTPUT, Emit, Row
from flumina.model.order import END, Point
from flumina.program.base import AnyProgram, define
from flumina.program.definition import Definition, fold, initial_state

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
    dead_letters: pa.Table = field(default_factory=SCHEMA.empty_table, repr=False)

    @property
    def output(self) -> pa.Table:
        """The table of the only output."""
        if ONLY_OUTPUT not in self.outputs:
            raise UsageError("NAMED_OUTPUTS", f"the program has the outputs {list(self.outputs)}; use .outputs[name]")
        return self.outputs[ONLY_OUTPUT]


def spec(
    program: AnyProgram, streams: Sequence[Stream], *, until: Point = END, bad_rows: BadRows = "error"
) -> SpecResult:
    """Run the sequential program: all events up to the point ``until``, in the order O.

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
    state, count = initial_state(definition), 0
    if batches:
        merged = Batch.merge(batches)
        count = merged.count_up_to(until)
        state = fold(definition.kinds[definition.initial], state, merged.slice(0, count), emit)
    rows = emitting.rows(emit.drain())
    letters = pa.concat_tables([SCHEMA.empty_table(), *(some.dead_letters() for some in refused)])
    return SpecResult(tables(definition, rows, ts_type_of(parts)), rows, state, count, letters)


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
