# ruff: noqa: INP001, T201 -- a script, which prints
"""What an event costs while many keys are under way, in the workers alone: no processes, no sockets.

A root reads counters by key; two leaves count. One leaf is ahead by as many reads as keys are under way: it has given
their states away, and events of each wait. The other answers one read for each one that comes, so that the number of
keys under way stays the same. After every message each worker is asked what it waits for, as a task does when it rests.
"""

from __future__ import annotations

import sys
import time
from collections import deque

from flumina.apps import KeyCounter
from flumina.model.order import END, Point
from flumina.model.tag_set import KeySet, TagSet
from flumina.plan.tree import Itag, Plan, PlanWorker, StreamShape
from flumina.plan.validity import check_valid
from flumina.program.base import define
from flumina.runtime.build import workers
from flumina.runtime.messages import Credit, Data, Message, PartId
from flumina.runtime.run import EMPTY, Run
from flumina.runtime.topology import TREE_ROOT, ProtocolOptions
from flumina.runtime.tree_root import TreeRoot
from flumina.runtime.worker import Address, Effects

COUNTER = define(KeyCounter)
LEVELS = (2, 3)
KEYS, TURNS, REPEATS = (250, 1_000, 5_000), 40, 3


def itag(tag: str, keys: KeySet, *parts: int) -> Itag:
    """Events of a tag with some keys, on some parts of the stream of the same name."""
    return Itag(tag, frozenset(parts), TagSet({tag: keys}))


def plan_of(levels: int) -> Plan:
    """Reads above two leaves that count; or half of the reads above, and half in the middle."""
    rare = KeySet.of(-1) if levels == LEVELS[1] else KeySet()
    usual = KeySet.everything() - rare
    left, right = (PlanWorker(f"l{n}", COUNTER.initial, (itag("inc", usual, n),)) for n in (0, 1))
    root = PlanWorker("w0", COUNTER.initial, (itag("read", usual, 0),), (left, right))
    if levels == LEVELS[1]:
        rest = PlanWorker("rest", COUNTER.initial, (itag("inc", rare, 0, 1),))
        own = (itag("read", KeySet.everything(), 1), itag("read", rare, 0))
        root = PlanWorker("root", COUNTER.initial, own, (root, rest))
    streams = [
        StreamShape(tag, parts, TagSet.all_of([COUNTER.tags[tag]])) for tag, parts in (("inc", 2), ("read", levels - 1))
    ]
    plan = Plan.of(KeyCounter, streams, root)
    check_valid(plan, KeyCounter)
    return plan


class Flight:
    """Workers of a plan with so many keys under way; :meth:`turn` lets one more event come and one be answered."""

    def __init__(
        self, keys: int, options: ProtocolOptions | None = None, *, levels: int = 2, snapshot: int | None = None
    ) -> None:
        self.keys, self.levels = keys, levels
        plan = plan_of(levels)
        self.workers = workers(plan, COUNTER, options)
        root = plan.root.id
        at = [] if snapshot is None else [Point(snapshot, 9, 0)]
        self.tree_root = TreeRoot({root: COUNTER.init()}, at)
        self.posted: deque[tuple[Address, Address, Message]] = deque()
        self.messages = self.outputs = 0
        self.perform(TREE_ROOT, self.tree_root.begin())
        self.deliver()
        self.reads = self.answered = 0
        self.read(keys)
        self.count(0, 0, keys)
        self.count(1, 0, 1)

    def perform(self, sender: Address, effects: Effects) -> None:
        """Post what is to be sent."""
        self.outputs += len(effects.outputs)
        self.posted += ((sender, to, message) for to, message in effects.sends if not isinstance(message, Credit))

    def deliver(self) -> None:
        """Deliver everything; after each message ask the worker what it waits for."""
        while self.posted:
            sender, receiver, message = self.posted.popleft()
            self.messages += 1
            if receiver == TREE_ROOT:
                self.perform(TREE_ROOT, self.tree_root.handle(sender, message))
                continue
            assert isinstance(receiver, str)
            worker = self.workers[receiver]
            self.perform(receiver, worker.handle(sender, message))
            worker.stall()

    def post(self, part: PartId, receiver: str, run: Run, frontier: Point) -> None:
        """Give a worker events of a part."""
        self.posted.append((part, receiver, Data(part, run, frontier)))
        self.deliver()

    def run(self, tag: str, rank: int, start: int, stop: int, step: int = 1, first: int = 0) -> Run:
        """One event of each time, of one key after the other."""
        times = range(start, stop, step)
        events = [COUNTER.tags[tag].event(ts=ts, stream=tag, seq=0, k=(ts + first) % self.keys) for ts in times]
        return Run([Point(ts, rank, 0) for ts in times], events) if events else EMPTY

    def read(self, more: int) -> None:
        """Let so many more reads come, in turns for each of the workers that have some."""
        start, stop = self.reads, self.reads + more
        self.reads = stop
        above = self.levels - 1
        for part in range(above):
            run = self.run("read", 1, start + (part - start) % above, stop, above)
            for receiver in ("w0", "root")[part:above]:
                self.post(("read", part), receiver, run, Point(stop - 1, 1, 0))
                run = EMPTY

    def count(self, part: int, start: int, stop: int) -> None:
        """Let increments of a part come, of keys that are under way."""
        run = self.run("inc", 0, start, stop, first=-1)
        for receiver in (f"l{part}", "rest")[: self.levels - 1]:
            self.post(("inc", part), receiver, run, Point(stop - 1, 1, 0))
            run = EMPTY

    def turn(self) -> None:
        """One more read comes, and one is answered."""
        self.read(1)
        self.answered += 1
        self.count(0, self.reads - 1, self.reads)
        self.count(1, self.answered, self.answered + 1)

    def land(self) -> None:
        """Let all that is under way be answered at once."""
        self.count(1, self.answered + 1, self.reads)

    def under_way(self) -> int:
        """How many keys the root, or the worker in the middle, has something to serve for."""
        return len(self.workers["w0"].busy)  # type: ignore[attr-defined]

    def end(self) -> None:
        """Let all parts end."""
        for part in (0, 1):
            for receiver in (f"l{part}", "rest")[: self.levels - 1]:
                self.post(("inc", part), receiver, EMPTY, END)
        for part in range(self.levels - 1):
            for receiver in ("w0", "root")[part : self.levels - 1]:
                self.post(("read", part), receiver, EMPTY, END)


def measured(keys: int, options: ProtocolOptions, levels: int) -> tuple[float, float]:
    """Microseconds a turn takes, and an event when all are answered at once; the fastest of some tries."""
    turns, lands = [], []
    for _ in range(REPEATS):
        flight = Flight(keys, options, levels=levels)
        start = time.process_time()
        for _ in range(TURNS):
            flight.turn()
        turns.append((time.process_time() - start) / TURNS)
        under_way = flight.under_way()
        start = time.process_time()
        flight.land()
        lands.append((time.process_time() - start) / under_way)
    return min(turns) * 1e6, min(lands) * 1e6


def main() -> int:
    """Measure, and print."""
    most = int(sys.argv[1]) if len(sys.argv) > 1 else max(KEYS)
    print("levels  protocol          keys    us/event    us/event when all are answered at once")
    for levels in LEVELS:
        for name, options in (("waits", ProtocolOptions(hand_over=False)), ("hands over", ProtocolOptions())):
            for keys in KEYS:
                if keys <= most:
                    turn, land = measured(keys, options, levels)
                    print(f"{levels:>6}  {name:<12} {keys:>9,} {turn:>11.0f} {land:>11.0f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
