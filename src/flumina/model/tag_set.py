"""Represent sets of tags with unbounded keys: the programming model's predicates.

A :class:`KeySet` is a set of fixed virtual hash buckets plus included keys minus excluded keys. Stored as the
bucket set and the keys *whose membership differs from their bucket's*, every set has exactly one representation::

    k in S   iff   (bucket(k) in S.buckets) xor (k in S.flips)

so equality is equality of fields, and every boolean operation is one operation on the buckets and one on the keys
that either side names. A tag without a key is a tag whose only key is ``None``.

Emptiness is exact because a bucket can't be emptied by naming keys: a bucket of ``int`` keys holds a million.

>>> evens = KeySet.of(2, 4, 6)
>>> sorted((evens | KeySet.of(1)).flips - evens.flips)
[1]
>>> rest = KeySet.everything() - evens
>>> 2 in rest, 3 in rest, (rest & evens).is_empty()
(False, True, True)
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from numbers import Number
from typing import TYPE_CHECKING, SupportsInt

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from flumina.model.hashing import BUCKETS, bucket_column, bucket_of

if TYPE_CHECKING:
    from flumina.model.tag import Tag

Key = Hashable
"""A key: an int, a str or bytes; None for a tag without a key."""

_ALL_BUCKETS = (1 << BUCKETS) - 1


@dataclass(frozen=True, slots=True, repr=False)
class KeySet:
    """A set of keys in normal form; ``buckets`` is a bit set."""

    buckets: int = 0
    flips: frozenset[Key] = frozenset()

    @staticmethod
    def of(*keys: Key) -> KeySet:
        """Return the set of exactly these keys."""
        return KeySet(0, frozenset(keys))

    @staticmethod
    def everything() -> KeySet:
        """Return the set of all keys."""
        return KeySet(_ALL_BUCKETS)

    @staticmethod
    def from_buckets(buckets: Iterable[int]) -> KeySet:
        """Return the set of all keys of these virtual buckets."""
        mask = 0
        for bucket in buckets:
            mask |= 1 << bucket
        return KeySet(mask)

    def __contains__(self, key: Key) -> bool:
        return _in_bucket(self.buckets, key) != (key in self.flips)

    def __or__(self, other: KeySet) -> KeySet:
        return self._combine(other, self.buckets | other.buckets, lambda a, b: a or b)

    def __and__(self, other: KeySet) -> KeySet:
        return self._combine(other, self.buckets & other.buckets, lambda a, b: a and b)

    def __sub__(self, other: KeySet) -> KeySet:
        return self._combine(other, self.buckets & ~other.buckets, lambda a, b: a and not b)

    def _combine(self, other: KeySet, buckets: int, rule: Callable[[bool, bool], bool]) -> KeySet:
        named = self.flips | other.flips
        if not named:
            return KeySet(buckets)
        flips = (k for k in named if rule(k in self, k in other) != _in_bucket(buckets, k))
        return KeySet(buckets, frozenset(flips))

    def is_empty(self) -> bool:
        """Return whether no key at all is in the set."""
        return not self.buckets and not self.flips

    def overlaps(self, other: KeySet) -> bool:
        """Return whether some key is in both: ``not (self & other).is_empty()``, without building the set."""
        if self.buckets & other.buckets:
            return True
        small, large = (self, other) if len(self.flips) <= len(other.flips) else (other, self)
        # Every bucket is on one side at most, so a common key is named by one of them.
        return any(k in large for k in small.flips if k in small) or (
            bool(small.buckets) and any(k in small for k in large.flips if k in large)
        )

    @property
    def is_finite(self) -> bool:
        """Whether the set consists of named keys only."""
        return not self.buckets

    def keys(self) -> frozenset[Key]:
        """Return the keys of a finite set."""
        assert self.is_finite, "an infinite key set can't be listed"
        return self.flips

    def mask(self, keys: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.bool_]:
        """Return the membership of every entry of an Arrow key column, as one column operation."""
        inside = np.zeros(len(keys), bool)
        if self.buckets == _ALL_BUCKETS:
            inside[:] = True
        elif self.buckets:
            table = np.frombuffer(self.buckets.to_bytes(BUCKETS // 8, "little"), np.uint8)
            inside = np.unpackbits(table, bitorder="little").astype(bool)[bucket_column(keys)]
        if self.flips:
            values = keys.type.value_type if pa.types.is_dictionary(keys.type) else keys.type
            named = pa.array([k for k in self.flips if is_value(k, values)], values)
            if pa.types.is_dictionary(keys.type):
                keys = keys.cast(values)
            inside ^= pc.is_in(keys, value_set=named).to_numpy(zero_copy_only=False)
        return inside

    def __str__(self) -> str:
        included = sorted(repr(k) for k in self.flips if k in self)
        excluded = sorted(repr(k) for k in self.flips if k not in self)
        if not self.buckets:
            return ", ".join(included) or "nothing"
        count = self.buckets.bit_count()
        base = "*" if count == BUCKETS else f"{count}/{BUCKETS} buckets"
        return base + "".join(f" + {k}" for k in included) + "".join(f" - {k}" for k in excluded)

    def __repr__(self) -> str:
        return f"<KeySet {self}>"


def _in_bucket(buckets: int, key: Key) -> bool:
    """Return whether a key's bucket is among these; the absent key of an unkeyed tag is in none."""
    if type(key) not in _KEY_TYPES:
        key = _column_value(key)
    return key is not None and (buckets >> bucket_of(key)) & 1 == 1


