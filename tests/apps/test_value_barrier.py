import pytest

from flumina.apps.value_barrier import ValueBarrier, ValueBarrierByHand
from flumina.model.tag_set import UNKEYED, TagSet
from tests.apps.agreement import (
    SEEDS,
    assert_batches_agree,
    assert_empty_batches_do_nothing,
    outputs,
    random_columns,
)


@pytest.mark.parametrize("seed", SEEDS)
def test_both_agree(seed: int) -> None:
    given = random_columns(ValueBarrier, seed, [])
    assert outputs(ValueBarrier, given) == outputs(ValueBarrierByHand, given)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_value_is_in_one_window(seed: int) -> None:
    """Windows are cut by barriers alone, so the totals are sums of consecutive values."""
    given = random_columns(ValueBarrier, seed, [])
    values = list(zip(given["value"]["ts"], given["value"]["v"], strict=True))
    barriers = given["barrier"]["ts"]
    expected, before = [], -1
    for at in barriers:  # of equal timestamps, the barrier comes first here
        expected.append(sum(v for t, v in values if before <= t < at))
        before = at
    assert [row["total"] for row in outputs(ValueBarrier, given)["output"]] == expected


@pytest.mark.parametrize("seed", SEEDS)
def test_batches(seed: int) -> None:
    assert_batches_agree(ValueBarrier, random_columns(ValueBarrier, seed, []), seed)


def test_empty_batches() -> None:
    assert_empty_batches_do_nothing(ValueBarrier, [ValueBarrier.value, ValueBarrier.barrier])


def test_the_sum_goes_to_the_barrier() -> None:
    program = ValueBarrierByHand()
    values, barriers = TagSet({"value": UNKEYED}), TagSet({"barrier": UNKEYED})
    assert program.fork(7, values, barriers) == (0, 7)
    assert program.fork(7, barriers, values) == program.fork(7, values, values) == (7, 0)
    assert program.join(3, 4) == 7
