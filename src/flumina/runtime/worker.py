"""What all workers have in common: messages in, effects out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from flumina.model.emit import Chunk, Emit, Row
from flumina.model.order import END, START, Point
from flumina.model.schema import Schema
from flumina.model.tag_set import Key
from flumina.runtime.mailbox import Queue
from flumina.runtime.messages import (
    Credit,
    Data,
    ForkState,
    KeyStates,
    Message,
    PartId,
    Request,
    Response,
    Stop,
    one_by_one,
)
from flumina.runtime.run import Run
from flumina.runtime.stats import StatsCounter, Wait, WorkerStats
from flumina.runtime.tie_watch import TieWatch
from flumina.runtime.topology import WorkerShape

NAMED = 3
"""How many keys are named where many are meant."""

Address = str | PartId
"""Where a message goes: a worker (or the tree_root) by id, or the source of a part."""


@dataclass(slots=True)
class Effects:
    """What a worker wants done: messages in the order in which they are to be sent, and outputs."""

    sends: list[tuple[Address, Message]] = field(default_factory=list)
    outputs: list[Row | Chunk] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Stall:
    """Why a worker does not go on: what it waits for, and the event or request that waits."""

    worker: str
    waits_for: str
    item: str
    wait: Wait

    def __str__(self) -> str:
        return f"{self.worker} waits for {self.waits_for} before {self.item}"


class Worker(ABC):
    """One worker: the same messages in the same order give the same effects."""

    def __init__(self, shape: WorkerShape, outputs: Mapping[str, Schema]) -> None:
        self.shape = shape
        self.id = shape.id
        self.emit = Emit(outputs)
        self.watch = None if shape.ties is None else TieWatch(shape.ties)
        """For an inner worker; a leaf has one for each component."""
        self.effects = Effects()
        self.credits: dict[PartId, int] = {}
        self.counting = StatsCounter()
        self.counted = 0
        """How many events of those that are counted by themselves were processed."""
        self.parent_frontier: Point = START
        self.snapshot_frontier: Point = START
        self.stopped = False
        self.measure: Callable[[Any], int] | None = None
        """How large a state is, for statistics."""
        self.passed: int | None = None
        """The highest timestamp of an event that was processed, or for which the state was given away."""
        self.was_truncated = False
        self.now: float | None = None
        self.waits: Wait | None = None

    def handle(self, sender: Address, message: Message, now: float | None = None) -> Effects:
        """Take one message and do everything that can be done now; ``now`` in seconds, for statistics only."""
        if now is not None:
            self.advance_clock(now)
        if self.stopped:
            # Whoever was cut off has ended without waiting for the sources to say so.
            empty_data = self.was_truncated and isinstance(message, Data) and not message.run
            late = empty_data or all(self.is_late(sender, one) for one in one_by_one(message))
            assert late, f"{self.id} was stopped and got {message}"
            return Effects()
        for one in one_by_one(message):
            self.take_in(sender, one)
        if not self.stopped:
            self.progress()
        if isinstance(message, Data):  # nothing else adds to the buffers
            self.counting.buffered = max(self.counting.buffered, self.waiting)
        if now is not None:
            stall = self.stall()
            self.waits = None if stall is None else stall.wait
        return self.collected()

    def take_in(self, sender: Address, message: Message) -> None:
        """Note what a message says, without doing anything about it yet."""
        match message:
            case Data():
                self.on_data(message)
            case Request():
                assert message.frontier >= self.parent_frontier, "a frontier never goes back"
                self.parent_frontier, self.snapshot_frontier = message.frontier, message.snapshot_frontier
                self.counting.requests += len(message.items)
                self.on_request(message)
            case Response():
                assert isinstance(sender, str)
                self.on_response(sender, message)
            case ForkState():
                self.on_fork_state(message)
            case Stop():
                self.stopped = True
                self.on_stop()
            case _:
                raise AssertionError(f"{self.id} got {message}")

    def truncate(self, ts: int) -> tuple[Effects, list[Data]]:
        """Forget what lies behind a timestamp that was not :attr:`passed`, as if all parts ended there.

        All states at once, for a snapshot or at the end, must not have been asked for yet.
        What has come from behind it is given back, as messages for the worker that goes on from there.
        """
        assert self.passed is None or self.passed <= ts, f"{self.id} is past {ts}"
        self.was_truncated = True
        found = self.forget(ts)
        if not self.stopped:
            self.progress()
        return self.collected(), found

    @abstractmethod
    def forget(self, ts: int) -> list[Data]:
        """Remove and return everything that lies behind a timestamp."""

    def pass_by(self, point: Point) -> None:
        """Something at this point was processed, or answered."""
        if point != END and (self.passed is None or point.ts > self.passed):
            self.passed = point.ts

    def processed(self, run: Run) -> None:
        """Account for events that were processed."""
        self.counting.events += len(run)
        if self.shape.counted is not None:
            self.counted += run.count(self.shape.counted)

    def collected(self) -> Effects:
        """What is to be done, and nothing is left of it."""
        for part, events in self.credits.items():
            self.effects.sends.append((part, Credit(part, events)))
        self.credits.clear()
        effects, self.effects = self.effects, Effects()
        if len(effects.sends) > 1:
            effects.sends = together(effects.sends)
        effects.outputs = self.emit.drain()
        return effects

    def is_late(self, sender: Address, message: Message) -> bool:  # noqa: ARG002 -- only some workers know such messages
        """Whether a message may arrive after the end because its sender could not know better."""
        return False

    def advance_clock(self, now: float) -> None:
        """Account for the time that has passed."""
        if self.now is not None and self.waits is not None:
            self.counting.waited[self.waits] += now - self.now
        self.now = now

    def stamped(self, run: Run) -> Run:
        """The run with the time of its arrival, if somebody tells the time."""
        return run if self.now is None or not run else run.stamped(self.now)

    def taken(self, queue: Queue) -> None:
        """Account for events that have left a buffer."""
        arrivals, queue.arrivals = queue.arrivals, []
        if self.now is not None:
            for events, arrived in arrivals:
                self.counting.delayed(self.now - arrived, events)

    def send(self, to: Address, message: Message) -> None:
        """Have a message sent after those before it."""
        if self.measure is not None and isinstance(message, Response | ForkState):
            self.counting.state_bytes += self.measure(message.state)
        self.effects.sends.append((to, message))

    def needs_state(self, point: Point) -> bool:
        """Whether somebody wants the state at this point for itself: it is asked for at the end in any case."""
        return self.shape.final or point != END

    def give_credit(self, taken: Mapping[PartId, int]) -> None:
        """Tell sources that their events have left the buffer, when this message has been dealt with."""
        for part, events in taken.items():
            self.credits[part] = self.credits.get(part, 0) + events

    @property
    def stats(self) -> WorkerStats:
        """What has been done so far."""
        return self.counting.freeze()

    @abstractmethod
    def on_data(self, message: Data) -> None:
        """Events of a part."""

    @abstractmethod
    def on_request(self, message: Request) -> None:
        """The parent wants the state."""

    def on_response(self, child: str, message: Response) -> None:
        """A child gives its state."""
        raise AssertionError(f"{self.id} has no child {child} that could answer {message}")

    @abstractmethod
    def on_fork_state(self, message: ForkState) -> None:
        """The parent gives the state back."""

    def on_stop(self) -> None:  # noqa: B027 -- a leaf has nobody to tell
        """The run is over."""

    @abstractmethod
    def progress(self) -> None:
        """Do everything that can be done."""

    @property
    @abstractmethod
    def waiting(self) -> int:
        """How many events have come and were not processed."""

    @property
    @abstractmethod
    def first_waiting(self) -> Point | None:
        """The first event that has come and was not processed."""

    def stall(self) -> Stall | None:
        """What this worker waits for, if something waits."""
        first = self.first_waiting
        points = [*self.requested_points(), *((first,) if first is not None else ())]
        if not points:
            return None
        point, parent = min(points), self.shape.parent
        what, absent = f"what is at {tuple(point)}", self.absent()
        if absent is not None:
            return Stall(self.id, f"{absent} from {parent}", what, Wait.STATE)
        for (stream, part), queue in self.awaited_queues():
            if queue.frontier < point:
                return Stall(self.id, f"{stream}[{part}], which is at {tuple(queue.frontier)},", what, Wait.EVENTS)
        if self.parent_frontier < point or not self.shape.children:
            return Stall(self.id, f"word from {parent}, which is at {tuple(self.parent_frontier)},", what, Wait.PARENT)
        return Stall(self.id, "the states of its children", what, Wait.CHILDREN)

    @abstractmethod
    def requested_points(self) -> list[Point]:
        """The points of requests that were not served, the first at least."""

    @abstractmethod
    def absent(self) -> str | None:
        """Which state the parent has, if it has one."""

    @abstractmethod
    def awaited_queues(self) -> Iterable[tuple[PartId, Queue]]:
        """The parts whose events can be missing for what comes next, and their buffers."""

    @abstractmethod
    def holdings(self) -> list[Any]:
        """The states that this worker holds at this moment."""


def states_of(keys: Collection[Key]) -> str | None:
    """Name the states of some keys, or of the first of them and how many there are."""
    if not keys:
        return None
    more = len(keys) - NAMED
    named = ", ".join(repr(key) for key in islice(keys, NAMED))
    return f"the state of {named}" + (f" and {more} more keys" if more > 0 else "")


def together(sends: Iterable[tuple[Address, Message]]) -> list[tuple[Address, Message]]:
    """Merge states of single keys that follow each other on the way to one receiver; links keep their order."""
    merged: list[tuple[Address, list[Message]]] = []
    last: dict[Address, list[Message]] = {}
    for to, message in sends:
        before = last.get(to)
        if before is not None and _of_one_key(message) and type(before[0]) is type(message) and _of_one_key(before[0]):
            before.append(message)
        else:
            last[to] = [message]
            merged.append((to, last[to]))
    return [(to, KeyStates(tuple(each)) if len(each) > 1 else each[0]) for to, each in merged]  # type: ignore[arg-type]


def _of_one_key(message: Message) -> bool:
    return isinstance(message, Response | ForkState) and message.key is not None
