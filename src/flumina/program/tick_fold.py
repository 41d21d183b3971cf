"""Fold events and ticks in O: what a program with ticks means.

::

    open input     ticks of every tag up to the horizon
    ended input    ticks of every tag up to the first one behind the last event, then AtEnd

Ticks that do nothing are skipped, not tried: a year of silence is one step.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from flumina.model.order import LAST, START, Point
from flumina.model.tick import AtEnd, Every, Horizon, Tick, end_of, passed_up_to, seq_of, tick_ranks
from flumina.program.candidates import Candidates
from flumina.program.definition import Definition, State, fold

if TYPE_CHECKING:
    from flumina.model.batch import Batch
    from flumina.model.emit import Emit
    from flumina.model.tag_set import Key


class _Next(NamedTuple):
    """The next tick of a tag: its place, keys aside."""

    ts: int
    rank: int
    tag: Tick


class TickFold:
    """The fold of a program over events and ticks, from a point on."""

    def __init__(
        self, definition: Definition, state: State, streams: int, emit: Emit, until: Point, start: Point = START
    ) -> None:
        assert definition.ticking is not None, "the program has ticks"
        self.definition, self.state, self.emit, self.until = definition, state, emit, until
        self.rules = definition.ticking.rules
        self.ranks = tick_ranks(definition.tags, streams)
        self.ticks = [tag for name in self.ranks if isinstance(tag := definition.tags[name], Every)]
        self.ended: list[Tick] = [tag for name in self.ranks if isinstance(tag := definition.tags[name], AtEnd)]
        self.done = {tag.name: passed_up_to(self.ranks[tag.name], start) for tag in self.ticks}
        """For each tag the timestamp up to which its ticks have come."""
        lifted = definition.lifted
        self.candidates = {
            tag.name: Candidates(self.rules[tag.name], tag.universe)
            for tag in (*self.ticks, *self.ended)
            if lifted is not None and tag.key is not None
        }
        self.fired = 0
        self.changed(None)

    def run(self, events: Batch | None, horizon: Horizon | None) -> None:
        """Fold all events, and the ticks up to a horizon; None is the horizon of no input at all."""
        place, count = 0, 0 if events is None else events.count_up_to(self.until)
        while events is not None and place < count:
            first = events.point(place)
            self.tick_up_to(first, Horizon(first.ts))
            self.pass_by(first)
            ahead = [(self.following(tag, first), self.ranks[tag.name]) for tag in self.ticks]
            bound = min((Point(ts, rank, -1) for ts, rank in ahead if ts is not None), default=Point(LAST, LAST, LAST))
            stop = events.count_up_to(bound, place, count)
            run = events.slice(place, stop)
            self.state = fold(self.definition.kinds[self.definition.initial], self.state, run, self.emit)
            self.changed(run)
            place = stop
        if horizon is not None:
            self.tick_up_to(Point(LAST, LAST, LAST), horizon)
            if horizon.closed:
                ts = end_of(self.ticks, horizon.ts)
                for end in self.ended:
                    self.fire(_Next(ts, self.ranks[end.name], end))

    def following(self, tag: Every, point: Point) -> int | None:
        """Return the first tick of a tag behind a point."""
        return tag.schedule.after(passed_up_to(self.ranks[tag.name], point))

    def tick_up_to(self, point: Point, horizon: Horizon) -> None:
        """Fire all ticks before a point, and within a horizon, that do something."""
        while (tick := self.next(horizon)) is not None and Point(tick.ts, tick.rank, -1) < point:
            self.fire(tick)
            self.pass_by(Point(tick.ts, tick.rank, LAST))

    def pass_by(self, point: Point) -> None:
        """Note that all ticks up to a point have come, those that did nothing included."""
        for name in self.done:
            self.done[name] = max(self.done[name], passed_up_to(self.ranks[name], point))

    def next(self, horizon: Horizon) -> _Next | None:
        """Return the next tick within a horizon that does something."""
        found = []
        for tag in self.ticks:
            due = self.due(tag)
            ts = None if due is None else tag.schedule.after(max(self.done[tag.name], due - 1))
            if ts is not None and ts <= horizon.last(tag):
                found.append(_Next(ts, self.ranks[tag.name], tag))
        return min(found, key=lambda tick: (tick.ts, tick.rank), default=None)

    def due(self, tag: Tick) -> int | None:
        """Return from when on a tick of a tag does something; None if it does nothing."""
        candidates = self.candidates.get(tag.name)
        if candidates is not None:
            candidates.look(self.state)
            return candidates.first
        if self.definition.lifted is not None:
            return START.ts if self.state else None
        return self.rules[tag.name].due(self.state)

    def fire(self, tick: _Next) -> None:
        """Fold one tick, of every key for which it does something."""
        ts, rank, tag = tick
        candidates = self.candidates.get(tag.name)
        keys: Iterable[Key] = (None,)
        if candidates is not None:
            candidates.look(self.state)
            keys = sorted(candidates.pop(ts), key=seq_of)
        elif (due := self.due(tag)) is None or due > ts:
            return
        events = [tag.tick(ts, key) for key in keys if Point(ts, rank, seq_of(key)) <= self.until]
        if events:
            self.state = fold(self.definition.kinds[self.definition.initial], self.state, events, self.emit)
            self.fired += len(events)
            for name, others in self.candidates.items():
                if tag.key is None:
                    others.add(dict.keys(self.state))
                elif name != tag.name:
                    others.add(event.key for event in events)

    def changed(self, run: Batch | None) -> None:
        """Note the keys that events may have changed; all of them where a tag sees all, or at the beginning."""
        for candidates in self.candidates.values():
            for one in () if run is None else run.runs():
                if one.tag.key is not None:
                    candidates.add(one.keys.unique().to_pylist())
            if run is None or any(tag.key is None for tag in run.tags):
                candidates.add(dict.keys(self.state))
