"""Declare tags: kinds of events, with their columns and keys."""

from __future__ import annotations

import sys
from collections import namedtuple
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, overload

import pyarrow as pa

from flumina.errors import SchemaError, UsageError, location
from flumina.model.columns import read_columns
from flumina.model.event import FIXED_FIELDS, Event, _revive
from flumina.model.schema import BadValueError, Schema, column, type_name
from flumina.model.tag_set import UNKEYED, Key, KeySet
from flumina.model.zone_rules import utc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime
    from typing import Generic

    from typing_extensions import TypeVar

    EventT = TypeVar("EventT", default=Any)

    class _Typed(Generic[EventT]):
        """Tell type checkers the class of a tag's events."""

else:

    class _Typed:
        """Take the class of a tag's events, ``Tag[Payment]``, which matters to type checkers only."""

        def __class_getitem__(cls, _event: object) -> type:
            return cls


RESERVED_COLUMNS = frozenset({*FIXED_FIELDS, "tag"})
"""Names that a payload column can't have, because ``event.name`` means something else."""

KEY_TYPES = (pa.int32(), pa.int64(), pa.string(), pa.binary())


def user_line(depth: int = 1) -> str:
    """Return ``file:line`` of the code that called the caller (``depth`` frames up)."""
    frame = sys._getframe(depth + 1)
    return location(frame.f_code.co_filename, frame.f_lineno)


