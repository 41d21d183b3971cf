"""A case for the simulator: program, plan and input, with the oracle's results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from flumina.errors import OutputError
from flumina.model.batch import Batch
from flumina.model.emit import Chunk, Emit, Row, row_columns, rows
from flumina.model.event import Event
from flumina.model.order import END, LAST, START, Point
from flumina.model.schema import Schema
from flumina.model.tick import AtEnd, Horizon, tick_ranks
from flumina.plan.forest import Forest
from flumina.plan.routing import Router
from flumina.plan.tree import Plan
from flumina.program.definition import Definition, fold
from flumina.program.tick_fold import TickFold
from flumina.runtime.messages import PartId
from flumina.runtime.tick_cursor import NOTHING_SEEN
from flumina.sim.snapshot import SimSnapshot
from flumina.state.compare import copied
from flumina.state.multiset import difference

Entry = tuple[Point, Event]
Cause = tuple[str, int, str, int]
"""The tag, timestamp, stream and number of the event behind an output."""

_CAUSE = ("event_tag", "event_ts", "event_stream", "event_seq")

OutputKey = tuple[str, str, Cause]
"""An output for comparing: its name, its values, and what caused it."""


@dataclass(frozen=True)
class Case:
    """Input events in O for each part; ``plan`` says which worker gets which."""

    definition: Definition
    plan: Plan
    parts: Mapping[PartId, Sequence[Entry]]

    @cached_property
    def router(self) -> Router:
        """Return the router of the plan."""
        return Router(self.plan, self.definition)

    @cached_property
    def routes(self) -> Mapping[PartId, Sequence[str]]:
        """Return for each event of each part the worker that handles it."""
        return {
            part: [self.router.route(event.tag, event.key, *part) for _, event in entries]
            for part, entries in self.parts.items()
        }

    @cached_property
    def receivers(self) -> Mapping[PartId, Sequence[str]]:
        """Return for each part the workers that receive its frontier."""
        return {part: [self.plan.workers[n].id for n in self.router.receivers(*part)] for part in self.parts}

    @cached_property
    def forest(self) -> Forest:
        """Return the independent trees of the plan."""
        return Forest.of(self.plan.root)

    def snapshot(self, point: Point, states: Mapping[str, Any]) -> SimSnapshot:
        """Build a snapshot from the states of the plan's trees."""
        return SimSnapshot(point, self.definition, self.forest, states)

    @cached_property
    def ranks(self) -> Mapping[str, int]:
        """Return the rank of each stream and of each tick tag."""
        given = [shape.name for shape in self.plan.streams if not shape.ticks]
        return {name: rank for rank, name in enumerate(given)} | tick_ranks(self.definition.tags, len(given))

    @cached_property
    def in_order(self) -> Sequence[Entry]:
        """Return all events in O."""
        return sorted((entry for entries in self.parts.values() for entry in entries), key=lambda entry: entry[0])

    def under(self, plan: Plan) -> Case:
        """Return the same input under another plan."""
        return replace(self, plan=plan)

    def only(self, places: Collection[tuple[PartId, Point]]) -> Case:
        """Return the case reduced to the events at these places."""
        parts = {part: [e for e in entries if (part, e[0]) in places] for part, entries in self.parts.items()}
        return replace(self, parts=parts)

    # -- the oracle: all events one after the other --------------------------------------------------------------

    @property
    def last(self) -> Horizon:
        """Return the horizon of the whole input."""
        return Horizon(self.in_order[-1][0].ts, closed=True) if self.in_order else NOTHING_SEEN

    @cached_property
    def _oracle(self) -> tuple[Any, Sequence[Row]]:
        emit = Emit(self.definition.outputs)
        return self._fold(END, emit), rows(emit.drain())

    def _fold(self, until: Point, emit: Emit) -> Any:  # noqa: ANN401
        """Return the state after all events and ticks up to a point."""
        events = [event for point, event in self.in_order if point <= until]
        state = self.definition.init()
        if self.definition.ticking is None:
            return fold(self.definition.kinds[self.definition.initial], state, events, emit)
        names = [shape.name for shape in self.plan.streams if not shape.ticks]
        folded = TickFold(self.definition, state, len(names), emit, until)
        horizon = self.last if until == END else Horizon(self.last.ts)
        folded.run(Batch.of_events(events, names) if events else None, horizon if self.in_order else None)
        return folded.state

    @cached_property
    def _states(self) -> dict[Point, Any]:
        return {}

    def state(self, until: Point = END) -> Any:  # noqa: ANN401
        """Return the state after all events up to a point; callers must not change it."""
        if until == END:
            return self._oracle[0]
        if until not in self._states:
            self._states[until] = copied(self._fold(until, Emit(self.definition.outputs)))
        return self._states[until]

    def outputs(self, until: Point = END, after: Point = START) -> Counter[OutputKey]:
        """Return the outputs of the events in (after, until]; callers must not change them."""
        if (after, until) not in self._expected:
            self._expected[after, until] = output_keys(self._rows(until, after))
        return self._expected[after, until]

    def _rows(self, until: Point, after: Point) -> list[Row]:
        return [row for row in self._oracle[1] if after < self.point(row.event) <= until]

    def unlike(
        self, items: Iterable[Row | Chunk], until: Point = END, after: Point = START
    ) -> tuple[Counter[OutputKey], Counter[OutputKey]]:
        """Return the missing and the surplus outputs of (after, until], as written.

        Values are compared as the output's columns hold them, and floats within the program's tolerance.
        """
        oracle, found = self._rows(until, after), rows(items)
        expected, outputs = output_keys(oracle), output_keys(found)
        lacking, excess = _only(oracle, expected - outputs), _only(found, outputs - expected)
        missing: Counter[OutputKey] = Counter()
        surplus: Counter[OutputKey] = Counter()
        for name, schema in self.definition.outputs.items():
            mine, others = ([row for row in few if row.output == name] for few in (lacking, excess))
            if not mine or not others:
                missing, surplus = missing + output_keys(mine), surplus + output_keys(others)
                continue
            try:
                written = _written(schema, others), _written(schema, mine)
            except OutputError:  # of no type that the output has, so there is nothing more to compare
                missing, surplus = missing + output_keys(mine), surplus + output_keys(others)
                continue
            lost, more = difference(*written, tolerance=self.definition.tolerance)
            missing.update(_written_key(name, row) for row in lost)
            surplus.update(_written_key(name, row) for row in more)
        return missing, surplus

    @cached_property
    def _expected(self) -> dict[tuple[Point, Point], Counter[OutputKey]]:
        return {}

    def point(self, event: Event) -> Point:
        """Return the point of an event."""
        return Point(LAST if isinstance(event.tag, AtEnd) else event.ts, self.ranks[event.stream], event.seq)


def output_keys(items: Iterable[Row | Chunk]) -> Counter[OutputKey]:
    """Return outputs as a multiset."""
    return Counter(map(_key, rows(items)))


def _key(row: Row) -> OutputKey:
    return row.output, repr(row.values), _cause(row)


def _cause(row: Row) -> Cause:
    return row.event.tag.name, row.event.ts, row.event.stream, row.event.seq


def _only(all_rows: Sequence[Row], counts: Counter[OutputKey]) -> list[Row]:
    """Return as many of the rows with each key as are counted."""
    left, found = Counter(counts), []
    for row in all_rows:
        key = _key(row)
        if left[key] > 0:
            left[key] -= 1
            found.append(row)
    return found


def _written(schema: Schema, some: Sequence[Row]) -> pa.Table:
    """Return rows as they would be written, each with its cause."""
    causes = zip(*map(_cause, some), strict=True)
    return pa.table([*row_columns(schema, some), *map(pa.array, causes)], names=[*schema.names, *_CAUSE])


def _written_key(output: str, row: tuple[Any, ...]) -> OutputKey:
    values, cause = row[: -len(_CAUSE)], row[-len(_CAUSE) :]
    return output, repr(values), (cause[0], cause[1], cause[2], cause[3])
