import random
from collections import Counter

import numpy as np
import pytest

from flumina.apps import reloaded
from flumina.apps.reloaded import (
    DEVIANT,
    SIGMAS,
    SUPPORT,
    UNIT,
    Expected,
    Model,
    Summary,
    itemsets,
    logarithmic,
    percentages,
)
from flumina.state.compare import same


def records(seed: int, count: int, width: int = 5) -> list[tuple[tuple[str, ...], list[int]]]:
    """Categorical values of two attributes and small measures; the last measure is always the same."""
    rng = random.Random(seed)
    return [
        (
            (rng.choice("aaaaab"), rng.choice("xy")),
            [*(rng.randrange(100) for _ in range(width - 1)), 7],
        )
        for _ in range(count)
    ]


def summary(of: list[tuple[tuple[str, ...], list[int]]]) -> Summary:
    made = Summary()
    for cell, measures in of:
        made.add(cell, np.array([measures]))
    return made


def test_scales() -> None:
    sizes = np.arange(0, 100_000)
    steps = logarithmic(sizes)
    assert (np.diff(steps) >= 0).all()
    assert np.abs(steps - 8 * np.log2(sizes + 1)).max() < 1.7
    assert logarithmic(np.array([-5, 2**62])).tolist() == [0, 8 * 62]
    assert percentages(np.array([0.0, 0.014, 1.0, 7.0, -1.0, np.nan, np.inf])).tolist() == [0, 1, 100, 100, 0, 0, 100]


def test_itemsets() -> None:
    assert list(itemsets(("a", "b"))) == [((0, "a"),), ((1, "b"),), ((0, "a"), (1, "b"))]
    assert [len(itemset) for itemset in itemsets(("a", "b", "c", "d"))] == [1] * 4 + [2] * 6 + [3] * 4


@pytest.mark.parametrize("seed", range(5))
def test_summaries_add_up_in_any_order(seed: int) -> None:
    of = records(seed, 300)
    whole = summary(of)
    shuffled = random.Random(seed).sample(of, len(of))
    left, right = summary(shuffled[:111]), summary(shuffled[111:])
    left.merge(right)
    assert same(left, whole)
    by_cell = Summary()
    for cell in sorted({cell for cell, _ in of}):
        by_cell.add(cell, np.array([measures for c, measures in of if c == cell]))
    assert same(by_cell, whole)
    assert whole.records == 300


def test_support_and_covariances_are_those_of_the_records() -> None:
    of = records(3, 500)
    model = Model.train(summary(of))
    support = Counter(itemset for cell, _ in of for itemset in itemsets(cell))
    assert model.frequent == {itemset for itemset, n in support.items() if n >= 500 / SUPPORT}
    for (attribute, value), usual in model.expected.items():
        measures = np.array([m for cell, m in of if cell[attribute] == value], float)
        assert np.allclose(usual.mean, measures.mean(axis=0))
        assert np.allclose(usual.covariance, np.cov(measures.T, bias=True))
        spread = np.sqrt(np.outer(measures.var(axis=0), measures.var(axis=0)) + usual.covariance**2)
        assert np.allclose(usual.bound, SIGMAS * spread + 0.5)


def test_what_is_the_same_as_always_need_not_be_compared() -> None:
    """The short cut of ``deviates`` gives what comparing all pairs gives."""
    of = records(4, 400)
    usual = next(iter(Model.train(summary(of)).expected.values()))
    rng = np.random.default_rng(1)
    measures = rng.integers(-20, 120, (700, 5))
    measures[:350, 4] = 7
    apart = measures - usual.mean
    unusual = np.abs(apart[:, :, None] * apart[:, None, :] - usual.covariance) > usual.bound
    expected = unusual.mean(axis=(1, 2)) > DEVIANT
    assert expected.any()
    assert not expected.all()
    assert (usual.deviates(measures) == expected).all()
    assert usual.deviates(measures[:0]).tolist() == []


def test_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = [("a", "x")] * 96 + [("a", "y")] * 99 + [("b", "x")] * 4 + [("c", "y")] * 1
    model = Model.train(summary([(cell, [n % 3]) for n, cell in enumerate(cells)]))
    usual = np.array([[1]])
    assert model.scores(("a", "x"), usual).tolist() == [0]
    assert model.scores(("c", "y"), usual).tolist() == [UNIT + UNIT // 2], "the value and the pair are rare"
    assert model.scores(("c", "new"), usual).tolist() == [2 * UNIT + UNIT // 2]
    assert model.scores(("a", "x"), np.array([[1], [100]])).tolist() == [0, 2 * UNIT], "unusual for both values"
    monkeypatch.setattr(reloaded, "SIZE", 1)
    assert model.scores(("c", "new"), usual).tolist() == [2 * UNIT]


def test_a_model_of_nothing() -> None:
    model = Model.train(Summary())
    assert model.frequent == frozenset()
    assert model.scores(("a",), np.array([[1, 2]])).tolist() == [UNIT]


def test_records_of_one_kind_are_usual() -> None:
    usual = Expected.of(summary([(("a",), [5, 9])] * 3).moments["a",], 2)
    assert usual.deviates(np.array([[5, 9], [5, 8], [6, 8]])).tolist() == [False, True, True]
