"""Simulate one run: choose each step, and check the invariants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Any, Protocol

from flumina.model.emit import Chunk, Row
from flumina.model.order import END, START, Point, heartbeat
from flumina.model.tick import Horizon
from flumina.runtime.build import workers as build
from flumina.runtime.messages import Credit, Data, Message, PartId
from flumina.runtime.stats import WorkerStats
from flumina.runtime.topology import TREE_ROOT, ProtocolOptions
from flumina.runtime.tree_root import TreeRoot
from flumina.runtime.worker import Address, Effects, Worker
from flumina.sim.case import Case, OutputKey, output_keys
from flumina.sim.conditions import UNDISTURBED, Conditions
from flumina.sim.decisions import Decisions
from flumina.sim.invariants import Invariants, SimulationError
from flumina.sim.network import Delivery, Network, PartSource
from flumina.sim.snapshot import SimSnapshot
from flumina.state.compare import same

Build = Callable[..., Mapping[str, Worker]]

_PATIENCE = 3
"""How often another message is preferred to one for a slow worker."""

_MOST_STEPS = 1_000_000


class Witness(Protocol):
    """Observer of every delivered message and its effects."""

    def saw(self, sender: Address, receiver: Address, message: Message, effects: Effects) -> None:
        """Observe a delivered message and its effects."""


@dataclass(frozen=True)
class Outcome:
    """Outputs, snapshots, state and statistics of a simulated run."""

    rows: Sequence[Row | Chunk]
    snapshots: Sequence[SimSnapshot]
    state: Any
    stats: Mapping[str, WorkerStats]
    steps: int

    @cached_property
    def outputs(self) -> Counter[OutputKey]:
        """Return the outputs as a multiset."""
        return output_keys(self.rows)


class Simulation:
    """The plan's workers, its sources and the network between them; ``step`` lets one thing happen."""

    ends = True
    """Whether the tree_root asks for the end from the beginning; with ticks it does if it knows the last event."""

    def __init__(
        self,
        case: Case,
        random: Random | Decisions,
        *,
        options: ProtocolOptions | None = None,
        conditions: Conditions | None = None,
        snapshots: Sequence[Point] = (),
        resume: SimSnapshot | None = None,
        build_workers: Build = build,
        witness: Witness | None = None,
    ) -> None:
        self.case, self.witness = case, witness
        self.decisions = random if isinstance(random, Decisions) else Decisions(random)
        self.conditions = UNDISTURBED if conditions is None else conditions
        self.workers = dict(build_workers(case.plan, case.definition, options))
        self.start = START if resume is None else resume.point
        if resume is None:
            states = case.forest.divide(case.definition, case.definition.init())
        else:
            states = resume.under(case.forest)
        known = case.definition.ticking is not None and self.conditions.horizon_first and self.ends
        self.ends = self.ends and (known or case.definition.ticking is None)
        self.tree_root = TreeRoot(states, snapshots, self.start, ends=self.ends, last=case.last if known else None)
        self.network = Network()
        self.invariants = Invariants(self.workers, self.conditions.credits)
        self.sources = {part: self._source(part) for part in case.parts}
        self.ready = [part for part, source in self.sources.items() if source.ready()]
        self.rows: list[Row | Chunk] = []
        self.steps = 0
        self.perform(TREE_ROOT, self.tree_root.begin())

    def _source(self, part: PartId) -> PartSource:
        entries, routes = self.case.parts[part], self.case.routes[part]
        skip = sum(point <= self.start for point, _ in entries)
        return PartSource(part, entries[skip:], routes[skip:], self.case.receivers[part], self.conditions.credits)

    def perform(self, sender: Address, effects: Effects) -> None:
        """Send messages and collect outputs."""
        self.rows += effects.outputs
        for receiver, message in effects.sends:
            if not isinstance(message, Credit):
                self.invariants.sent(sender, receiver, message)
                self.network.send(sender, receiver, message)
                continue
            self.invariants.credited(message.part, str(sender), message.events)
            source = self.sources[message.part]
            if source.limited:
                self.network.send(sender, receiver, message)
            else:  # no source waits for it
                self.refill(message, str(sender))

    def step(self) -> bool:
        """Take one step; return False when nothing can happen."""
        if self.can_end():
            self.perform(TREE_ROOT, self.tree_root.end(self.horizon))
        choices = len(self.ready) + len(self.network.busy)
        if not choices:
            return False
        self.steps += 1
        which = self.decisions.below(choices)
        if self.conditions.slow:
            which = self.rather(which, choices)
        if which < len(self.network.busy):
            self.deliver(which)
        else:
            self.send_from(self.ready[which - len(self.network.busy)])
        if not self.network.busy:
            self.check_prompt()
        return True

    def can_end(self) -> bool:
        """Return whether the end is still to be asked for, and all sources have ended."""
        return not self.tree_root.ends and all(source.ended for source in self.sources.values())

    @property
    def horizon(self) -> Horizon | None:
        """Return the horizon of ticks at the end; None without ticks."""
        return None if self.case.definition.ticking is None else self.case.last

    def rather(self, which: int, choices: int) -> int:
        """Return another choice where this one is for a slow worker."""
        for _ in range(_PATIENCE):
            if which >= len(self.network.busy) or self.network.busy[which][1] not in self.conditions.slow:
                break
            which = self.decisions.below(choices)
        return which

    def deliver(self, which: int) -> None:
        """Deliver the next message of one link."""
        sender, receiver, message = self.network.deliver(which)
        if isinstance(message, Credit):
            self.refill(message, str(sender))
            return
        message = self.arriving(receiver, message)
        if receiver == TREE_ROOT:
            self.invariants.delivered(sender, receiver, message)
            effects = self.tree_root.handle(sender, message)
        else:
            worker = self.workers[receiver]  # type: ignore[index]
            if isinstance(message, Data):
                self.invariants.arrived(message.part, worker.id, len(message.run))
            else:
                self.invariants.delivered(sender, receiver, message)
            effects = worker.handle(sender, message)
        if self.witness is not None:
            self.witness.saw(sender, receiver, message, effects)
        self.perform(receiver, effects)
        if receiver != TREE_ROOT:
            self.invariants.check(worker)

    def arriving(self, receiver: Address, message: Message) -> Message:  # noqa: ARG002 -- some runs look at it
        """Return a message as its receiver sees it."""
        return message

    @property
    def snapshots(self) -> Sequence[SimSnapshot]:
        """Return the complete snapshots so far."""
        return snapshots_of(self.case, self.tree_root)

    def refill(self, message: Credit, sender: str) -> None:
        """Give a source its credits back."""
        self.invariants.refilled(message.part, sender, message.events)
        source = self.sources[message.part]
        source.credits[sender] += message.events
        if source.limited and message.part not in self.ready and source.ready():
            self.ready.append(message.part)

    def send_from(self, part: PartId) -> None:
        """Let one source send some events, a heartbeat, or its end."""
        source, decisions = self.sources[part], self.decisions
        most = self.conditions.most_events
        events = source.room(most - decisions.below(most + 1 if self.conditions.heartbeats else most))
        beat = None
        if not source.left - events:
            beat = END if not events or decisions.chance(self.conditions.heartbeats) else None
        elif not events or decisions.chance(self.conditions.heartbeats):
            beat = self.beat(source, events)
            if beat is None and not events:
                events = source.room(1)
        self.post(part, Delivery(events, beat))
        if not source.ready():
            self.ready.remove(part)

    def post(self, part: PartId, delivery: Delivery) -> None:
        """Send the events and the frontier of a source."""
        for receiver, data in self.sources[part].advance(delivery):
            self.invariants.events_sent(part, receiver, len(data.run))
            self.network.send(part, receiver, data)

    def beat(self, source: PartSource, events: int) -> Point | None:
        """Return a heartbeat before the next event; None if there is none."""
        following = source.entries[source.next + events][0]
        floor = source.entries[source.next + events - 1][0] if events else source.promised
        low = max(floor.ts, self.case.in_order[0][0].ts - 1)
        ts = low + self.decisions.below(following.ts - low) if following.ts > low else low
        beat = heartbeat(ts, self.case.ranks[source.part[0]])
        return beat if floor <= beat < following else None

    def check_prompt(self) -> None:
        """Check that everything up to the lowest frontier of the sources is processed."""
        lowest = min((source.frontier for source in self.sources.values()), default=END)
        for worker in self.workers.values():
            firsts = [first for first in (worker.first_waiting, worker.first_tick) if first is not None]
            if firsts and min(firsts) <= lowest:
                stall = worker.stall()
                raise SimulationError(f"not prompt: {stall}, though all sources are at {tuple(lowest)}")

    def run(self) -> Outcome:
        """Run to the end."""
        self.ready = [part for part, source in self.sources.items() if source.ready()]
        while self.step() or self.can_end():
            if self.steps > _MOST_STEPS:
                raise SimulationError(f"the run does not end within {_MOST_STEPS} steps")
        if not self.tree_root.finished:
            stalls = [str(w.stall()) for w in self.workers.values() if w.stall() is not None]
            raise SimulationError("the run stands still: " + "; ".join(stalls))
        for worker in self.workers.values():
            if worker.waiting or not worker.stopped:
                raise SimulationError(f"{worker.id} is left with {worker.waiting} events, stopped: {worker.stopped}")
        self.invariants.check_end()
        return self.outcome()

    def outcome(self) -> Outcome:
        """Return the outcome so far."""
        stats = {name: worker.stats for name, worker in self.workers.items()}
        return Outcome(self.rows, self.snapshots, final_of(self.case, self.tree_root), stats, self.steps)


