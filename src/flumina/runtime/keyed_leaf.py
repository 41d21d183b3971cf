"""Leaves of keyed programs: the state of one key can be given away while the other keys go on.

All tags are keyed, so events of different keys never depend on each other. Each key for which the parent has asked is
*hot* until it is settled: its events wait in a line of their own. A request for everything (a snapshot, the end) is
answered when all keys have come that far and none is away.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from flumina.keyed import Lifted
from flumina.keymap import KeyMap
from flumina.order import END, Point
from flumina.runtime.cut import behind, curtailed_queues, kept
from flumina.runtime.mailbox import Component, Queue, before
from flumina.runtime.messages import EVERYTHING, Data, Handback, Item, PartId, Request, Response
from flumina.runtime.run import Run, merged
from flumina.runtime.topology import WorkerShape
from flumina.runtime.worker import Worker
from flumina.schema import Schema
from flumina.tagsets import Key


class HotKey:
    """A key whose state is wanted or away."""

    def __init__(self) -> None:
        self.requests: deque[Item] = deque()
        self.lines: dict[tuple[int, PartId], Queue] = {}
        """Its events that wait, for each component and part; the sources have no credit for them yet."""
        self.away = False

    @property
    def idle(self) -> bool:
        """Whether nothing is going on with this key any more."""
        return not (self.requests or self.first is not None or self.away)

    @property
    def first(self) -> Point | None:
        """The first event that waits."""
        return min((line.first for line in self.lines.values() if line.first is not None), default=None)


class KeyedLeaf(Worker):
    """A worker without children, for many keys."""

    def __init__(self, shape: WorkerShape, outputs: Mapping[str, Schema], lifted: Lifted) -> None:
        super().__init__(shape, outputs)
        self.lifted = lifted
        self.components = [Component(component) for component in shape.components]
        self.states: KeyMap = lifted.init()
        self.hot: dict[Key, HotKey] = {}
        self.barriers: deque[Item] = deque()
        """Requests for everything."""
        self.away = True
        """Whether the parent has all states."""

    def on_data(self, message: Data) -> None:
        for component in self.components:
            if message.part in component.queues:
                component.put(message.part, self.stamped(message.run), message.frontier)

    def on_request(self, message: Request) -> None:
        for item in message.items:
            if item.cause == EVERYTHING:
                self.barriers.append(item)
            else:
                self.hot.setdefault(item.key, HotKey()).requests.append(item)
        for component in self.components:
            if component.watch is not None:
                component.watch.announced(message.items)

    def on_handback(self, message: Handback) -> None:
        if message.key is None:
            assert self.away, f"{self.id} was given all states while it has them"
            self.away, self.states = False, message.state
            return
        hot = self.hot[message.key]
        assert hot.away, f"{self.id} was given the state of {message.key!r} while it has it"
        hot.away = False
        self.states[message.key] = message.state
        while hot.requests and hot.requests[0].point <= message.served:
            hot.requests.popleft()

    def progress(self) -> None:
        while not self.away:
            for number in range(len(self.components)):
                self.release(number)
            for key in list(self.hot):
                self.advance(key)
            if not (self.barriers and self.quiet_up_to(self.barriers[0].point)):
                return
            self.answer_everything(self.barriers.popleft())

    def release(self, number: int) -> None:
        """Process what a component may process now; events of hot keys go to their lines."""
        component = self.components[number]
        bound = self.calm if component.shape.free else min(self.calm, self.parent_frontier)
        if self.barriers:
            bound = min(bound, self.barriers[0].point)
        free: list[tuple[PartId, Run]] = []
        for part, run in component.take(bound).items():
            rest, diverted = run.divert(self.hot.keys())
            free.append((part, rest))
            for key, of_key in diverted.items():
                self.hot[key].lines.setdefault((number, part), Queue()).put(of_key, of_key.last)
            self.taken(component.queues[part])
        self.process(free)

    def process(self, runs: Sequence[tuple[PartId, Run]], key: Key = None) -> None:
        """Process events whose keys are all here (or are all this one), in O whatever parts they came from."""
        run = merged(of_part for _, of_part in runs)
        if run:
            self.pass_by(run.last)
            if key is None:
                self.states = run.fold(self.shape.kind, self.states, self.emit)
            else:  # no need to look for the keys
                self.states[key] = run.fold(self.lifted.kind, self.states[key], self.emit)
            self.processed(run)
            self.counting.runs += 1
            for part, of_part in runs:
                self.give_credit({part: len(of_part)} if of_part else {})

    def advance(self, key: Key) -> None:
        """Do what can be done for a hot key."""
        hot = self.hot[key]
        while not hot.away:
            # An event at the very point of a request does not depend on it: O has no order for them.
            limit = hot.requests[0].point if hot.requests else END
            self.process([(part, line.take(limit)) for (_, part), line in hot.lines.items()], key)
            if not (hot.requests and self.come(key) >= hot.requests[0].point):
                break
            self.answer(key, hot.requests.popleft())
        if hot.idle:
            del self.hot[key]

    def come(self, key: Key) -> Point:
        """All events of a key up to this point have come and are processed or in its line."""
        bounds = [c.clear for c in self.components if any(tags.has_key(key) for tags in c.tags.values())]
        return min(bounds, default=END)

    def answer(self, key: Key, item: Item) -> None:
        """Give the state of one key away; wait for it to come back, or go on from the initial one."""
        self.pass_by(item.point)
        hot = self.hot[key]
        clear = self.come(key) if hot.first is None else min(before(hot.first), self.come(key))
        state = self.states.take_out(key)
        if self.shape.hands_over:
            self.counting.handed += 1
        else:
            self.counting.blocked += 1
            hot.away = True
        self.send(self.shape.parent, Response(item.point, state, {EVERYTHING: clear}, key))

    def quiet_up_to(self, point: Point) -> bool:
        """Whether everything up to a point is processed, and no key is wanted before it, will be, or is away.

        What has come of a key that is not away has been processed, and requests up to there have been answered.
        """
        if self.parent_frontier < point or any(component.clear < point for component in self.components):
            return False
        return not any(hot.away for hot in self.hot.values())

    def answer_everything(self, item: Item) -> None:
        """Give all states away."""
        self.pass_by(item.point)
        states, self.states = self.states, self.lifted.init()
        self.away = not self.shape.hands_over
        self.counting.handed += self.shape.hands_over
        self.counting.blocked += self.away
        kept = states if self.is_kept(item.point) else None
        self.send(self.shape.parent, Response(item.point, kept, {EVERYTHING: item.point}))

    def forget(self, ts: int) -> list[Data]:
        assert not self.barriers, f"{self.id} was asked for everything"
        lined: dict[PartId, list[Run]] = {}
        for key, hot in list(self.hot.items()):
            hot.requests = deque(kept(hot.requests, behind(ts)))
            for (_, part), line in hot.lines.items():
                lined.setdefault(part, []).extend(line.curtail(ts)[0])
            if hot.idle:
                del self.hot[key]
        return curtailed_queues([entry for c in self.components for entry in c.queues.items()], ts, lined)

    @property
    def waiting(self) -> int:
        queued = sum(queue.length for component in self.components for queue in component.queues.values())
        return queued + sum(line.length for hot in self.hot.values() for line in hot.lines.values())

    @property
    def first_waiting(self) -> Point | None:
        points = [component.first for component in self.components] + [hot.first for hot in self.hot.values()]
        return min((point for point in points if point is not None), default=None)

    def wanted(self) -> list[Point]:
        return [item.point for hot in self.hot.values() for item in hot.requests] + [i.point for i in self.barriers]

    def absent(self) -> str | None:
        gone = [repr(key) for key, hot in self.hot.items() if hot.away]
        return "all states" if self.away else f"the state of {', '.join(gone)}" if gone else None

    def fed_by(self) -> list[tuple[PartId, Queue]]:
        return [entry for component in self.components for entry in component.queues.items()]

    def holdings(self) -> list[Any]:
        return [] if self.away else [self.states]
