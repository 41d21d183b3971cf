"""The choices of a schedule: drawn at random, or given, so that every run can be repeated and shortened."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random


class Decisions:
    """Small numbers one after the other; ``made`` remembers them.

    The given ones come first. Behind them ``random`` decides, and without it every choice is 0, the simplest.

    >>> decisions = Decisions(given=[7, 1])
    >>> decisions.below(5), decisions.below(5), decisions.below(5)
    (2, 1, 0)
    >>> decisions.made
    [2, 1, 0]
    """

    def __init__(self, random: Random | None = None, given: Sequence[int] = ()) -> None:
        self.made: list[int] = []
        self._given = given
        self._next = None if random is None else random.random

    def below(self, size: int) -> int:
        """A number from 0 to size - 1."""
        made = self.made
        if len(made) < len(self._given):
            chosen = self._given[len(made)] % size
        else:
            chosen = 0 if self._next is None else int(self._next() * size)
        made.append(chosen)
        return chosen

    def chance(self, probability: float) -> bool:
        """True with about this probability; False is the simpler. Certainties cost no choice."""
        if probability <= 0:
            return False
        return probability >= 1 or self.below(100) >= 100 - 100 * probability
