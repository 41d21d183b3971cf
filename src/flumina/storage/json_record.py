"""Convert dataclasses to JSON and back, with the types of fields checked.

::

    dataclass                objects                int, float, bool, str, None    as they are
    tuple[X, ...]            arrays                 datetime                       ISO 8601
    tuple[X, Y], NamedTuple  arrays, one by one     Any                            any JSON value
    Mapping[str, X]          objects                X | None                       null, or X
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime
from functools import cache
from typing import Any, TypeVar, get_args, get_origin

from flumina.storage.checksum import damaged

Record = TypeVar("Record")

_PLAIN = {int: "an integer", float: "a number", bool: "true or false", str: "a text"}


def to_json(record: object) -> Any:  # noqa: ANN401 -- any JSON value
    """Return the JSON value of a dataclass, or of a value in one."""
    if is_dataclass(record):
        return {field.name: to_json(getattr(record, field.name)) for field in fields(record)}
    if isinstance(record, Mapping):
        return {name: to_json(value) for name, value in record.items()}
    if isinstance(record, tuple | list):
        return [to_json(value) for value in record]
    return record.isoformat() if isinstance(record, datetime) else record


def from_json(kind: type[Record], content: object, file: str) -> Record:
    """Return the dataclass whose JSON value is ``content``: the inverse of :func:`to_json`.

    ``file`` is the path of the file that has the content, for error messages. Members of objects that are not fields
    are ignored; a field that is missing or of another type raises.
    """
    try:
        made: Record = _value(kind, content, "")
    except _WrongError as wrong:
        raise damaged(file, str(wrong)) from None
    return made


class _WrongError(Exception):
    """A value that is not of its type."""

    def __init__(self, where: str, expected: str, got: object) -> None:
        super().__init__(f"expected {expected} in field {where.lstrip('.') or 'content'!r}, got {got!r}")


def _value(kind: Any, value: Any, where: str) -> Any:  # noqa: ANN401 -- one for each kind of type
    if kind is Any:
        return value
    if kind in _PLAIN:
        is_right = isinstance(value, int | float if kind is float else kind)
        if not is_right or (isinstance(value, bool) and kind is not bool):
            raise _WrongError(where, _PLAIN[kind], value)
        return value
    if kind is datetime:
        return _time(value, where)
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (typing.Union, types.UnionType):
        (other,) = (one for one in inner if one is not types.NoneType)
        return None if value is None else _value(other, value, where)
    if origin is not None and issubclass(origin, Mapping):
        return {name: _value(inner[1], one, f"{where}.{name}") for name, one in _object(value, where).items()}
    if origin is tuple and inner[-1] is Ellipsis:
        return tuple(_value(inner[0], one, f"{where}.{n}") for n, one in enumerate(_array(value, None, where)))
    if origin is tuple:
        pairs = zip(inner, _array(value, len(inner), where), strict=True)
        return tuple(_value(one, item, f"{where}.{n}") for n, (one, item) in enumerate(pairs))
    hints = _hints(kind)
    if issubclass(kind, tuple):
        given = zip(hints.items(), _array(value, len(hints), where), strict=True)
        return kind(*(_value(hint, item, f"{where}.{name}") for (name, hint), item in given))
    return _dataclass(kind, hints, _object(value, where), where)


def _dataclass(kind: Any, hints: Mapping[str, Any], value: Mapping[str, Any], where: str) -> Any:  # noqa: ANN401
    found = {}
    for field in fields(kind):
        if field.name in value:
            found[field.name] = _value(hints[field.name], value[field.name], f"{where}.{field.name}")
        elif field.default is MISSING and field.default_factory is MISSING:
            raise _WrongError(f"{where}.{field.name}", "a value", None)
    return kind(**found)


def _object(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise _WrongError(where, "an object", value)
    return value


def _array(value: object, size: int | None, where: str) -> list[Any]:
    if not isinstance(value, list) or (size is not None and len(value) != size):
        raise _WrongError(where, "an array" if size is None else f"an array of {size}", value)
    return value


def _time(value: object, where: str) -> datetime:
    try:
        return datetime.fromisoformat(str(value))
    except ValueError:
        raise _WrongError(where, "a time", value) from None


@cache
def _hints(kind: type) -> Mapping[str, Any]:
    return typing.get_type_hints(kind)
