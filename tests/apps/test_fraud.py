import pytest

from flumina.apps.fraud import MODULO, Account, Fraud, FraudByHand
from flumina.model.tag_set import UNKEYED, TagSet
from tests.apps.agreement import (
    SEEDS,
    Given,
    assert_batches_agree,
    assert_empty_batches_do_nothing,
    outputs,
    random_columns,
)


def columns(seed: int) -> Given:
    """Few enough values that some are flagged."""
    given = random_columns(Fraud, seed, [])
    given["transaction"]["v"] = [v % 4 * 250 for v in given["transaction"]["v"]]
    given["rule"]["r"] = [r % 4 * 250 for r in given["rule"]["r"]]
    return given


@pytest.mark.parametrize("seed", SEEDS)
def test_both_agree(seed: int) -> None:
    given = columns(seed)
    assert outputs(Fraud, given) == outputs(FraudByHand, given)


def test_some_transactions_are_flagged() -> None:
    assert sum(len(outputs(Fraud, columns(seed))["flagged"]) for seed in SEEDS) > 20


@pytest.mark.parametrize("seed", SEEDS)
def test_batches(seed: int) -> None:
    assert_batches_agree(Fraud, columns(seed), seed)


def test_empty_batches() -> None:
    assert_empty_batches_do_nothing(Fraud, [Fraud.transaction, Fraud.rule])


def test_the_sum_goes_to_the_rules_and_the_model_to_both() -> None:
    program = FraudByHand()
    transactions, rules = TagSet({"transaction": UNKEYED}), TagSet({"rule": UNKEYED})
    state = Account(5, MODULO - 1)
    assert program.fork(state, transactions, transactions) == (state, Account(0, MODULO - 1))
    assert program.fork(state, transactions, rules) == (Account(0, MODULO - 1), state)
    assert program.join(Account(2, 7), Account(3, 7)) == Account(5, 7)
