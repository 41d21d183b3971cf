"""Small plans and inputs, runs whose schedule is written down, and sources that send columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import flumina as fl
from flumina.model.batch import Batch
from flumina.model.order import END, Point, heartbeat
from flumina.model.tag_set import TagSet
from flumina.plan.tree import Itag, Plan, PlanWorker, StreamShape
from flumina.plan.validity import check_valid
from flumina.program.base import AnyProgram, define
from flumina.program.definition import Definition
from flumina.runtime.messages import Data, PartId
from flumina.runtime.run import Run
from flumina.runtime.topology import ProtocolOptions
from flumina.sim.case import Case, Entry
from flumina.sim.network import Delivery, PartSource
from flumina.sim.scheduler import Conditions, Simulation

ALL_HEARTBEATS = Conditions(heartbeats=1.0)


class Chain(fl.Program):
    """Five tags for trees of three levels: ``a`` above, ``c`` in the middle, ``x``, ``y`` and ``z`` below."""

    a = fl.Tag()
    c = fl.Tag()
    x = fl.Tag()
    y = fl.Tag()
    z = fl.Tag()
    depends = fl.depends((a, a), (a, y), (c, c), (c, z))
    output = "name string, count long"
    xs = fl.Count()
    ys = fl.Count()
    zs = fl.Count()

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        if event.tag is self.x:
            state.xs += 1
        elif event.tag is self.y:
            state.ys += 1
        elif event.tag is self.z:
            state.zs += 1
        elif event.tag is self.a:
            emit("ys", state.ys)
            state.ys = 0
        else:
            emit("zs", state.zs)
            state.zs = 0


class Till(fl.KeyedProgram):
    """Sales of an item are counted until its price changes; a report sees all prices, and no sales."""

    price = fl.Tag("amount long NOT NULL", key="item long")
    sale = fl.Tag(key="item long")
    report = fl.Tag()
    depends = fl.depends((price, price), (price, sale), (report, report), (report, price))
    output = "item long, sold long"
    amount = fl.Replicated("long", 0, read_by=[report], set_by=[price])
    sold = fl.Count(added_by=[sale], read_by=[price], set_by=[price])

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        if event.tag is self.sale:
            state.sold += 1
        else:
            emit(event.item, state.sold)
            state.amount, state.sold = event.amount, 0

    def update_all(self, states: Any, event: fl.Event, emit: fl.Emit) -> None:
        emit(-1, sum(state.amount for state in states.values()))


def leaf(name: str, definition: Definition, *itags: Itag) -> PlanWorker:
    return PlanWorker(name, definition.initial, itags)


def itag(definition: Definition, stream: str, *tags: str, parts: Sequence[int] = (0,)) -> Itag:
    """All events of these tags on these parts of a stream."""
    return Itag(stream, frozenset(parts), TagSet.all_of(definition.tags[tag] for tag in tags))


def plan_of(program: AnyProgram, shapes: Sequence[StreamShape], root: PlanWorker) -> Plan:
    """A plan that is valid."""
    plan = Plan.of(program, shapes, root)
    check_valid(plan, program)
    return plan


def streams(program: AnyProgram, **parts: int) -> list[StreamShape]:
    """One stream for each tag named, in so many parts; it has the tag's name."""
    tags = define(program).tags
    return [StreamShape(name, count, TagSet.all_of([tags[name]])) for name, count in parts.items()]


def one_event(definition: Definition, plan: Plan, tag: str, ts: int, seq: int = 0, **columns: object) -> Entry:
    """An event of a stream that has its tag's name, and its point."""
    rank = [shape.name for shape in plan.streams].index(tag)
    return Point(ts, rank, seq), definition.tags[tag].event(ts=ts, stream=tag, seq=seq, **columns)


def chain_plan() -> Plan:
    """``a`` above ``c`` and ``y``; ``c`` above ``x`` and ``z``; a stream for each."""
    definition = define(Chain)
    below = [leaf(f"leaf {tag}", definition, itag(definition, tag, tag)) for tag in "xyz"]
    middle = PlanWorker("middle", definition.initial, (itag(definition, "c", "c"),), (below[0], below[2]))
    root = PlanWorker("root", definition.initial, (itag(definition, "a", "a"),), (middle, below[1]))
    return plan_of(Chain, streams(Chain, a=1, c=1, x=1, y=1, z=1), root)


class Scripted(Simulation):
    """A run that does what it is told: sources send on command, and every message is delivered before the next."""

    def __init__(self, case: Case, **options: Any) -> None:
        super().__init__(case, Random(0), **options)
        self.drain()

    def drain(self) -> None:
        """Deliver everything that is on its way, in the order of sending for each link."""
        while self.network.busy:
            self.deliver(0)

    def send(self, part: PartId, events: int = 0, beat: Point | int | None = None) -> None:
        """Let a source send its next events and perhaps a heartbeat; deliver all that follows from it."""
        if isinstance(beat, int):
            beat = heartbeat(beat, [shape.name for shape in self.case.plan.streams].index(part[0]))
        self.post(part, Delivery(events, beat))
        self.drain()
        self.check_prompt()

    def finish(self) -> None:
        """Send what is left."""
        for part, source in self.sources.items():
            self.send(part, len(source.entries) - source.next, END)


class ColumnSource(PartSource):
    """Sends the same events in columns."""

    names: Sequence[str] = ()

    def advance(self, delivery: Delivery) -> list[tuple[str, Data]]:
        return [(to, replace(data, run=in_columns(data.run, self.names))) for to, data in super().advance(delivery)]


class ColumnSimulation(Simulation):
    """A run whose sources send columns."""

    def _source(self, part: PartId) -> PartSource:
        plain = super()._source(part)
        source = ColumnSource(part, plain.entries, plain.routes, plain.receivers, self.conditions.credits)
        source.names = [shape.name for shape in self.case.plan.streams]
        return source


class MixedSimulation(ColumnSimulation):
    """A run in which some parts send lists and others columns, so that both meet."""

    def _source(self, part: PartId) -> PartSource:
        return Simulation._source(self, part) if part[1] % 2 else super()._source(part)


def in_columns(run: Run, names: Sequence[str]) -> Run:
    """The same run as a batch."""
    return Run(batch=Batch.of_events(run.events, names)) if run else run


PLAIN = ProtocolOptions(coalesce=False, pipeline=False, hand_over=False)
COALESCED = ProtocolOptions(coalesce=True, pipeline=False, hand_over=False)
PIPELINED = ProtocolOptions(coalesce=True, pipeline=True, hand_over=False)
