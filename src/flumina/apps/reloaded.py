"""Detect outliers in records of mixed attributes by RELOADED.

After Otey, Ghoting, Parthasarathy: "Fast Distributed Outlier Detection in Mixed-Attribute Data Sets" (2006).

What is taken from it. A record's categorical values and their combinations are *itemsets*; an itemset that few records
have is a sign of an outlier, the more so the smaller it is. In the records of a frequent itemset the continuous
attributes go together in a certain way, their covariances; a record in which too many of them deviate is unusual
among them. The score of a record sums this up over its itemsets::

    score = sum of 1 / |I|  over itemsets I of the record, |I| <= SIZE,
            that are infrequent, or in which more than DEVIANT of the covariances deviate by more than SIGMAS

and a record is an outlier if its score is above THRESHOLD. Workers summarize what they see; summaries add up to a
global model.

What is not. The original flags with the model of the worker and then again with the global one; here the *last global
model* alone flags, which every worker has, because what a worker happens to have seen is no property of the stream.
Covariances are compared for itemsets of one value only (of which a record has few), and the deviation that counts as
usual is that of a normal distribution. Summaries are kept for the combinations of *all* categorical values that occur:
support and moments of every itemset follow by addition, and a record is added once rather than once for each itemset.

Everything that adds up is a whole number: measures are brought to small integers first. So a summary does not
depend on which worker made which part of it, or in which order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations
from typing import Self

import numpy as np
import numpy.typing as npt

from flumina.model.order import Ints

SIZE = 3
"""The size of the largest itemsets."""
SUPPORT = 100
"""An itemset is frequent if one in so many records has it."""
SIGMAS = 3.0
DEVIANT = 0.02
THRESHOLD = 6
"""Tried on the KDD Cup 1999, whose records have seven categorical values: nearly all of them rare or unusual."""

UNIT = 6
"""Scores are counted in sixths, which are whole for itemsets of one, two and three."""

_STEPS = 8
"""Steps of the logarithmic scale between a number and its double."""
_ROWS = 256
"""Records that are scored at once: their covariances fit into the cache."""

Floats = npt.NDArray[np.float64]
Categories = tuple[str, ...]
"""The categorical values of a record, one for each attribute."""
Item = tuple[int, str]
Itemset = tuple[Item, ...]


def logarithmic(values: Ints) -> Ints:
    """Counts and sizes on a logarithmic scale, in whole steps; the same on every machine, unlike a logarithm.

    >>> logarithmic(np.array([0, 1, 2, 3, 1000, 2000])).tolist()
    [0, 8, 12, 16, 79, 87]
    """
    mantissa, exponent = np.frexp(np.maximum(values, 0).astype(np.float64) + 1.0)
    steps: Ints = _STEPS * (exponent.astype(np.int64) - 1) + np.floor((2 * mantissa - 1) * _STEPS).astype(np.int64)
    return steps


def percentages(values: Floats) -> Ints:
    """Shares from 0 to 1 as whole percentages."""
    percent: Ints = np.rint(100 * np.clip(np.nan_to_num(values), 0, 1)).astype(np.int64)
    return percent


@lru_cache(maxsize=8)
def _pairs(width: int) -> tuple[Ints, Ints]:
    """Return the pairs of attributes, each once."""
    return np.triu_indices(width)


def itemsets(categories: Categories) -> Iterator[Itemset]:
    """Yield all itemsets of a record up to :data:`SIZE`."""
    items = tuple(enumerate(categories))
    for size in range(1, SIZE + 1):
        yield from combinations(items, size)


@dataclass
class Summary:
    """A summary of records: for each combination of categorical values a vector that adds up.

    It holds the number of records, the sum of each measure, and the sum of the products of each pair.
    """

    moments: dict[Categories, Ints] = field(default_factory=dict)

    def add(self, categories: Categories, measures: Ints) -> None:
        """Add records with the same categories, one in each row."""
        exact = measures.astype(np.float64)  # products of measures up to 1,000 stay exact for 2**33 rows
        products = (exact.T @ exact)[_pairs(measures.shape[1])].astype(np.int64)
        self._add_moments(categories, np.concatenate(([len(measures)], measures.sum(axis=0), products)))

    def merge(self, other: Self) -> None:
        """Add another summary."""
        for categories, moments in other.moments.items():
            self._add_moments(categories, moments)

    def _add_moments(self, categories: Categories, moments: Ints) -> None:
        known = self.moments.get(categories)
        self.moments[categories] = moments if known is None else known + moments

    @property
    def records(self) -> int:
        """How many were seen."""
        return sum(int(moments[0]) for moments in self.moments.values())


@dataclass(frozen=True)
class Expected:
    """The usual measures of the records with one categorical value."""

    mean: Floats
    covariance: Floats
    bound: Floats
    """How far the product of two deviations from the mean may lie from the covariance."""

    @staticmethod
    def of(moments: Ints, width: int) -> Expected:
        """Derive the usual measures from the sums over these records."""
        count, mean = int(moments[0]), moments[1 : width + 1] / moments[0]
        products = np.zeros((width, width))
        products[_pairs(width)] = moments[width + 1 :] / count
        products = np.maximum(products, products.T)
        covariance = products - np.outer(mean, mean)
        variance = np.maximum(np.diag(covariance), 0)
        spread = np.sqrt(np.outer(variance, variance) + covariance**2)
        return Expected(mean, covariance, SIGMAS * spread + 0.5)  # half a step of the measures is no deviation

    def deviates(self, measures: Ints) -> npt.NDArray[np.bool_]:
        """Return which records have too many covariances that are unusual.

        A measure that has always been the same, and is so again, has no unusual covariances: most records need not be
        compared in these at all.
        """
        most = DEVIANT * self.bound.size
        varies = self.covariance.diagonal() > 0
        plain = (measures[:, ~varies] == self.mean[~varies]).all(axis=1)
        found = np.empty(len(measures), bool)
        found[plain] = self._unusual(measures[plain], np.flatnonzero(varies)) > most
        found[~plain] = self._unusual(measures[~plain], np.arange(len(varies))) > most
        return found

    def _unusual(self, measures: Ints, of: Ints) -> Ints:
        """Return how many covariances of these measures are unusual, for each record."""
        counts = np.empty(len(measures), np.int64)
        covariance, bound = self.covariance[np.ix_(of, of)], self.bound[np.ix_(of, of)]
        for start in range(0, len(measures), _ROWS):
            apart = measures[start : start + _ROWS, of] - self.mean[of]
            products = apart[:, :, None] * apart[:, None, :]
            products -= covariance
            unusual = np.abs(products, out=products) > bound
            counts[start : start + _ROWS] = np.count_nonzero(unusual, axis=(1, 2))
        return counts


@dataclass(frozen=True)
class Model:
    """The trained model; immutable, so that it needs no copies."""

    frequent: frozenset[Itemset]
    expected: dict[Item, Expected]

    @staticmethod
    def train(summary: Summary) -> Model:
        """Return the model of everything that was summarized."""
        support: Counter[Itemset] = Counter()
        moments: dict[Item, Ints] = {}
        for categories, vector in summary.moments.items():
            for itemset in itemsets(categories):
                support[itemset] += int(vector[0])
            for item in enumerate(categories):
                moments[item] = moments[item] + vector if item in moments else vector
        least = summary.records / SUPPORT
        frequent = frozenset(itemset for itemset, count in support.items() if count >= least)
        expected = {
            item: Expected.of(vector, _width(len(vector))) for item, vector in moments.items() if (item,) in frequent
        }
        return Model(frequent, expected)

    def scores(self, categories: Categories, measures: Ints) -> Ints:
        """Return the scores of records with the same categories, in units of 1 / :data:`UNIT`."""
        rare = sum(UNIT // len(itemset) for itemset in itemsets(categories) if itemset not in self.frequent)
        scores = np.full(len(measures), rare)
        for item in enumerate(categories):
            if item in self.expected:
                scores += UNIT * self.expected[item].deviates(measures)
        return scores

    def __deepcopy__(self, memo: dict[int, object]) -> Model:
        return self


def _width(length: int) -> int:
    """Return how many measures a vector of moments is about: its length is (width + 1) * (width + 2) / 2."""
    return int(((8 * length + 1) ** 0.5 - 3) / 2)
