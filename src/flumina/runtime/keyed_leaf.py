"""Leaves of keyed programs: the state of one key can be given away while the other keys go on.

All tags are keyed, so events of different keys never depend on each other. Each key for which the parent has asked is
*hot* until it is settled: its events wait in a line of their own. A request for everything (a snapshot, the end) is
answered when all keys have come that far and none is away.

A message concerns few keys, and only those are looked at: the ones it names, the ones of its events, and the ones that
wait for a point which has been reached now. What is asked of all hot keys (the first event or request that waits, how
many events do, whether a key is away) is kept up to date as they change.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from flumina.model.order import END, Point
from flumina.model.schema import Schema
from flumina.model.tag_set import Key
from flumina.program.keyed import Lifted
from flumina.runtime.lowest import Lowest
from flumina.runtime.mailbox import Component, Queue, before
from flumina.runtime.messages import EVERYTHING, Data, ForkState, Item, PartId, Request, Response
from flumina.runtime.run import Run, merged
from flumina.runtime.topology import WorkerShape
from flumina.runtime.truncate import behind, kept, truncated_queues
from flumina.runtime.worker import Worker, states_of
from flumina.state.keyed_map import KeyedMap


class HotKey:
    """A key whose state is wanted or away."""

    def __init__(self, components: tuple[int, ...]) -> None:
        self.components = components
        """The components of the leaf that have events of this key, by number."""
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
        self.states: KeyedMap = lifted.init()
        self.hot: dict[Key, HotKey] = {}
        self.touched: dict[Key, None] = {}
        """Hot keys for which something has happened; a set has no order that can be repeated."""
        self.lined = 0
        """How many events wait in the lines of hot keys."""
        self.gone: OrderedDict[Key, None] = OrderedDict()
        """Hot keys whose state is away."""
        self.first_lined, self.first_asked = Lowest(), Lowest()
        """The first event that waits, and the first request, of each hot key."""
        self.due: dict[tuple[int, ...], Lowest] = {}
        """When hot keys that are here can be answered, for each set of components that some have events in."""
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
                hot = self.hot.get(item.key)
                if hot is None:
                    hot = self.hot[item.key] = HotKey(self.components_of(item.key))
                hot.requests.append(item)
                self.touched[item.key] = None
                self.first_asked.set(item.key, hot.requests[0].point)
        for component in self.components:
            if component.watch is not None:
                component.watch.announced(message.items)

    def on_fork_state(self, message: ForkState) -> None:
        if message.key is None:
            assert self.away, f"{self.id} was given all states while it has them"
            self.away, self.states = False, message.state
            return
        hot = self.hot[message.key]
        assert hot.away, f"{self.id} was given the state of {message.key!r} while it has it"
        hot.away = False
        del self.gone[message.key]
        self.touched[message.key] = None
        self.states[message.key] = message.state
        while hot.requests and hot.requests[0].point <= message.served:
            hot.requests.popleft()

    def progress(self) -> None:
        while not self.away:
            for number in range(len(self.components)):
                self.release(number)
            for components, due in self.due.items():
                if due:
                    self.touched.update(dict.fromkeys(due.up_to(self.clear_of(components))))
            touched, self.touched = self.touched, {}
            for key in touched:
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
                self.lined += len(of_key)
                self.touched[key] = None
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
            runs = [(part, line.take(limit)) for (_, part), line in hot.lines.items()]
            self.lined -= sum(len(run) for _, run in runs)
            self.process(runs, key)
            if not (hot.requests and self.come(key) >= hot.requests[0].point):
                break
            self.answer(key, hot.requests.popleft())
        self.note(key, hot)
        if hot.idle:
            del self.hot[key]

    def note(self, key: Key, hot: HotKey) -> None:
        """Keep up to date what is known of all hot keys together."""
        asked = hot.requests[0].point if hot.requests else None
        self.first_lined.set(key, hot.first)
        self.first_asked.set(key, asked)
        self.due.setdefault(hot.components, Lowest()).set(key, None if hot.away else asked)

    def components_of(self, key: Key) -> tuple[int, ...]:
        """The components that have events of a key, by number."""
        return tuple(
            number for number, c in enumerate(self.components) if any(tags.has_key(key) for tags in c.tags.values())
        )

    def clear_of(self, components: tuple[int, ...]) -> Point:
        """Everything of these components up to this point has come and has been taken."""
        return min((self.components[number].clear for number in components), default=END)

    def come(self, key: Key) -> Point:
        """All events of a key up to this point have come and are processed or in its line."""
        return self.clear_of(self.hot[key].components)

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
            self.gone[key] = None
        self.send(self.shape.parent, Response(item.point, state, {EVERYTHING: clear}, key))

    def quiet_up_to(self, point: Point) -> bool:
        """Whether everything up to a point is processed, and no key is wanted before it, will be, or is away.

        What has come of a key that is not away has been processed, and requests up to there have been answered.
        """
        if self.parent_frontier < point or any(component.clear < point for component in self.components):
            return False
        return not self.gone

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
                length = line.length
                lined.setdefault(part, []).extend(line.truncate(ts)[0])
                self.lined -= length - line.length
            self.note(key, hot)
            if hot.idle:
                del self.hot[key]
                self.touched.pop(key, None)
            else:
                self.touched[key] = None
        return truncated_queues([entry for c in self.components for entry in c.queues.items()], ts, lined)

    @property
    def waiting(self) -> int:
        queued = sum(queue.length for component in self.components for queue in component.queues.values())
        return queued + self.lined

    @property
    def first_waiting(self) -> Point | None:
        points = [*(component.first for component in self.components), self.first_lined.first]
        return min((point for point in points if point is not None), default=None)

    def wanted(self) -> list[Point]:
        first = self.first_asked.first
        return ([] if first is None else [first]) + [item.point for item in islice(self.barriers, 1)]

    def absent(self) -> str | None:
        return "all states" if self.away else states_of(self.gone)

    def fed_by(self) -> list[tuple[PartId, Queue]]:
        return [entry for component in self.components for entry in component.queues.items()]

    def holdings(self) -> list[Any]:
        return [] if self.away else [self.states]
