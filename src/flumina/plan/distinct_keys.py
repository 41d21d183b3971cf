"""Estimate the number of distinct keys from the smallest hashes, in bounded memory.

Hashes are spread evenly over 64 bits. Of n different ones the k-th smallest lies near k / n of the way, so that::

    n  ~  (k - 1) / k-th smallest hash      within 1 / sqrt(k - 2), 1.6 % for k = 4096; exact below k different keys

A sample of some rows has not seen all keys. How many there are in r times as many rows follows from how many came new
in either half of the sample, if every further half brings as many times fewer::

    q           =  new in the second half / new in the first half       at most 1
    n(r x rows) =  n(rows) x (1 - q ** 2r) / (1 - q ** 2)               n(rows) x r if q is 1

which is exact where all keys are equally frequent, and low where some are much rarer than others.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flumina.model.hashing import hash_column

SMALLEST = 4096


class DistinctKeys:
    """A counter of distinct keys over any number of columns."""

    def __init__(self, smallest: int = SMALLEST) -> None:
        self.smallest = smallest
        self.hashes = np.zeros(0, np.uint64)
        self._growth: list[float] = []

    def add(self, keys: pa.Array) -> None:
        """Add a column in which every key occurs once."""
        hashes = np.concatenate([self.hashes, hash_column(keys)])
        if len(hashes) > 2 * self.smallest:  # each of the smallest occurs at most twice
            hashes = np.partition(hashes, 2 * self.smallest)[: 2 * self.smallest]
        self.hashes = np.unique(hashes)[: self.smallest]

    def observe_growth(self, keys: pa.ChunkedArray) -> None:
        """Learn from a sampled column, in its order, how many of the keys come late."""
        half = len(keys) // 2
        if half:
            few, all_ = pc.count_distinct(keys.slice(0, half)).as_py(), pc.count_distinct(keys).as_py()
            self._growth.append(min(1.0, (all_ - few) / few))

    def count(self, scale: float = 1.0) -> float:
        """Return the number of different keys, in so many times as many rows as were seen."""
        seen = float(len(self.hashes))
        if len(self.hashes) == self.smallest:
            seen = (self.smallest - 1) * 2.0**64 / float(self.hashes[-1])
        late = sum(self._growth) / len(self._growth) if self._growth else 0.0
        if late == 1.0 or scale <= 1.0:
            return seen * max(1.0, scale)
        return seen * float(1 - late ** (2 * scale)) / float(1 - late**2)
