from __future__ import annotations

import random
from itertools import product

import pytest

from tests.scale.cases import DIMENSIONS, FORBIDDEN, FRAMES, LOCAL
from tests.scale.pairs import Pair, Value, covering, pairs_of, valid_pairs


def possible(dimensions: dict[str, list[Value]], forbidden: set[Pair]) -> set[Pair]:
    """All pairs of all cases that there could be: by trying every combination of values."""
    found: set[Pair] = set()
    for values in product(*dimensions.values()):
        pairs = pairs_of(dict(zip(dimensions, values, strict=True)))
        if not forbidden & set(pairs):
            found.update(pairs)
    return found


def covered(cases: list[dict[str, Value]]) -> set[Pair]:
    return {pair for case in cases for pair in pairs_of(case)}


def test_the_cases_have_every_pair_that_is_possible_and_no_other() -> None:
    cases = covering(DIMENSIONS, FORBIDDEN)
    assert covered(cases) == possible(DIMENSIONS, FORBIDDEN) == set(valid_pairs(DIMENSIONS, FORBIDDEN))
    assert not [case for case in cases if case["engine"] == LOCAL and case["shape"] in FRAMES]
    assert len(cases) == len(DIMENSIONS["shape"]) * len(DIMENSIONS["program"]), "no array can have fewer"


@pytest.mark.parametrize("seed", range(20))
def test_any_dimensions_and_forbidden_pairs(seed: int) -> None:
    rng = random.Random(seed)
    dimensions: dict[str, list[Value]] = {f"d{n}": list(range(rng.randint(1, 4))) for n in range(rng.randint(2, 5))}
    everything = sorted(possible(dimensions, set()), key=sorted)
    forbidden = set(rng.sample(everything, len(everything) // 5))
    cases = covering(dimensions, forbidden)
    assert covered(cases) == possible(dimensions, forbidden)
    assert all(list(case) == list(dimensions) for case in cases)
    assert cases == covering(dimensions, forbidden)


def test_a_pair_is_not_valid_if_nothing_goes_with_it() -> None:
    dimensions: dict[str, list[Value]] = {"a": [0, 1], "b": [0, 1], "c": [0, 1]}
    forbidden: set[Pair] = {frozenset((("a", 0), ("c", 0))), frozenset((("b", 0), ("c", 1)))}
    assert frozenset((("a", 0), ("b", 0))) not in valid_pairs(dimensions, forbidden)
    assert covered(covering(dimensions, forbidden)) == possible(dimensions, forbidden)
