"""Read columns from DDL, dataclasses, Arrow schemas and Spark's types; all give the same schema.

>>> import dataclasses
>>> @dataclasses.dataclass
... class Payment:
...     account: str
...     amount: int | None
>>> str(read_columns(Payment)), str(read_columns("account string NOT NULL, amount long"))
('account string, amount long', 'account string, amount long')
"""

from __future__ import annotations

import types
import typing
from dataclasses import fields, is_dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, Union

import pyarrow as pa

from flumina.errors import SchemaError
from flumina.model.schema import Schema, type_name

OWN = {"ts": int, "seq": int, "stream": str}
"""Attributes of every event that a dataclass may declare: they are no columns of the payload."""

_PYTHON = {
    int: "long",
    float: "double",
    str: "string",
    bytes: "binary",
    bool: "boolean",
    datetime: "timestamp",
    date: "date",
    Decimal: "decimal(38,18)",
}
"""DDL types of Python types, as ``spark.createDataFrame`` infers them."""

_HINT = 'for example fl.Tag("user long"), fl.Tag(Payment) of a dataclass, a pa.schema or a StructType'


def read_columns(given: object) -> Schema:
    """Return the columns of a text in DDL, a dataclass, an Arrow schema or a StructType; raise SchemaError."""
    if isinstance(given, str):
        return Schema.parse(given)
    if isinstance(given, pa.Schema):
        return _schema([pa.field(f.name, _known(_plain(f.type), f.name), f.nullable) for f in given])
    if isinstance(given, type) and is_dataclass(given):
        return _schema(_of_dataclass(given))
    if type(given).__name__ == "StructType" and type(given).__module__.startswith("pyspark."):
        return _schema(list(_of_spark(given)))
    shown = f"the class {given.__qualname__}" if isinstance(given, type) else f"{type(given).__name__}: {given!r}"
    hint = "decorate it with @dataclass" if isinstance(given, type) else _HINT
    raise SchemaError("SCHEMA_TYPE", f"expected a schema in DDL or a dataclass, got {shown}", hint=hint)


def _schema(columns: list[pa.Field]) -> Schema:
    names = [column.name for column in columns]
    for name in names:
        if names.count(name) > 1:
            raise SchemaError("SCHEMA_SYNTAX", f"column {name!r} stands twice")
    text = ", ".join(f"{f.name} {type_name(f.type)}{'' if f.nullable else ' NOT NULL'}" for f in columns)
    return Schema(text, tuple(columns))


def python_type(annotation: object, name: str = "value") -> tuple[pa.DataType, bool]:
    """Return the type of a column that a dataclass annotates like this, and whether it may be null."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return _annotated(arguments, name)
    if origin in (Union, types.UnionType):
        others = [argument for argument in arguments if argument is not type(None)]
        if len(others) == 1:
            return python_type(others[0], name)[0], True
    if origin is list and len(arguments) == 1:
        return pa.list_(python_type(arguments[0], name)[0]), False
    if origin is dict and len(arguments) == 2:
        return pa.map_(*(python_type(argument, name)[0] for argument in arguments)), False
    if isinstance(annotation, type) and typing.is_typeddict(annotation):
        hints = typing.get_type_hints(annotation, include_extras=True)
        return pa.struct([pa.field(n, *python_type(hint, f"{name}.{n}")) for n, hint in hints.items()]), False
    if isinstance(annotation, type) and annotation in _PYTHON:
        return Schema.parse(f"value {_PYTHON[annotation]}").fields[0].type, False
    known = ", ".join(python.__name__ for python in _PYTHON)
    shown = annotation.__name__ if isinstance(annotation, type) else annotation
    hint = f"{known}, list[...], dict[..., ...], a TypedDict, each also with | None; or Annotated[type, 'DDL type']"
    raise SchemaError("SCHEMA_TYPE", f"{name!r} has the type {shown}, which is no type of a column", hint=hint)


def _annotated(arguments: tuple[Any, ...], name: str) -> tuple[pa.DataType, bool]:
    """Return the DDL type in ``Annotated[Decimal, "decimal(18,2)"]``; other annotations say nothing here."""
    ddl = next((argument for argument in arguments[1:] if isinstance(argument, str)), None)
    if ddl is None:
        return python_type(arguments[0], name)
    nullable = type(None) in typing.get_args(arguments[0])
    return Schema.parse(f"value {ddl}").fields[0].type, nullable


def _of_dataclass(cls: type) -> list[pa.Field]:
    try:
        hints = typing.get_type_hints(cls, include_extras=True)
    except NameError as error:
        hint = "define the types of its annotations in the module, or drop 'from __future__ import annotations'"
        raise SchemaError("SCHEMA_TYPE", f"the annotations of {cls.__qualname__} need {error}", hint=hint) from None
    columns = []
    for field in fields(cls):
        if field.name not in OWN:
            columns.append(pa.field(field.name, *python_type(hints[field.name], field.name)))
        elif hints[field.name] is not OWN[field.name]:
            expected, got = OWN[field.name].__name__, hints[field.name]
            about = "event.time is the timestamp as a datetime" if field.name == "ts" else "every event has it so"
            message = f"expected {field.name}: {expected} in {cls.__qualname__}, got {got}"
            raise SchemaError("SCHEMA_TYPE", message, hint=about)
    return columns


def _of_spark(struct: Any) -> typing.Iterator[pa.Field]:  # noqa: ANN401 -- pyspark need not be installed
    for field in struct.fields:
        yield pa.field(field.name, _spark_type(field.dataType), field.nullable)


def _spark_type(of: Any) -> pa.DataType:  # noqa: ANN401
    kind = type(of).__name__
    if kind == "StructType":
        return pa.struct(list(_of_spark(of)))
    if kind == "ArrayType":
        return pa.list_(_spark_type(of.elementType))
    if kind == "MapType":
        return pa.map_(_spark_type(of.keyType), _spark_type(of.valueType))
    return Schema.parse(f"value {of.simpleString()}").fields[0].type


def _plain(of: pa.DataType) -> pa.DataType:
    """Return the type of columns as DDL has it: one kind of text, of bytes, of lists and of timestamps."""
    if pa.types.is_dictionary(of):
        return _plain(of.value_type)
    if pa.types.is_large_string(of) or pa.types.is_string_view(of):
        return pa.string()
    if pa.types.is_large_binary(of) or pa.types.is_binary_view(of) or pa.types.is_fixed_size_binary(of):
        return pa.binary()
    if pa.types.is_timestamp(of):
        return pa.timestamp("us", tz="UTC" if of.tz else None)
    if pa.types.is_date(of):
        return pa.date32()
    if pa.types.is_list(of) or pa.types.is_large_list(of) or pa.types.is_fixed_size_list(of):
        return pa.list_(_plain(of.value_type))
    if pa.types.is_map(of):
        return pa.map_(_plain(of.key_type), _plain(of.item_type))
    if pa.types.is_struct(of):
        return pa.struct([pa.field(f.name, _plain(f.type), f.nullable) for f in of])
    return of


def _known(of: pa.DataType, name: str) -> pa.DataType:
    """Return a type that DDL has a name for; others are refused."""
    try:
        Schema.parse(f"value {type_name(of)}")
    except SchemaError:
        hint = "cast it to the next larger type that Spark has, too, such as long for uint32"
        raise SchemaError(
            "SCHEMA_TYPE", f"column {name!r} is {of}, which Spark's DDL does not have", hint=hint
        ) from None
    return of
