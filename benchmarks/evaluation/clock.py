"""Virtual time: how fast a plan would be on many machines, from the costs of single steps.

The real workers run, with a program that only charges for what it does (:mod:`benchmarks.evaluation.meter`). A place
is one processor: it handles one message after the other, those of workers before those of sources, and is busy for as
long as the cost model says. Messages between places take ``hop``, and work for ``message`` at both ends; events that
change places are charged with ``send`` and ``receive``. These are the prices of
:class:`flumina.plan.cost_model.CostModel`, by which plans are chosen, so that a study and the optimizer speak of the
same machine.

Frequent events are simulated in runs: one event stands for as many as arrive between two ticks of its tag.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count

from benchmarks.evaluation.arrivals import Arrival, arrivals
from benchmarks.evaluation.meter import Counts, Meter
from flumina.model.order import END, START, heartbeat
from flumina.plan.cost_model import DEFAULT, CostModel
from flumina.plan.forest import Forest
from flumina.plan.sources import Inputs
from flumina.plan.tree import Itag, Plan
from flumina.runtime.build import workers as build
from flumina.runtime.messages import Credit, Data, Message, PartId
from flumina.runtime.run import EMPTY, Run
from flumina.runtime.topology import TREE_ROOT, ProtocolOptions
from flumina.runtime.tree_root import TreeRoot
from flumina.runtime.worker import Address, Effects


@dataclass(frozen=True)
class Timing:
    """What a run in virtual time has shown; times in seconds."""

    events: float
    elapsed: float
    latencies: Mapping[str, Sequence[tuple[float, float]]]
    """For each tag how late its events were processed, and how many were; of input at its own pace."""
    busy: Mapping[str, float]
    """For each place how long it worked."""
    counts: Mapping[str, Counts]

    @property
    def throughput(self) -> float:
        """Events a second."""
        return self.events / self.elapsed if self.elapsed else float("inf")

    def percentile(self, percent: float, *tags: str) -> float:
        """The latency that so many per cent of the events do not exceed; of these tags, or of all."""
        ordered = sorted(entry for tag in tags or self.latencies for entry in self.latencies.get(tag, ()))
        wanted = percent / 100 * sum(weight for _, weight in ordered)
        for latency, weight in ordered:
            wanted -= weight
            if wanted <= 0:
                return latency
        return ordered[-1][0] if ordered else 0.0

    @property
    def p50(self) -> float:
        """The median latency of all events."""
        return self.percentile(50)

    @property
    def p99(self) -> float:
        """The latency that one event in a hundred exceeds."""
        return self.percentile(99)


class _Place:
    """A processor: what waits for it, and until when it is busy."""

    def __init__(self) -> None:
        self.control: deque[tuple[Address, str, Message]] = deque()
        self.data: deque[tuple[Address, str, Message]] = deque()
        self.counts = Counts()
        self.free = 0.0
        self.woken = False
        """Whether the calendar says when it takes its next message."""
        self.busy = 0.0


class Clock:
    """One run of a plan in virtual time."""

    def __init__(
        self, plan: Plan, inputs: Inputs, model: CostModel = DEFAULT, *, options: ProtocolOptions | None = None
    ) -> None:
        self.plan, self.inputs, self.model = plan, inputs, model
        self.meter = Meter({})
        self.definition = self.meter.metered(inputs.definition)
        self.workers = build(plan, self.definition, options)
        trees = [tree.id for tree in Forest.of(plan.root).trees]
        self.tree_root = TreeRoot(dict.fromkeys(trees, 0))
        self.where = {w.id: w.place or f"at {w.id}" for w in plan.workers}
        self.places: dict[str, _Place] = {place: _Place() for place in self.where.values()}
        self.calendar: list[tuple[float, int, str, tuple[Address, str, Message] | None]] = []
        self.order = count()
        self.latencies: dict[str, list[tuple[float, float]]] = {}
        self.now = 0.0

    def run(self, seconds: float, *, paced: bool = False, ticks: int = 4, beats: float | None = None) -> Timing:
        """So many seconds of input, as fast as the plan can take it; or at its own pace, to see latencies.

        ``ticks`` is how many runs the events of a frequent tag come in between two of the rarest; ``beats`` how long a
        source at its own pace is silent before it sends a heartbeat.
        """
        assert beats is None or paced, "at full speed nobody is silent"
        given = arrivals(self.plan, self.inputs, seconds, ticks)
        self.meter.weights = given.weights
        self._perform(TREE_ROOT, self.tree_root.begin(), 0.0)
        for part, entries in given.parts.items():
            self._feed(part, _with_beats(self.plan, part, entries, seconds, beats), paced=paced)
        while self.calendar:
            self._next(paced=paced)
        assert self.tree_root.finished, [str(w.stall()) for w in self.workers.values() if w.stall()]
        events = sum(given.weights[a.event.tag.name] for entries in given.parts.values() for a in entries if a.event)
        return Timing(
            events,
            self.now,
            self.latencies,
            {name: place.busy for name, place in self.places.items()},
            {name: place.counts for name, place in self.places.items()},
        )

    # -- input ------------------------------------------------------------------------------------------------

    def _feed(self, part: PartId, entries: Sequence[Arrival], *, paced: bool) -> None:
        """Put all events of a part into the calendar; those that change places are charged for moving."""
        receivers = list(dict.fromkeys(worker.id for worker in self.plan.workers if _has(worker.itags, part)))
        home = self.inputs.host_of(*part)
        frontier = START
        for entry in entries:
            frontier = entry.point
            for receiver in receivers:
                mine = entry.event is not None and receiver == entry.worker
                run = Run([entry.point], [entry.event]) if mine else EMPTY  # type: ignore[list-item]
                self._arrive(entry.at if paced else 0.0, home, part, receiver, Data(part, run, frontier))
        last = entries[-1].at if entries and paced else 0.0
        for receiver in receivers:
            self._arrive(last, home, part, receiver, Data(part, EMPTY, END))

    def _arrive(self, at: float, home: str | None, part: PartId, receiver: str, data: Data) -> None:
        place = self.where[receiver]
        if data.run and home is not None and home != place:
            weight = self.meter.weights[data.run.events[0].tag.name]
            self.places[place].counts.received += weight
            if home in self.places:
                self.places[home].counts.sent += weight
        heappush(self.calendar, (at, next(self.order), place, (part, receiver, data)))

    # -- the run ----------------------------------------------------------------------------------------------

    def _next(self, *, paced: bool) -> None:
        """The next thing in the calendar: a message arrives somewhere, or a place is free again."""
        at, _, name, item = heappop(self.calendar)
        place = self.places[name]
        if item is not None:
            (place.data if isinstance(item[2], Data) else place.control).append(item)
            if not place.woken:
                place.woken = True
                heappush(self.calendar, (max(at, place.free), next(self.order), name, None))
            return
        sender, receiver, message = place.control.popleft() if place.control else place.data.popleft()
        place.free = self._handle(place, sender, receiver, message, at, paced=paced)
        self.now = max(self.now, place.free)
        place.woken = bool(place.control or place.data)
        if place.woken:
            heappush(self.calendar, (place.free, next(self.order), name, None))

    def _handle(
        self, place: _Place, sender: Address, receiver: str, message: Message, start: float, *, paced: bool
    ) -> float:
        """Let a worker handle a message; returns when it is done."""
        before, counts = place.counts.seconds(self.model), place.counts
        self.meter.counts = counts
        if isinstance(sender, str) and self._apart(sender, receiver):
            counts.messages += 1
        machine = self.tree_root if receiver == TREE_ROOT else self.workers[receiver]
        effects = machine.handle(sender, message)
        counts.messages += sum(
            isinstance(to, str) and not isinstance(sent, Credit) and self._apart(receiver, to)
            for to, sent in effects.sends
        )
        spent = counts.seconds(self.model) - before
        place.busy += spent
        done = start + spent
        for event in self.meter.seen if paced else ():
            tag = event.tag.name
            self.latencies.setdefault(tag, []).append((done - event.ts / 1e9, self.meter.weights[tag]))
        self.meter.seen.clear()
        self._perform(receiver, effects, done)
        return done

    def _perform(self, sender: str, effects: Effects, at: float) -> None:
        for receiver, message in effects.sends:
            if isinstance(message, Credit) or not isinstance(receiver, str):
                continue
            place = self.where[sender if receiver == TREE_ROOT else receiver]
            hop = self.model.hop if self._apart(sender, receiver) else 0.0
            heappush(self.calendar, (at + hop, next(self.order), place, (sender, receiver, message)))

    def _apart(self, one: str, other: str) -> bool:
        """Whether two workers are at different places; the tree_root is wherever a tree's root is."""
        return TREE_ROOT not in (one, other) and self.where[one] != self.where[other]


def _with_beats(
    plan: Plan, part: PartId, entries: Sequence[Arrival], seconds: float, beats: float | None
) -> Sequence[Arrival]:
    """The arrivals of a part, and heartbeats wherever there would be silence for longer."""
    if beats is None:
        return entries
    rank = [shape.name for shape in plan.streams].index(part[0])
    filled: list[Arrival] = []
    at = 0.0
    for until, entry in [*((entry.at, entry) for entry in entries), (seconds, None)]:
        while at + beats < until:
            at += beats
            filled.append(Arrival(at, heartbeat(int(at * 1e9) - 1, rank), None, ""))
        if entry is not None:
            filled.append(entry)
            at = until
    return filled


def _has(itags: Sequence[Itag], part: PartId) -> bool:
    return any(itag.stream == part[0] and part[1] in itag.parts for itag in itags)
