"""Random choices read from bytes, so that one cheap Hypothesis draw makes a whole scenario and shrinks with it.

The bytes are cut into blocks, and every step of a scenario owns one, whether it is taken or not. A zero byte always
means the simplest choice, for a step: that it is left out. So when Hypothesis shrinks by putting zeros for other bytes,
steps vanish without disturbing the others. (Drawing each of a hundred choices would take some 40 microseconds each.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")

BLOCK = 10
"""Bytes for one step: more than the choices that any step makes; beyond them every choice is the simplest."""


class Choices:
    """A stream of small choices, in blocks.

    >>> choices = Choices(bytes([7, 9]))
    >>> choices.below(5), choices.below(5), choices.below(5)
    (2, 4, 0)
    >>> choices.step()
    >>> choices.below(5)
    0
    """

    def __init__(self, data: bytes) -> None:
        self.data, self.start, self.next = data, 0, 0

    def step(self, blocks: int = 1) -> None:
        """Go on to the block that lies so many blocks further."""
        self.start += blocks * BLOCK
        self.next = self.start

    def rewind(self, start: int) -> None:
        """Go back to the block that starts at this byte."""
        self.start = self.next = start

    def below(self, size: int) -> int:
        """A number from 0 to size - 1."""
        if self.next >= min(len(self.data), self.start + BLOCK):
            return 0
        self.next += 1
        return self.data[self.next - 1] % size

    def pick(self, items: Sequence[Item]) -> Item:
        """One of the items, the first being the simplest."""
        return items[self.below(len(items))]

    def chance(self, one_in: int) -> bool:
        """True about once in so many times; False is the simpler."""
        return self.below(one_in) == one_in - 1
