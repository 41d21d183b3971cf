"""Map keys to values of a declared field, or to one-key states."""

from __future__ import annotations

import copy
from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from typing import Any, Protocol, Self

from flumina.model.key_order import in_order
from flumina.model.tag_set import Key

Value = Any


class Default(Protocol):
    """The protocol of the values of a :class:`KeyedMap`."""

    @property
    def mutable(self) -> bool:
        """Whether a value can be changed through a reference to it."""

    def identity(self) -> Value:
        """Return a fresh value for a missing key."""

    def is_identity(self, value: Value) -> bool:
        """Return whether a value is that of a missing key."""


class KeyedMap(dict[Key, Value]):
    """A dict with a field's identity for missing keys.

    An entry equal to the identity is indistinguishable from a missing one: forks drop such entries, so a program that
    could distinguish them would observe how the state was divided. Iteration goes over a copy of the entries in the
    order of the keys, so that it reveals neither which key came first nor how the map was divided; the map may be
    changed during iteration.
    """

    __slots__ = ("field",)

    def __init__(self, field: Default, entries: Mapping[Any, Value] | None = None) -> None:
        super().__init__(entries or {})
        self.field = field

    def __missing__(self, key: Key) -> Value:
        value = self.field.identity()
        if self.field.mutable:  # the caller may change it in place, so the map must hold it
            self[key] = value
        return value

    def pruned(self) -> dict[Key, Value]:
        """Return the entries that differ from the identity, in no particular order."""
        return {key: value for key, value in dict.items(self) if not self.field.is_identity(value)}

    def in_order(self) -> dict[Key, Value]:
        """Return the entries that differ from the identity, in the order of the keys."""
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
    """A set that iterates in the order of its values, independent of insertion order."""

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
    """A set of floats that holds NaN once, as SQL does.

    For Python, every NaN that was read or copied is a different value.

    Both 0.0 and -0.0 are stored as 0.0.

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
    """Return the representative of all values that count as equal to this one."""
    if value != value:  # noqa: PLR0124 -- it is NaN
        return _NAN
    return 0.0 if type(value) is float and value == 0 else value


def merge(left: KeyedMap, right: KeyedMap, join: Callable[[Value, Value], Value]) -> KeyedMap:
    """Merge two maps, the smaller into the larger; entries of both are joined."""
    if dict.__len__(left) >= dict.__len__(right):
        for key, value in dict.items(right):
            left[key] = join(dict.__getitem__(left, key), value) if dict.__contains__(left, key) else value
        return left
    for key, value in dict.items(left):
        right[key] = join(value, dict.__getitem__(right, key)) if dict.__contains__(right, key) else value
    return right
