"""Collect the outputs of ``update`` and ``update_batch``, each with the event that caused it.

::

    emit(page, user)                      one row of the only output, by position
    emit(page=page, user=user)            the same, by name
    emit.flagged(v)                       one row of the output named ``flagged``
    emit.columns(page=a, user=b)          whole columns: row i is caused by event i of the batch
    emit.columns(page=a, user=b, at=i)    row j is caused by event i[j] of the batch
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from flumina.errors import OutputError
from flumina.model.key_order import in_order
from flumina.model.nulls import first_forbidden
from flumina.model.order import Ints
from flumina.model.schema import BadValueError, Schema, column, has_infinite, same_kind, type_name

if TYPE_CHECKING:
    from flumina.model.batch import Batch
    from flumina.model.event import Event

ONLY_OUTPUT = "output"
"""The name of the output of a program that declares one schema rather than named ones."""

EVENT_COLUMNS = (
    pa.field("event_ts", pa.int64(), nullable=False),
    pa.field("event_stream", pa.string(), nullable=False),
)
"""Columns that every output table has after the user's: timestamp and stream of the causing event."""

_ATOMIC = frozenset({int, str, float, bool, bytes, type(None), Decimal, date, datetime, np.int64, np.float64})
"""Immutable types: their values need no copy when emitted."""


class Row(NamedTuple):
    """One output: its values, and the event that caused it."""

    output: str
    values: tuple[Any, ...]
    event: Event

    def __repr__(self) -> str:
        return f"{self.output}{self.values!r} by {self.event!r}"


_row = tuple.__new__
"""Makes a row in half the time of the named tuple's own constructor."""


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """Outputs in columns: row i was caused by the event at ``batch[at[i]]``."""

    output: str
    columns: pa.RecordBatch
    batch: Batch
    at: Ints


class OutputEmitter:
    """The emitter of one declared output: ``emit.name``."""

    __slots__ = ("_emit", "_name", "_schema", "_width")

    def __init__(self, emit: Emit, name: str, schema: Schema) -> None:
        self._emit, self._name, self._schema, self._width = emit, name, schema, len(schema)

    def __call__(self, *values: object, **named: object) -> None:
        """Emit one row, caused by the current event."""
        if named:
            values = self._positional(values, named)
        if len(values) != self._width:
            raise self._error(f"takes {self._width} values ({self._schema}), got {len(values)}: {values!r}")
        if not _ATOMIC.issuperset(map(type, values)):
            values = tuple(map(_frozen, values))
        emit = self._emit
        if emit.event is None:
            raise self._error("single rows can't be emitted from update_batch; use emit.columns(...)")
        emit.items.append(_row(Row, (self._name, values, emit.event)))

    def columns(self, *values: object, at: object = None, **named: object) -> None:
        """Emit whole columns (numpy, Arrow, or lists), caused by the events of the current batch."""
        batch = self._emit.batch
        if batch is None:
            raise self._error("columns can be emitted from update_batch only; use emit(...)")
        if named:
            values = self._positional(values, named)
        if len(values) != self._width:
            raise self._error(f"takes {self._width} columns ({self._schema}), got {len(values)}")
        causes = np.arange(len(batch)) if at is None else self._causes(at, len(batch))
        arrays = [self._array(f, value, batch, causes) for f, value in zip(self._schema.fields, values, strict=True)]
        if any(len(array) != len(causes) for array in arrays):
            sizes = ", ".join(f"{f.name}: {len(a)}" for f, a in zip(self._schema.fields, arrays, strict=True))
            raise self._error(f"columns need one row for each of {len(causes)} causing events, got {sizes}")
        columns = pa.record_batch(arrays, schema=self._schema.arrow)
        self._emit.items.append(Chunk(self._name, columns, batch, causes))

    def _causes(self, at: object, size: int) -> Ints:
        """Return ``at`` as indices into the batch; a boolean mask selects the positions where it is true."""
        causes = np.asarray(at)
        if causes.dtype == bool:
            if len(causes) != size:
                raise self._error(f"at= is a mask of {len(causes)} over a batch of {size} events")
            return np.flatnonzero(causes)
        if len(causes) and causes.dtype.kind not in "iu":
            raise self._error(f"at= is a mask or a column of indices, got {causes.dtype}")
        if len(causes) and not (causes.min() >= 0 and causes.max() < size):
            raise self._error(f"at= names events outside the batch of {size}")
        return causes.astype(np.int64)

    def _positional(self, values: tuple[object, ...], named: dict[str, object]) -> tuple[object, ...]:
        if values or named.keys() != set(self._schema.names):
            raise self._error(f"takes the columns {self._schema}, got {sorted(named)}")
        return tuple(named[name] for name in self._schema.names)

    def _array(self, field: pa.Field, given: object, batch: Batch, causes: Ints) -> pa.Array:
        try:
            array = _whole_column(given, field.type)
        except TypeError:
            raise self._error(f"column {field.name!r} takes a column, got {given!r}") from None
        except BadValueError as error:
            index, value = error.index, error.value
        else:
            null = _first_null(array, field)
            if null is None:
                return array
            index, value = null, array[null].as_py()
        cause = int(causes[index]) if index < len(causes) else None
        event = "no event" if cause is None else repr(next(iter(batch.slice(cause, cause + 1))))
        raise _bad_value(self._name, field, value, event)

    def _error(self, what: str) -> OutputError:
        return OutputError("OUTPUT", f"output {self._name!r} {what}")