_KEY_TYPES = frozenset({int, str, bytes})


def _column_value(key: Key) -> Key:
    """Return the value of a key column that equals this key, as 1 equals 1.0 and True in a dict; else None."""
    if key is None or (isinstance(key, int | str | bytes) and not isinstance(key, bool)):
        return key
    if not isinstance(key, Number | np.bool_) or not isinstance(key, SupportsInt):
        return None
    try:
        whole = int(key)
    except (TypeError, ValueError, OverflowError):  # complex numbers, NaN and infinity
        return None
    return whole if whole == key else None


def is_value(key: Key, type_: pa.DataType) -> bool:
    """Return whether a column of this type can hold the key at all: sets may name keys of several tags."""
    if pa.types.is_integer(type_):
        bits = type_.bit_width - 1
        return isinstance(key, int) and -(1 << bits) <= key < 1 << bits
    text = pa.types.is_string(type_) or pa.types.is_large_string(type_)
    return isinstance(key, str if text else bytes)


NO_KEYS = KeySet()
UNKEYED = KeySet.of(None)
"""The key set of a tag without keys that is present."""


@dataclass(frozen=True, slots=True)
class TagSet:
    """A set of (tag, key) pairs: for each tag name a non-empty :class:`KeySet`.

    Tags are held by name, so that sets travel between processes and compare by value.

    >>> s = TagSet({"view": KeySet.of("a"), "change": KeySet.everything()})
    >>> s.has("view", "a"), s.has("view", "b"), s.has("change", "b")
    (True, False, True)
    """

    members: tuple[tuple[str, KeySet], ...] = ()

    def __init__(self, members: Mapping[str, KeySet] | Iterable[tuple[str, KeySet]] = ()) -> None:
        together: dict[str, KeySet] = {}
        for name, keys in members.items() if isinstance(members, Mapping) else members:
            together[name] = together[name] | keys if name in together else keys
        kept = sorted(name for name, keys in together.items() if not keys.is_empty())
        object.__setattr__(self, "members", tuple((name, together[name]) for name in kept))

    @staticmethod
    def all_of(tags: Iterable[Tag]) -> TagSet:
        """Return the set of all keys of these tags."""
        return TagSet({tag.name: tag.universe for tag in tags})

    def __getitem__(self, tag: str) -> KeySet:
        """Return the keys of a tag; empty where the tag is not in the set."""
        for name, keys in self.members:
            if name == tag:
                return keys
        return NO_KEYS

    def __iter__(self) -> Iterator[tuple[str, KeySet]]:
        return iter(self.members)

    def has(self, tag: Tag | str, key: Key = None) -> bool:
        """Return whether events of this tag (and key) are in the set."""
        return key in self[tag if isinstance(tag, str) else tag.name]

    def has_key(self, key: Key) -> bool:
        """Return whether events of any tag with this key are in the set."""
        return any(key in keys for _, keys in self.members)

    def sees_key(self, key: Key) -> bool:
        """Return whether events with this key, or of a tag without keys, are in the set.

        >>> TagSet([("change", KeySet.of("home"))]).sees_key("away"), TagSet([("report", UNKEYED)]).sees_key("away")
        (False, True)
        """
        return any(key in keys or keys == UNKEYED for _, keys in self.members)

    def has_any(self, tag: Tag | str) -> bool:
        """Return whether events of this tag are in the set for at least one key."""
        return not self[tag if isinstance(tag, str) else tag.name].is_empty()

    def at(self, key: Key) -> TagSet:
        """Return the set at one key: the tags that have it and the tags without keys, all as unkeyed."""
        return TagSet((name, UNKEYED) for name, keys in self.members if key in keys or keys == UNKEYED)

    @property
    def tags(self) -> tuple[str, ...]:
        """The names of the tags with at least one key in the set."""
        return tuple(name for name, _ in self.members)

    def is_empty(self) -> bool:
        """Return whether no event at all is in the set."""
        return not self.members

    def __or__(self, other: TagSet) -> TagSet:
        return self._combine(other, KeySet.__or__)

    def __and__(self, other: TagSet) -> TagSet:
        return self._combine(other, KeySet.__and__)

    def __sub__(self, other: TagSet) -> TagSet:
        return self._combine(other, KeySet.__sub__)

    def __le__(self, other: TagSet) -> bool:
        """Return whether this is a subset of the other."""
        return (self - other).is_empty()

    def _combine(self, other: TagSet, rule: Callable[[KeySet, KeySet], KeySet]) -> TagSet:
        names = {*self.tags, *other.tags}
        return TagSet((name, rule(self[name], other[name])) for name in names)

    def __str__(self) -> str:
        return ", ".join(n if k == UNKEYED else f"{n}({k})" for n, k in self.members) or "nothing"
