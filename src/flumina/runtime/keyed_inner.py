"""Join the state of one key, or of all keys, in keyed programs.

An own event of a keyed tag, or a request of the parent for one key, concerns one key; only that key's state is asked
for, joined and handed back, and only children that can see that key are asked. What concerns all keys (an own event of
an unkeyed tag, a snapshot, the end) is in the sequence of :class:`~flumina.runtime.inner.Inner`, and moves all states.
Keys that no child can see live here. The two protocols meet in O::

    a key     is served up to the first of the sequence, and at its very point before it
    sequence  its first is served when no key has anything left up to its point, and no key's state is away;
              its next is served without giving back only if no key has anything before it

A message concerns few keys, and only those are looked at. What is asked of all of them together (the first that the
children were not asked for, the first that waits, whether a key is away) is kept up to date as they change.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from heapq import heappop, heappush
from itertools import islice
from typing import Any

from flumina.model.event import Event
from flumina.model.order import END, START, Point
from flumina.model.schema import Schema
from flumina.model.tag_set import Key
from flumina.program.keyed import Lifted
from flumina.runtime.inner import Inner
from flumina.runtime.key_progress import NOTHING, Entry, KeyProgress
from flumina.runtime.lowest import Lowest
from flumina.runtime.mailbox import before
from flumina.runtime.messages import EVERYTHING, ForkState, Item, PartId, Response
from flumina.runtime.run import Run
from flumina.runtime.tick_cursor import right_before
from flumina.runtime.tick_maker import leave_out
from flumina.runtime.topology import ProtocolOptions, WorkerShape
from flumina.runtime.truncate import drop_after
from flumina.runtime.worker import states_of
from flumina.state.keyed_map import KeyedMap


class KeyedInner(Inner):
    """A worker with two children that joins single keys."""

    by_key = True

    def __init__(
        self, shape: WorkerShape, outputs: Mapping[str, Schema], options: ProtocolOptions, lifted: Lifted
    ) -> None:
        super().__init__(shape, outputs, options)
        self.lifted = lifted
        self.pending: list[tuple[Point, int, Item]] = []
        """The parent's requests that are not settled: of different keys, they may come in another order than O."""
        self.requested = 0
        """How many requests have come: a number for each of them."""
        self.lined = 0
        """How many own events wait for their keys."""
        self.busy: dict[Key, KeyProgress] = {}
        self.first, self.first_own, self.first_unasked = Lowest(), Lowest(), Lowest()
        """Of each busy key the first thing to serve, own event, and thing that the children were not asked for."""
        self.blocked = Lowest()
        """Of each busy key that waits for the sequence, the first thing to serve."""
        self.gone: OrderedDict[Key, None] = OrderedDict()
        """Keys whose state the parent has."""
        self.local: KeyedMap = lifted.init()
        """States of keys that no child can see."""
        self.touched: dict[Key, None] = {}
        """Keys for which something has happened that was not looked at yet; a set has no order that can be repeated."""
        self.sides_of = lru_cache(maxsize=65536)(self._sides_of)

    # -- what comes in ----------------------------------------------------------------------------------------

    def put_requests(self, items: Iterable[Item]) -> None:
        for item in items:
            self.requested += 1
            heappush(self.pending, (item.point, self.requested, item))

    def requests_up_to(self, limit: Point) -> list[Item]:
        found = []
        while self.pending and self.pending[0][0] <= limit:
            found.append(heappop(self.pending)[-1])
        return found

    def keep_requests(self, bound: Point) -> None:
        requests, self.pending = sorted(self.pending), []
        self.put_requests(drop_after([item for *_, item in requests], bound))

    def on_response(self, child: str, message: Response) -> None:
        if message.key is None:
            super().on_response(child, message)
            return
        side = 0 if self.shape.children[0].id == child else 1
        self.busy[message.key].responses[side].append(message)
        self.touched[message.key] = None

    def on_fork_state(self, message: ForkState) -> None:
        if message.key is None:
            super().on_fork_state(message)
            return
        busy = self.busy[message.key]
        assert busy.away, f"{self.id} was given the state of {message.key!r} while it has it"
        busy.away, busy.state = False, message.state
        del self.gone[message.key]
        busy.served = max(busy.served, message.served)
        while busy.entries and busy.entries[0][1] is None and busy.entries[0][0].point <= message.served:
            busy.drop_first()
        self.touched[message.key] = None

    # -- what is to be served -----------------------------------------------------------------------------------

    def line_up(self, new: Sequence[Entry]) -> None:
        for_all_keys = [entry for entry in new if entry.item.key is None]
        if for_all_keys:
            super().line_up(for_all_keys)
        for entry in new:
            if entry.item.key is not None:
                self.enqueue(entry)

    def enqueue(self, entry: Entry) -> None:
        """Add an entry to its key, and request the key's state from the children."""
        key = entry.item.key
        busy = self.busy.get(key)
        if busy is None:
            busy = self.busy[key] = KeyProgress(self.sides_of(key))
        busy.add(entry)
        self.lined += entry.part is not None
        self.touched[key] = None
        if self.options.pipeline:
            self.ask(busy)
        self.note(key, busy)

    @property
    def barrier(self) -> Point:
        """Return the point of the first entry of the sequence: keys are served up to it."""
        return self.sequence[0][0].point if self.sequence else END

    def note(self, key: Key, busy: KeyProgress) -> None:
        """Update the minima over all keys."""
        first = busy.first
        self.first.set(key, first)
        self.first_own.set(key, busy.first_own)
        self.first_unasked.set(key, busy.first_unasked)
        if self.sequence or self.blocked.of:
            self.blocked.set(key, first if first is not None and first > self.barrier else None)

    def ask(self, busy: KeyProgress) -> None:
        """Request a key's state at its next entry from the children that see the key."""
        first = busy.entries[busy.asked][0].point
        while busy.asked < len(busy.entries) and busy.entries[busy.asked][0].point == first:
            for side in busy.sides:
                self.asking[side].append(busy.entries[busy.asked][0])
                busy.expected += self.shape.children[side].hands_over
            busy.asked += 1

    @property
    def unasked(self) -> Point | None:
        return self.first_unasked.first

    def _sides_of(self, key: Key) -> tuple[int, ...]:
        """Return the children with events of a key or of a tag that sees all keys."""
        return tuple(side for side, child in enumerate(self.shape.children) if child.tags.sees_key(key))

    # -- all keys -----------------------------------------------------------------------------------------------

    def progress(self) -> None:
        while True:
            self.ticks.make(self.seen)
            self.admit()
            self.serve_all()
            if not self.ticks.served:
                break
        self.return_credit()

    def serve_all(self) -> None:
        """Serve keys and the sequence as far as possible."""
        while True:
            if self.touched and self.state is NOTHING and not self.away:
                self.serve_keys()
            self.announce()
            self.work()
            if self.blocked.of:
                self.touched.update(dict.fromkeys(self.blocked.pop_up_to(self.barrier)))
            if self.away or not self.touched:
                break

    def serve_keys(self) -> None:
        """Serve the keys that changed."""
        touched, self.touched = self.touched, {}
        for key in touched:
            self.advance(key)

    def done_up_to(self, point: Point) -> bool:
        """Return whether all keys are served up to a point and none is away."""
        first = self.first.first
        return not self.gone and (first is None or first > point)

    def gather(self) -> bool:
        joins = self.counting.joins
        if not (self.done_up_to(self.sequence[0][0].point) and super().gather()):
            return False
        if all(item.cause == EVERYTHING for item, _ in self.first_group()):
            self.counting.joins = joins  # no event has made it necessary
        if self.state is not None:
            self.state, self.local = self.lifted.join(self.state, self.local), self.lifted.init()
        return True

    def may_coalesce(self) -> bool:
        return self.done_up_to(self.sequence[0][0].point) and super().may_coalesce()

    def divided(self, state: KeyedMap) -> tuple[KeyedMap, KeyedMap]:
        """Return the states of each child's keys; store the others locally."""
        parts = self.lifted.init(), self.lifted.init()
        for key, of_key in state.pruned().items():
            sides = self.sides_of(key)
            if not sides:
                self.local[key] = of_key
                continue
            for side, half in zip(sides, self.halves(key, sides, of_key), strict=True):
                parts[side][key] = half
        return parts

    def state_for_child(self, side: int) -> KeyedMap:
        """Return the stored states of a child that hands over, contributions included.

        What was settled above while the states were there has a contribution too: of what does not depend on it.
        """
        child = self.children[side]
        if child.state is NOTHING:
            child.state = self.lifted.init()
        while child.responses and child.responses[0].point < self.barrier:
            assert child.shape.contribution is not None
            child.contribute(child.shape.contribution, child.responses.popleft())
        states: KeyedMap = child.state
        return states

    # -- one key ------------------------------------------------------------------------------------------------

    def advance(self, key: Key) -> None:
        """Serve the entries of one key as far as possible."""
        busy = self.busy[key]
        while not busy.away:
            if busy.state is NOTHING:
                if not busy.entries or busy.entries[0].item.point > self.barrier:
                    break
                if not busy.asked:
                    self.ask(busy)
                if not self.gather_key(key, busy):
                    break
                self.serve_key(key, busy)
            elif busy.entries and self.may_coalesce_key(busy):
                self.counting.coalesced += 1
                self.serve_key(key, busy)
            else:
                self.send_fork_of_key(key, busy)
        if busy.expected and not busy.away:
            self.absorb_late(key, busy)
        self.note(key, busy)
        if not (busy.entries or busy.away or busy.expected or any(busy.responses.values())):
            del self.busy[key]

    def gather_key(self, key: Key, busy: KeyProgress) -> bool:
        """Join a key's states for its first entry; return whether all have arrived."""
        point = busy.entries[0][0].point
        here = [self.collect(key, busy, side, point) for side in busy.sides]
        if not all(here):
            return False
        if not busy.sides:
            busy.state = self.local.take_out(key)
            return True
        states = [
            busy.halves.pop(side) if side in busy.halves else self.state_for_child(side).take_out(key)
            for side in busy.sides
        ]
        busy.state = states[0] if len(states) == 1 else self.lifted.one.joins[0].unite(*states)
        self.counting.joins += 1
        return True

    def collect(self, key: Key, busy: KeyProgress, side: int, point: Point) -> bool:
        """Consume a child's responses for a point; return whether they are complete."""
        responses = busy.responses[side]
        if not self.shape.children[side].hands_over:
            if side not in busy.halves and responses:
                response = responses.popleft()
                busy.halves[side], busy.settled[side] = response.state, response.settled[EVERYTHING]
                busy.quiet[side] = response.quiet
            return side in busy.halves
        while responses and responses[0].point <= point:
            self.contribute(key, busy, side, responses.popleft())
        return busy.answered[side] >= point

    def contribute(self, key: Key, busy: KeyProgress, side: int, response: Response) -> None:
        """Join the contribution of a child that hands over to its stored state."""
        states = self.state_for_child(side)
        states[key] = self.lifted.one.joins[0].unite(states.take_out(key), response.state)
        busy.answered[side], busy.quiet[side] = response.point, response.quiet
        busy.expected -= 1

    def absorb_late(self, key: Key, busy: KeyProgress) -> None:
        """Consume contributions to requests that an ancestor has served without them."""
        for side in busy.sides:
            responses = busy.responses[side]
            while self.shape.children[side].hands_over and responses and self.is_served(busy, responses[0].point):
                self.contribute(key, busy, side, responses.popleft())

    def is_served(self, busy: KeyProgress, point: Point) -> bool:
        """Return whether requests for a key at this point are already served."""
        return busy.first is None or point < busy.first

    def may_coalesce_key(self, busy: KeyProgress) -> bool:
        """Return whether the key's next entry can be served with the joined state."""
        point = busy.entries[0][0].point
        if point > self.barrier:
            return False
        if not busy.sides or point == busy.served:  # what shares a point is served together: one answer is for all
            return True
        # Of a child that hands over nothing counts as settled: its ``settled`` stays at the start.
        return self.options.coalesce and all(busy.settled[side] >= point for side in busy.sides)

    def serve_key(self, key: Key, busy: KeyProgress) -> None:
        """Process a key's first entry: an own event, or a request of the parent."""
        item, event, part = busy.drop_first()
        busy.served = item.point
        self.pass_by(item.point)
        if event is not None and part is None:
            self.tick_key(busy, item, event)
            return
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
        quiet = self.quiet_of(key, busy, state) if self.shape.ticking else START
        self.send(self.shape.parent, Response(item.point, state, {EVERYTHING: self.settled_of(busy)}, key, quiet))

    def quiet_of(self, key: Key, busy: KeyProgress, state: Any) -> Point:  # noqa: ANN401
        """Return up to where nothing comes here or below that changes the joined state of a key."""
        bounds = [self.undisturbed_here, *(cursor.frontier for cursor in self.ticks.all if cursor.key is None)]
        mine = [cursor for cursor in self.ticks.all if cursor.key == key]
        places = (cursor.firing(cursor.shape.rule.due(state)) for cursor in mine)
        bounds += [right_before(place) for place in places if place is not None]
        bounds += [before(entry.item.point) for entry in busy.entries if entry.part is not None][:1]
        return min([*bounds, *(busy.quiet[side] for side in busy.sides)])

    def quiet(self, state: KeyedMap) -> Point:
        first = self.first_own.first if self.lined else None
        return super().quiet(state) if first is None else min(super().quiet(state), before(first))

    def tick_key(self, busy: KeyProgress, item: Item, event: Event) -> None:
        """Process a tick with the joined state of its key, and leave out the key's next ones that do nothing."""
        due = self.ticks.of(event).shape.rule.due(busy.state)
        busy.state = self.ticks.serve(Run([item.point], [event]), self.lifted.kind, busy.state, due, self)
        whole = [cursor.frontier for cursor in self.ticks.all if cursor.key is None]
        mine = [cursor for cursor in self.ticks.all if cursor.key == item.key]
        waiting = [entry[0] for entry in self.pending[:1]] + [entry[0].point for entry in islice(self.sequence, 1)]
        waiting += [] if busy.first is None else [busy.first]
        bound = min([self.undisturbed(waiting), *whole, *(busy.quiet[side] for side in busy.sides)])
        leave_out([(cursor, cursor.shape.rule.due(busy.state)) for cursor in mine], bound)

    def settled_of(self, busy: KeyProgress) -> Point:
        """Return the settled bound of a key, own events that see all keys included."""
        own = [self.known]
        own += [before(busy.own[0])] if busy.own else []
        own += [before(self.origins[0][1])] if self.origins else []
        own += [] if self.first_tick is None else [before(self.first_tick)]
        own += [before(queue.first) for queue in self.queues.values() if queue.first is not None]
        return min(*own, END, *(busy.settled[side] for side in busy.sides))

    def send_fork_of_key(self, key: Key, busy: KeyProgress) -> None:
        """Fork a key's state and send each child its part."""
        state, busy.state = busy.state, NOTHING
        if not busy.sides:
            self.store(self.local, key, state)
            return
        self.counting.forks += 1
        for side, half in zip(busy.sides, self.halves(key, busy.sides, state), strict=True):
            if self.shape.children[side].hands_over:
                self.store(self.state_for_child(side), key, half)
            else:
                self.send(self.shape.children[side].id, ForkState(half, busy.served, key))

    def store(self, states: KeyedMap, key: Key, state: Any) -> None:  # noqa: ANN401
        """Store a key's state; drop the initial one that a tick leaves behind, or memory would never shrink."""
        if self.shape.ticking and self.lifted.is_identity(state):
            dict.pop(states, key, None)
        else:
            states[key] = state

    def halves(self, key: Key, sides: tuple[int, ...], state: Any) -> tuple[Any, ...]:  # noqa: ANN401
        """Fork one key's state among the sides that see the key."""
        if len(sides) == 1:
            return (state,)
        left, right = (self.shape.children[side].tags.at(key) for side in sides)
        return self.lifted.one.forks[0].split(state, left, right)

    def truncate_entries(self, bound: Point) -> dict[PartId, list[Run]]:
        taken = super().truncate_entries(bound)
        for key, busy in self.busy.items():
            entries, busy.entries, busy.own = busy.entries, deque(), deque()
            for entry in entries:
                if entry.item.point <= bound:
                    busy.add(entry)
                elif entry.event is not None and entry.part is not None:
                    taken.setdefault(entry.part, []).append(Run([entry.item.point], [entry.event]))
                    self.lined -= 1
            busy.asked = min(busy.asked, len(busy.entries))
            self.note(key, busy)
            self.touched[key] = None
        return taken

    # -- for statistics and stalls ----------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        return super().waiting + self.lined

    @property
    def first_waiting(self) -> Point | None:
        points = [super().first_waiting, self.first_own.first]
        return min((point for point in points if point is not None), default=None)

    def requested_points(self) -> list[Point]:
        first = self.first.first
        points = [] if first is None else [first]
        points += [self.sequence[0][0].point] if self.sequence else []
        return points + ([self.pending[0][0]] if self.pending else [])

    def absent(self) -> str | None:
        return "all states" if self.away else states_of(self.gone)

    def holdings(self) -> list[Any]:
        return [] if self.away else [*super().holdings(), self.local]
