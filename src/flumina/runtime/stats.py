"""Statistics of one worker."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any

from flumina.runtime.histogram import Histogram, bucket_of


class Wait(Enum):
    """What a worker waits for."""

    STATE = "waited_for_state"
    """The parent has the state that the next event needs."""
    CHILDREN = "waited_for_children"
    """The children have not given their states yet."""
    EVENTS = "waited_for_events"
    """A part is not known far enough."""
    PARENT = "waited_for_parent"
    """It is not known far enough what the parent will ask for."""


@dataclass(frozen=True, slots=True)
class WorkerStats:
    """Counts of one worker; the counts of several add up.

    ``ticks``        ticks that did something; they are no events
    ``joins``        times the states of two children were joined
    ``coalesced``    events and requests served without giving the children their state back first
    ``handed``       answers after which a leaf went on at once
    ``blocked``      answers after which a leaf waited for its state
    ``buffered``     the most events that waited at one moment
    ``state_bytes``  the size of all states sent, where states are measured
    ``waited_...``   seconds for which something waited, by what it waited for, where time is measured
    ``delay``        how long events waited in the buffer, likewise
    """

    events: int = 0
    runs: int = 0
    requests: int = 0
    joins: int = 0
    forks: int = 0
    coalesced: int = 0
    handed: int = 0
    blocked: int = 0
    buffered: int = 0
    state_bytes: int = 0
    waited_for_state: float = 0.0
    waited_for_children: float = 0.0
    waited_for_events: float = 0.0
    waited_for_parent: float = 0.0
    delay: Histogram = field(default_factory=Histogram)
    ticks: int = 0

    def __add__(self, other: WorkerStats) -> WorkerStats:
        """Return the sum; ``buffered`` is the larger."""
        total = {f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)}
        total["buffered"] = max(self.buffered, other.buffered)
        return WorkerStats(**total)


class StatsCounter:
    """The same counts while a worker runs."""

    def __init__(self) -> None:
        self.events = self.runs = self.requests = self.joins = self.forks = 0
        self.coalesced = self.handed = self.blocked = self.buffered = self.state_bytes = self.ticks = 0
        self.waited: dict[Wait, float] = dict.fromkeys(Wait, 0.0)
        self.delays: Counter[int] = Counter()

    def delayed(self, seconds: float, events: int) -> None:
        """Record how long events waited in the buffer."""
        self.delays[bucket_of(seconds)] += events

    def freeze(self) -> WorkerStats:
        """Return the current counts."""
        numbers: dict[str, Any] = {n: value for n, value in self.__dict__.items() if n not in ("waited", "delays")}
        numbers |= {wait.value: seconds for wait, seconds in self.waited.items()}
        return WorkerStats(**numbers, delay=Histogram(dict(self.delays)))
