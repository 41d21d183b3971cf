"""Declare state by fields whose algebra gives fork and join.

Every field has an *identity*, which is also its initial value, and a commutative, associative ``join``::

    join(identity, v) = v = join(v, identity)

A fork gives a field's value to the sides that *observe* it (have a tag that reads or sets it) and the identity to the
other; if no side observes it, the left keeps it. Sides that only *add* need no value. So::

    join(fork(v)) = v                                                                     (C2)
    join(add(l, x), r) = add(join(l, r), x)                                               (C1)

for every field, provided that tags which observe a field depend on the tags that change it. These conditions
are checked when the class is made; :mod:`flumina.program.analysis.field_accesses` derives from ``update``
which tag accesses a field and how.

=============  ===========================  ==============================  ==========================
field          what ``update`` may do       what counts as adding           value given to
=============  ===========================  ==============================  ==========================
Sum, Count     read, set, add               ``state.f += x``                the one side that observes
Max, Min       read, set, add               ``state.f = greatest(state.f,   every side that observes
                                            x)`` / ``least``
Set            read, set, add               ``state.f.add(x)``, ``|= {x}``  every side that observes
Replicated     read, set                    (none)                          every side that observes
PerKey         as the field inside it, for  ``state.f[event.key] += x``     decided for each key
               each key
Tuple          as the fields inside it      as for each of them             decided for each of them
=============  ===========================  ==============================  ==========================
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any, ClassVar, Protocol, TypeVar

import pyarrow as pa

from flumina.errors import SchemaError
from flumina.model.decimals import exact_decimals
from flumina.model.schema import Schema
from flumina.model.tag import Tag, user_line
from flumina.model.tag_set import Key
from flumina.state.compare import identical
from flumina.state.keyed_map import FloatSet, KeyedMap, ValueSet, merge

Value = Any
Observes = Callable[[Key], bool]
"""Whether one side of a fork observes a field (at a key, for fields within PerKey)."""

READ, SET, ADD = "read", "set", "add"

_CHANGES = {(READ, SET), (SET, READ), (SET, SET), (READ, ADD), (ADD, READ), (SET, ADD), (ADD, SET)}


class _Ordered(Protocol):
    def __lt__(self, other: Any, /) -> bool: ...  # noqa: ANN401


Ordered = TypeVar("Ordered", bound=_Ordered)


def greatest(*values: Ordered | None) -> Ordered | None:
    """Return the largest value that is not None, or None (Spark's ``greatest``: NaN is the largest).

    >>> greatest(None, 3, 5), greatest(0.0, -0.0), greatest(-0.0, 0.0)
    (5, 0.0, 0.0)
    """
    best = None
    for value in values:
        if value is not None and (
            best is None or best < value or value != value or (best == value and _looks_less(best, value))  # noqa: PLR0124 -- it is NaN
        ):
            best = value
    return best


def least(*values: Ordered | None) -> Ordered | None:
    """Return the smallest value that is not None, or None (Spark's ``least``: NaN is the largest).

    >>> least(0.0, -0.0), least(-0.0, 0.0)
    (-0.0, -0.0)
    """
    best = None
    for value in values:
        if value is not None and (
            best is None or value < best or best != best or (best == value and _looks_less(value, best))  # noqa: PLR0124 -- it is NaN
        ):
            best = value
    return best


_ALIKE = frozenset({int, str, bytes, bool})
"""Types whose equal values are indistinguishable."""


def _looks_less(one: object, other: object) -> bool:
    """Order equal values, such as 0.0 and -0.0, so that the result does not depend on arrival."""
    if type(one) is type(other) and type(one) in _ALIKE:
        return False

    def looks(value: object) -> tuple[float, str, str]:
        sign = math.copysign(1.0, value) if isinstance(value, float) else 0.0
        return sign, type(value).__name__, repr(value)

    return looks(one) < looks(other)


def _holds_nested(type_: pa.DataType) -> bool:
    """Return whether values of an Arrow type have containers within containers."""
    if pa.types.is_map(type_):
        return bool(pa.types.is_nested(type_.key_type) or pa.types.is_nested(type_.item_type))
    return any(bool(pa.types.is_nested(type_.field(i).type)) for i in range(type_.num_fields))


class Field(ABC):
    """A part of declared state; ``read_by``, ``added_by`` and ``set_by`` overrule the analysis of ``update``."""

    conflicts: frozenset[tuple[str, str]] = frozenset(_CHANGES)
    """Pairs of accesses that need dependent tags."""
    mutable = False
    """Whether the value can be changed through a reference to it."""
    holds_mutable = False
    """Whether something in the value can be changed through a reference to that."""
    additive = True
    """Whether there is a way to add to the value, so that ``added_by=`` makes sense."""

    def __init__(
        self,
        *,
        read_by: Iterable[Tag] | None = None,
        added_by: Iterable[Tag] | None = None,
        set_by: Iterable[Tag] | None = None,
    ) -> None:
        self.name = "?"
        self.where = user_line(2)
        self.mistakes: list[tuple[str, str]] = []
        given = {READ: read_by, ADD: added_by, SET: set_by}
        self.declared = {kind: tuple(tags) for kind, tags in given.items() if tags is not None}

    def __getstate__(self) -> dict[str, object]:
        """Leave out the access declarations: workers need the field's algebra only."""
        return {**self.__dict__, "declared": {}}

    def __set_name__(self, owner: type, name: str) -> None:
        """Learn the field's name from the class body it stands in."""
        if self.name == "?":
            self.name = name

    @abstractmethod
    def identity(self) -> Value:
        """Return a fresh initial value."""

    @abstractmethod
    def join(self, left: Value, right: Value) -> Value:
        """Join two values; may consume both."""

    def fork(self, value: Value, left: Observes, right: Observes) -> tuple[Value, Value]:
        """Fork a value: to the sides that observe it, to the left if none does."""
        if not right(None):
            return value, self.identity()
        if not left(None):
            return self.identity(), value
        return value, self.copy(value)

    def narrow(self, value: Value, needed: Observes) -> Value:  # noqa: ARG002 -- some have keys
        """Return the value without the entries of keys that are not needed; may consume it."""
        return value

    def copy(self, value: Value) -> Value:
        """Return a value that shares nothing mutable with the first."""
        return value

    def is_identity(self, value: Value) -> bool:
        """Return whether a value is indistinguishable from the identity, so that it need not be stored."""
        return identical(value, self.identity())

    def _type(self, ddl: str) -> pa.DataType:
        """Return the Arrow type of a one-column DDL type; mistakes are collected for the class to report."""
        try:
            columns = Schema.parse(f"value {ddl}").fields
        except SchemaError as error:
            self.mistakes.append(("BAD_SCHEMA", error.message))
            return pa.null()
        if len(columns) != 1:
            self.mistakes.append(("BAD_SCHEMA", f"a field has one type, got {ddl!r}"))
        return columns[0].type

    def _check_parts(self, *parts: object) -> None:
        """Collect mistakes in the fields that this field contains, and in ``added_by=``."""
        for part in parts:
            if not isinstance(part, Field):
                self.mistakes.append(("BAD_FIELD", f"a {type(self).__name__} is made of fields, got {part!r}"))
                continue
            self.mistakes += part.mistakes
            if part.declared:
                message = f"read_by=, added_by= and set_by= belong to the {type(self).__name__}, not to what is in it"
                self.mistakes.append(("BAD_FIELD", message))
        if ADD in self.declared and not self.additive:
            self.mistakes.append(("REPLICATED_ADD", "a Replicated field can't be added to; use set_by="))


class Sum(Field):
    """A running total. Two readers of one sum must depend on each other: only one side can hold it."""

    conflicts = frozenset({*_CHANGES, (READ, READ)})

    def __init__(self, type_: str = "long", **accesses: Iterable[Tag]) -> None:
        super().__init__(**accesses)
        self.type = self._type(type_)
        numeric = pa.types.is_integer(self.type) or pa.types.is_floating(self.type) or pa.types.is_decimal(self.type)
        if not numeric and not self.mistakes:
            self.mistakes.append(("BAD_SCHEMA", f"a Sum is of a number type, got {type_!r}"))

    def identity(self) -> Value:
        if pa.types.is_floating(self.type):
            return 0.0
        return Decimal(0) if pa.types.is_decimal(self.type) else 0

    def is_identity(self, value: Value) -> bool:
        return not value and super().is_identity(value)  # called for every key, most of which are not at the identity

    def join(self, left: Value, right: Value) -> Value:
        with exact_decimals():
            return left + right

    def fork(self, value: Value, left: Observes, right: Observes) -> tuple[Value, Value]:
        """Give the whole sum to one side: two observing sides would depend on each other."""
        return (self.identity(), value) if right(None) and not left(None) else (value, self.identity())


class Count(Sum):
    """A number of events."""

    def __init__(self, **accesses: Iterable[Tag]) -> None:
        Field.__init__(self, **accesses)
        self.type = pa.int64()


class _Extreme(Field):
    pick: ClassVar[Callable[..., Any]]

    def __init__(self, type_: str = "long", **accesses: Iterable[Tag]) -> None:
        super().__init__(**accesses)
        self.type = self._type(type_)
        self.mutable = pa.types.is_nested(self.type)
        self.holds_mutable = _holds_nested(self.type)

    def identity(self) -> Value:
        return None

    def join(self, left: Value, right: Value) -> Value:
        return type(self).pick(left, right)

    def copy(self, value: Value) -> Value:
        return copy.deepcopy(value) if self.mutable else value


class Max(_Extreme):
    """The largest value seen; None before the first. Add with ``state.f = fl.greatest(state.f, x)``."""

    pick = staticmethod(greatest)


class Min(_Extreme):
    """The smallest value seen; None before the first. Add with ``state.f = fl.least(state.f, x)``."""

    pick = staticmethod(least)


class Set(Field):
    """A set of values, merged by union."""

    mutable = True

    def __init__(self, type_: str = "long", **accesses: Iterable[Tag]) -> None:
        super().__init__(**accesses)
        self.type = self._type(type_)

    def identity(self) -> Value:
        return self._made(())

    def join(self, left: Value, right: Value) -> Value:
        small, large = (left, right) if len(left) < len(right) else (right, left)
        large = large if isinstance(large, ValueSet) else self._made(large)
        large |= small
        return large

    def copy(self, value: Value) -> Value:
        return self._made(value)

    def _made(self, values: Iterable[Value]) -> ValueSet:
        return FloatSet(values) if pa.types.is_floating(self.type) else ValueSet(values)


class Replicated(Field):
    """A value that every side may read and one side may set: copied on fork.

    On join, the side that differs from ``initial`` wins. Sides differ only where one of them set the value; then the
    other side has no tag that observes it and got ``initial``.
    """

    conflicts = frozenset({(READ, SET), (SET, READ), (SET, SET)})
    additive = False

    def __init__(self, type_: str, initial: Value = None, **accesses: Iterable[Tag]) -> None:
        super().__init__(**accesses)
        self.type = self._type(type_)
        self.initial = initial
        self.mutable = pa.types.is_nested(self.type)
        self.holds_mutable = _holds_nested(self.type)
        if isinstance(initial, list | dict | set) and not self.mutable:
            self.mistakes.append(
                ("BAD_FIELD", f"{initial!r} is no {type_}: a Replicated begins with a value of its type")
            )
        self._check_parts()

    def identity(self) -> Value:
        return self.copy(self.initial)

    def join(self, left: Value, right: Value) -> Value:
        return right if self.is_identity(left) else left

    def is_identity(self, value: Value) -> bool:
        return identical(value, self.initial)

    def copy(self, value: Value) -> Value:
        return copy.deepcopy(value) if self.mutable else value


class Tuple(Field):
    """Several fields as one tuple value, for example ``PerKey(Tuple(Sum("double"), Count()))``.

    A tuple is replaced as a whole, so it is read and set, never added to, unless ``added_by=`` says that a tag only
    ever adds to each of its parts.
    """

    def __init__(self, *parts: Field, **accesses: Iterable[Tag]) -> None:
        super().__init__(**accesses)
        self.parts = tuple(part for part in parts if isinstance(part, Field))
        self.mutable = self.holds_mutable = any(part.mutable for part in self.parts)
        self.additive = all(part.additive for part in self.parts)
        # A tuple is as strict as its strictest part.
        self.conflicts = frozenset().union(*(part.conflicts for part in self.parts))
        self._check_parts(*parts)

    def identity(self) -> Value:
        return tuple(part.identity() for part in self.parts)

    def join(self, left: Value, right: Value) -> Value:
        return tuple(part.join(a, b) for part, a, b in zip(self.parts, left, right, strict=True))

    def fork(self, value: Value, left: Observes, right: Observes) -> tuple[Value, Value]:
        halves = [part.fork(v, left, right) for part, v in zip(self.parts, value, strict=True)]
        return tuple(a for a, _ in halves), tuple(b for _, b in halves)

    def narrow(self, value: Value, needed: Observes) -> Value:
        return tuple(part.narrow(v, needed) for part, v in zip(self.parts, value, strict=True))

    def copy(self, value: Value) -> Value:
        return tuple(part.copy(v) for part, v in zip(self.parts, value, strict=True))


class PerKey(Field):
    """A map from keys to values of another field; a key that was never written has that field's identity."""

    mutable = True

    def __init__(self, inner: Field, **accesses: Iterable[Tag]) -> None:
        super().__init__(**accesses)
        self.inner = inner if isinstance(inner, Field) else Count()
        self.conflicts = self.inner.conflicts
        self.holds_mutable = self.inner.mutable
        self.additive = self.inner.additive
        self._check_parts(inner)
        if isinstance(inner, PerKey):
            self.mistakes.append(("BAD_FIELD", "PerKey of PerKey: use one PerKey, or a keyed program"))

    def identity(self) -> Value:
        return KeyedMap(self.inner)

    def join(self, left: Value, right: Value) -> Value:
        return merge(left, right, self.inner.join)

    def fork(self, value: Value, left: Observes, right: Observes) -> tuple[Value, Value]:
        halves = KeyedMap(self.inner), KeyedMap(self.inner)
        for key, entry in value.items():
            pair = self.inner.fork(entry, _constant(left(key)), _constant(right(key)))
            for half, part in zip(halves, pair, strict=True):
                half[key] = part
        return halves

    def narrow(self, value: Value, needed: Observes) -> Value:
        return KeyedMap(self.inner, {key: entry for key, entry in dict.items(value) if needed(key)})

    def copy(self, value: Value) -> Value:
        return KeyedMap(self.inner, {key: self.inner.copy(entry) for key, entry in value.items()})


def _constant(yes: bool) -> Observes:  # noqa: FBT001 -- it is the value
    return lambda _: yes
