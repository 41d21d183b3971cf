"""Make the choices of a schedule, at random or as given."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random


class Decisions:
    """A sequence of small numbers; ``made`` records them.

    The given ones come first. After them ``random`` decides, and without it every choice is 0, the simplest.

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
        """Return a number from 0 to size - 1."""
        made = self.made
        if len(made) < len(self._given):
            chosen = self._given[len(made)] % size
        else:
            chosen = 0 if self._next is None else int(self._next() * size)
        made.append(chosen)
        return chosen

    def chance(self, probability: float) -> bool:
        """Return True with about this probability; certainties cost no choice."""
        if probability <= 0:
            return False
        return probability >= 1 or self.below(100) >= 100 - 100 * probability
