from __future__ import annotations

from collections import Counter
from random import Random

from flumina.sim.decisions import Decisions


def test_random_choices_are_even_and_repeatable() -> None:
    decisions = Decisions(Random(1))
    counts = Counter(decisions.below(4) for _ in range(4000))
    assert set(counts) == {0, 1, 2, 3}
    assert min(counts.values()) > 800
    again = Decisions(given=decisions.made)
    assert [again.below(4) for _ in range(4000)] == decisions.made


def test_given_choices_come_first_then_random_ones() -> None:
    decisions = Decisions(Random(3), given=[2, 9])
    assert [decisions.below(3), decisions.below(3)] == [2, 0]
    assert len({decisions.below(1000) for _ in range(10)}) > 5


def test_zero_is_the_simple_choice() -> None:
    decisions = Decisions()
    assert not decisions.chance(0.9)
    assert decisions.chance(1.0)
    assert not decisions.chance(0.0)
    assert decisions.made == [0]
    random = Decisions(Random(0))
    assert 200 < sum(random.chance(0.3) for _ in range(1000)) < 400
