"""A case for the simulator: a program, a plan for it, and input in parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from flumina.definition import Definition, fold
from flumina.emit import Emit, rows
from flumina.events import Event
from flumina.order import END, START, Point
from flumina.plan.routing import Router
from flumina.plan.tree import Plan
from flumina.runtime.messages import PartId

Entry = tuple[Point, Event]
OutputKey = tuple[str, str, str]
"""An output for comparing: its name, its values, and the event that caused it."""


@dataclass(frozen=True)
class Case:
    """Input events in O for each part; ``plan`` says which worker gets which."""

    definition: Definition
    plan: Plan
    parts: Mapping[PartId, Sequence[Entry]]

    @cached_property
    def routes(self) -> Mapping[PartId, Sequence[str]]:
        """For each event of each part the worker that handles it."""
        router = Router(self.plan, self.definition)
        return {
            part: [router.route(event.tag, event.key, *part) for _, event in entries]
            for part, entries in self.parts.items()
        }

    @cached_property
    def receivers(self) -> Mapping[PartId, Sequence[str]]:
        """For each part the workers that must learn its frontier."""
        router = Router(self.plan, self.definition)
        return {part: [self.plan.workers[n].id for n in router.receivers(*part)] for part in self.parts}

    @cached_property
    def in_order(self) -> Sequence[Entry]:
        """All events in O."""
        return sorted((entry for entries in self.parts.values() for entry in entries), key=lambda entry: entry[0])

    def fold(self, until: Point = END, after: Point = START, state: Any = None) -> tuple[Any, Counter[OutputKey]]:  # noqa: ANN401
        """The oracle: the state and the outputs of the events in (after, until], one after the other."""
        emit = Emit(self.definition.outputs)
        kind = self.definition.kinds[self.definition.initial]
        first = self.definition.init() if state is None else state
        final = fold(kind, first, [event for point, event in self.in_order if after < point <= until], emit)
        return final, output_keys(emit.drain())


def output_keys(items: Sequence[Any]) -> Counter[OutputKey]:
    """Outputs as a multiset."""
    return Counter((row.output, repr(row.values), repr(row.event)) for row in rows(items))
