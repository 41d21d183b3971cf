"""Ties at run time: dependent events that O can't order are found where they meet.

Two dependent events are handled by one worker, or one of them by an ancestor of the other, and every event of an
ancestor is announced to its descendants. So each worker looks at its own events as they are released and at what its
ancestors announce::

    own events      of all parts, in the order of timestamps
    announcements   of a time t, before the worker has gone past t: its frontier is at most its parent's

With pipelining, or without coalescing, every event is announced. In between (coalescing alone) an event that is served
while the states are still together is not, and a tie with it goes unnoticed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from flumina.model.event import Event
from flumina.model.order import Point
from flumina.model.tag import Tag
from flumina.plan.tree import Itag, Plan, PlanWorker
from flumina.program.definition import Definition
from flumina.program.tie_finder import Glimpse, TieFinder, TieRule
from flumina.runtime.messages import Item, PartId
from flumina.runtime.run import Run


@dataclass(frozen=True)
class WatchShape:
    """The streams (rank, name) whose events may tie here, and the rule of each; the program's tags by name."""

    streams: tuple[tuple[int, str, TieRule], ...]
    tags: Mapping[str, Tag]


class MayTie:
    """Streams and workers of a plan at which events may tie."""

    def __init__(self, plan: Plan, definition: Definition, sequenced: Collection[str] | None) -> None:
        self.plan, self.definition = plan, definition
        self.between = cache(definition.depends.between)
        self.rules: dict[str, TieRule] = {}
        """For each stream in which some events may tie."""
        if sequenced is None:
            return
        for shape in plan.streams:
            if (shape.name in sequenced or shape.parts > 1) and self.between(shape.tags, shape.tags):
                tags = [definition.tags[name] for name in shape.tags.tags]
                self.rules[shape.name] = TieRule.of(definition.depends, tags, sequenced=shape.name in sequenced)

    def watch(self, worker: PlanWorker, itags: Iterable[Itag]) -> WatchShape | None:
        """Return where events of a worker may tie with each other or with ancestors' events."""
        if not self.rules:
            return None
        own = list(itags)
        others = [*own, *(itag for above in self.plan.ancestors(worker.id) for itag in above.itags)]
        found = {one.stream for one in own for other in others if self.meet(one, other)}
        streams = tuple(
            (rank, shape.name, self.rules[shape.name])
            for rank, shape in enumerate(self.plan.streams)
            if shape.name in found
        )
        return WatchShape(streams, self.definition.tags) if streams else None

    def below(self, worker: PlanWorker) -> frozenset[str]:
        """Return the streams whose events may tie with events of descendants."""
        if not self.rules:
            return frozenset()
        others = [itag for lower in self.plan.descendants(worker.id) for itag in lower.itags]
        return frozenset(one.stream for one in worker.itags for other in others if self.meet(one, other))

    def meet(self, one: Itag, other: Itag) -> bool:
        """Return whether dependent events of two itags may tie."""
        rule = self.rules.get(one.stream)
        if rule is None or one.stream != other.stream or not (rule.sequenced or len(one.parts | other.parts) > 1):
            return False
        return self.between(one.tags, other.tags)


class TieWatch:
    """Raises :class:`~flumina.errors.OrderError` at a tie between own events, or between one of them and another."""

    def __init__(self, shape: WatchShape) -> None:
        self.shape = shape
        self.finders = {name: TieFinder(rule) for _, name, rule in shape.streams}
        self.names = {rank: name for rank, name, _ in shape.streams}

    def announced(self, items: Iterable[Item]) -> None:
        """Add events that ancestors have announced."""
        for item in items:
            name = self.names.get(item.point.rank)
            if item.origin is not None and name is not None:
                tag, (part, key) = self.shape.tags[item.cause[1]], item.origin
                self.finders[name].add(part, Glimpse(tag, item.point.ts, name, item.point.seq, key))

    def released_events(self, events: Iterable[tuple[PartId, Event]], upto: Point) -> None:
        """Add own events, complete up to a point."""
        for (stream, number), event in events:
            finder = self.finders.get(stream)
            if finder is not None:
                finder.add(number, event)
        self._passed(upto.ts)

    def released_runs(self, runs: Mapping[PartId, Run], upto: Point) -> None:
        """Add own runs of several parts, complete up to a point."""
        for name, finder in self.finders.items():
            mine = [(number, run) for (stream, number), run in runs.items() if stream == name and run]
            for number, run in mine:
                for event in run.events:
                    finder.add(number, event)
            columns = [(number, run.batch) for number, run in mine if run.batch is not None]
            if columns:
                finder.look([batch for _, batch in columns], [number for number, _ in columns])

        self._passed(upto.ts)

    def _passed(self, before: int) -> None:
        """Forget timestamps before this one: all their events are known."""
        for finder in self.finders.values():
            finder.forget(before)
