"""Programs that only cost time: the tags, dependence and state types of a real one, with costs instead of states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from flumina.model.emit import Emit
from flumina.model.event import Event
from flumina.model.tag_set import TagSet
from flumina.plan.cost_model import CostModel
from flumina.program.definition import Definition


@dataclass
class Counts:
    """What was done, in the units that a cost model has prices for."""

    events: dict[str, float] = field(default_factory=dict)
    joins: float = 0.0
    forks: float = 0.0
    messages: float = 0.0
    sent: float = 0.0
    """Events that went to another place."""
    received: float = 0.0

    def seconds(self, model: CostModel) -> float:
        """What all of it costs."""
        work = sum(model.by_tag.get(tag, model.event) * count for tag, count in self.events.items())
        work += self.joins * model.join + self.forks * model.fork + self.messages * model.message
        return work + self.sent * model.send + self.received * model.receive


class Meter:
    """Where the program charges what it does; ``counts`` are those of the place that is running."""

    def __init__(self, weights: Mapping[str, float]) -> None:
        self.weights = weights
        self.counts = Counts()
        self.seen: list[Event] = []
        """Events that were processed since somebody looked."""

    def update(self, state: Any, event: Event, emit: Emit) -> None:  # noqa: ANN401, ARG002
        """Charge for an event, which stands for as many as its weight says."""
        name = event.tag.name
        self.counts.events[name] = self.counts.events.get(name, 0.0) + self.weights.get(name, 1.0)
        self.seen.append(event)

    def fork(self, state: Any, left: TagSet, right: TagSet) -> tuple[int, int]:  # noqa: ANN401, ARG002
        """Charge for a fork."""
        self.counts.forks += 1
        return 0, 0

    def join(self, left: Any, right: Any) -> int:  # noqa: ANN401, ARG002
        """Charge for a join."""
        self.counts.joins += 1
        return 0

    def metered(self, definition: Definition) -> Definition:
        """The program with costs in place of its functions."""
        return replace(
            definition,
            kinds={n: replace(k, update=self.update, update_batch=None) for n, k in definition.kinds.items()},
            init=lambda: 0,
            forks=tuple(replace(fork, function=self.fork) for fork in definition.forks),
            joins=tuple(replace(join, function=self.join) for join in definition.joins),
            lifted=None,
        )
