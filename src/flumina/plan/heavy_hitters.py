"""Count the most frequent keys in bounded memory.

A Misra-Gries summary with c counters, merged column by column. Of n keys seen, every count it gives is at most the true
one, and::

    true count - n / (c + 1)  <=  count given  <=  true count

so that no key with more than n / (c + 1) events is missed, whatever the order of the data. How many different keys
there are is estimated besides (:mod:`flumina.plan.distinct_keys`).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flumina.errors import UsageError
from flumina.model.tag_set import Key
from flumina.plan.distinct_keys import DistinctKeys

COUNTERS = 1024
HOT = 0.01
"""A key with this share of its tag's events, or more, is planned for on its own."""


class HeavyHitters:
    """The keys that occur most, from any number of columns, in bounded memory."""

    def __init__(self, counters: int = COUNTERS) -> None:
        if counters < 1:
            raise UsageError("COUNTERS", f"heavy hitters need at least one counter, got {counters}")
        self.counters = counters
        self.seen = 0
        self.counts: dict[Key, int] = {}
        self.distinct = DistinctKeys()

    def add(self, keys: pa.Array | pa.ChunkedArray) -> None:
        """Count the keys of a column."""
        found = pc.value_counts(keys)
        counts = found.field("counts").to_numpy()
        self.seen += len(keys)
        self.distinct.add(found.field("values"))
        if len(counts) > self.counters:  # the column's own summary, before any key becomes a Python object
            cut = int(np.partition(counts, -self.counters - 1)[-self.counters - 1])
            kept = np.flatnonzero(counts > cut)
            found, counts = found.take(pa.array(kept)), counts[kept] - cut
        for key, count in zip(found.field("values").to_pylist(), counts.tolist(), strict=True):
            self.counts[key] = self.counts.get(key, 0) + count
        if len(self.counts) > self.counters:
            ordered = sorted(self.counts.values(), reverse=True)
            cut = ordered[self.counters]
            self.counts = {key: count - cut for key, count in self.counts.items() if count > cut}

    def heavy(self, share: float = HOT) -> dict[Key, int]:
        """Return every key with at least this share of all events, the heaviest first; counts are lower bounds."""
        slack = self.seen / (self.counters + 1)
        found = [(key, count) for key, count in self.counts.items() if count + slack >= share * self.seen]
        return dict(sorted(found, key=lambda pair: (-pair[1], repr(pair[0]))))
