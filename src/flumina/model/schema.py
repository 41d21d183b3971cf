"""Parse column lists in Spark's DDL into Arrow schemas, without Spark.

>>> Schema.parse("user long, tags array<string>").arrow
user: int64
tags: list<item: string>
  child 0, item: string
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import date
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flumina.errors import SchemaError

_SIMPLE: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "tinyint": pa.int8(),
    "short": pa.int16(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_TOKEN = re.compile(r"\s*(?:(?P<quoted>`(?:[^`]|``)+`)|(?P<word>\w+)|(?P<mark>[<>(),:]))")


@dataclass(frozen=True)
class Schema:
    """An ordered list of named, typed columns; ``ddl`` is the text it came from."""

    ddl: str
    fields: tuple[pa.Field, ...]

    @staticmethod
    def parse(ddl: str) -> Schema:
        """Read Spark's DDL; the empty text is the schema without columns."""
        if not isinstance(ddl, str):
            raise SchemaError(
                "SCHEMA_TYPE",
                f"a schema is text in Spark's DDL, got {type(ddl).__name__}: {ddl!r}",
                hint='write for example "user long, info string"',
            )
        return Schema(ddl, tuple(_Parser(ddl).columns()))

    @cached_property
    def arrow(self) -> pa.Schema:
        """The same columns as an Arrow schema."""
        return pa.schema(list(self.fields))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The column names in order."""
        return tuple(field.name for field in self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def __str__(self) -> str:
        return ", ".join(f"{field.name} {type_name(field.type)}" for field in self.fields)


def type_name(type_: pa.DataType, *, not_null: bool = False) -> str:
    """Return the DDL name of an Arrow type; with ``not_null``, including ``NOT NULL`` inside it."""
    for name in ("boolean", "byte", "short", "int", "long", "float", "double", "string", "binary", "date"):
        if _SIMPLE[name] == type_:
            return name
    if pa.types.is_timestamp(type_):
        return "timestamp_ntz" if type_.tz is None else "timestamp"
    if pa.types.is_decimal(type_):
        return f"decimal({type_.precision},{type_.scale})"
    if pa.types.is_list(type_):
        return f"array<{type_name(type_.value_type, not_null=not_null)}>"
    if pa.types.is_map(type_):
        key, item = (type_name(of, not_null=not_null) for of in (type_.key_type, type_.item_type))
        return f"map<{key},{item}>"
    if pa.types.is_struct(type_):
        mark = {True: "", False: " NOT NULL" if not_null else ""}
        inner = ",".join(f"{f.name}:{type_name(f.type, not_null=not_null)}{mark[f.nullable]}" for f in type_)
        return f"struct<{inner}>"
    return str(type_)


class BadValueError(ValueError):
    """A value does not fit its column's type, or the values before it; ``index`` is its position."""

    def __init__(self, index: int, value: object) -> None:
        super().__init__(f"{value!r} at {index}")
        self.index, self.value = index, value


def column(values: Sequence[object], type_: pa.DataType | None, *, whole: bool = False) -> pa.Array:
    """Convert Python values to an Arrow column; raise :class:`BadValueError` at the first misfit.

    Without a type, it is inferred.

    Arrow would cut 3.5 down to 3 for a long, take bytes for a string, and a text for an array of its letters; here a
    value is of its type or an error. ``whole``: fields that a struct does not have are an error too, rather than
    left out.
    """
    array = _convert(values, type_, whole=whole)
    if array is not None:
        return array
    index = bisect_left(range(len(values)), 1, key=lambda i: _convert(values[: i + 1], type_, whole=whole) is None)
    raise BadValueError(index, values[index])


def _convert(values: Sequence[object], type_: pa.DataType | None, *, whole: bool) -> pa.Array | None:
    if type_ is not None and not (
        _plain(type_).issuperset(map(type, values)) or all(_fits(v, type_, whole=whole) for v in values)
    ):
        return None
    try:
        array = pa.array(values, type_)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None
    if type_ == pa.float32() and has_infinite(array) and not all(_fits(v, type_, whole=whole) for v in values):
        return None
    return array


def has_infinite(array: pa.Array) -> bool:
    """Return whether a column of floats holds an infinite number."""
    return bool(pc.any(pc.is_inf(array)).as_py())


