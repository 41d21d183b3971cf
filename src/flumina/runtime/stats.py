"""What a worker has done so far, as frozen numbers."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class WorkerStats:
    """Counts of one worker; those of several add up.

    ``joins``      times the states of two children were joined
    ``coalesced``  events and requests served without giving the children their state back first
    ``handed``     answers after which a leaf went on at once
    ``blocked``    answers after which a leaf waited for its state
    ``buffered``   the most events that waited at one moment
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

    def __add__(self, other: WorkerStats) -> WorkerStats:
        """Both together; the high-water mark is the larger."""
        total = {f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)}
        total["buffered"] = max(self.buffered, other.buffered)
        return WorkerStats(**total)


class Counting:
    """The same numbers while they change."""

    def __init__(self) -> None:
        self.events = self.runs = self.requests = self.joins = self.forks = 0
        self.coalesced = self.handed = self.blocked = self.buffered = 0

    def freeze(self) -> WorkerStats:
        """The numbers of this moment."""
        return WorkerStats(**self.__dict__)