def _frozen(value: object) -> object:
    """Return a copy that later changes to the value do not reach; sets as lists in a stable order.

    >>> _frozen({3, 1}), _frozen({"a": {3, 1}})
    ([1, 3], {'a': [1, 3]})
    """
    if type(value) in _ATOMIC:
        return value
    if isinstance(value, set | frozenset):
        return [_frozen(one) for one in in_order(value)]
    if isinstance(value, dict):
        return {key: _frozen(entry) for key, entry in value.items()}
    if type(value) is list:
        return list(map(_frozen, value))
    if type(value) is tuple:
        return tuple(map(_frozen, value))
    return copy.deepcopy(value)


def _whole_column(given: object, type_: pa.DataType) -> pa.Array:
    """Return numpy, Arrow or a list as a column of this type, by the same rules as single rows."""
    if isinstance(given, list | tuple):
        return column(given, type_, whole=True)
    if isinstance(given, str | bytes):
        raise TypeError("expected a column, got a text")
    if isinstance(given, np.ndarray) and given.flags.writeable:
        given = given.copy()  # the caller may change it after this call
    array = pa.array(given)
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if array.type == type_:
        return array
    if same_kind(array.type, type_) or (pa.types.is_integer(array.type) and pa.types.is_floating(type_)):
        try:
            cast = array.cast(type_)
        except pa.ArrowException:
            pass  # column() below finds the value
        else:
            if type_ != pa.float32() or not has_infinite(cast):
                return cast
    return column(array.to_pylist(), type_, whole=True)


def _first_null(array: pa.Array, field: pa.Field) -> int | None:
    """Return the first row that is null, or holds a null, where NOT NULL is declared."""
    if not field.nullable and array.null_count:
        return int(array.is_null().index(pa.scalar(True)).as_py())  # noqa: FBT003
    inside = first_forbidden(array, field.type)
    return None if inside is None else inside[0]


def _bad_value(output: str, field: pa.Field, value: object, event: str) -> OutputError:
    declared = f"{type_name(field.type, not_null=True)}{'' if field.nullable else ' NOT NULL'}"
    what = f"expected {declared}, got {value!r}, emitted by {event}"
    return OutputError("OUTPUT_TYPE", f"output {output!r}, column {field.name!r}: {what}")


