"""Inner workers of keyed programs: one small protocol for each key, all at once.

An own event or a request of the parent concerns one key; only that key's state is asked for, joined and handed back,
and only children that have events of that key are asked. Keys for which nobody below has events live here. A request
for everything waits until all that lies before it is settled, and holds up what lies behind it.

A message concerns few keys, and only those are looked at. What is asked of all of them together (the first that the
children were not asked for, the first that waits, whether a key is away) is kept up to date as they change.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Mapping
from functools import lru_cache
from heapq import heappop, heappush
from typing import Any

from flumina.model.order import END, START, Point
from flumina.model.schema import Schema
from flumina.model.tag_set import Key
from flumina.program.keyed import Lifted
from flumina.runtime.busy import NOTHING, Busy, Entry
from flumina.runtime.lowest import Lowest
from flumina.runtime.mailbox import Queue, before
from flumina.runtime.messages import (
    EVERYTHING,
    Cause,
    Data,
    ForkState,
    Item,
    Message,
    Origin,
    PartId,
    Request,
    Response,
    Stop,
)
from flumina.runtime.run import Run
from flumina.runtime.topology import ProtocolOptions, WorkerShape
from flumina.runtime.truncate import behind, kept, truncated_queues
from flumina.runtime.worker import Address, Worker, states_of
from flumina.state.keyed_map import KeyedMap


class KeyedInner(Worker):
    """A worker with two children, for many keys."""

    def __init__(
        self, shape: WorkerShape, outputs: Mapping[str, Schema], options: ProtocolOptions, lifted: Lifted
    ) -> None:
        super().__init__(shape, outputs)
        self.options, self.lifted = options, lifted
        self.queues: dict[PartId, Queue] = {part: Queue() for part in shape.parts}
        self.requests: list[tuple[Point, bool, int, Item]] = []
        """A heap: of different keys, they may come in another order than O; those for everything go last at a point."""
        self.requested = 0
        """How many requests have come: a number for each of them."""
        self.hidden: deque[Point] = deque()
        """Requests for everything of which the children have not been told."""
        self.sequence: deque[Entry] = deque()
        """What is settled but waits behind a request for everything."""
        self.held: deque[Point] = deque()
        """The points of the own events in the sequence."""
        self.lined = 0
        """How many own events wait in the sequence and for their keys."""
        self.admitted = START
        """How far the sequence was settled when something was last moved into it."""
        self.barrier: Item | None = None
        """The request for everything that comes next; the children have been asked, and wait for our frontier."""
        self.gathered: dict[int, KeyedMap] = {}
        """All states of a child, by side, while everything is being gathered."""
        self.busy: dict[Key, Busy] = {}
        self.first, self.first_own, self.first_unasked = Lowest(), Lowest(), Lowest()
        """Of each busy key the first thing to serve, own event, and thing that the children were not asked for."""
        self.gone: OrderedDict[Key, None] = OrderedDict()
        """Keys whose state the parent has."""
        self.local: KeyedMap = lifted.init()
        """States of keys that nobody below has events of."""
        self.kept = [lifted.init(), lifted.init()]
        """States kept for children that hand over, by side."""
        self.started = False
        self.away = True
        self.told = (START, START)
        self.outgoing: tuple[list[Item], list[Item]] = ([], [])
        self.done: Counter[PartId] = Counter()
        """Own events that were served, for which the sources have no credit back yet."""
        self.touched: dict[Key, None] = {}
        """Keys for which something has happened that was not looked at yet; a set has no order that can be repeated."""
        self.sides_of = lru_cache(maxsize=65536)(self._sides_of)

    # -- what comes in ----------------------------------------------------------------------------------------

    def on_data(self, message: Data) -> None:
        self.queues[message.part].put(self.stamped(message.run), message.frontier)

    def on_request(self, message: Request) -> None:
        self.put_requests(message.items)
        self.hidden.extend(item.point for item in message.items if item.cause == EVERYTHING)
        if self.watch is not None:
            self.watch.announced(message.items)

    def put_requests(self, items: Iterable[Item]) -> None:
        """Add requests to those that are not settled."""
        for item in items:
            self.requested += 1
            heappush(self.requests, (item.point, item.cause == EVERYTHING, self.requested, item))

    def on_response(self, child: str, message: Response) -> None:
        side = 0 if self.shape.children[0].id == child else 1
        if message.key is None:
            self.gathered[side] = message.state
        else:
            self.busy[message.key].responses[side].append(message)
            self.touched[message.key] = None

    def on_fork_state(self, message: ForkState) -> None:
        if message.key is None:
            assert self.away, f"{self.id} was given all states while it has them"
            self.away = False
            self.spread(message.state, message.served)
            return
        busy = self.busy[message.key]
        assert busy.away, f"{self.id} was given the state of {message.key!r} while it has it"
        busy.away, busy.state = False, message.state
        del self.gone[message.key]
        busy.served = max(busy.served, message.served)
        while busy.entries and busy.entries[0][1] is None and busy.entries[0][0].point <= message.served:
            busy.drop_first()
        self.touched[message.key] = None

    def on_stop(self) -> None:
        for child in self.shape.children:
            self.send(child.id, Stop())

    def is_late(self, sender: Address, message: Message) -> bool:
        return isinstance(message, Response) and any(c.id == sender and c.hands_over for c in self.shape.children)

    # -- the sequence -----------------------------------------------------------------------------------------

    @property
    def known(self) -> Point:
        """All own events up to this point have come."""
        return min((queue.frontier for queue in self.queues.values()), default=END)

    def admit(self) -> None:
        """Move what is settled into the sequence, in O, and from there to the keys it concerns."""
        limit = min(self.known, self.parent_frontier)
        if limit != self.admitted:  # else whatever is new lies behind it
            self.admitted = limit
            new = self.up_to(limit)
            self.sequence.extend(new)
            own = [entry.item.point for entry in new if entry.event is not None]
            self.held.extend(own)
            self.lined += len(own)
        while self.sequence and self.barrier is None:
            entry = self.sequence.popleft()
            if entry.event is not None:
                self.held.popleft()
            if entry.item.cause == EVERYTHING:
                self.barrier = entry.item
                self.hidden.popleft()
                for items in self.outgoing:
                    items.append(entry.item)
            else:
                self.enqueue(entry)

    def up_to(self, limit: Point) -> list[Entry]:
        """Own events and requests that have not been looked at, in O, up to a point."""
        new: list[Entry] = []
        for part, queue in self.queues.items():
            told = part[0] in self.shape.ties_below
            new += [
                Entry(
                    Item(point, (self.id, event.tag.name), event.key, Origin(part[1], event.key) if told else None),
                    event,
                    part,
                )
                for point, event in queue.take(limit)
            ]
            self.taken(queue)
        if self.watch is not None:
            self.watch.released_events(((part, event) for _, event, part in new if event and part), limit)
        while self.requests and self.requests[0][0] <= limit:
            new.append(Entry(heappop(self.requests)[-1]))
        new.sort(key=lambda entry: entry[0].point)
        return new

    def enqueue(self, entry: Entry) -> None:
        """Give something to serve to its key, and ask the children that have that key."""
        key = entry.item.key
        busy = self.busy.get(key)
        if busy is None:
            busy = self.busy[key] = Busy(self.sides_of(key))
        busy.add(entry)
        self.touched[key] = None
        if self.options.pipeline:
            self.ask(busy)
        self.note(key, busy)

    def note(self, key: Key, busy: Busy) -> None:
        """Keep up to date what is known of all keys together."""
        self.first.set(key, busy.first)
        self.first_own.set(key, busy.first_own)
        self.first_unasked.set(key, busy.first_unasked)

    def ask(self, busy: Busy) -> None:
        """Ask the children that have a key for its state at the next thing to serve."""
        first = busy.entries[busy.asked][0].point
        while busy.asked < len(busy.entries) and busy.entries[busy.asked][0].point == first:
            for side in busy.sides:
                self.outgoing[side].append(busy.entries[busy.asked][0])
                busy.expected += self.shape.children[side].hands_over
            busy.asked += 1

    def announce(self) -> None:
        """Tell the children which states will be wanted, and how far that is known."""
        limit = min(self.known, self.parent_frontier)
        # What is in the sequence lies behind what the keys have.
        unasked = self.first_unasked.first or (self.sequence[0].item.point if self.sequence else None)
        frontier = limit if unasked is None else min(limit, before(unasked))
        calm = min(self.calm, before(self.hidden[0])) if self.hidden else self.calm
        changed = (frontier, calm) != self.told
        self.told = (frontier, calm)
        for side, child in enumerate(self.shape.children):
            if changed or self.outgoing[side]:
                self.send(child.id, Request(tuple(self.outgoing[side]), frontier, calm))
        self.outgoing = ([], [])

    def _sides_of(self, key: Key) -> tuple[int, ...]:
        """The children that have events of a key."""
        return tuple(side for side, child in enumerate(self.shape.children) if child.tags.has_key(key))

    # -- serving it -------------------------------------------------------------------------------------------

    def progress(self) -> None:
        while True:
            self.admit()
            touched, self.touched = (self.touched, {}) if not self.away else ({}, self.touched)
            for key in touched:
                self.advance(key)
            self.announce()
            if self.barrier is None or self.away or not self.settled():
                break
            self.answer_everything(self.barrier)
        self.give_credit(self.done)
        self.done.clear()

    def advance(self, key: Key) -> None:
        """Serve what can be served for one key."""
        busy = self.busy[key]
        while not busy.away:
            if busy.state is NOTHING:
                if busy.entries and not busy.asked:
                    self.ask(busy)
                if not busy.entries or not self.gather(key, busy):
                    break
                self.serve(key, busy)
            elif busy.entries and self.may_coalesce(busy):
                self.counting.coalesced += 1
                self.serve(key, busy)
            else:
                self.send_fork_state(key, busy)
        self.absorb_late(key, busy)
        self.note(key, busy)
        if not (busy.entries or busy.away or busy.expected or any(busy.responses.values())):
            del self.busy[key]

    def gather(self, key: Key, busy: Busy) -> bool:
        """Join the states of a key, if all have come for the first thing to serve."""
        point = busy.entries[0][0].point
        here = [self.collect(key, busy, side, point) for side in busy.sides]
        if not all(here):
            return False
        if not busy.sides:
            busy.state = self.local.take_out(key)
            return True
        states = [
            busy.halves.pop(side) if side in busy.halves else self.kept[side].take_out(key) for side in busy.sides
        ]
        busy.state = states[0] if len(states) == 1 else self.lifted.one.joins[0].unite(*states)
        self.counting.joins += 1
        return True

    def collect(self, key: Key, busy: Busy, side: int, point: Point) -> bool:
        """Take in what a child has sent for this point; whether that is all there is to come for it."""
        responses = busy.responses[side]
        if not self.shape.children[side].hands_over:
            if side not in busy.halves and responses:
                response = responses.popleft()
                busy.halves[side], busy.clear[side] = response.state, response.clear[EVERYTHING]
            return side in busy.halves
        while responses and responses[0].point <= point:
            self.contribute(key, busy, side, responses.popleft())
        return busy.answered[side] >= point

    def contribute(self, key: Key, busy: Busy, side: int, response: Response) -> None:
        """Add what a child that hands over has contributed to what is kept for it."""
        kept = self.kept[side]
        kept[key] = self.lifted.one.joins[0].unite(kept.take_out(key), response.state)
        busy.answered[side] = response.point
        busy.expected -= 1

    def absorb_late(self, key: Key, busy: Busy) -> None:
        """Contributions for requests that an ancestor has settled without them."""
        if busy.entries or busy.away:
            return
        for side in busy.sides:
            while self.shape.children[side].hands_over and busy.responses[side]:
                self.contribute(key, busy, side, busy.responses[side].popleft())

    def may_coalesce(self, busy: Busy) -> bool:
        """Whether the next can be served with the state as it is here."""
        point = busy.entries[0][0].point
        if not busy.sides or point == busy.served:  # what shares a point is served together: one answer is for all
            return True
        # Of a child that hands over nothing counts as clear: its ``clear`` stays at the start.
        return self.options.coalesce and all(busy.clear[side] >= point for side in busy.sides)

    def serve(self, key: Key, busy: Busy) -> None:
        """Process the first thing to serve: an own event, or a request of the parent."""
        item, event, part = busy.drop_first()
        busy.served = item.point
        self.pass_by(item.point)
        if event is not None:
            assert part is not None
            run = Run([item.point], [event])
            busy.state = run.fold(self.lifted.kind, busy.state, self.emit)
            self.processed(run)
            self.done[part] += 1
            self.lined -= 1
            return
        state, busy.state, busy.away = busy.state, NOTHING, True
        self.gone[key] = None
        self.send(self.shape.parent, Response(item.point, state, {EVERYTHING: self.clear_of(busy)}, key))

    def clear_of(self, busy: Busy) -> Point:
        """Up to where nothing of a key is outstanding; what is in the sequence lies behind the barrier."""
        own = [self.known]
        own += [before(busy.own[0])] if busy.own else []
        own += [before(queue.first) for queue in self.queues.values() if queue.first is not None]
        own += [before(self.barrier.point)] if self.barrier is not None else []
        return min(*own, END, *(busy.clear[side] for side in busy.sides))

    def send_fork_state(self, key: Key, busy: Busy) -> None:
        """Give each side of a key its part of the state."""
        state, busy.state = busy.state, NOTHING
        if not busy.sides:
            self.local[key] = state
            return
        self.counting.forks += 1
        for side, half in zip(busy.sides, self.halves(key, busy.sides, state), strict=True):
            if self.shape.children[side].hands_over:
                self.kept[side][key] = half
            else:
                self.send(self.shape.children[side].id, ForkState(half, busy.served, key))

    def halves(self, key: Key, sides: tuple[int, ...], state: Any) -> tuple[Any, ...]:  # noqa: ANN401
        """One key's state for each of the sides that have it."""
        if len(sides) == 1:
            return (state,)
        left, right = (self.shape.children[side].tags.at(key) for side in sides)
        return self.lifted.one.forks[0].split(state, left, right)

    def forget(self, ts: int) -> list[Data]:
        assert self.barrier is None, f"{self.id} was asked for everything"  # so that the sequence is empty
        bound = behind(ts)
        taken: dict[PartId, list[Run]] = {}
        for key, busy in self.busy.items():
            entries, busy.entries, busy.own = busy.entries, deque(), deque()
            for entry in entries:
                if entry.item.point <= bound:
                    busy.add(entry)
                elif entry.event is not None:
                    assert entry.part is not None
                    taken.setdefault(entry.part, []).append(Run([entry.item.point], [entry.event]))
                    self.lined -= 1
            busy.asked = min(busy.asked, len(busy.entries))
            self.note(key, busy)
            self.touched[key] = None
        requests, self.requests = sorted(self.requests), []
        self.put_requests(kept([item for *_, item in requests], bound))
        self.hidden = deque(item.point for *_, item in sorted(self.requests) if item.cause == EVERYTHING)
        return truncated_queues(self.queues.items(), ts, taken)

    # -- everything at once -----------------------------------------------------------------------------------

    def settled(self) -> bool:
        """Whether no key has anything left before the request for everything, and all states have come."""
        return not self.first and not self.gone and len(self.gathered) == len(self.shape.children)

    def answer_everything(self, item: Item) -> None:
        """Give all states of the subtree to the parent."""
        states = self.local if self.is_kept(item.point) else None
        for side in range(len(self.shape.children)):
            of_child = self.gathered.pop(side)
            if states is not None:
                states = self.lifted.join(states, self.lifted.join(self.kept[side], of_child))
        self.local, self.kept = self.lifted.init(), [self.lifted.init(), self.lifted.init()]
        self.away, self.barrier = True, None
        clear: dict[Cause, Point] = {EVERYTHING: item.point}
        self.send(self.shape.parent, Response(item.point, states, clear))

    def spread(self, states: KeyedMap, served: Point) -> None:
        """Give each child the states of its keys; keep those that nobody below has."""
        parts = [self.lifted.init(), self.lifted.init()]
        for key, state in states.items():
            sides = self.sides_of(key)
            if not sides:
                self.local[key] = state
                continue
            for side, half in zip(sides, self.halves(key, sides, state), strict=True):
                parts[side][key] = half
        for side, child in enumerate(self.shape.children):
            if child.hands_over and self.started:
                self.kept[side] = parts[side]
            else:
                self.send(child.id, ForkState(parts[side], served))
        self.started = True

    # -- for those who watch ----------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        return sum(queue.length for queue in self.queues.values()) + self.lined

    @property
    def first_waiting(self) -> Point | None:
        points = [self.first_own.first, *(queue.first for queue in self.queues.values())]
        points += [self.held[0]] if self.held else []
        return min((point for point in points if point is not None), default=None)

    def wanted(self) -> list[Point]:
        first = self.first.first
        points = [] if first is None else [first]
        points += [self.sequence[0].item.point] if self.sequence else []
        points += [self.requests[0][0]] if self.requests else []
        return points + ([self.barrier.point] if self.barrier is not None else [])

    def absent(self) -> str | None:
        return "all states" if self.away else states_of(self.gone)

    def fed_by(self) -> list[tuple[PartId, Queue]]:
        return list(self.queues.items())

    def holdings(self) -> list[Any]:
        return [] if self.away else [self.local, *self.kept]
