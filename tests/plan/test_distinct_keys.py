import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flumina.plan.distinct_keys import DistinctKeys


@given(st.lists(st.sets(st.integers(0, 500)), max_size=8))
@settings(max_examples=100, deadline=None)
def test_few_keys_are_counted_exactly_however_often_they_come(columns: list[set[int]]) -> None:
    counted = DistinctKeys(smallest=501)
    for column in columns:
        counted.add(pa.array(sorted(column), pa.int64()))
    assert counted.count() == len(set().union(*columns))


@pytest.mark.parametrize("count", [5_000, 100_000])
def test_many_keys_are_estimated_in_bounded_memory(count: int) -> None:
    keys = [f"key {number}" for number in np.random.default_rng(1).permutation(count)]
    counted, again = DistinctKeys(1024), DistinctKeys(1024)
    for number in range(10):
        counted.add(pa.array(keys[number::10]))
        again.add(pa.array(keys[number::10]))
        again.add(pa.array(keys[: count // 2]))  # what comes again counts once
    assert len(counted.hashes) == 1024
    assert counted.count() == pytest.approx(count, rel=5 / math.sqrt(1024))
    assert again.count() == counted.count()


def test_keys_that_were_not_seen_follow_from_those_that_came_late() -> None:
    rng = np.random.default_rng(1)
    for keys, expected in (
        (np.arange(1000), 10_000),  # every row has a key of its own
        (np.arange(1000) % 10, 10),  # all were there at once
        (rng.integers(0, 2000, 1000), 2000),  # some were
    ):
        counted = DistinctKeys()
        counted.add(pa.array(np.unique(keys)))
        counted.observe_growth(pa.chunked_array([keys]))
        assert counted.count(scale=10.0) == pytest.approx(expected, rel=0.2)
        assert counted.count() == len(np.unique(keys))
    assert DistinctKeys().count(7.0) == 0
