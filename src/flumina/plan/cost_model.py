"""Model the cost of a plan, to compare plans.

For a second of input, with all rates as given::

    joins(w)     = min(rate of w's own events, rate of all events below w)         coalescing: rule 6 of the runtime
    turns(w)     = joins(w) + sum of joins(a) over w's ancestors a                 how often w joins its children
    merge(w)     = join + fork + keys(w) x (join_key + fork_key) + 2 x bytes that are not of keys x move_byte
    moved(c)     = keys up and down x move_key + bytes up and down x move_byte     at either end of an edge
    trip(w)      = max over children c of (3 x hop + 2 x moved(c) if c is elsewhere) + trip(c), + merge(w)
                   0 for a leaf
    work(w)      = sum of event(tag) x rate(tag)  +  turns(w) x merge(w)
                   + (3 x message + moved) at both ends for every turn over an edge between places
    wait(leaf)   = sum of joins(a) x trip(a) over its ancestors; none if it hands over without waiting (rule 8)
    load(place)  = sum of work over its workers + the longest wait of its leaves
                   + receive x events that come from another place + send x events that go to another

What a turn moves is what the runtime moves, so there are two kinds of turns, and each term with joins or turns in it is
the sum of both. A turn for an event of a keyed tag, in a program for one key, moves the state of one key: its merge is
join + fork. Any other turn moves everything below: keys(c) keys, and the rest of the state. A leaf that hands
over sends what has come since the last such turn, which is at most one key an event, and gets nothing back. Bytes count
beyond ``state_bytes``, with which message, join and fork were measured. An unkeyed event of a program for one key looks
at all keys: keys(w) x look_key more.

How many keys there are, and how large their states, is sampled (:mod:`flumina.plan.state_sizes`), or else counted and
assumed; keys(w) is the share of them that has events at w or below.

The *load* of a plan is that of its busiest place: 1 / load is by how much the input could be faster. *Latency* is the
mean over all events of trip(worker). *Bytes* are what crosses places. Plans are compared by load first, in steps of a
tenth (the model is no better than that, and a chain of workers should not win over a balanced tree by a hair); then by
latency; then by bytes; then by the number of workers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

from flumina.errors import UsageError
from flumina.model.hashing import BUCKETS
from flumina.model.tag_set import Key
from flumina.plan.placement import Origin, Site, site_of
from flumina.plan.sources import Inputs
from flumina.plan.state_sizes import StateSize
from flumina.plan.tree import Plan
from flumina.program.definition import Definition

_STEP = math.log(1.1)
_MESSAGES = 3
"""Request, response and fork."""


@dataclass(frozen=True)
class CostModel:
    """Seconds and bytes; the defaults are figures measured for batches of numbers on one machine.

    For programs without ``update_batch``, optimizers begin with :data:`ONE_BY_ONE` instead.
    """

    event: float = 50e-9
    """Reading and handling one event."""
    by_tag: Mapping[str, float] = field(default_factory=dict)
    """The same for tags that differ."""
    join: float = 5e-6
    fork: float = 5e-6
    message: float = 15e-6
    """Work for one message, at either end."""
    hop: float = 40e-6
    """From one end of a message to the other."""
    send: float = 60e-9
    receive: float = 30e-9
    """Moving one event between places, as part of a batch: picking it out, and copying it in and out of a socket."""
    event_bytes: float = 16.0
    state_bytes: float = 200.0
    """A state, or the state of one key, of which no sample was taken."""
    join_key: float = 2e-6
    fork_key: float = 20e-6
    """Joining and forking one key more, where all keys are joined and forked."""
    move_key: float = 4e-6
    """Packing or unpacking the state of one key."""
    move_byte: float = 2e-9
    """Packing or unpacking one byte, and copying it in and out of a socket."""
    look_key: float = 1.5e-6
    """The cost of an unkeyed event for each key that it can see."""

    def __post_init__(self) -> None:
        """Refuse an invalid cost."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "by_tag"}
        for name, value in {**values, **{f"by_tag[{tag!r}]": cost for tag, cost in self.by_tag.items()}}.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or not (0 <= value < math.inf):
                raise UsageError("BAD_COST", f"{name} is {value!r}", hint="a cost is a number, 0 or more")


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a plan; the module describes its figures."""

    load: float
    latency: float
    bytes: float
    workers: int

    @property
    def key(self) -> tuple[float, float, float, int]:
        """Plans with smaller keys are better."""
        step = round(math.log(self.load) / _STEP) if self.load > 0 else -math.inf
        return step, round(self.latency, 12), round(self.bytes, 3), self.workers


DEFAULT = CostModel()
ONE_BY_ONE = replace(DEFAULT, event=3e-6, join=25e-6, fork=25e-6, message=40e-6, hop=60e-6)
"""Costs without ``update_batch``: one call for each event, and states of Python objects."""


def model_of(definition: Definition) -> CostModel:
    """Return the model assumed for a program without measurements."""
    return DEFAULT if all(kind.update_batch is not None for kind in definition.kinds.values()) else ONE_BY_ONE


def evaluate(plan: Plan, inputs: Inputs, model: CostModel | None = None) -> Cost:
    """Return the cost of a plan with this input, at its own places."""
    return evaluate_sites(site_of(plan.root, inputs), model or model_of(inputs.definition), inputs)


def state_size(inputs: Inputs, model: CostModel) -> StateSize:
    """Return the size of states: as sampled, or else the counted keys at the assumed size."""
    if inputs.states is not None:
        return inputs.states
    if inputs.definition.lifted is None:
        return StateSize(rest_bytes=model.state_bytes)
    hot = {key for load in inputs.loads for key in load.profile.hot}
    return StateSize(max(1.0, inputs.distinct, float(len(hot))), model.state_bytes)


ONE_KEY, WHOLE = 0, 1
"""The two kinds of turns: what they move."""

_Both = tuple[float, float]
"""Something for turns of either kind."""


@dataclass(slots=True)
class _Turns:
    """The values of one site on the way down."""

    site: Site
    requests: _Both
    waiting: float


def evaluate_sites(root: Site, model: CostModel, inputs: Inputs) -> Cost:
    """Return the cost of placed sites."""
    definition = inputs.definition
    moving = _Moving(root, model, inputs)
    below, trips = moving.below, moving.trips
    loads: dict[str | None, float] = {}
    waits: dict[str | None, float] = {}
    latency = moved = 0.0
    count = 0
    waiting = [_Turns(root, (0.0, 0.0), 0.0)]
    while waiting:
        here = waiting.pop()
        site, place = here.site, here.site.place
        count += 1
        work = sum((model.by_tag.get(tag, model.event) + moving.look(site, tag)) * r for tag, r in site.rates.items())
        if site.children:
            joins, trip = moving.joins(site), trips[id(site)]
            turns = joins[ONE_KEY] + here.requests[ONE_KEY], joins[WHOLE] + here.requests[WHOLE]
            work += sum(turns[kind] * moving.merge(site, kind) for kind in (ONE_KEY, WHOLE))
            for child in site.children:
                if child.place != place:
                    for kind in (ONE_KEY, WHOLE):
                        size, price = moving.moved_states(child, turns[kind], kind)
                        ends = turns[kind] * (_MESSAGES * model.message + price)
                        work += ends
                        loads[child.place] = loads.get(child.place, 0.0) + ends
                        moved += turns[kind] * size
                waited = joins[ONE_KEY] * trip[ONE_KEY] + joins[WHOLE] * trip[WHOLE]
                waiting.append(_Turns(child, turns, here.waiting + waited))
            rates = moving.rates(site)
            latency += rates[ONE_KEY] * trip[ONE_KEY] + rates[WHOLE] * trip[WHOLE]
        elif not definition.adding.issuperset(site.rates):
            waits[place] = max(waits.get(place, 0.0), here.waiting)
        loads[place] = loads.get(place, 0.0) + work
    moved += _move_events(root, model, loads)
    total = root.rate + below[id(root)]
    load = max(work + waits.get(place, 0.0) for place, work in loads.items())
    return Cost(load, latency / total if total else 0.0, moved, count)


class _Moving:
    """The data that joins and forks move between the sites of a tree, and its cost."""

    def __init__(self, root: Site, model: CostModel, inputs: Inputs) -> None:
        self.model, self.definition = model, inputs.definition
        self.size = state_size(inputs, model)
        self.one_key = {tag for tag in self.definition.tags if self.definition.moves_one_key(tag)}
        sites = list(root.walk())
        self.below: dict[int, float] = {}
        """For each site the rate of all events below it."""
        for site in reversed(sites):
            self.below[id(site)] = sum(child.rate + self.below[id(child)] for child in site.children)
        whole = len(self.one_key) < len(self.definition.tags)
        self.keys = _keys_below(sites, self.size.keys) if whole and self.size.keys else {}
        """For each site how many keys have events at it or below, where all of them can be moved."""
        self.trips: dict[int, _Both] = {}
        """For each site how long it takes to join and fork what lies below it, one key or everything."""
        for site in reversed(sites):
            self.trips[id(site)] = (self._trip(site, ONE_KEY), self._trip(site, WHOLE)) if site.children else (0.0, 0.0)

    def rates(self, site: Site) -> _Both:
        """Return a site's own events a second by what they need."""
        one_key = sum(rate for tag, rate in site.rates.items() if tag in self.one_key)
        return one_key, site.rate - one_key if len(self.one_key) < len(self.definition.tags) else 0.0

    def joins(self, site: Site) -> _Both:
        """Return how often a second a site joins for its own events."""
        one_key, whole = self.rates(site)
        return min(one_key, self.below[id(site)]), min(whole, self.below[id(site)])

    def merge(self, site: Site, kind: int) -> float:
        """Return the seconds for one join and one fork at a site."""
        model = self.model
        if kind == ONE_KEY:
            return model.join + model.fork
        each = self.keys.get(id(site), 0.0) * (model.join_key + model.fork_key)
        return model.join + model.fork + each + 2 * self._beyond(self.size.rest_bytes) * model.move_byte

    def moved_states(self, child: Site, turns: float, kind: int) -> tuple[float, float]:
        """Return the bytes that an edge moves in one turn, and the seconds for them at either end."""
        size, model = self.size, self.model
        if kind == ONE_KEY:
            return 2 * size.key_bytes, 2 * self._beyond(size.key_bytes) * model.move_byte
        keys, ways = self.keys.get(id(child), 0.0), 2
        if not child.children and self.definition.adding.issuperset(child.rates):  # it does not wait
            keys, ways = min(keys, child.rate / turns) if turns else keys, 1
        moved = size.rest_bytes + keys * size.key_bytes
        return 2 * moved, ways * (max(0.0, keys - 1) * model.move_key + self._beyond(moved) * model.move_byte)

    def _beyond(self, size: float) -> float:
        """Return by how much a state exceeds the size included in a message, a join or a fork."""
        return max(0.0, size - self.model.state_bytes)

    def look(self, site: Site, tag: str) -> float:
        """Return the additional cost of an event of a tag that sees all keys."""
        sees_all = self.definition.lifted is not None and tag not in self.one_key
        return self.keys.get(id(site), 0.0) * self.model.look_key if sees_all else 0.0

    def _trip(self, site: Site, kind: int) -> float:
        model = self.model
        turns = self.joins(site)[kind]
        slowest = 0.0
        for child in site.children:
            trip = self.trips[id(child)][kind]
            if child.place != site.place:
                trip += _MESSAGES * model.hop + 2 * self.moved_states(child, turns, kind)[1]
            slowest = max(slowest, trip)
        return slowest + self.merge(site, kind)