class Emit:
    """The ``emit`` of one worker: collects outputs; ``event`` or ``batch`` is their cause."""

    def __init__(self, outputs: Mapping[str, Schema]) -> None:
        self.items: list[Row | Chunk] = []
        self.event: Event | None = None
        self.batch: Batch | None = None
        self._channels = {name: OutputEmitter(self, name, schema) for name, schema in outputs.items()}
        self._only = self._channels.get(ONLY_OUTPUT)
        if self._only is not None:
            self.columns = self._only.columns
            self._width = len(outputs[ONLY_OUTPUT])

    def __call__(self, *values: object, **named: object) -> None:
        """Emit one row of the only output."""
        if self._only is None:
            names = ", ".join(f"emit.{name}(...)" for name in self._channels) or "nothing: no output is declared"
            raise OutputError("OUTPUT", f"emit(...) is for programs with one output; this one has {names}")
        event = self.event
        if event is None or named or len(values) != self._width or not _ATOMIC.issuperset(map(type, values)):
            self._only(*values, **named)
        else:  # inlined for speed: this is called for every event
            self.items.append(_row(Row, (ONLY_OUTPUT, values, event)))

    def __getattr__(self, name: str) -> OutputEmitter:
        channels: dict[str, OutputEmitter] = self.__dict__.get("_channels", {})
        if name not in channels:
            raise AttributeError(f"no output is called {name!r}; declared: {list(channels)}")
        return channels[name]

    def drain(self) -> list[Row | Chunk]:
        """Return and forget the outputs since the last call."""
        items, self.items = self.items, []
        return items


def rows(items: Iterable[Row | Chunk]) -> list[Row]:
    """Return all outputs as single rows, for comparing."""
    out: list[Row] = []
    for item in items:
        if isinstance(item, Row):
            out.append(item)
            continue
        events = list(item.batch)
        values = zip(*(column.to_pylist() for column in item.columns.columns), strict=True)
        out += [Row(item.output, tuple(v), events[i]) for v, i in zip(values, item.at.tolist(), strict=True)]
    return out


def table(schema: Schema, items: Sequence[Row | Chunk]) -> pa.Table:
    """Return one output as an Arrow table: the user's columns, then :data:`EVENT_COLUMNS`."""
    full = pa.schema([*schema.fields, *EVENT_COLUMNS])
    pieces: list[pa.RecordBatch] = []
    pending: list[Row] = []
    for item in items:
        if isinstance(item, Row):
            pending.append(item)
            continue
        pieces += _row_batch(schema, full, pending)
        pending = []
        names = pa.array(item.batch.streams, pa.string())
        streams = names.take(pa.array(item.batch.rank[item.at]))
        pieces.append(pa.record_batch([*item.columns.columns, pa.array(item.batch.ts[item.at]), streams], schema=full))
    pieces += _row_batch(schema, full, pending)
    return pa.Table.from_batches(pieces, schema=full)


def _row_batch(schema: Schema, full: pa.Schema, pending: Sequence[Row]) -> list[pa.RecordBatch]:
    if not pending:
        return []
    arrays = row_columns(schema, pending)
    arrays.append(pa.array([row.event.ts for row in pending], pa.int64()))
    arrays.append(pa.array([row.event.stream for row in pending], pa.string()))
    return [pa.record_batch(arrays, schema=full)]


def row_columns(schema: Schema, pending: Sequence[Row]) -> list[pa.Array]:
    """Return the declared columns of at least one row, or raise an error that names the value that does not fit."""
    columns = zip(*(row.values for row in pending), strict=True) if len(schema) else ()
    return [_column(field, list(values), pending) for field, values in zip(schema.fields, columns, strict=True)]


def _column(field: pa.Field, values: list[object], pending: Sequence[Row]) -> pa.Array:
    try:
        array = column(values, field.type, whole=True)
    except BadValueError as error:
        index = error.index
    else:
        null = _first_null(array, field)
        if null is None:
            return array
        index = null
    raise _bad_value(pending[index].output, field, values[index], repr(pending[index].event))