def snapshots_of(case: Case, tree_root: TreeRoot) -> list[SimSnapshot]:
    """Return the snapshots for which all trees have answered."""
    taken = tree_root.snapshots.items()
    return [case.snapshot(point, states) for point, states in taken if len(states) == len(case.forest.trees)]


def final_of(case: Case, tree_root: TreeRoot) -> Any:  # noqa: ANN401 -- whatever the program's state is
    """Return the final state, if the run has ended and gathered it."""
    known = tree_root.finished and all(state is not None for state in tree_root.final.values())
    return case.snapshot(END, tree_root.final).state if known else None


def judge(case: Case, outcome: Outcome, after: SimSnapshot | None = None) -> None:
    """Compare a run with the oracle: outputs in both directions, the final state, the state of every snapshot."""
    compare(case, outcome.rows, after=START if after is None else after.point)
    same_state(case, outcome.state, END, "the final state")
    for snapshot in outcome.snapshots:
        same_state(case, snapshot.state, snapshot.point, f"the snapshot at {tuple(snapshot.point)}")


def compare(case: Case, items: Sequence[Row | Chunk], *, until: Point = END, after: Point = START) -> None:
    """Raise if outputs of the events in (after, until] are missing or surplus."""
    if output_keys(items) != case.outputs(until, after):
        missing, surplus = case.unlike(items, until, after)
        if missing or surplus:
            raise SimulationError(f"outputs differ: missing {_few(missing)}; surplus {_few(surplus)}")


def same_state(case: Case, state: Any, until: Point, what: str) -> None:  # noqa: ANN401
    """Raise if a state is not the oracle's at this point."""
    expected = case.state(until)
    if not same(state, expected, case.definition.tolerance):
        raise SimulationError(f"{what} is {state!r}, not {expected!r}")


def _few(outputs: Counter[OutputKey], most: int = 3) -> str:
    shown = [
        f"{name}{values} by {tag}@{ts} {stream}#{seq}"
        for name, values, (tag, ts, stream, seq) in sorted(outputs.elements())[:most]
    ]
    more = outputs.total() - most
    return "nothing" if not shown else ", ".join(shown) + (f" and {more} more" if more > 0 else "")


__all__ = ["Conditions", "Outcome", "Simulation", "SimulationError", "Witness", "compare", "judge", "same_state"]
