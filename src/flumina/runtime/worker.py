"""Handle messages and return effects: the base of all workers."""

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
from flumina.model.tick import Horizon
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
    Shown,
    Stop,
    one_by_one,
)
from flumina.runtime.run import Run
from flumina.runtime.stats import StatsCounter, Wait, WorkerStats
from flumina.runtime.tick_cursor import Seen
from flumina.runtime.tie_watch import TieWatch
from flumina.runtime.topology import WorkerShape

NAMED = 3
"""How many keys a stall names before it abbreviates."""

Address = str | PartId
"""Receiver of a message: a worker or the tree root by id, or the source of a part."""


@dataclass(slots=True)
class Effects:
    """Messages to send, in order, and outputs."""

    sends: list[tuple[Address, Message]] = field(default_factory=list)
    outputs: list[Row | Chunk] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Stall:
    """What a worker waits for, and the event or request that waits."""

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
        """How many events of ``shape.counted`` were processed."""
        self.seen = Seen()
        """How far the input has been seen; ticks come up to there."""
        self.parent_frontier: Point = START
        self.snapshot_frontier: Point = START
        self.stopped = False
        self.measure: Callable[[Any], int] | None = None
        """Returns the size of a state, for statistics."""
        self.passed: int | None = None
        """The highest timestamp that was processed or answered."""
        self.was_truncated = False
        self.now: float | None = None
        self.waits: Wait | None = None

    def handle(self, sender: Address, message: Message, now: float | None = None) -> Effects:
        """Handle one message and return its effects; ``now`` (seconds) is for statistics only."""
        if now is not None:
            self.advance_clock(now)
        if self.stopped:
            # A truncated worker has ended without waiting for the end of its sources.
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
        """Record a message without acting on it yet."""
        match message:
            case Data():
                self.on_data(message)
                if self.shape.ticking and message.run:
                    self.on_shown(message.run.last.ts)
            case Shown():
                self.on_shown(message.ts)
            case Request():
                assert message.frontier >= self.parent_frontier, "a frontier never goes back"
                self.parent_frontier, self.snapshot_frontier = message.frontier, message.snapshot_frontier
                self.counting.requests += len(message.items)
                if self.shape.ticking:
                    self.on_horizon(message)
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

    def on_shown(self, ts: int) -> None:
        """Note an event here or below; tell the parent if it passes a tick of a worker above."""
        known = self.seen.ts
        if self.seen.raise_to(ts):
            ahead = (tag.schedule.after(known) for tag in self.shape.ticks_above)
            if any(tick is not None and tick <= ts for tick in ahead):
                self.send(self.shape.parent, Shown(ts))

    def on_horizon(self, message: Request) -> None:
        """Note how far the parent has seen the input: events are the causes of its requests."""
        if message.last is not None:
            self.seen.ends_at(message.last)
        if message.shown is not None:
            self.seen.raise_to(message.shown)
        for item in message.items:
            if item.point != END:
                self.seen.raise_to(item.point.ts)

    def truncate(self, ts: int) -> tuple[Effects, list[Data]]:
        """Drop everything after a timestamp, as if all parts ended there.

        The timestamp is not before :attr:`passed`, and no snapshot and not the end has been requested.
        Returns the effects, and the events after it as messages for the next epoch's worker.
        """
        assert self.passed is None or self.passed <= ts, f"{self.id} is past {ts}"
        self.was_truncated = True
        self.seen.ends_at(Horizon(ts))
        found = self.forget(ts)
        if not self.stopped:
            self.progress()
        return self.collected(), found

    @abstractmethod
    def forget(self, ts: int) -> list[Data]:
        """Remove and return all events after a timestamp."""

    def pass_by(self, point: Point) -> None:
        """Record that a point was processed or answered."""
        if point != END and (self.passed is None or point.ts > self.passed):
            self.passed = point.ts

    def processed(self, run: Run) -> None:
        """Account for events that were processed."""
        self.counting.events += len(run)
        if self.shape.counted is not None:
            self.counted += run.count(self.shape.counted)

    def collected(self) -> Effects:
        """Return and reset the effects, credits and outputs included."""
        for part, events in self.credits.items():
            self.effects.sends.append((part, Credit(part, events)))
        self.credits.clear()
        effects, self.effects = self.effects, Effects()
        if len(effects.sends) > 1:
            effects.sends = together(effects.sends)
        effects.outputs = self.emit.drain()
        return effects

    def is_late(self, sender: Address, message: Message) -> bool:  # noqa: ARG002 -- only some workers know such messages
        """Return whether a message may arrive after the stop."""
        return False

    def advance_clock(self, now: float) -> None:
        """Account for the time that has passed."""
        if self.now is not None and self.waits is not None:
            self.counting.waited[self.waits] += now - self.now
        self.now = now

    def stamped(self, run: Run) -> Run:
        """Return the run with its arrival time, if time is measured."""
        return run if self.now is None or not run else run.stamped(self.now)

    def taken(self, queue: Queue) -> None:
        """Account for events that have left a buffer."""
        arrivals, queue.arrivals = queue.arrivals, []
        if self.now is not None:
            for events, arrived in arrivals:
                self.counting.delayed(self.now - arrived, events)

    def send(self, to: Address, message: Message) -> None:
        """Append a message to the effects."""
        if self.measure is not None and isinstance(message, Response | ForkState):
            self.counting.state_bytes += self.measure(message.state)
        self.effects.sends.append((to, message))

    def needs_state(self, point: Point) -> bool:
        """Return whether the state at this point is used: at the end it may only be a signal."""
        return self.shape.final or point != END

    def give_credit(self, taken: Mapping[PartId, int]) -> None:
        """Return credit to the sources with the next effects."""
        for part, events in taken.items():
            self.credits[part] = self.credits.get(part, 0) + events

    @property
    def stats(self) -> WorkerStats:
        """Return the statistics so far."""
        return self.counting.freeze()

    @abstractmethod
    def on_data(self, message: Data) -> None:
        """Buffer events of a part."""

    @abstractmethod
    def on_request(self, message: Request) -> None:
        """Record requests of the parent."""

    def on_response(self, child: str, message: Response) -> None:
        """Record the state of a child."""
        raise AssertionError(f"{self.id} has no child {child} that could answer {message}")

    @abstractmethod
    def on_fork_state(self, message: ForkState) -> None:
        """Take the state from the parent."""

    def on_stop(self) -> None:  # noqa: B027 -- a leaf has no children
        """Handle the end of the run."""

    @abstractmethod
    def progress(self) -> None:
        """Process and answer as far as possible."""

    @property
    @abstractmethod
    def waiting(self) -> int:
        """Return the number of events that have arrived and are not processed."""

    @property
    def first_tick(self) -> Point | None:
        """Return the point of the first tick that was made and is not processed."""
        return None

    @property
    @abstractmethod
    def first_waiting(self) -> Point | None:
        """Return the point of the first event that is not processed."""

    def stall(self) -> Stall | None:
        """Return what this worker waits for, if something waits."""
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
        """Return points of unserved requests, at least the first."""

    @abstractmethod
    def absent(self) -> str | None:
        """Name the state that the parent has, if it has one."""

    @abstractmethod
    def awaited_queues(self) -> Iterable[tuple[PartId, Queue]]:
        """Return the parts, with queues, that the next event or request may wait for."""

    @abstractmethod
    def holdings(self) -> list[Any]:
        """Return the states that this worker holds."""


def states_of(keys: Collection[Key]) -> str | None:
    """Name the states of some keys, abbreviated; None if there are none."""
    if not keys:
        return None
    more = len(keys) - NAMED
    named = ", ".join(repr(key) for key in islice(keys, NAMED))
    return f"the state of {named}" + (f" and {more} more keys" if more > 0 else "")


def together(sends: Iterable[tuple[Address, Message]]) -> list[tuple[Address, Message]]:
    """Merge consecutive states of single keys for one receiver; links keep their order."""
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
