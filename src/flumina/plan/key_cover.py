"""Count how many key sets hold a key: exact for all keys, in one pass.

A key that no set names is in as many sets as have its bucket. A key k that is named is in::

    (sets that have k's bucket)  -  (sets that have the bucket and exclude k)  +  (sets that include k by name)

So unions, overlaps and gaps of n sets cost about as much as the sets are long, not n times as much.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import combinations

import numpy as np
import numpy.typing as npt

from flumina.model.hashing import BUCKETS, bucket_of
from flumina.model.tag_set import Key, KeySet

CoverEntry = tuple[int, KeySet]
"""Who, and which keys."""


class KeyCover:
    """Key sets with their owners (numbers; an owner may have several), and counts over them."""

    def __init__(self, entries: Sequence[CoverEntry]) -> None:
        self.entries = entries

    @cached_property
    def by_bucket(self) -> npt.NDArray[np.int64]:
        """For each bucket, how many sets have it."""
        counts = np.zeros(BUCKETS, np.int64)
        for _, keys in self.entries:
            if keys.buckets:
                counts += bits(keys)
        return counts

    @cached_property
    def by_name(self) -> dict[Key, int]:
        """For each key that any set names, how many sets hold it."""
        counts: dict[Key, int] = {}
        for _, keys in self.entries:
            for key in keys.flips:
                if key is None:  # the absent key of an unkeyed tag is in no bucket
                    counts[key] = counts.get(key, 0) + 1
                    continue
                bucket = bucket_of(key)
                base = counts.get(key)
                if base is None:
                    base = int(self.by_bucket[bucket])
                counts[key] = base + (-1 if keys.buckets >> bucket & 1 else 1)
        return counts

    def at_least(self, count: int) -> KeySet:
        """Return the keys that this many sets hold, or more."""
        inside = self.by_bucket >= count
        buckets = int.from_bytes(np.packbits(inside, bitorder="little").tobytes(), "little")
        flips = (
            key
            for key, held in self.by_name.items()
            if (held >= count) != (key is not None and bool(inside[bucket_of(key)]))
        )
        return KeySet(buckets, frozenset(flips))

    def covered(self) -> KeySet:
        """Return the union of the sets."""
        return self.entries[0][1] if len(self.entries) == 1 else self.at_least(1)

    def overlaps(self) -> list[tuple[int, int, KeySet]]:
        """Return every pair of sets with common keys: both owners, and the keys."""
        if len(self.entries) < 2:
            return []
        common = self.at_least(2)
        if common.is_empty():
            return []
        owners = [(owner, keys & common) for owner, keys in self.entries if keys.overlaps(common)]
        pairs = ((a, b, keys & others) for (a, keys), (b, others) in combinations(owners, 2))
        return [(a, b, keys) for a, b, keys in pairs if not keys.is_empty()]


def bits(keys: KeySet) -> npt.NDArray[np.uint8]:
    """Return for each bucket whether the set has it, as 0 or 1."""
    return np.unpackbits(np.frombuffer(keys.buckets.to_bytes(BUCKETS // 8, "little"), np.uint8), bitorder="little")


def union_of(sets: Sequence[KeySet]) -> KeySet:
    """Return all keys of these sets."""
    if len(sets) == 1:
        return sets[0]
    if all(keys.is_finite for keys in sets):
        return KeySet(0, frozenset().union(*(keys.flips for keys in sets)))
    if len(sets) == 2:
        return sets[0] | sets[1]
    return KeyCover([(0, keys) for keys in set(sets)]).covered()
