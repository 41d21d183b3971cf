"""Check invariants at every step of a run.

Each worker's piece of the state is in one place at a time::

    above   with the parent, joined or not        down   on the way from the parent
    below   with the worker or its children       up     on the way to the parent

so that no piece is ever lost or duplicated. Requests to a worker come in order and never at or before a frontier that
was announced to it; frontiers never go back; no worker is sent anything after the stop. Events are accounted for
by part and worker, never together::

    0  <=  sent - credits that have come back  <=  limit        sent = credits that have come back, at the end

and every event that has arrived is in a buffer, or its credit has been given back.
"""

from __future__ import annotations

from collections.abc import Mapping

from flumina.model.order import START, Point
from flumina.model.tag_set import Key
from flumina.runtime.inner import Inner
from flumina.runtime.key_progress import NOTHING
from flumina.runtime.leaf import Leaf
from flumina.runtime.messages import EVERYTHING, ForkState, Message, PartId, Request, Response, Shown, Stop, one_by_one
from flumina.runtime.worker import Address, Worker
from flumina.sim.network import UNLIMITED

ABOVE, DOWN, BELOW, UP = "above", "down", "below", "up"


class SimulationError(Exception):
    """A broken invariant, or outputs that differ from the oracle's."""


class Invariants:
    """Follows every message of a run, and raises :class:`SimulationError` at the first that breaks a rule."""

    def __init__(self, workers: Mapping[str, Worker], limit: int = UNLIMITED) -> None:
        self.workers, self.limit = workers, limit
        self.place = dict.fromkeys(workers, ABOVE)
        self.keys: dict[str, dict[Key, str]] = {name: {} for name in workers}
        """Where the states of single keys are, of workers that move them one by one; else with the worker."""
        self.asked = {name: Request((), START, START) for name in workers}
        self.last: dict[tuple[str, Key], Point] = {}
        self.answered: dict[tuple[str, Key], Point] = {}
        self.stopped: set[Address] = set()
        self.used: dict[tuple[PartId, str], int] = {}
        """Events that a part has sent to a worker and for which no credit has come back."""
        self.owed: dict[tuple[PartId, str], int] = {}
        """Events that have arrived and for which no credit was given back."""
        self.unpaid = dict.fromkeys(workers, 0)
        """The same for all parts together."""

    # -- messages ---------------------------------------------------------------------------------------------

    def sent(self, sender: Address, receiver: Address, message: Message) -> None:
        """Check a message between workers, or the tree root, that was sent."""
        for one in one_by_one(message):
            self._sent(sender, receiver, one)

    def _sent(self, sender: Address, receiver: Address, message: Message) -> None:
        if receiver in self.stopped and not isinstance(message, Response | Shown):
            raise SimulationError(f"{sender} stopped {receiver} and then sent it {message}")
        match message:
            case Request():
                self._asked(str(receiver), message)
            case Response():
                self._answered(str(sender), message)
            case ForkState():
                self._move(str(receiver), message.key, ABOVE, DOWN)
            case Shown():
                pass
            case Stop():
                self.stopped.add(receiver)
            case _:
                raise SimulationError(f"{sender} sent {receiver} {message}")

    def delivered(self, sender: Address, receiver: Address, message: Message) -> None:
        """Record a message between workers, or the tree root, that has arrived."""
        for one in one_by_one(message):
            if isinstance(one, ForkState):
                self._move(str(receiver), one.key, DOWN, BELOW)
            elif isinstance(one, Response) and not self._hands_over(str(sender)):
                self._move(str(sender), one.key, UP, ABOVE)

    def _move(self, worker: str, key: Key, old: str, new: str) -> None:
        whole = key is None
        place = self.place[worker] if whole else self.keys[worker].get(key, BELOW)
        if place != old:
            what = worker if whole else f"{worker} for {key!r}"
            raise SimulationError(f"the state of {what} goes {new} but is {place}, not {old}")
        if not whole:
            self.keys[worker][key] = new
            return
        elsewhere = {k: place for k, place in self.keys[worker].items() if place != BELOW}
        if elsewhere:
            raise SimulationError(f"the states of {worker} go {new}, though some are elsewhere: {elsewhere}")
        self.place[worker] = new

    def _asked(self, child: str, request: Request) -> None:
        known = self.asked[child]
        if request.frontier < known.frontier or request.snapshot_frontier < known.snapshot_frontier:
            raise SimulationError(f"the frontier for {child} goes back from {known} to {request}")
        for item in request.items:
            last = self.last.get((child, item.key), START)
            if item.point <= known.frontier:
                raise SimulationError(f"{child} is asked for {item}, though {known.frontier} was announced to it")
            if item.point < last:
                raise SimulationError(f"{child} is asked for {item} after {last}")
            if item.key is None and item.point > request.frontier and item.cause != EVERYTHING:
                raise SimulationError(f"{child} is asked for {item} beyond {request.frontier}")
            self.last[child, item.key] = item.point
        self.asked[child] = request

    def _answered(self, child: str, response: Response) -> None:
        point, before = response.point, self.answered.get((child, response.key), START)
        self.answered[child, response.key] = point
        if self._hands_over(child):  # it answers all requests at one point
            if point < before or self.place[child] != BELOW:
                raise SimulationError(f"{child} hands over at {point} after {before} what is {self.place[child]}")
            return
        if point <= before:
            raise SimulationError(f"{child} answers for {point} after {before}")
        self._move(child, response.key, BELOW, UP)

    def _hands_over(self, worker: str) -> bool:
        return self.workers[worker].shape.hands_over

    # -- states -----------------------------------------------------------------------------------------------

    def check(self, worker: Worker) -> None:
        """Check a worker's states and buffers against the messages so far."""
        here = self.place[worker.id] == BELOW
        if isinstance(worker, Leaf):
            if (worker.state is not NOTHING) != here:
                raise SimulationError(f"{worker.id} holds {worker.holdings()}; its state is {self.place[worker.id]}")
        elif isinstance(worker, Inner):
            if worker.away == here:
                raise SimulationError(f"{worker.id} is {'away' if worker.away else 'here'}: {self.place[worker.id]}")
            self._check_children(worker)
        if self.unpaid[worker.id] != worker.waiting:
            owed = f"owes credits for {self.unpaid[worker.id]} events"
            raise SimulationError(f"{worker.id} {owed}; {worker.waiting} wait")

    def _check_children(self, worker: Inner) -> None:
        joined = worker.state is not NOTHING
        if worker.away and joined:
            raise SimulationError(f"{worker.id} gave its state away and holds {worker.state!r}")
        for child in worker.children:
            if child.shape.hands_over:
                continue
            states = len(child.responses) + (child.state is not NOTHING) + joined + worker.away
            if states != (self.place[child.shape.id] == ABOVE):
                raise SimulationError(
                    f"{worker.id} holds {states} states of {child.shape.id}, which is {self.place[child.shape.id]}"
                )

    # -- events and credits -----------------------------------------------------------------------------------

    def events_sent(self, part: PartId, worker: str, events: int) -> None:
        """Record events that a source has sent."""
        used = self.used[part, worker] = self.used.get((part, worker), 0) + events
        if used > self.limit:
            raise SimulationError(f"{part} sends {worker} {used - self.limit} events more than it has credits for")

    def refilled(self, part: PartId, worker: str, events: int) -> None:
        """Record credit that has reached its source."""
        used = self.used[part, worker] = self.used.get((part, worker), 0) - events
        if used < 0:
            raise SimulationError(f"{part} gets {-used} credits from {worker} for events that it never sent")

    def arrived(self, part: PartId, worker: str, events: int) -> None:
        """Record events that have reached their worker."""
        self.owed[part, worker] = self.owed.get((part, worker), 0) + events
        self.unpaid[worker] += events

    def credited(self, part: PartId, worker: str, events: int) -> None:
        """Record credit that a worker has returned."""
        owed = self.owed.get((part, worker), 0) - events
        if events <= 0 or owed < 0:
            raise SimulationError(f"{worker} gives {part} {events} credits, {-owed} too many")
        self.owed[part, worker] = owed
        self.unpaid[worker] -= events

    def returned(self, part: PartId, worker: str, events: int) -> None:
        """Record events that were taken back from a worker."""
        self.owed[part, worker] = self.owed.get((part, worker), 0) - events
        self.unpaid[worker] -= events

    def check_end(self) -> None:
        """Check that everything is accounted for at the end of the run."""
        for what, account in (("never given back", self.owed), ("lost on the way", self.used)):
            lost = {key: events for key, events in account.items() if events}
            if lost:
                raise SimulationError(f"credits were {what}: {lost}")
        if self.stopped != self.workers.keys():
            raise SimulationError(f"never stopped: {sorted(self.workers.keys() - self.stopped)}")
