"""Process events up to the points at which the parent requests the state.

Rules 3, 4, 5, 7 and 8 of the design::

    release   a component K goes on up to the least of its frontiers, its parent's frontier (if an ancestor's tag
              matters to K), and the first request that K depends on; an event at its very point is independent
    answer    the requests at p are answered when everything up to p has come and has been processed, that which does
              not depend on it included; then the leaf waits for its state, unless it hands over
    settled   for each cause c: the least bound of the components that depend on c

All of it is about the whole state. :class:`~flumina.runtime.keyed_leaf.KeyedLeaf` adds what concerns single keys.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any

from flumina.model.order import END, LAST, START, Point
from flumina.model.schema import Schema
from flumina.model.tag_set import Key
from flumina.model.tick import seq_of
from flumina.program.definition import fold
from flumina.runtime.key_progress import NOTHING
from flumina.runtime.mailbox import Component, Queue, before
from flumina.runtime.messages import Cause, Data, ForkState, Item, PartId, Request, Response
from flumina.runtime.run import Run, merged
from flumina.runtime.tick_cursor import TickCursor, right_before, tick_event, within
from flumina.runtime.topology import WorkerShape
from flumina.runtime.truncate import after, drop_after, truncated_queues
from flumina.runtime.worker import Worker


class Leaf(Worker):
    """A worker without children."""

    def __init__(self, shape: WorkerShape, outputs: Mapping[str, Schema], identity: Callable[[], Any]) -> None:
        super().__init__(shape, outputs)
        self.components = [Component(component) for component in shape.components]
        self.requests: deque[Item] = deque()
        self.state: Any = NOTHING
        self.identity = identity
        self.cursors = [cursor for component in self.components for cursor in component.cursors]

    def on_data(self, message: Data) -> None:
        for component in self.components:
            if message.part in component.queues:
                component.put(message.part, self.stamped(message.run), message.frontier)

    def on_request(self, message: Request) -> None:
        self.put_requests(message.items)
        for component in self.components:
            if component.watch is not None:
                component.watch.announced(message.items)

    def put_requests(self, items: Sequence[Item]) -> None:
        """Append requests of the parent."""
        self.requests.extend(items)
        for component in self.components:
            component.stops.extend([item.point for item in items if item.cause in component.shape.causes])

    def on_fork_state(self, message: ForkState) -> None:
        assert self.state is NOTHING, f"{self.id} was given its state while it has it"
        self.state = message.state
        for cursor in self.cursors:
            cursor.begin(message.served)
        self.changed(None)
        while self.requests and self.requests[0].point <= message.served:
            self.next_request()

    def progress(self) -> None:
        while self.state is not NOTHING:
            self.release_all()
            if not (self.requests and self.caught_up(self.requests[0].point)):
                return
            item = self.next_request()
            # One answer is for all requests of a point: what a leaf that hands over adds between two of them may lie
            # after that point, and the parent takes in both.
            while self.requests and self.requests[0].point == item.point:
                self.next_request()
            self.answer(item)

    def release_all(self) -> None:
        """Process events as far as possible before the next answer."""
        for component in self.components:
            self.release(component, self.bound(component))

    def next_request(self) -> Item:
        """Remove and return the first request."""
        item = self.requests.popleft()
        for component in self.components:
            if item.cause in component.shape.causes:
                component.stops.popleft()
        return item

    def release(self, component: Component, bound: Point) -> None:
        """Process a component's events and ticks up to a point."""
        self.release_events(component, bound)
        while component.cursors and self.tick(component, bound):
            self.release_events(component, bound)

    def release_events(self, component: Component, bound: Point) -> None:
        """Process a component's events up to a point and up to the next tick."""
        runs = component.take(bound)
        if runs:
            run = next(iter(runs.values())) if len(runs) == 1 else merged(runs.values())
            self.pass_by(run.last)
            self.state = run.fold(self.shape.kind, self.state, self.emit)
            self.processed(run)
            self.changed(run)
            self.counting.runs += 1
            self.give_credit({part: len(of_part) for part, of_part in runs.items()})
            for queue in component.queues.values():
                self.taken(queue)

    # -- ticks --------------------------------------------------------------------------------------------------

    def tick(self, component: Component, bound: Point) -> bool:
        """Let the next tick of a component come, and leave out those that do nothing; return whether one did."""
        cursors = component.cursors
        ended = [cursor.end(self.seen) for cursor in cursors]
        first = component.first
        limit = self.tick_limit(component, min([bound, component.arrived, *([] if first is None else [before(first)])]))
        if limit is None:
            return any(ended)
        found = [(place, n) for n, c in enumerate(cursors) if (place := c.firing(c.due(self.state))) is not None]
        if found and within(min(found)[0], limit):
            (ts, rank), number = min(found)
            if ts <= self.seen.limit(cursors[number].shape.tag):
                self.fire(cursors[number], ts)
                for cursor in cursors:
                    cursor.skip(Point(ts, rank, LAST))
                return True
            limit = right_before((ts, rank))
        skipped = [cursor.skip(limit) for cursor in cursors]
        return any(ended) or any(skipped)

    def tick_limit(self, component: Component, limit: Point) -> Point | None:  # noqa: ARG002 -- where keys are hot
        """Return up to where a component's ticks may come, given how far its events have; None if none may."""
        return limit

    def fire(self, cursor: TickCursor, ts: int) -> None:
        """Process a tick, of all keys to which it does something."""
        tag, candidates = cursor.shape.tag, cursor.candidates
        keys: Sequence[Key] = [None] if candidates is None else sorted(candidates.pop(ts), key=seq_of)
        events = [tick_event(tag, ts, key, self.seen, self.shape.all_ticks) for key in keys]
        self.pass_by(Point(ts, cursor.shape.rank, 0))
        self.state = fold(self.shape.kind, self.state, events, self.emit)
        self.counting.ticks += len(events)
        for other in self.cursors:
            if other.candidates is not None and other is not cursor:
                other.candidates.add(dict.keys(self.state) if candidates is None else keys)

    def quiet(self) -> Point:
        """Return up to where nothing comes that changes the state."""
        waiting = self.first_waiting
        bounds = [] if waiting is None else [before(waiting)]
        places = (cursor.firing(cursor.due(self.state)) for cursor in self.cursors)
        bounds += [right_before(place) for place in places if place is not None]
        return min([END, *bounds, *(component.arrived for component in self.components)])

    def changed(self, run: Run | None) -> None:
        """Note the keys that events may have changed; None for all."""
        if any(cursor.candidates is not None for cursor in self.cursors):
            keys = None if run is None else run.keys()
            for cursor in self.cursors:
                if cursor.candidates is not None:
                    cursor.candidates.add(dict.keys(self.state) if keys is None else keys)

    # -- answers ------------------------------------------------------------------------------------------------

    def bound(self, component: Component) -> Point:
        """Return a component's bound, its frontiers aside; events at a request's point are independent."""
        bound = self.snapshot_frontier
        if not component.shape.free and self.parent_frontier < bound:
            bound = self.parent_frontier
        return component.stops[0] if component.stops and component.stops[0] < bound else bound

    def caught_up(self, point: Point) -> bool:
        """Return whether everything up to a point has arrived and is processed."""
        return all(component.settled >= point for component in self.components)

    def answer(self, item: Item) -> None:
        """Send the state to the parent; continue from the identity if it hands over."""
        self.pass_by(item.point)
        state = self.state if self.needs_state(item.point) else None
        quiet = self.quiet() if self.shape.ticking else START
        if self.shape.hands_over:
            self.counting.handed += 1
            self.state = self.identity()
        else:
            self.counting.blocked += 1
            self.state = NOTHING
        self.send(self.shape.parent, Response(item.point, state, self.settled(), quiet=quiet))

    def forget(self, ts: int) -> list[Data]:
        self.forget_requests(ts)
        return truncated_queues(self.part_queues(), ts)

    def part_queues(self) -> list[tuple[PartId, Queue]]:
        """Return the queues of all components."""
        return [entry for component in self.components for entry in component.queues.items()]

    def forget_requests(self, ts: int) -> None:
        """Remove the requests after a timestamp."""
        self.requests = deque(drop_after(self.requests, after(ts)))
        for component in self.components:
            component.stops = deque(item.point for item in self.requests if item.cause in component.shape.causes)

    def settled(self) -> dict[Cause, Point]:
        """Return the settled bound of each cause."""
        if len(self.components) == 1:
            causes, bound = self.components[0].shape.causes, self.components[0].settled
            return {cause: bound if cause in causes else END for cause in self.shape.causes}
        bounds = [(component.shape.causes, component.settled) for component in self.components]
        return {
            cause: min((bound for causes, bound in bounds if cause in causes), default=END)
            for cause in self.shape.causes
        }

    @property
    def waiting(self) -> int:
        return sum(queue.length for component in self.components for queue in component.queues.values())

    @property
    def first_waiting(self) -> Point | None:
        return min((c.first for c in self.components if c.first is not None), default=None)

    def requested_points(self) -> list[Point]:
        return [item.point for item in islice(self.requests, 1)]

    def absent(self) -> str | None:
        return "its state" if self.state is NOTHING else None

    def awaited_queues(self) -> list[tuple[PartId, Queue]]:
        first, requested = self.first_waiting, self.requested_points()
        for_event = first is not None and not (requested and requested[0] <= first)
        concerned = [c for c in self.components if c.first == first] if for_event else self.components
        return [entry for component in concerned for entry in component.queues.items()]

    def holdings(self) -> list[Any]:
        return [] if self.state is NOTHING else [self.state]