class Tag(_Typed["EventT"]):
    """A kind of event: its payload columns and, for a keyed tag, its key column.

    ``columns``  in Spark's DDL; or a dataclass, a ``pa.Schema`` or a ``StructType`` of Spark, which mean the same
    ``key``      the key column: ``"page string"``, or the name of one of the columns
    ``keys``     the only keys there can be; a dependence given as a function needs that

    Events of a tag that is given as a dataclass are instances of it, so that type checkers know their columns. Its
    attributes ``ts: int``, ``seq: int`` and ``stream: str`` are no columns: every event has them.

    >>> view = Tag("user long", key="page string")
    >>> view.columns.names, view.key.name
    (('user',), 'page')
    >>> Tag("page string, user long", key="page").schema == view.schema
    True
    """

    @overload
    def __init__(
        self: Tag[EventT], columns: type[EventT], *, key: str | None = None, keys: Iterable[Key] | None = None
    ) -> None: ...
    @overload
    def __init__(
        self: Tag[Event], columns: object = "", *, key: str | None = None, keys: Iterable[Key] | None = None
    ) -> None: ...
    def __init__(self, columns: object = "", *, key: str | None = None, keys: Iterable[Key] | None = None) -> None:
        self.name = "?"
        self.owner: type | None = None
        """The class in whose body the tag stands."""
        self.where = user_line()
        self.mistakes: list[tuple[str, ...]] = []
        """Mistakes for the class to report: condition, message and, where there is one, a hint."""
        self.columns = self._parse(columns)
        self.event_type: type | None = None
        """The dataclass of which events are instances, too."""
        if isinstance(columns, type) and not self.mistakes:
            self._set_event_type(columns)
        self.finite_keys = None if keys is None else frozenset(keys)
        self.key: pa.Field | None = None
        if key is not None:
            self._set_key(key)
        elif keys is not None:
            self.mistakes.append(("KEYS_WITHOUT_KEY", "keys= is given for a tag without key="))
        names = {*self.columns.names, *((self.key.name,) if self.key is not None else ())}
        for name in sorted(RESERVED_COLUMNS.intersection(self.columns.names)):
            self.mistakes.append(("RESERVED_COLUMN", f"a payload column can't be called {name!r}"))
        if self.key is not None and self.key.name in RESERVED_COLUMNS - {"key"}:
            self.mistakes.append(("RESERVED_COLUMN", f"a key column can't be called {self.key.name!r}"))
        if len(names) < len(self.columns) + (self.key is not None):
            self.mistakes.append(("DUPLICATE_COLUMN", "the key column is a payload column too"))

    def _parse(self, given: object) -> Schema:
        try:
            return read_columns(given)
        except SchemaError as error:
            self.mistakes.append(("BAD_SCHEMA", error.message, *([error.hint] if error.hint else [])))
            return Schema("", ())

    def _set_event_type(self, given: type) -> None:
        """Remember the dataclass, if events can be instances of it."""
        try:
            type(given.__name__, (Event, given), {"__slots__": ()})
        except TypeError:
            message = (
                f"events can't be instances of {given.__qualname__}, which has slots or a base class with own data"
            )
            self.mistakes.append(("BAD_SCHEMA", message, "leave out slots=True"))
        else:
            self.event_type = given

    def _set_key(self, ddl: str) -> None:
        before = len(self.mistakes)
        named = [field for field in self.columns.fields if field.name == ddl]
        if named:
            rest = tuple(field for field in self.columns.fields if field.name != ddl)
            self.columns, schema = Schema(self.columns.ddl, rest), Schema(ddl, tuple(named))
        else:
            schema = self._parse(ddl)
        if len(schema) == 1 and schema.fields[0].type in KEY_TYPES:
            field = schema.fields[0]
            self.key = pa.field(field.name, field.type, nullable=False)
            self._check_finite_keys()
        elif len(self.mistakes) == before:
            known = ", ".join(type_name(t) for t in KEY_TYPES)
            self.mistakes.append(("BAD_KEY", f"a key is one column of type {known}, got {ddl!r}"))

    def _check_finite_keys(self) -> None:
        """Check that listed keys are values of the key column."""
        assert self.key is not None
        listed = sorted(self.finite_keys or (), key=repr)
        try:
            nulls = column(listed, self.key.type).null_count
        except BadValueError as error:
            self.mistakes.append(("BAD_KEY", f"keys= holds {error.value!r}, which is no {type_name(self.key.type)}"))
        else:
            if nulls:
                self.mistakes.append(("BAD_KEY", "keys= holds None, which is not a key"))

    def __set_name__(self, owner: type, name: str) -> None:
        """Learn the tag's name from the class body it stands in."""
        if self.name == "?":
            self.name, self.owner = name, owner

    def __getstate__(self) -> dict[str, object]:
        """Leave out the classes of this tag's events: the receiving process makes one anew."""
        return {
            name: value for name, value in self.__dict__.items() if name not in ("event_class", "event_type", "owner")
        }

    def __deepcopy__(self, memo: dict[int, object]) -> Tag:
        """Return the tag itself: tags are immutable, and programs compare them by ``is``."""
        return self

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update({"event_type": None, **state})
        self.owner = None

    @property
    def universe(self) -> KeySet:
        """All the keys that events of this tag can have."""
        if self.key is None:
            return UNKEYED
        return KeySet.everything() if self.finite_keys is None else KeySet(0, self.finite_keys)

    @cached_property
    def schema(self) -> pa.Schema:
        """The Arrow columns of this tag's events: the key first, then the payload."""
        return pa.schema([*((self.key,) if self.key is not None else ()), *self.columns.fields])

    @cached_property
    def event_class(self) -> type[Event]:
        """The tuple class of this tag's events, with one attribute for each column."""
        fields = namedtuple(  # type: ignore[misc] # noqa: PYI024 -- names are known at run time only
            "Columns", (*FIXED_FIELDS, *self.columns.names), rename=True
        )
        members: dict[str, Any] = {"__slots__": (), "tag": self}
        if self.key is not None and self.key.name not in FIXED_FIELDS:
            members[self.key.name] = fields.key  # type: ignore[attr-defined]
        if "time" in self.columns.names:
            members["time"] = fields.time  # type: ignore[attr-defined]
        typed = () if self.event_type is None else (self.event_type,)
        return type(self.name, (Event, fields, *typed), members)

    def time_of(self, ts: int) -> datetime:
        """Return a timestamp in microseconds as a time in UTC."""
        return utc(ts)

    @property
    def make_event(self) -> Callable[[tuple[object, ...]], Event]:
        """Return an event from the values of :attr:`event_class`, all of them."""
        return partial(tuple.__new__, self.event_class)

    def event(self, /, *, ts: int = 0, stream: str = "", seq: int = 0, **columns: object) -> Event:
        """Return one event of this tag, for experiments and tests.

        >>> Tag("user long", key="page string").event(ts=3, page="a", user=7).page
        'a'
        """
        key = columns.pop(self.key.name, None) if self.key is not None else None
        if self.key is not None and key is None:
            raise UsageError("NULL_KEY", f"an event of tag {self.name!r} needs its key column {self.key.name!r}")
        if columns.keys() != set(self.columns.names):
            raise UsageError(
                "COLUMNS",
                f"an event of tag {self.name!r} has the columns {list(self.columns.names)}, got {sorted(columns)}",
            )
        return _revive(self, (ts, stream, seq, key, *(columns[n] for n in self.columns.names)))

    def __repr__(self) -> str:
        key = "" if self.key is None else f", key={f'{self.key.name} {type_name(self.key.type)}'!r}"
        return f"<Tag {self.name}: {str(self.columns)!r}{key}>"
