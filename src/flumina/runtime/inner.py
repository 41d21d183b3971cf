"""Join the children's states to process own events and to answer the parent.

Rules 1, 2, 5, 6, 7 and 8 of the design::

    sequence  own events and the parent's requests, in O, up to the least of own frontiers and the parent's frontier
    down      requests are passed down as soon as they are in the sequence, and with them how far it is known
    coalesce  while the children's states are here, serve the next of the sequence if the children have nothing
              outstanding that it depends on (own event) or nothing at all (request); otherwise fork at once
    settled   for each cause, the least of the children's bounds, of what is outstanding here, and of own frontiers

All of it is about the whole state. :class:`~flumina.runtime.keyed_inner.KeyedInner` adds what concerns single keys.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice, takewhile
from typing import Any

from flumina.model.event import Event
from flumina.model.order import END, START, Point
from flumina.model.schema import Schema
from flumina.model.tick import Tick
from flumina.runtime.child import Child
from flumina.runtime.key_progress import NOTHING, Entry
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
from flumina.runtime.tick_cursor import right_before
from flumina.runtime.tick_maker import TickMaker, leave_out
from flumina.runtime.topology import ProtocolOptions, WorkerShape
from flumina.runtime.truncate import after, drop_after, truncated_queues
from flumina.runtime.worker import Address, Worker


class Inner(Worker):
    """A worker with two children."""

    by_key = False
    """Whether an own event of a keyed tag needs the state of its key only."""

    def __init__(self, shape: WorkerShape, outputs: Mapping[str, Schema], options: ProtocolOptions) -> None:
        super().__init__(shape, outputs)
        self.options = options
        self.queues: dict[PartId, Queue] = {part: Queue() for part in shape.parts}
        self.requests: deque[Item] = deque()
        self.sequence: deque[tuple[Item, Event | None]] = deque()
        self.admitted = START
        """The limit up to which entries were last moved into the sequence."""
        self.announced = 0
        """How many entries of the sequence were announced to the children."""
        self.origins: deque[tuple[PartId, Point]] = deque()
        """The parts and points of the own events in the sequence."""
        self.done: Counter[PartId] = Counter()
        """Own events that were served, for which the sources have no credit back yet."""
        self.unannounced: deque[Point] = deque()
        """Points of requests for everything that were not announced to the children."""
        self.asking: tuple[list[Item], ...] = ([], [])
        """Requests for single keys that have not been sent, by child."""
        self.announced_frontiers = START, START
        """The frontier and the snapshot frontier that the children know."""
        self.children = [Child(child) for child in shape.children]
        self.ticks = TickMaker(shape, by_key=self.by_key)
        self.tick_points: deque[Point] = deque()
        """The points of the ticks in the sequence."""
        self.state: Any = NOTHING
        """The joined state while it is here."""
        self.away = True
        """Whether the parent has the state of the whole subtree."""
        self.served = START

    def on_data(self, message: Data) -> None:
        self.queues[message.part].put(self.stamped(message.run), message.frontier)

    def on_request(self, message: Request) -> None:
        self.put_requests(message.items)
        if self.watch is not None:
            self.watch.announced(message.items)
        self.unannounced.extend(item.point for item in message.items if item.cause == EVERYTHING)

    def put_requests(self, items: Iterable[Item]) -> None:
        """Buffer requests of the parent until they are admitted to the sequence."""
        self.requests.extend(items)

    def on_response(self, child: str, message: Response) -> None:
        next(c for c in self.children if c.shape.id == child).responses.append(message)

    def on_fork_state(self, message: ForkState) -> None:
        assert self.away, f"{self.id} was given its state while it has it"
        self.away, self.state = False, message.state
        self.ticks.begin(message.served)
        self.served = max(self.served, message.served)
        while self.sequence and self.sequence[0][1] is None and self.sequence[0][0].point <= message.served:
            self.drop_first()

    def on_stop(self) -> None:
        for child in self.children:
            self.send(child.shape.id, Stop())

    def is_late(self, sender: Address, message: Message) -> bool:
        # A child that hands over answers every request, also one that an ancestor has settled without it: it was
        # clear, so that the contribution is the identity.
        return isinstance(message, Response) and any(c.shape.id == sender and c.shape.hands_over for c in self.children)

    # -- the sequence -----------------------------------------------------------------------------------------

    @property
    def known(self) -> Point:
        """Return the point up to which all own events have arrived."""
        frontiers = [queue.frontier for queue in self.queues.values()]
        return min([*frontiers, *(cursor.frontier for cursor in self.ticks.all)], default=END)

    @property
    def limit(self) -> Point:
        """Return the point up to which own events and requests have arrived."""
        return min(self.known, self.parent_frontier)

    def admit(self) -> None:
        """Move own events and requests up to the limit into the sequence."""
        limit = self.limit
        if limit == self.admitted:  # whatever is new lies after it
            return
        self.admitted = limit
        new: list[Entry] = []
        for part, queue in self.queues.items():
            run = queue.take(limit)
            if not run:
                continue
            names_origin = part[0] in self.shape.ties_below
            new += [
                Entry(
                    Item(
                        point,
                        (self.id, event.tag.name),
                        event.key if self.by_key else None,
                        Origin(part[1], event.key) if names_origin else None,
                    ),
                    event,
                    part,
                )
                for point, event in run
            ]
            self.taken(queue)
        if self.watch is not None:
            self.watch.released_events(((part, event) for _, event, part in new if event and part), limit)
        new += self.ticks.up_to(limit)
        new += map(Entry, self.requests_up_to(limit))
        if len(new) > 1:
            new.sort(key=lambda entry: entry[0].point)
        if new:
            self.line_up(new)

    def requests_up_to(self, limit: Point) -> list[Item]:
        """Remove and return the parent's requests up to a point."""
        found = []
        while self.requests and self.requests[0].point <= limit:
            found.append(self.requests.popleft())
        return found

    def line_up(self, new: Sequence[Entry]) -> None:
        """Append entries to the sequence."""
        self.sequence.extend((item, event) for item, event, _ in new)
        self.origins.extend((part, item.point) for item, _, part in new if part is not None)
        self.tick_points.extend(item.point for item, event, part in new if event is not None and part is None)

    @property
    def unasked(self) -> Point | None:
        """Return the first point of a key that was not requested from the children."""
        return None

    def announce(self) -> None:
        """Send requests and frontiers to the children, if they have changed."""
        asking = self.asking[0] or self.asking[1]
        if (
            not asking
            and self.announced == len(self.sequence)
            and (self.admitted, self.snapshot_frontier) == self.announced_frontiers
        ):
            return  # nothing is new
        unasked = self.unasked
        upto = len(self.sequence) if self.options.pipeline else self.announceable(unasked)
        items = tuple([self.sequence[n][0] for n in range(self.announced, upto)])
        frontier = before(self.sequence[upto][0].point) if upto < len(self.sequence) else self.admitted
        if unasked is not None:
            frontier = min(frontier, before(unasked))
        for item in items:
            if item.cause == EVERYTHING:
                self.unannounced.popleft()
        snapshot_frontier = (
            min(self.snapshot_frontier, before(self.unannounced[0])) if self.unannounced else self.snapshot_frontier
        )
        self.announced = upto
        changed = items or (frontier, snapshot_frontier) != self.announced_frontiers
        shown = self.seen.ts if self.shape.ticking else None
        self.announced_frontiers = frontier, snapshot_frontier
        if asking:
            for child, of_keys in zip(self.children, self.asking, strict=True):
                if of_keys or changed:
                    request = Request((*of_keys, *items), frontier, snapshot_frontier, shown, self.seen.last)
                    self.send(child.shape.id, request)
                    of_keys.clear()
        elif changed:
            request = Request(items, frontier, snapshot_frontier, shown, self.seen.last)
            for child in self.children:
                self.send(child.shape.id, request)

    def announceable(self, unasked: Point | None) -> int:
        """Return how many entries to announce without pipelining: one point at a time."""
        if self.state is NOTHING and not self.away:  # else the next ones may still be coalesced
            group = self.first_group()
            if group and (unasked is None or unasked > group[0][0].point):
                return max(self.announced, len(group))
        return self.announced

    def first_group(self) -> list[tuple[Item, Event | None]]:
        """Return the first entries of the sequence: all that share one point.

        Independent events of several parts can; so can a request for everything and the event before it. One answer of
        the children is for all of them, and ``served`` can't tell them apart: they are served together.
        """
        return list(takewhile(lambda entry: entry[0].point == self.sequence[0][0].point, self.sequence))

    def drop_first(self) -> None:
        """Remove the first entry of the sequence."""
        item, _ = self.sequence.popleft()
        if self.announced:
            self.announced -= 1
        elif item.cause == EVERYTHING:
            self.unannounced.popleft()

    # -- serving it -------------------------------------------------------------------------------------------

    def progress(self) -> None:
        while True:
            self.ticks.make(self.seen)
            self.admit()
            self.announce()
            self.work()
            if not self.ticks.served:
                break
        self.return_credit()

    # -- ticks --------------------------------------------------------------------------------------------------

    def serve_tick(self, item: Item, event: Event) -> None:
        """Process a tick with the joined state, and leave out the next ones that do nothing."""
        self.tick_points.popleft()
        due = self.ticks.of(event).due(self.state)
        self.state = self.ticks.serve(Run([item.point], [event]), self.shape.kind, self.state, due, self)
        bound = min([self.undisturbed(self.requested_points()), *(child.quiet for child in self.children)])
        leave_out([(cursor, cursor.due(self.state)) for cursor in self.ticks.all], bound)

    def undisturbed(self, waiting: Iterable[Point]) -> Point:
        """Return up to where no own event and no request can come, given the points of those that wait."""
        bounds = [self.parent_frontier, self.undisturbed_here]
        bounds += [before(entry.item.point) for entry in self.ticks.ready]
        bounds += [before(point) for point in waiting]
        return min(bounds)

    @property
    def undisturbed_here(self) -> Point:
        """Return up to where no own event can come."""
        bounds = [END, *(queue.frontier for queue in self.queues.values())]
        bounds += [before(queue.first) for queue in self.queues.values() if queue.first is not None]
        bounds += [before(self.origins[0][1])] if self.origins else []
        return min(bounds)

    def quiet(self, state: Any) -> Point:  # noqa: ANN401
        """Return up to where nothing comes here or below that changes a joined state."""
        places = (cursor.firing(cursor.due(state)) for cursor in self.ticks.all)
        bounds = [right_before(place) for place in places if place is not None]
        return min([self.undisturbed_here, *bounds, *(child.quiet for child in self.children)])

    # -- the states of the children -----------------------------------------------------------------------------

    def return_credit(self) -> None:
        """Return credit to the sources for own events that were served."""
        if self.done:
            self.give_credit(self.done)
            self.done.clear()

    def work(self) -> None:
        """Serve entries of the sequence as far as possible."""
        while not self.away:
            if self.state is NOTHING:
                if not self.sequence or not self.announced or not self.gather():
                    return
                self.serve()
            elif self.sequence and self.may_coalesce():
                self.counting.coalesced += 1
                self.serve()
            else:
                self.send_fork_state()
                self.announce()

    def gather(self) -> bool:
        """Join the children's states for the first entry; return whether all have arrived."""
        point = self.sequence[0][0].point
        join = self.shape.join
        assert join is not None
        have = [child.collect(point) for child in self.children]
        if not all(have):
            return False
        left, right = self.children
        self.state = join.unite(left.state, right.state) if self.needs_state(point) else None
        left.state = right.state = NOTHING
        self.counting.joins += 1
        return True

    def may_coalesce(self) -> bool:
        """Return whether the next entry can be served with the joined state."""
        point = self.sequence[0][0].point
        if point == self.served:
            return True
        if not self.options.coalesce:
            return False
        # A child that hands over has sent all that lies up to ``settled`` with its last answer; what it answers to the
        # request for this point, which it has been sent, holds nothing that this depends on.
        causes = [EVERYTHING if event is None else item.cause for item, event in self.first_group()]
        return all(child.settled.get(cause, START) >= point for child in self.children for cause in causes)

    def serve(self) -> None:
        """Process the first entry: an own event, or a request of the parent."""
        item, event = self.sequence[0]
        self.served = item.point
        self.pass_by(item.point)
        self.drop_first()
        if event is not None and isinstance(event.tag, Tick):
            self.serve_tick(item, event)
            return
        if event is not None:
            run = Run([item.point], [event])
            self.state = run.fold(self.shape.kind, self.state, self.emit)
            self.processed(run)
            self.done[self.origins.popleft()[0]] += 1
            return
        settled = self.settled()
        state, self.state, self.away = self.state, NOTHING, True
        quiet = self.quiet(state) if self.shape.ticking and state is not None else START
        self.send(self.shape.parent, Response(item.point, state, settled, quiet=quiet))

    def send_fork_state(self) -> None:
        """Fork the state and send each child its part."""
        halves = self.divided(self.state)
        self.state = NOTHING
        self.counting.forks += 1
        for child, half in zip(self.children, halves, strict=True):
            if child.shape.hands_over and child.started:
                child.state = half
            else:
                child.started = True
                self.send(child.shape.id, ForkState(half, self.served))

    def divided(self, state: Any) -> tuple[Any, Any]:  # noqa: ANN401
        """Return each child's part of the state."""
        fork = self.shape.fork
        assert fork is not None
        left, right = self.children
        return fork.split(state, left.shape.tags, right.shape.tags)

    def forget(self, ts: int) -> list[Data]:
        everything = self.unannounced or any(item.cause == EVERYTHING for item, _ in self.sequence)
        assert not everything, f"{self.id} was asked for everything"
        taken = self.truncate_entries(after(ts))
        return truncated_queues(self.queues.items(), ts, taken)

    def truncate_entries(self, bound: Point) -> dict[PartId, list[Run]]:
        """Remove entries and requests after a point; return the own events among them."""
        own = ((item.point, event) for item, event in self.sequence if event is not None)
        events = [(point, event) for point, event in own if not isinstance(event.tag, Tick)]
        self.tick_points = deque(point for point in self.tick_points if point <= bound)
        self.ticks.truncate(bound)
        taken: dict[PartId, list[Run]] = {}
        origins, self.origins = self.origins, deque()
        for (point, event), (part, _) in zip(events, origins, strict=True):
            if point <= bound:
                self.origins.append((part, point))
            else:
                taken.setdefault(part, []).append(Run([point], [event]))
        self.sequence = deque(entry for entry in self.sequence if entry[0].point <= bound)
        self.announced = min(self.announced, len(self.sequence))
        self.keep_requests(bound)
        return taken

    def keep_requests(self, bound: Point) -> None:
        """Remove the requests after a point."""
        self.requests = deque(drop_after(self.requests, bound))

    def settled(self) -> dict[Cause, Point]:
        """Return the settled bound of each cause."""
        firsts = (self.first_waiting, self.first_tick)
        own = min([self.known, *(before(first) for first in firsts if first is not None)])
        return {
            cause: min(own, *(child.settled.get(cause, START) for child in self.children))
            for cause in self.shape.causes
        }

    # -- for statistics and stalls ----------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        return sum(queue.length for queue in self.queues.values()) + len(self.origins)

    @property
    def first_waiting(self) -> Point | None:
        if self.origins:  # before all that is still in the queues
            return self.origins[0][1]
        return min((queue.first for queue in self.queues.values() if queue.first is not None), default=None)

    @property
    def first_tick(self) -> Point | None:
        return min([*islice(self.tick_points, 1), *(entry.item.point for entry in self.ticks.ready)], default=None)

    def requested_points(self) -> list[Point]:
        return [item.point for item, _ in islice(self.sequence, 1)] + [item.point for item in islice(self.requests, 1)]

    def absent(self) -> str | None:
        return "its state" if self.away else None

    def awaited_queues(self) -> list[tuple[PartId, Queue]]:
        return list(self.queues.items())

    def holdings(self) -> list[Any]:
        states = [self.state, *(child.state for child in self.children)]
        return [state for state in states if state is not NOTHING]
