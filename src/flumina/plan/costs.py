"""What a plan costs: the model by which plans are compared.

For a second of input, with all rates as given::

    joins(w)     = min(rate of w's own events, rate of all events below w)         coalescing: rule 6 of the runtime
    turns(w)     = joins(w) + sum of joins(a) over w's ancestors a                 how often w joins its children
    trip(w)      = max over children c of (3 x hop if c is elsewhere) + join + fork + trip(c);  0 for a leaf
    work(w)      = sum of event(tag) x rate(tag)  +  turns(w) x (join + fork)
                   + 3 x message at both ends for every turn over an edge between places
    wait(leaf)   = sum of joins(a) x trip(a) over its ancestors; none if it hands over without waiting (rule 8)
    load(place)  = sum of work over its workers + the longest wait of its leaves
                   + receive x events that come from another place + send x events that go to another

The *load* of a plan is that of its busiest place: 1 / load is by how much the input could be faster. *Latency* is the
mean over all events of trip(worker). *Bytes* are what crosses places. Plans are compared by load first, in steps of a
tenth (the model is no better than that, and a chain of workers should not win over a balanced tree by a hair); then by
latency; then by bytes; then by the number of workers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

from flumina.definition import Definition
from flumina.errors import UsageError
from flumina.plan.placement import Origin, Site, site_of
from flumina.plan.sources import Inputs
from flumina.plan.tree import Plan

_STEP = math.log(1.1)
_MESSAGES = 3
"""Request, response and fork."""


@dataclass(frozen=True)
class CostModel:
    """Seconds and bytes; the defaults are figures measured for batches of numbers on one machine.

    For programs without ``update_batch``, optimisers begin with :data:`ONE_BY_ONE` instead.
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

    def __post_init__(self) -> None:
        """Refuse what is no cost."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "by_tag"}
        for name, value in {**values, **{f"by_tag[{tag!r}]": cost for tag, cost in self.by_tag.items()}}.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or not (0 <= value < math.inf):
                raise UsageError("BAD_COST", f"{name} is {value!r}", hint="a cost is a number, 0 or more")


@dataclass(frozen=True, slots=True)
class Cost:
    """What a plan costs; see the module for what the figures mean."""

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
ONE_BY_ONE = replace(DEFAULT, event=3e-6)
"""Where each event is made for one call of ``update``."""


def model_of(definition: Definition) -> CostModel:
    """What is assumed of a program that nobody has measured."""
    return DEFAULT if all(kind.update_batch is not None for kind in definition.kinds.values()) else ONE_BY_ONE


def evaluate(plan: Plan, inputs: Inputs, model: CostModel | None = None) -> Cost:
    """What a plan costs with this input, at the places it names."""
    return evaluate_sites(site_of(plan.root, inputs), model or model_of(inputs.definition), inputs.definition)


@dataclass(slots=True)
class _Turns:
    """What is known of one site on the way down."""

    site: Site
    requests: float
    waiting: float


def evaluate_sites(root: Site, model: CostModel, definition: Definition) -> Cost:
    """What placed sites cost."""
    below, trips = _below(root), _trips(root, model)
    loads: dict[str | None, float] = {}
    waits: dict[str | None, float] = {}
    latency = moved = 0.0
    count = 0
    waiting = [_Turns(root, 0.0, 0.0)]
    while waiting:
        here = waiting.pop()
        site, place = here.site, here.site.place
        count += 1
        work = sum(model.by_tag.get(tag, model.event) * rate for tag, rate in site.rates.items())
        if site.children:
            joins = min(site.rate, below[id(site)])
            turns = joins + here.requests
            work += turns * (model.join + model.fork)
            for child in site.children:
                if child.place != place:
                    work += turns * _MESSAGES * model.message
                    loads[child.place] = loads.get(child.place, 0.0) + turns * _MESSAGES * model.message
                    moved += turns * 2 * model.state_bytes
                waiting.append(_Turns(child, turns, here.waiting + joins * trips[id(site)]))
            latency += site.rate * trips[id(site)]
        elif not definition.adding.issuperset(site.rates):
            waits[place] = max(waits.get(place, 0.0), here.waiting)
        loads[place] = loads.get(place, 0.0) + work
    moved += _move_events(root, model, loads)
    total = root.rate + below[id(root)]
    load = max(work + waits.get(place, 0.0) for place, work in loads.items())
    return Cost(load, latency / total if total else 0.0, moved, count)


def _below(root: Site) -> dict[int, float]:
    """For each site the rate of all events below it."""
    found: dict[int, float] = {}
    for site in reversed(list(root.walk())):
        found[id(site)] = sum(child.rate + found[id(child)] for child in site.children)
    return found


def _trips(root: Site, model: CostModel) -> dict[int, float]:
    """For each site how long it takes to join and fork everything below it."""
    found: dict[int, float] = {}
    for site in reversed(list(root.walk())):
        trips = [
            (_MESSAGES * model.hop if child.place != site.place else 0.0) + found[id(child)] for child in site.children
        ]
        found[id(site)] = max(trips) + model.join + model.fork if trips else 0.0
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