def _keys_below(sites: Sequence[Site], count: float) -> dict[int, float]:
    """Return for each site how many of all keys have events at it or below; an unkeyed tag has all."""
    found: dict[int, float] = {}
    held: dict[int, tuple[int, set[Key]]] = {}
    for site in reversed(sites):
        buckets, named = 0, set[Key]()
        for keys in site.keys:
            buckets |= keys.buckets
            if keys.is_finite:
                named |= keys.flips
        for child in site.children:
            others, more = held.pop(id(child))
            buckets |= others
            named, more = (named, more) if len(named) >= len(more) else (more, named)
            named |= more
        held[id(site)] = buckets, named
        if None in named:
            found[id(site)] = count
        else:
            found[id(site)] = min(count, count * buckets.bit_count() / BUCKETS + len(named))
    return found


def _move_events(root: Site, model: CostModel, loads: dict[str | None, float]) -> float:
    """Add the work of moving events to the places; a part is read where it arrives, or else where most of it goes."""
    to: dict[Origin, dict[str | None, float]] = {}
    for site in root.walk():
        for source, rate in site.sources.items():
            places = to.setdefault(source, {})
            places[site.place] = places.get(site.place, 0.0) + rate
    moved = 0.0
    for source, places in to.items():
        reader = source[1] or max(places, key=places.__getitem__)
        for place, rate in places.items():
            if place != reader:
                loads[place] = loads.get(place, 0.0) + rate * model.receive
                loads[reader] = loads.get(reader, 0.0) + rate * model.send
                moved += rate * model.event_bytes
    return moved
