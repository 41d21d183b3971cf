"""Covering arrays: few cases in which every pair of values of two dimensions occurs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import combinations, product

Value = str | int | bool
Choice = tuple[str, Value]
"""A dimension and one of its values."""

Pair = frozenset[Choice]


def valid_pairs(dimensions: Mapping[str, Sequence[Value]], forbidden: Collection[Pair]) -> list[Pair]:
    """List the pairs that a case may have, those of the first dimensions first.

    A pair is left out if it is forbidden, and also if no values of the other dimensions go with it.
    """
    found = []
    for one, other in combinations(dimensions, 2):
        for first, second in product(dimensions[one], dimensions[other]):
            if _completable({one: first, other: second}, dimensions, forbidden):
                found.append(frozenset(((one, first), (other, second))))
    return found


def covering(dimensions: Mapping[str, Sequence[Value]], forbidden: Collection[Pair] = ()) -> list[dict[str, Value]]:
    """Make cases that together have every valid pair; the same ones at every call.

    Greedy: a case begins with the first pair that is missing, and takes for each other dimension the value that adds
    most of the missing pairs; of equally good ones that which was used least, then the one that is listed first.
    """
    missing = dict.fromkeys(valid_pairs(dimensions, forbidden))
    used: Counter[Choice] = Counter()
    cases: list[dict[str, Value]] = []
    while missing:
        case = dict(next(iter(missing)))
        for dimension, values in dimensions.items():
            if dimension in case:
                continue
            allowed = [v for v in values if _completable({**case, dimension: v}, dimensions, forbidden)]
            gains = {v: sum(frozenset((pick, (dimension, v))) in missing for pick in case.items()) for v in allowed}
            case[dimension] = min(allowed, key=lambda v: (-gains[v], used[dimension, v], values.index(v)))
        used.update(case.items())
        for pair in pairs_of(case):
            missing.pop(pair, None)
        cases.append({dimension: case[dimension] for dimension in dimensions})
    return cases


def pairs_of(case: Mapping[str, Value]) -> list[Pair]:
    """List the pairs of values that a case has."""
    return [frozenset(two) for two in combinations(case.items(), 2)]


def _completable(
    case: Mapping[str, Value], dimensions: Mapping[str, Sequence[Value]], forbidden: Collection[Pair]
) -> bool:
    """Tell whether values for all other dimensions exist with which no pair is forbidden."""
    if any(pair in forbidden for pair in pairs_of(case)):
        return False
    left = next((dimension for dimension in dimensions if dimension not in case), None)
    if left is None:
        return True
    return any(_completable({**case, left: value}, dimensions, forbidden) for value in dimensions[left])
