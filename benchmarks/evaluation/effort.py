"""How much is measured: everything, or as much as fits into the time of a short walk."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from typing import TypeVar

Amount = TypeVar("Amount")


@dataclass
class Effort:
    """The long form or the quick one, and a line for everything that is done."""

    quick: bool
    began: float = field(default_factory=time.monotonic)

    @property
    def rounds(self) -> int:
        """How often something is measured, to take the median."""
        return 1 if self.quick else 5

    def of(self, full: Amount, quick: Amount) -> Amount:
        """One of two amounts."""
        return quick if self.quick else full

    def say(self, what: str) -> None:
        """Show how far it is; a section may take many minutes."""
        print(f"{time.monotonic() - self.began:6.0f} s  {what}", file=sys.stderr, flush=True)
