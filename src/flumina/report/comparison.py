"""Measure the speed-up of several workers over one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Comparison:
    """Measured seconds of the same run with one worker and with several.

    >>> c = Comparison(2, one=(3.0, 4.0, 3.2), several=(2.0, 1.6, 1.7))
    >>> f"{c.speed_up:.2f}", c.spread
    ('1.88', (1.5, 2.5))
    """

    workers: int
    one: tuple[float, ...]
    several: tuple[float, ...]

    @staticmethod
    def measure(workers: int, rounds: int, seconds: Callable[[int], float]) -> Comparison:
        """Measure both in turns, so that other load of the machine affects them alike."""
        pairs = [(seconds(1), seconds(workers)) for _ in range(rounds)]
        return Comparison(workers, tuple(one for one, _ in pairs), tuple(several for _, several in pairs))

    @property
    def speed_up(self) -> float:
        """Return the ratio of the medians."""
        return median(self.one) / median(self.several)

    @property
    def spread(self) -> tuple[float, float]:
        """Return the lowest and the highest ratio of any two measurements."""
        return min(self.one) / max(self.several), max(self.one) / min(self.several)

    def __str__(self) -> str:
        low, high = self.spread
        one, several = median(self.one), median(self.several)
        return (
            f"{self.speed_up:.2f} times as fast as one worker: {several:.2f} s against {one:.2f} s "
            f"(medians of {len(self.one)}; extremes {low:.2f} to {high:.2f} times)"
        )
