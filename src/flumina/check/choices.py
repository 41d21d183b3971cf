"""Read random choices from bytes, so that Hypothesis draws and shrinks whole scenarios cheaply.

The bytes are cut into blocks, and every step of a scenario owns one, whether it is taken or not. A zero byte always
means the simplest choice, for a step: that it is left out. So when Hypothesis shrinks by putting zeros for other bytes,
steps vanish without disturbing the others. (Drawing each of a hundred choices would take some 40 microseconds each.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")

BLOCK = 10
"""Bytes for one step: more than any step uses; beyond them every choice is the simplest."""


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
        """Go forward by this many blocks."""
        self.start += blocks * BLOCK
        self.next = self.start

    def rewind(self, start: int) -> None:
        """Go back to the block that starts at this byte."""
        self.start = self.next = start

    def below(self, size: int) -> int:
        """Return a number from 0 to size - 1."""
        if self.next >= min(len(self.data), self.start + BLOCK):
            return 0
        self.next += 1
        return self.data[self.next - 1] % size

    def pick(self, items: Sequence[Item]) -> Item:
        """Return one of the items; the first is the simplest."""
        return items[self.below(len(items))]

    def chance(self, one_in: int) -> bool:
        """Return True about once in this many calls; False is simpler."""
        return self.below(one_in) == one_in - 1