_PYTHON: tuple[tuple[Callable[[pa.DataType], bool], Any], ...] = (
    (pa.types.is_integer, int | np.integer),
    (pa.types.is_string, str),
    (pa.types.is_binary, bytes | bytearray | memoryview),
    (pa.types.is_temporal, date | np.datetime64),
)
"""Python types of the values, for types of which Arrow accepts other values too."""


@lru_cache(maxsize=256)
def _plain(type_: pa.DataType) -> frozenset[type]:
    """Return the Python types all of whose values fit, which need no check one by one."""
    none = type(None)
    if pa.types.is_integer(type_):
        return frozenset({int, bool, np.int64, none})
    if pa.types.is_string(type_):
        return frozenset({str, none})
    if pa.types.is_floating(type_):
        return frozenset({float, int, np.float64, none})
    return frozenset({none})


def _fits(value: object, type_: pa.DataType, *, whole: bool) -> bool:
    """Return whether a value that Arrow takes for this type means the same as the value."""
    if value is None:
        return True
    for is_kind, python in _PYTHON:
        if is_kind(type_):
            return isinstance(value, python)
    if pa.types.is_float32(type_):
        if isinstance(value, float) and not math.isfinite(value):
            return True
        return not isinstance(value, int | float) or abs(value) < _FLOAT_ENDS
    if pa.types.is_list(type_):
        if isinstance(value, str | bytes | bytearray | memoryview):
            return False  # Arrow would take them for an array of letters or of numbers
        if isinstance(value, Sequence | AbstractSet) or (isinstance(value, np.ndarray) and value.ndim):
            return all(_fits(item, type_.value_type, whole=whole) for item in value)
    if pa.types.is_struct(type_) and isinstance(value, Mapping):
        if whole and not value.keys() <= {field.name for field in type_}:
            return False
        return all(_fits(value.get(field.name), field.type, whole=whole) for field in type_)
    if pa.types.is_map(type_) and isinstance(value, Mapping):
        return all(
            _fits(k, type_.key_type, whole=whole) and _fits(v, type_.item_type, whole=whole) for k, v in value.items()
        )
    return True


_FLOAT_ENDS = 2.0**128 - 2.0**103
"""The smallest number that rounds to infinity as a float of 32 bits."""


def same_kind(one: pa.DataType, other: pa.DataType) -> bool:
    """Return whether two types hold the same sort of values, at most in different sizes."""
    return any(kind(one) and kind(other) for kind in _KINDS)


_KINDS: tuple[Callable[[pa.DataType], bool], ...] = (
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_timestamp,
    pa.types.is_decimal,
    lambda t: pa.types.is_string(t) or pa.types.is_large_string(t) or pa.types.is_string_view(t),
    lambda t: pa.types.is_binary(t) or pa.types.is_large_binary(t) or pa.types.is_fixed_size_binary(t),
)


