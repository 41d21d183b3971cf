from functools import reduce
from itertools import combinations
from operator import or_

from hypothesis import given, settings
from hypothesis import strategies as st

from flumina.model.tag_set import KeySet
from flumina.plan.key_cover import KeyCover, union_of

BLOCK = 512
PROBES = [*range(12), *range(5000, 5040)]

key_sets = st.builds(
    lambda blocks, plus, minus: (
        (
            KeySet.from_buckets(bucket for block in blocks for bucket in range(block * BLOCK, (block + 1) * BLOCK))
            | KeySet.of(*plus)
        )
        - KeySet.of(*minus)
    ),
    st.sets(st.integers(0, 7), max_size=3),
    st.sets(st.integers(0, 9), max_size=4),
    st.sets(st.integers(0, 9), max_size=4),
)


@given(st.lists(key_sets, min_size=1, max_size=6))
@settings(max_examples=150, deadline=None)
def test_counts_are_those_of_every_single_key(sets: list[KeySet]) -> None:
    count = KeyCover(list(enumerate(sets)))
    for times in (1, 2, 3):
        held = count.at_least(times)
        for key in PROBES:
            assert (key in held) == (sum(key in keys for keys in sets) >= times)
    assert count.covered() == union_of(sets) == reduce(or_, sets)


@given(st.lists(key_sets, min_size=2, max_size=5))
@settings(max_examples=150, deadline=None)
def test_overlaps_are_those_of_every_pair(sets: list[KeySet]) -> None:
    expected = {(a, b): sets[a] & sets[b] for a, b in combinations(range(len(sets)), 2) if sets[a].overlaps(sets[b])}
    assert {(a, b): keys for a, b, keys in KeyCover(list(enumerate(sets))).overlaps()} == expected
