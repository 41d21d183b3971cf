"""Maps from keys to values of a declared field, or to the states of a keyed program."""

from __future__ import annotations

import copy
from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from typing import Any, Protocol, Self

from flumina.model.key_order import in_order
from flumina.model.tag_set import Key

Value = Any


class Default(Protocol):
    """What a :class:`KeyedMap` needs to know of the values it holds."""

    @property
    def mutable(self) -> bool:
        """Whether a value can be changed through a reference to it."""

    def identity(self) -> Value:
        """A fresh value for a missing key."""

    def is_identity(self, value: Value) -> bool:
        """Whether a value is that of a missing key."""


class KeyedMap(dict[Key, Value]):
    """A dict with a field's identity for missing keys.

    An entry equal to the identity is no different from a missing one, however one looks at the map: forks drop such
    entries, so a program that could tell them apart would see how it was divided. Iterating goes over the entries at
    that moment, in the order of the keys, so that it does not tell which key was seen first or how the map was divided;
    the map may be changed meanwhile.
    """

    __slots__ = ("field",)

    def __init__(self, field: Default, entries: Mapping[Any, Value] | None = None) -> None:
        super().__init__(entries or {})
        self.field = field

    def __missing__(self, key: Key) -> Value:
        value = self.field.identity()
        if self.field.mutable:  # it will be changed in place, so it must be kept
            self[key] = value
        return value

    def pruned(self) -> dict[Key, Value]:
        """The entries that differ from the identity, in no particular order."""
        return {key: value for key, value in dict.items(self) if not self.field.is_identity(value)}

    def in_order(self) -> dict[Key, Value]:
        """The same in the order of the keys."""
        entries = self.pruned()
        return {key: entries[key] for key in in_order(entries)}

    def __contains__(self, key: object) -> bool:
        return dict.__contains__(self, key) and not self.field.is_identity(dict.__getitem__(self, key))

    def __iter__(self) -> Iterator[Key]:
        return iter(self.in_order())

    def __reversed__(self) -> Iterator[Key]:
        return reversed(self.in_order())

    def __len__(self) -> int:
        return len(self.pruned())

    def __bool__(self) -> bool:
        return any(not self.field.is_identity(value) for value in dict.values(self))

    def keys(self) -> KeysView[Key]:  # type: ignore[override] # a view of the entries at this moment
        return self.in_order().keys()

    def values(self) -> ValuesView[Value]:  # type: ignore[override]
        return self.in_order().values()

    def items(self) -> ItemsView[Key, Value]:  # type: ignore[override]
        return self.in_order().items()

    def get(self, key: Key, default: Value = None) -> Value:
        return dict.__getitem__(self, key) if key in self else default

    def pop(self, key: Key, *default: Value) -> Value:
        if key not in self:
            dict.pop(self, key, None)
        return dict.pop(self, key, *default)

    def take_out(self, key: Key) -> Value:
        """Remove and return a key's value: the identity, if it has none."""
        return dict.pop(self, key) if dict.__contains__(self, key) else self.field.identity()

    def setdefault(self, key: Key, default: Value = None) -> Value:
        if key not in self:
            self[key] = default
        return self[key]

    def popitem(self) -> tuple[Key, Value]:
        for key in reversed(self.in_order()):
            return key, dict.pop(self, key)
        raise KeyError("the map is empty")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeyedMap) and self.pruned() == other.pruned()

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None

    def __reduce__(self) -> tuple[object, ...]:
        return (KeyedMap, (self.field, self.pruned()))

    def __deepcopy__(self, memo: dict[int, Any]) -> KeyedMap:
        return KeyedMap(self.field, copy.deepcopy(self.pruned(), memo))

    def __repr__(self) -> str:
        return repr(self.in_order())


class ValueSet(set[Any]):
    """A set that is iterated over in the order of its values, which does not tell how it came about."""

    def __iter__(self) -> Iterator[Any]:
        return iter(in_order(set.__iter__(self)))

    def pop(self) -> Any:  # noqa: ANN401
        """Remove and return the first value."""
        for value in self:
            self.discard(value)
            return value
        raise KeyError("the set is empty")

    def __repr__(self) -> str:
        return f"{{{', '.join(map(repr, self))}}}" if self else "set()"


_NAN = float("nan")


class FloatSet(ValueSet):
    """A set of floats that holds NaN once, as SQL does: for Python, every NaN that was read or copied is another one.

    Nor does it matter whether 0.0 or -0.0 came first: both are 0.0 in it.

    >>> seen = FloatSet([float("nan")])
    >>> seen.add(float("nan"))
    >>> len(seen | {float("nan"), 1.0}), float("nan") in seen
    (2, True)
    """

    def __init__(self, values: Iterable[Any] = ()) -> None:
        super().__init__(map(_one_of_equals, values))

    def add(self, value: Any) -> None:  # noqa: ANN401
        super().add(_one_of_equals(value))

    def update(self, *others: Iterable[Any]) -> None:
        for values in others:
            super().update(map(_one_of_equals, values))

    def discard(self, value: Any) -> None:  # noqa: ANN401
        super().discard(_one_of_equals(value))

    def remove(self, value: Any) -> None:  # noqa: ANN401
        super().remove(_one_of_equals(value))

    def __contains__(self, value: object) -> bool:
        return super().__contains__(_one_of_equals(value))

    def __ior__(self, other: Any) -> Self:  # noqa: ANN401
        self.update(other)
        return self

    def union(self, *others: Iterable[Any]) -> FloatSet:
        made = FloatSet(self)
        made.update(*others)
        return made

    def __or__(self, other: Any) -> FloatSet:  # noqa: ANN401
        return self.union(other) if isinstance(other, set | frozenset) else NotImplemented


def _one_of_equals(value: Any) -> Any:  # noqa: ANN401
    """A value, whichever of those that count as the same was there first."""
    if value != value:  # noqa: PLR0124 -- it is NaN
        return _NAN
    return 0.0 if type(value) is float and value == 0 else value


def merge(left: KeyedMap, right: KeyedMap, join: Callable[[Value, Value], Value]) -> KeyedMap:
    """Two maps as one, the smaller put into the larger: entries that both have are joined."""
    if dict.__len__(left) >= dict.__len__(right):
        for key, value in dict.items(right):
            left[key] = join(dict.__getitem__(left, key), value) if dict.__contains__(left, key) else value
        return left
    for key, value in dict.items(left):
        right[key] = join(value, dict.__getitem__(right, key)) if dict.__contains__(right, key) else value
    return right
