"""Process events of many keys, and answer requests for single keys.

Events of different keys never depend on each other. Each key for which the parent has asked is *hot* until it is
settled: its events wait in a line of their own. What concerns all keys is as in :class:`~flumina.runtime.leaf.Leaf`,
and the two meet in O::

    a request for all states    is answered when all keys have come that far, and none is away
    a request for one key       is answered up to the first request for all states, and at its very point before it
    an event of an unkeyed tag  waits until what lies before it is processed or answered, and no key is away

A message concerns few keys, and only those are looked at: the ones it names, the ones of its events, and the ones that
wait for a point which has been reached now. What is asked of all hot keys (the first event or request that waits, how
many events do, whether a key is away) is kept up to date as they change.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush

from flumina.model.order import END, START, Point
from flumina.model.schema import Schema
from flumina.model.tag_set import UNKEYED, Key, TagSet
from flumina.program.keyed import Lifted
from flumina.runtime.key_progress import NOTHING
from flumina.runtime.leaf import Leaf
from flumina.runtime.lowest import Lowest
from flumina.runtime.mailbox import Component, Queue, before
from flumina.runtime.messages import EVERYTHING, Data, ForkState, Item, PartId, Response
from flumina.runtime.run import Run, merged
from flumina.runtime.tick_cursor import right_before
from flumina.runtime.topology import WorkerShape
from flumina.runtime.truncate import after, drop_after, truncated_queues
from flumina.runtime.worker import states_of


class HotKey:
    """A key whose state is requested or away."""

    def __init__(self, components: tuple[int, ...]) -> None:
        self.components = components
        """The components of the leaf that have events of this key, by number."""
        self.requests: deque[Item] = deque()
        self.lines: dict[tuple[int, PartId], Queue] = {}
        """Its events that wait, for each component and part; the sources have no credit for them yet."""
        self.away = False

    @property
    def idle(self) -> bool:
        """Return whether the key has no requests, waiting events or absent state."""
        return not (self.requests or self.away) and self.first is None

    @property
    def first(self) -> Point | None:
        """Return the point of the first waiting event."""
        return min((line.first for line in self.lines.values() if line.first is not None), default=None)


class KeyedLeaf(Leaf):
    """A worker without children that answers for single keys."""

    def __init__(self, shape: WorkerShape, outputs: Mapping[str, Schema], lifted: Lifted) -> None:
        super().__init__(shape, outputs, lifted.init)
        self.lifted = lifted
        self.hot: dict[Key, HotKey] = {}
        self.touched: dict[Key, None] = {}
        """Hot keys for which something has happened; a set has no order that can be repeated."""
        self.lined = 0
        """How many events wait in the lines of hot keys."""
        self.gone: OrderedDict[Key, None] = OrderedDict()
        """Hot keys whose state is away."""
        self.gone_of: Counter[tuple[int, ...]] = Counter()
        """How many of them there are, for each set of components that some have events in."""
        self.lined_of: dict[tuple[int, ...], Lowest] = {}
        """The first event that waits, of each hot key, likewise."""
        self.first_lined, self.first_asked = Lowest(), Lowest()
        """The first event that waits, and the first request, of each hot key."""
        self.due: dict[tuple[int, ...], Lowest] = {}
        """When hot keys that are here can be answered, for each set of components that some have events in."""
        self.unkeyed = [
            {part: tags for part, all_tags in component.tags.items() if (tags := _unkeyed(all_tags)).tags}
            for component in self.components
        ]
        """For each component the tags that see all keys, by part."""
        self.unkeyed_parts = {part for tags in self.unkeyed for part in tags}
        self.ahead: list[list[Point]] = [[] for _ in self.components]
        """For each component the points of such events that were not taken, as a heap."""

    def on_data(self, message: Data) -> None:
        super().on_data(message)
        if message.part in self.unkeyed_parts and message.run:
            for unkeyed, ahead in zip(self.unkeyed, self.ahead, strict=True):
                if message.part in unkeyed:
                    for point, _ in message.run.only(unkeyed[message.part]):
                        heappush(ahead, point)

    def put_requests(self, items: Sequence[Item]) -> None:
        for_all_keys = [item for item in items if item.key is None]
        if for_all_keys:
            super().put_requests(for_all_keys)
        for item in items:
            if item.key is not None:
                hot = self.hot.get(item.key)
                if hot is None:
                    hot = self.hot[item.key] = HotKey(self.components_of(item.key))
                hot.requests.append(item)
                self.touched[item.key] = None
                self.first_asked.set(item.key, hot.requests[0].point)

    def on_fork_state(self, message: ForkState) -> None:
        if message.key is None:
            super().on_fork_state(message)
            return
        hot = self.hot[message.key]
        assert hot.away, f"{self.id} was given the state of {message.key!r} while it has it"
        hot.away = False
        del self.gone[message.key]
        self.gone_of[hot.components] -= 1
        self.touched[message.key] = None
        if self.shape.ticking and self.lifted.is_identity(message.state):
            dict.pop(self.state, message.key, None)  # else memory would never shrink
        else:
            self.state[message.key] = message.state
        for cursor in self.cursors:
            if cursor.candidates is not None:
                cursor.candidates.add([message.key])
        while hot.requests and hot.requests[0].point <= message.served:
            hot.requests.popleft()

    def release_all(self) -> None:
        again = True
        while again:
            limited = moved = False
            for number, component in enumerate(self.components):
                bound, ahead = self.bound(component), self.ahead[number]
                if ahead and self.hot and ahead[0] <= bound:
                    limited, bound = True, self.up_to_unkeyed(component, ahead[0])
                if self.release_keyed(number, component, bound):
                    moved = True
                while component.cursors and self.tick(component, bound):
                    self.release_keyed(number, component, bound)
                    moved = True
                limited = limited or bool(component.cursors)
            for components, due in self.due.items():
                if due.of:
                    for key in due.pop_up_to(min(self.settled_of(components), self.barrier)):
                        self.touched[key] = None
            if self.touched:
                touched, self.touched = self.touched, {}
                for key in touched:
                    self.advance(key)
                moved = True
            again = limited and moved

    def tick_limit(self, component: Component, limit: Point) -> Point | None:
        """Return up to where ticks may come: not while a key is away, nor past what hot keys wait for."""
        if self.touched:
            return None
        number = self.components.index(component)
        for components, count in self.gone_of.items():
            if count and number in components:
                return None
        asked = [due.first for components, due in self.due.items() if number in components]
        lined = [line.first for components, line in self.lined_of.items() if number in components]
        bounds = [point for point in asked if point is not None]
        return min([limit, *bounds, *(before(point) for point in lined if point is not None)])

    def up_to_unkeyed(self, component: Component, point: Point) -> Point:
        """Return a component's bound when its next unkeyed event is at this point.

        Events before it come first; events of hot keys wait in their lines.
        """
        first = component.first
        return point if first is not None and first >= point and self.quiet_before(point) else before(point)

    def quiet_before(self, point: Point) -> bool:
        """Return whether no key is away and no hot key has anything before a point."""
        firsts = (self.first_lined.first, self.first_asked.first)
        return not self.gone and all(first is None or first >= point for first in firsts)

    def release_keyed(self, number: int, component: Component, bound: Point) -> bool:
        """Process a component up to a point, hot keys aside; return whether anything was taken."""
        taken = component.take(bound)
        if not taken:
            return False
        free: list[tuple[PartId, Run]] = []
        for part, run in taken.items():
            rest, diverted = run.divert(self.hot.keys())
            free.append((part, rest))
            for key, of_key in diverted.items():
                self.hot[key].lines.setdefault((number, part), Queue()).put(of_key, of_key.last)
                self.lined += len(of_key)
                self.touched[key] = None
            self.taken(component.queues[part])
        ahead = self.ahead[number]
        if ahead:
            first = component.first
            while ahead and (first is None or ahead[0] < first):
                heappop(ahead)
        self.process(free)
        return True

    def process(self, runs: Sequence[tuple[PartId, Run]], key: Key = None) -> None:
        """Process events of several parts in O, of one key or of keys that are not hot."""
        run = runs[0][1] if len(runs) == 1 else merged([of_part for _, of_part in runs])
        if run:
            self.pass_by(run.last)
            if key is None:
                self.state = run.fold(self.shape.kind, self.state, self.emit)
            else:  # no need to look for the keys
                self.state[key] = run.fold(self.lifted.kind, self.state[key], self.emit)
            self.processed(run)
            self.changed(run)
            self.counting.runs += 1
            for part, of_part in runs:
                if of_part:
                    self.give_credit({part: len(of_part)})

    def advance(self, key: Key) -> None:
        """Process events and answer requests of a hot key as far as possible."""
        hot = self.hot[key]
        while not hot.away:
            # An event at the very point of a request does not depend on it: O has no order for them.
            limit = hot.requests[0].point if hot.requests else END
            if hot.lines:
                runs = [(part, line.take(limit)) for (_, part), line in hot.lines.items()]
                self.lined -= sum([len(run) for _, run in runs])
                self.process(runs, key)
            if not (hot.requests and self.barrier >= limit and self.come(key) >= limit):
                break
            self.answer_key(key, hot.requests.popleft())
        self.note(key, hot)
        if hot.idle:
            del self.hot[key]

    @property
    def barrier(self) -> Point:
        """Return the point of the first request for all states: keys are answered up to it."""
        return self.requests[0].point if self.requests else END

    def note(self, key: Key, hot: HotKey) -> None:
        """Update the minima over all hot keys."""
        asked = hot.requests[0].point if hot.requests else None
        self.first_lined.set(key, hot.first)
        self.first_asked.set(key, asked)
        self.due.setdefault(hot.components, Lowest()).set(key, None if hot.away else asked)
        if self.cursors:
            self.lined_of.setdefault(hot.components, Lowest()).set(key, hot.first)

    def components_of(self, key: Key) -> tuple[int, ...]:
        """Return the numbers of the components whose events see a key."""
        return tuple(
            number
            for number, c in enumerate(self.components)
            if any(tags.sees_key(key) for tags in c.tags.values())
            or any(cursor.shape.keys == UNKEYED or key in cursor.shape.keys for cursor in c.cursors)
        )

    def settled_of(self, components: tuple[int, ...]) -> Point:
        """Return the least settled bound of some components."""
        if len(components) == 1:
            return self.components[components[0]].settled
        return min((self.components[number].settled for number in components), default=END)

    def come(self, key: Key) -> Point:
        """Return the point up to which all events of a key have arrived."""
        return self.settled_of(self.hot[key].components)

    def answer_key(self, key: Key, item: Item) -> None:
        """Send one key's state to the parent; continue from the initial state if it hands over."""
        self.pass_by(item.point)
        hot = self.hot[key]
        settled, first = self.come(key), hot.first
        if first is not None:
            settled = min(before(first), settled)
        quiet = self.quiet_of(key) if self.shape.ticking else START
        state = self.state.take_out(key)
        if self.shape.hands_over:
            self.counting.handed += 1
        else:
            self.counting.blocked += 1
            hot.away = True
            self.gone[key] = None
            self.gone_of[hot.components] += 1
        self.send(self.shape.parent, Response(item.point, state, {EVERYTHING: settled}, key, quiet))

    def quiet_of(self, key: Key) -> Point:
        """Return up to where nothing comes that changes the state of a key."""
        bounds, hot = [END], self.hot[key]
        bounds += [] if hot.first is None else [before(hot.first)]
        for component in (self.components[number] for number in hot.components):
            bounds += [component.arrived, *([] if component.first is None else [before(component.first)])]
            for cursor in component.cursors:
                if cursor.candidates is None:
                    bounds.append(cursor.frontier)
                elif key in cursor.shape.keys:
                    place = cursor.firing(cursor.shape.due(self.state, key))
                    bounds += [] if place is None else [right_before(place)]
        return min(bounds)

    def caught_up(self, point: Point) -> bool:
        """Return whether everything up to a point is processed and no key is away.

        All requests up to there have come: the parent asks for all states only when it has asked for the keys before.
        What has come of a key that is not away has been processed, and requests up to there have been answered.
        """
        return not self.gone and super().caught_up(point)

    def forget(self, ts: int) -> list[Data]:
        assert all(item.cause != EVERYTHING for item in self.requests), f"{self.id} was asked for everything"
        self.forget_requests(ts)
        for ahead in self.ahead:
            ahead[:] = [point for point in ahead if point <= after(ts)]
            heapify(ahead)
        lined: dict[PartId, list[Run]] = {}
        for key, hot in list(self.hot.items()):
            hot.requests = deque(drop_after(hot.requests, after(ts)))
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
        return truncated_queues(self.part_queues(), ts, lined)

    @property
    def waiting(self) -> int:
        return super().waiting + self.lined

    @property
    def first_waiting(self) -> Point | None:
        points = [super().first_waiting, self.first_lined.first]
        return min((point for point in points if point is not None), default=None)

    def requested_points(self) -> list[Point]:
        first = self.first_asked.first
        return ([] if first is None else [first]) + super().requested_points()

    def absent(self) -> str | None:
        return "all states" if self.state is NOTHING else states_of(self.gone)

    def awaited_queues(self) -> list[tuple[PartId, Queue]]:
        return self.part_queues()


def _unkeyed(tags: TagSet) -> TagSet:
    """Return the unkeyed tags of a set."""
    return TagSet((name, keys) for name, keys in tags.members if keys == UNKEYED)
