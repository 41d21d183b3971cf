"""Column lists in Spark's DDL (``"user long, info string NOT NULL"``), parsed into Arrow without Spark.

>>> Schema.parse("user long, tags array<string>").arrow
user: int64
tags: list<item: string>
  child 0, item: string
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

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


def type_name(type_: pa.DataType) -> str:
    """The DDL name of an Arrow type, as users wrote it or would write it."""
    for name in ("boolean", "byte", "short", "int", "long", "float", "double", "string", "binary", "date"):
        if _SIMPLE[name] == type_:
            return name
    if pa.types.is_timestamp(type_):
        return "timestamp_ntz" if type_.tz is None else "timestamp"
    if pa.types.is_decimal(type_):
        return f"decimal({type_.precision},{type_.scale})"
    if pa.types.is_list(type_):
        return f"array<{type_name(type_.value_type)}>"
    if pa.types.is_map(type_):
        return f"map<{type_name(type_.key_type)},{type_name(type_.item_type)}>"
    if pa.types.is_struct(type_):
        inner = ",".join(f"{f.name}:{type_name(f.type)}" for f in type_)
        return f"struct<{inner}>"
    return str(type_)


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
        """A SchemaError that points at the offending character."""
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
        """The next token, which must be ``mark`` where one is asked for and a word otherwise."""
        if self.next == len(self.tokens):
            raise self.error(f"expected {mark or 'a word'}, found the end")
        kind, value, at = self.tokens[self.next]
        if (value != mark) if mark else (kind == "mark"):
            raise self.error(f"expected {mark or 'a word'}, found {value!r}", at)
        self.next += 1
        return value

    def columns(self) -> list[pa.Field]:
        """The whole text: a comma-separated list of columns with distinct names."""
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
