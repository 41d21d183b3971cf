"""Explore all schedules of a small case.

A worker is a function of its messages, so that a schedule matters only through the order in which each receiver gets
what is on its way to it. Two reductions make that feasible:

- States that are equal (workers, messages on their way, outputs) are explored once, however they were reached.
- Deliveries to different receivers commute. So in each state only a *stubborn set* is tried: with a delivery to w all
  deliveries to w, and for each link into w that is empty all deliveries to its sender, which might fill it. Every
  schedule is equal, up to swaps of neighbors that commute, to one that is tried (Valmari; Godefroid).

Sources send one event at a time, and as soon as they may: a message can stay on its way for as long as it likes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

from flumina.model.order import END, Point
from flumina.runtime.build import workers as build
from flumina.runtime.messages import Credit, ForkState, KeyStates, Message, PartId, Response
from flumina.runtime.topology import TREE_ROOT, ProtocolOptions
from flumina.runtime.tree_root import TreeRoot
from flumina.runtime.worker import Address, Effects, Worker
from flumina.sim.case import Case
from flumina.sim.invariants import SimulationError
from flumina.sim.network import UNLIMITED, Delivery, Link, PartSource
from flumina.sim.scheduler import Build, Outcome, final_of, judge, snapshots_of
from flumina.sim.state_hash import shared_parts, state_hash
from flumina.state.compare import copied


class TooManyStatesError(SimulationError):
    """A case has more states than are to be explored; nothing is known to be wrong with it."""


@dataclass(frozen=True)
class Explored:
    """How much was covered: ``schedules`` counts the orders of deliveries that were followed from start to end."""

    states: int
    deliveries: int
    schedules: int

    def __str__(self) -> str:
        return f"{self.schedules} schedules through {self.states} states by {self.deliveries} deliveries"


@dataclass(frozen=True)
class _Actor:
    """A worker or the tree_root at one moment; never changed, but copied to take a message."""

    machine: Worker | TreeRoot
    rows: tuple[Any, ...]
    key: Any


@dataclass(frozen=True)
class _State:
    actors: Mapping[str, _Actor]
    links: Mapping[Link, tuple[Message, ...]]
    sources: Mapping[PartId, tuple[int, tuple[tuple[str, int], ...]]]
    """How many events each source has sent, and the credits it has left for each receiver."""


class Explorer:
    """Explores all schedules of one case; ``reduce=False`` tries every delivery in every state."""

    def __init__(
        self,
        case: Case,
        *,
        options: ProtocolOptions | None = None,
        credits_: int = UNLIMITED,
        snapshots: Sequence[Point] = (),
        build_workers: Build = build,
        reduce: bool = True,
        most_states: int = 200_000,
    ) -> None:
        self.case, self.credits, self.reduce, self.most_states = case, credits_, reduce, most_states
        self.workers = build_workers(case.plan, case.definition, options)
        initial, last = case.definition.init(), None if case.definition.ticking is None else case.last
        self.tree_root = TreeRoot(case.forest.divide(case.definition, initial), snapshots, last=last)
        self.shared = shared_parts(case, self.workers.values())
        self.into: dict[str, list[Link]] = {TREE_ROOT: [(tree.id, TREE_ROOT) for tree in case.forest.trees]}
        for name, worker in self.workers.items():
            self.into[name] = [(part, name) for part in worker.shape.parts]
            self.into[name] += [(worker.shape.parent, name), *((child.id, name) for child in worker.shape.children)]
        self.counts: dict[Any, int] = {}
        self.deliveries = 0

    def run(self) -> Explored:
        """Explore everything; whatever goes wrong is raised."""
        schedules = self._from(self._start())
        return Explored(len(self.counts), self.deliveries, schedules)

    # -- states -----------------------------------------------------------------------------------------------

    def _start(self) -> _State:
        actors = {name: _Actor(worker, (), state_hash(worker)) for name, worker in self.workers.items()}
        actors[TREE_ROOT] = _Actor(self.tree_root, (), state_hash(self.tree_root))
        sources = {
            part: (0, tuple((receiver, self.credits) for receiver in self.case.receivers[part]))
            for part in self.case.parts
        }
        return self._performed(_State(actors, {}, sources), TREE_ROOT, self.tree_root.begin())

    def _performed(self, state: _State, sender: str, effects: Effects) -> _State:
        """Return the state after messages and source events were sent."""
        links, sources = dict(state.links), dict(state.sources)
        for receiver, message in effects.sends:
            if isinstance(message, Credit):
                sent, left = sources[message.part]
                more = tuple((r, n + message.events if r == sender else n) for r, n in left)
                sources[message.part] = (sent, more)
            else:
                link: Link = (sender, receiver)
                links[link] = (*links.get(link, ()), message)
        for part, (sent, left) in sources.items():
            sources[part] = self._send_events(part, sent, left, links)
        return _State(state.actors, links, sources)

    def _send_events(
        self, part: PartId, sent: int, left: tuple[tuple[str, int], ...], links: dict[Link, tuple[Message, ...]]
    ) -> tuple[int, tuple[tuple[str, int], ...]]:
        """Send events one by one while there are credits, then the end."""
        source = PartSource(
            part, self.case.parts[part], self.case.routes[part], self.case.receivers[part], self.credits
        )
        source.next, source.credits = min(sent, source.next + len(source.entries)), dict(left)
        while sent <= len(source.entries):
            last = sent == len(source.entries)
            if not last and not source.room(1):
                break
            for receiver, data in source.advance(Delivery(0, END) if last else Delivery(1)):
                links[part, receiver] = (*links.get((part, receiver), ()), data)
            sent += 1
        return sent, tuple(source.credits.items())

    def _deliver(self, state: _State, link: Link) -> _State:
        """Return the state after the next message of a link has arrived."""
        self.deliveries += 1
        sender, receiver = link
        assert isinstance(receiver, str)
        message, *rest = state.links[link]
        message = _copied(message)  # another branch has the same message still to come
        actor = state.actors[receiver]
        machine = deepcopy(actor.machine, dict(self.shared))
        effects = machine.handle(sender, message)
        after = _Actor(machine, (*actor.rows, *effects.outputs), state_hash(machine))
        links = {**state.links, link: tuple(rest)}
        return self._performed(replace(state, actors={**state.actors, receiver: after}, links=links), receiver, effects)

    def _key(self, state: _State) -> Any:  # noqa: ANN401
        links = frozenset((link, state_hash(messages)) for link, messages in state.links.items() if messages)
        actors = tuple((actor.key, len(actor.rows), state_hash(actor.rows)) for actor in state.actors.values())
        return actors, links, tuple(state.sources.values())

    # -- the search -------------------------------------------------------------------------------------------

    def _from(self, state: _State) -> int:
        """Return the number of schedules from a state on, all of them checked."""
        key = self._key(state)
        if key not in self.counts:
            if len(self.counts) >= self.most_states:
                raise TooManyStatesError(f"more than {self.most_states} states")
            links = self._chosen(state)
            self.counts[key] = 0  # there is no way back to it: every delivery uses up a message
            if links:
                self.counts[key] = sum(self._from(self._deliver(state, link)) for link in links)
            else:
                self._check_end(state)
                self.counts[key] = 1
        return self.counts[key]

    def _chosen(self, state: _State) -> list[Link]:
        """Return the deliveries to try: all, or the smallest stubborn set."""
        full = {link for link, messages in state.links.items() if messages}
        if not self.reduce:
            return sorted(full, key=repr)
        sets = [self._stubborn(state, full, receiver) for _, receiver in full]
        return min(sets, key=lambda links: (len(links), repr(links)), default=[])

    def _stubborn(self, state: _State, full: set[Link], start: Address) -> list[Link]:
        """Return deliveries to a receiver and to all that might fill an empty link into it."""
        waiting, members, found = [start], {start}, []
        while waiting:
            receiver = waiting.pop()
            for link in self.into[str(receiver)]:
                if link in full:
                    found.append(link)
                    continue
                for other in self._fillers(state, link[0]):
                    if other not in members:
                        members.add(other)
                        waiting.append(other)
        return sorted(found, key=repr)

    def _fillers(self, state: _State, sender: Address) -> Sequence[Address]:
        """Return the actors whose next step might make a sender send."""
        if isinstance(sender, str):
            return [sender]
        sent, _ = state.sources[sender]
        return [] if sent > len(self.case.parts[sender]) else list(self.case.receivers[sender])

    def _check_end(self, state: _State) -> None:
        tree_root = state.actors[TREE_ROOT].machine
        machines = [actor.machine for actor in state.actors.values() if isinstance(actor.machine, Worker)]
        assert isinstance(tree_root, TreeRoot)
        if not tree_root.finished:
            stalls = [str(machine.stall()) for machine in machines if machine.stall() is not None]
            raise SimulationError("a schedule ends in a deadlock: " + "; ".join(stalls))
        for machine in machines:
            if machine.waiting or not machine.stopped:
                raise SimulationError(f"{machine.id} is left with {machine.waiting} events")
        lost = {
            (p, r): self.credits - n for p, (_, left) in state.sources.items() for r, n in left if n != self.credits
        }
        if lost:
            raise SimulationError(f"credits were lost: {lost}")
        rows = [row for actor in state.actors.values() for row in actor.rows]
        judge(self.case, Outcome(rows, snapshots_of(self.case, tree_root), final_of(self.case, tree_root), {}, 0))


def _copied(message: Message) -> Message:
    """Return a message with copies of its states."""
    if isinstance(message, KeyStates):
        return KeyStates(tuple(map(_copied, message.each)))  # type: ignore[arg-type]
    return replace(message, state=copied(message.state)) if isinstance(message, ForkState | Response) else message


def explore(case: Case, **arguments: Any) -> Explored:  # noqa: ANN401
    """Explore all schedules of a case; ``arguments`` go to :class:`Explorer`."""
    return Explorer(case, **arguments).run()
