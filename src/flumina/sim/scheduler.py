"""One simulated run: a seeded choice at every step of what happens next, with everything checked as it goes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from flumina.order import END, START, Point, heartbeat
from flumina.runtime.build import workers as build
from flumina.runtime.coordinator import Coordinator, Snapshot
from flumina.runtime.messages import Credit, PartId
from flumina.runtime.stats import WorkerStats
from flumina.runtime.topology import COORDINATOR, Options
from flumina.runtime.worker import Address, Effects, Worker
from flumina.sim.case import Case, OutputKey, output_keys
from flumina.sim.network import Cut, Network, Source
from flumina.state import same

Build = Callable[..., Mapping[str, Worker]]


class SimulationError(Exception):
    """Something that must never happen has happened."""


@dataclass(frozen=True)
class Outcome:
    """What a simulated run did."""

    outputs: Counter[OutputKey]
    snapshots: Sequence[Snapshot]
    state: Any
    stats: Mapping[str, WorkerStats]
    steps: int


@dataclass(frozen=True)
class Weather:
    """How a run is disturbed: sizes of sends, heartbeats, credits, and workers that are slow."""

    most_events: int = 4
    heartbeats: float = 0.5
    credits: int = 1_000_000
    slow: frozenset[str] = frozenset()


class Simulation:
    """The plan's workers, its sources and the network between them; ``step`` lets one thing happen."""

    def __init__(
        self,
        case: Case,
        random: Random,
        *,
        options: Options | None = None,
        weather: Weather | None = None,
        snapshots: Sequence[Point] = (),
        resume: Snapshot | None = None,
        build_workers: Build = build,
    ) -> None:
        self.case, self.random = case, random
        self.weather = Weather() if weather is None else weather
        self.workers = dict(build_workers(case.plan, case.definition, options))
        state = case.definition.init() if resume is None else resume.state
        self.start = START if resume is None else resume.point
        self.coordinator = Coordinator(case.plan.root.id, state, snapshots, self.start)
        self.network = Network()
        self.sources = {part: self._source(part) for part in case.parts}
        self.outputs: Counter[OutputKey] = Counter()
        self.steps = 0
        self.perform(COORDINATOR, self.coordinator.begin())

    def _source(self, part: PartId) -> Source:
        entries, routes = self.case.parts[part], self.case.routes[part]
        skip = sum(point <= self.start for point, _ in entries)
        return Source(part, entries[skip:], routes[skip:], self.case.receivers[part], self.weather.credits)

    def perform(self, sender: Address, effects: Effects) -> None:
        """Put messages on their way and collect outputs."""
        self.outputs.update(output_keys(effects.outputs))
        for receiver, message in effects.sends:
            if isinstance(message, Credit):
                assert isinstance(sender, str)
                self.sources[message.part].credit(sender, message)
            else:
                self.network.send(sender, receiver, message)

    def choices(self) -> tuple[list[PartId], int]:
        """The sources that can send, and how many links have a message to deliver."""
        return [part for part, source in self.sources.items() if source.ready()], len(self.network.busy)

    def step(self) -> bool:
        """Let one thing happen; False when nothing can."""
        sources, links = self.choices()
        if not sources and not links:
            return False
        self.steps += 1
        which = self.random.randrange(len(sources) + links)
        if which < len(sources):
            self.feed(self.sources[sources[which]])
        else:
            self.deliver(which - len(sources))
        return True

    def deliver(self, which: int) -> None:
        """Deliver the next message of one link."""
        sender, receiver, message = self.network.deliver(which)
        if receiver == COORDINATOR:
            self.perform(COORDINATOR, self.coordinator.handle(sender, message))
            return
        assert isinstance(receiver, str)
        self.perform(receiver, self.workers[receiver].handle(sender, message))
        if not self.network.busy:
            self.check_prompt()

    def feed(self, source: Source) -> None:
        """Let one source send some events, a heartbeat, or its end."""
        events = min(source.room(), self.random.randint(0, self.weather.most_events))
        beat = None
        left = source.entries[source.next + events :]
        if self.random.random() < self.weather.heartbeats or not events:
            beat = END if not left else self.beat_before(source, left[0][0], events)
        for receiver, data in source.advance(Cut(events, beat)):
            self.network.send(source.part, receiver, data)
        if not self.network.busy:
            self.check_prompt()

    def beat_before(self, source: Source, following: Point, events: int) -> Point | None:
        """A heartbeat that the next event allows."""
        floor = source.entries[source.next + events - 1][0] if events else source.frontier
        rank = [shape.name for shape in self.case.plan.streams].index(source.part[0])
        low = max(floor.ts, self.case.in_order[0][0].ts - 1)
        ts = self.random.randint(low, max(low, following.ts - 1)) if following.ts > low else low
        beat = heartbeat(ts, rank)
        return beat if floor <= beat < following else None

    def check_prompt(self) -> None:
        """When nothing is on its way, everything at or below the lowest frontier of the sources is processed."""
        lowest = min((source.frontier for source in self.sources.values()), default=END)
        for worker in self.workers.values():
            first = worker.first_waiting
            if first is not None and first <= lowest:
                stall = worker.stall()
                raise SimulationError(f"not prompt: {stall}, though all sources are at {tuple(lowest)}")

    def run(self) -> Outcome:
        """Run to the end."""
        while self.step():
            pass
        if not self.coordinator.finished:
            stalls = [str(w.stall()) for w in self.workers.values() if w.stall() is not None]
            raise SimulationError("the run stands still: " + "; ".join(stalls))
        for worker in self.workers.values():
            if worker.waiting or not worker.stopped:
                raise SimulationError(f"{worker.id} is left with {worker.waiting} events, stopped: {worker.stopped}")
        stats = {name: worker.stats for name, worker in self.workers.items()}
        return Outcome(self.outputs, self.coordinator.snapshots, self.coordinator.final, stats, self.steps)


def judge(case: Case, outcome: Outcome, after: Snapshot | None = None) -> None:
    """Compare a run with the oracle: outputs in both directions, the final state, the state of every snapshot."""
    start = START if after is None else after.point
    _, before = case.fold(until=start)
    state, everything = case.fold()
    expected = everything - before
    missing, surplus = expected - outcome.outputs, outcome.outputs - expected
    if missing or surplus:
        raise SimulationError(f"outputs differ: missing {_few(missing)}; surplus {_few(surplus)}")
    tolerance = case.definition.tolerance
    if not same(outcome.state, state, tolerance):
        raise SimulationError(f"the final state is {outcome.state!r}, not {state!r}")
    for snapshot in outcome.snapshots:
        wanted, _ = case.fold(until=snapshot.point)
        if not same(snapshot.state, wanted, tolerance):
            raise SimulationError(f"the snapshot at {tuple(snapshot.point)} is {snapshot.state!r}, not {wanted!r}")


def _few(outputs: Counter[OutputKey], most: int = 3) -> str:
    shown = [f"{name}{values} by {event}" for name, values, event in sorted(outputs.elements())[:most]]
    more = outputs.total() - most
    return "nothing" if not shown else ", ".join(shown) + (f" and {more} more" if more > 0 else "")
