"""What must hold at every step of a run, beyond right outputs.

Each worker's piece of the state is in one place at a time::

    above   with the parent, joined or not        down   on the way from the parent
    below   with the worker or its children       up     on the way to the parent

so that no piece is ever lost or held twice. Requests to a worker come in order and never at or before a frontier that
was announced to it; frontiers never go back; nobody is sent anything after the stop; and every event that a source was
given credit for is on its way, in a buffer, or accounted for.
"""

from __future__ import annotations

from collections.abc import Mapping

from flumina.order import START, Point
from flumina.runtime.inner import _NOTHING, Inner
from flumina.runtime.leaf import Leaf
from flumina.runtime.messages import Handback, Message, PartId, Request, Response, Stop
from flumina.runtime.worker import Address, Worker

ABOVE, DOWN, BELOW, UP = "above", "down", "below", "up"


class SimulationError(Exception):
    """Something that must never happen has happened."""


class Ledger:
    """Follows every message of a run, and raises :class:`SimulationError` at the first that breaks a rule."""

    def __init__(self, workers: Mapping[str, Worker], credits_: int) -> None:
        self.workers, self.credits = workers, credits_
        self.place = dict.fromkeys(workers, ABOVE)
        self.asked = {name: Request((), START, START) for name in workers}
        self.last_item = dict.fromkeys(workers, START)
        self.answered = dict.fromkeys(workers, START)
        self.stopped: set[Address] = set()
        self.owed: dict[tuple[PartId, str], int] = {}
        """Events that were sent and for which no credit was given back."""
        self.travelling: dict[tuple[PartId, str], int] = {}

    # -- messages ---------------------------------------------------------------------------------------------

    def sent(self, sender: Address, receiver: Address, message: Message) -> None:
        """A message between workers, or the coordinator, was put on its way."""
        if receiver in self.stopped and not isinstance(message, Response):
            raise SimulationError(f"{sender} stopped {receiver} and then sent it {message}")
        match message:
            case Request():
                self._asked(str(receiver), message)
            case Response():
                self._answered(str(sender), message.point)
            case Handback():
                self._move(str(receiver), ABOVE, DOWN)
            case Stop():
                self.stopped.add(receiver)
            case _:
                raise SimulationError(f"{sender} sent {receiver} {message}")

    def delivered(self, sender: Address, receiver: Address, message: Message) -> None:
        """A message between workers, or the coordinator, has arrived."""
        if isinstance(message, Handback):
            self._move(str(receiver), DOWN, BELOW)
        elif isinstance(message, Response) and not self._hands_over(str(sender)):
            self._move(str(sender), UP, ABOVE)

    def _move(self, worker: str, old: str, new: str) -> None:
        if self.place[worker] != old:
            raise SimulationError(f"the state of {worker} goes {new} but is {self.place[worker]}, not {old}")
        self.place[worker] = new

    def _asked(self, child: str, request: Request) -> None:
        known = self.asked[child]
        if request.frontier < known.frontier or request.calm < known.calm:
            raise SimulationError(f"the frontier for {child} goes back from {known} to {request}")
        for item in request.items:
            if item.point <= known.frontier:
                raise SimulationError(f"{child} is asked for {item}, though {known.frontier} was announced to it")
            if item.point <= self.last_item[child]:
                raise SimulationError(f"{child} is asked for {item} behind {self.last_item[child]}")
            self.last_item[child] = item.point
        if request.items and request.items[-1].point > request.frontier:
            raise SimulationError(f"{child} is asked for {request.items[-1]} beyond {request.frontier}")
        self.asked[child] = request

    def _answered(self, child: str, point: Point) -> None:
        if point <= self.answered[child]:
            raise SimulationError(f"{child} answers for {point} after {self.answered[child]}")
        self.answered[child] = point
        if self._hands_over(child):
            if self.place[child] != BELOW:
                raise SimulationError(f"{child} hands over a state that is {self.place[child]}")
        else:
            self._move(child, BELOW, UP)

    def _hands_over(self, worker: str) -> bool:
        return self.workers[worker].shape.hands_over

    # -- states -----------------------------------------------------------------------------------------------

    def check(self, worker: Worker) -> None:
        """Whether a worker holds what the messages so far say, and its buffers what sources have sent."""
        if isinstance(worker, Leaf):
            if len(worker.holdings()) != (self.place[worker.id] == BELOW):
                raise SimulationError(f"{worker.id} holds {worker.holdings()}; its state is {self.place[worker.id]}")
        elif isinstance(worker, Inner):
            self._check_inner(worker)
        for part in worker.shape.parts:
            buffered, key = in_buffer(worker, part), (part, worker.id)
            if buffered is not None and self.owed.get(key, 0) != self.travelling.get(key, 0) + buffered:
                raise SimulationError(
                    f"{worker.id} owes {part} credits for {self.owed.get(key, 0)} events; "
                    f"{self.travelling.get(key, 0)} are on their way and {buffered} wait"
                )

    def _check_inner(self, worker: Inner) -> None:
        if worker.away == (self.place[worker.id] == BELOW):
            raise SimulationError(f"{worker.id} is {'away' if worker.away else 'here'}: {self.place[worker.id]}")
        joined = worker.state is not _NOTHING
        if worker.away and joined:
            raise SimulationError(f"{worker.id} gave its state away and holds {worker.state!r}")
        for child in worker.children:
            if child.shape.hands_over:
                continue
            held = len(child.responses) + (child.state is not _NOTHING) + joined + worker.away
            if held != (self.place[child.shape.id] == ABOVE):
                raise SimulationError(
                    f"{worker.id} holds {held} states of {child.shape.id}, which is {self.place[child.shape.id]}"
                )

    # -- events and credits -----------------------------------------------------------------------------------

    def fed(self, part: PartId, worker: str, events: int, credits_left: int) -> None:
        """A source has sent events."""
        if credits_left < 0:
            raise SimulationError(f"{part} sent {worker} {events} events with {credits_left + events} credits")
        self.owed[part, worker] = self.owed.get((part, worker), 0) + events
        self.travelling[part, worker] = self.travelling.get((part, worker), 0) + events

    def arrived(self, part: PartId, worker: str, events: int) -> None:
        """Events have reached their worker."""
        self.travelling[part, worker] -= events

    def credited(self, part: PartId, worker: str, events: int) -> None:
        """A worker has given credit back."""
        self.owed[part, worker] = self.owed.get((part, worker), 0) - events
        if events <= 0 or self.owed[part, worker] < 0:
            raise SimulationError(f"{worker} gives {part} {events} credits, {-self.owed[part, worker]} too many")

    def check_end(self) -> None:
        """Whether everything is accounted for when the run is over."""
        lost = {key: owed for key, owed in self.owed.items() if owed}
        if lost:
            raise SimulationError(f"credits were lost: {lost}")
        if self.place and self.stopped != self.workers.keys():
            raise SimulationError(f"never stopped: {sorted(self.workers.keys() - self.stopped)}")


def in_buffer(worker: Worker, part: PartId) -> int | None:
    """How many events of a part wait at a worker without credit; None if that is not known of such a worker."""
    if isinstance(worker, Leaf):
        return sum(component.queues[part].length for component in worker.components if part in component.queues)
    if isinstance(worker, Inner):
        return worker.queues[part].length
    return None
