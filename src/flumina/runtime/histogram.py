"""Histograms of durations with a bounded relative error, cheap to record and to add up.

Buckets grow by the factor 2**(1/8), so a percentile is at most 9 % off whatever its size. Durations below a microsecond
count as one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

_PER_DOUBLING = 8
_SMALLEST = 1e-6


def bucket_of(seconds: float) -> int:
    """Return the bucket number of a duration."""
    return math.ceil(_PER_DOUBLING * math.log2(max(seconds, _SMALLEST) / _SMALLEST))


def upper_bound(bucket: int) -> float:
    """Return the longest duration of a bucket, in seconds."""
    return float(_SMALLEST * 2 ** (bucket / _PER_DOUBLING))


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts of durations by bucket.

    >>> h = Histogram.of({0.001: 98, 1.0: 2})
    >>> round(h.percentile(50), 3), round(h.percentile(99), 1), h.total
    (0.001, 1.0, 100)
    """

    counts: Mapping[int, int] = field(default_factory=dict)

    @staticmethod
    def of(durations: Mapping[float, int]) -> Histogram:
        """Build a histogram from durations and their counts."""
        counts: Counter[int] = Counter()
        for seconds, times in durations.items():
            counts[bucket_of(seconds)] += times
        return Histogram(dict(counts))

    @property
    def total(self) -> int:
        """Return the number of recorded durations."""
        return sum(self.counts.values())

    def percentile(self, percent: float) -> float:
        """Return a percentile in seconds; 0 if nothing was recorded."""
        remaining = math.ceil(self.total * percent / 100)
        for bucket in sorted(self.counts):
            remaining -= self.counts[bucket]
            if remaining <= 0:
                return upper_bound(bucket)
        return 0.0

    def __add__(self, other: Histogram) -> Histogram:
        """Return the sum of two histograms."""
        return Histogram(dict(Counter(self.counts) + Counter(other.counts)))
