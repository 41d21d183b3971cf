import pytest

from flumina.apps.key_counter import KeyCounter, KeyCounterByHand, KeyCounterMap
from flumina.model.tag_set import KeySet, TagSet
from tests.apps.agreement import (
    SEEDS,
    assert_batches_agree,
    assert_empty_batches_do_nothing,
    outputs,
    random_columns,
)


@pytest.mark.parametrize("seed", SEEDS)
def test_all_three_agree(seed: int) -> None:
    given = random_columns(KeyCounter, seed, [1, 2, -3])
    expected = outputs(KeyCounter, given)
    assert expected == outputs(KeyCounterMap, given) == outputs(KeyCounterByHand, given)
    assert len(expected["output"]) == len(given["read"]["ts"])


@pytest.mark.parametrize("seed", SEEDS)
def test_batches(seed: int) -> None:
    assert_batches_agree(KeyCounter, random_columns(KeyCounter, seed, [1, 2]), seed)


def test_empty_batches() -> None:
    assert_empty_batches_do_nothing(KeyCounter, [KeyCounter.inc, KeyCounter.read])


def test_the_fork_of_the_paper() -> None:
    """Figure 1: the side that reads a key has its count, and the right has what neither reads."""
    program = KeyCounterByHand()
    left, right = TagSet({"read": KeySet.of(1)}), TagSet({"read": KeySet.of(2), "inc": KeySet.of(3)})
    assert program.fork({1: 10, 2: 20, 3: 30, 4: 40}, left, right) == ({1: 10}, {2: 20, 3: 30, 4: 40})
    assert program.join({1: 10, 3: 1}, {2: 20, 3: 30}) == {1: 10, 2: 20, 3: 31}
