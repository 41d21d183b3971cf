"""Disturbances of a simulated run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from flumina.sim.network import UNLIMITED


@dataclass(frozen=True)
class Conditions:
    """Sizes of sends, heartbeats, credits, and workers to which messages are seldom delivered.

    ``heartbeats`` is how often a send promises more than its last event; at 0 there are none before the end.
    """

    most_events: int = 4
    heartbeats: float = 0.5
    credits: int = UNLIMITED
    slow: frozenset[str] = frozenset()
    horizon_first: bool = False
    """Whether the horizon of ticks is known from the start."""


UNDISTURBED = Conditions()


def random_conditions(random: Random, workers: Sequence[str]) -> Conditions:
    """Draw conditions: few credits in a quarter, slow workers in a third of the runs."""
    slow = random.sample(list(workers), random.randint(1, max(1, len(workers) // 2))) if random.random() < 0.33 else ()
    return Conditions(
        most_events=random.choice((1, 3, 6, 6, 12, 20)),
        heartbeats=random.choice((0.0, 0.03, 0.2, 0.5, 0.5, 0.9)),
        credits=random.choice((1, 2, 5, *[UNLIMITED] * 9)),
        slow=frozenset(slow),
        horizon_first=Random(str(random.getstate()[1][:3])).random() < 0.25,
    )