class _Parser:
    """Recursive descent over the tokens of one DDL text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[tuple[str, str, int]] = []
        at = 0
        while text[at:].strip():
            match = _TOKEN.match(text, at)
            if match is None:
                at += len(text[at:]) - len(text[at:].lstrip())
                raise self.error(f"unexpected character {text[at]!r}", at)
            kind = str(match.lastgroup)
            value = match.group(kind)
            start = match.start(kind)
            if kind == "quoted":
                value = value[1:-1].replace("``", "`")
            self.tokens.append((kind, value, start))
            at = match.end()
        self.next = 0

    def error(self, what: str, at: int | None = None) -> SchemaError:
        """Return a SchemaError that points at the offending character."""
        at = self.at() if at is None else at
        return SchemaError(
            "SCHEMA_SYNTAX",
            f"{what} at character {at}\n    {self.text}\n    {' ' * at}^",
            hint='a schema is "name type, name type", for example "user long, info string"',
        )

    def at(self) -> int:
        return self.tokens[self.next][2] if self.next < len(self.tokens) else len(self.text)

    def peek(self) -> str:
        return self.tokens[self.next][1] if self.next < len(self.tokens) else ""

    def take(self, *, mark: str | None = None) -> str:
        """Return the next token, which must be ``mark`` where one is asked for and a word otherwise."""
        if self.next == len(self.tokens):
            raise self.error(f"expected {mark or 'a word'}, found the end")
        kind, value, at = self.tokens[self.next]
        if (kind, value) != ("mark", mark) if mark else kind == "mark":
            raise self.error(f"expected {mark or 'a word'}, found {value!r}", at)
        self.next += 1
        return value

    def columns(self) -> list[pa.Field]:
        """Return the whole text: a comma-separated list of columns with distinct names."""
        fields: list[pa.Field] = []
        while self.next < len(self.tokens):
            if fields:
                self.take(mark=",")
            at = self.at()
            field = self.field()
            if field.name in {f.name for f in fields}:
                raise self.error(f"column {field.name!r} stands twice", at)
            fields.append(field)
        return fields

    def field(self) -> pa.Field:
        name = self.take()
        if self.peek() == ":":
            self.take(mark=":")
        type_ = self.type_()
        nullable = True
        if self.peek().lower() == "not":
            self.take()
            if self.take().lower() != "null":
                raise self.error("expected NULL after NOT", self.tokens[self.next - 1][2])
            nullable = False
        return pa.field(name, type_, nullable)

    def type_(self) -> pa.DataType:
        at = self.at()
        name = self.take().lower()
        if name in ("decimal", "dec", "numeric"):
            return self.decimal()
        if name == "array":
            self.take(mark="<")
            item = self.type_()
            self.take(mark=">")
            return pa.list_(item)
        if name == "map":
            self.take(mark="<")
            key = self.type_()
            self.take(mark=",")
            item = self.type_()
            self.take(mark=">")
            return pa.map_(key, item)
        if name == "struct":
            return self.struct()
        if name not in _SIMPLE:
            raise self.error(f"unknown type {name!r} (known: {', '.join(sorted(_SIMPLE))}, ...)", at)
        return _SIMPLE[name]

    def decimal(self) -> pa.DataType:
        if self.peek() != "(":
            return pa.decimal128(10, 0)
        self.take(mark="(")
        at = self.at()
        numbers = [self.take()]
        if self.peek() == ",":
            self.take(mark=",")
            numbers.append(self.take())
        self.take(mark=")")
        try:
            return pa.decimal128(*(int(n) for n in numbers))
        except (ValueError, pa.ArrowInvalid) as error:
            raise self.error(f"not a decimal: {error}", at) from None

    def struct(self) -> pa.DataType:
        self.take(mark="<")
        fields = [self.field()]
        while self.peek() == ",":
            self.take(mark=",")
            fields.append(self.field())
        self.take(mark=">")
        return pa.struct(fields)


def cast(column: pa.Array | pa.ChunkedArray, target: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """Return a column as another type; values outside of it don't matter.

    Arrow reads all values below a list, including values outside a slice, so that a bad one would be blamed on its
    neighbors.
    """
    if pa.types.is_nested(column.type):
        if isinstance(column, pa.ChunkedArray):
            return pa.chunked_array([cast(chunk, target) for chunk in column.chunks], target)
        column = pa.concat_arrays([column])
    return column.cast(target)


def shown_time(ts: int, type_: pa.DataType | None) -> str:
    """Format a timestamp as O compares it.

    >>> shown_time(1_500_000, pa.timestamp("us", tz="UTC")), shown_time(7, pa.int64())
    ('1970-01-01T00:00:01.500000+00:00', '7')
    """
    if type_ is None or not pa.types.is_timestamp(type_):
        return str(ts)
    try:
        return str(pa.scalar(ts, pa.int64()).cast(type_).as_py().isoformat())
    except (OverflowError, ValueError):
        return f"{ts} microseconds after 1970"


def shown_span(ticks: int, type_: pa.DataType | None) -> str:
    """Format the difference of two timestamps.

    >>> shown_span(1_500_000, pa.timestamp("us")), shown_span(1_500_000, pa.int64())
    ('1.500000 seconds', '1,500,000')
    """
    return f"{ticks / 1e6:,.6f} seconds" if type_ is not None and pa.types.is_timestamp(type_) else f"{ticks:,}"


def timestamp_type(type_: pa.DataType) -> pa.DataType | None:
    """Return the type of timestamps in O: whole numbers, or microseconds with or without a zone."""
    if pa.types.is_timestamp(type_):
        return _SIMPLE["timestamp"] if type_.tz else pa.timestamp("us")
    if pa.types.is_date(type_):
        return pa.timestamp("us")
    return pa.int64() if pa.types.is_integer(type_) or pa.types.is_null(type_) else None
