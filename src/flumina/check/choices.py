"""Random choices read from blocks of bytes, so that cheap Hypothesis draws make a whole scenario and shrink with it.

A scenario is made step by step, and each step reads one block. Zero bytes, bytes past the end of a block and blocks
past the last one all mean the simplest choice. So Hypothesis, which shrinks by deleting blocks and lowering bytes, takes
away whole steps without disturbing the others, and then makes those that remain simpler. (One draw costs some 40
microseconds and a scenario makes a hundred choices: drawing each would be slow.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")


class Choices:
    """A stream of small choices.

    >>> choices = Choices([bytes([7, 9]), bytes([2])])
    >>> choices.below(5), choices.step(), choices.below(5), choices.below(5)
    (2, True, 2, 0)
    """

    def __init__(self, blocks: Sequence[bytes]) -> None:
        self.blocks, self.block, self.next = blocks, 0, 0

    def step(self) -> bool:
        """Go on to the next block; False if there is none."""
        self.block, self.next = self.block + 1, 0
        return self.block < len(self.blocks)

    def below(self, size: int) -> int:
        """A number from 0 to size - 1."""
        block = self.blocks[self.block] if self.block < len(self.blocks) else b""
        if self.next >= len(block):
            return 0
        self.next += 1
        return block[self.next - 1] % size

    def pick(self, items: Sequence[Item]) -> Item:
        """One of the items, the first being the simplest."""
        return items[self.below(len(items))]

    def chance(self, one_in: int) -> bool:
        """True about once in so many times; False is the simpler."""
        return self.below(one_in) == one_in - 1
