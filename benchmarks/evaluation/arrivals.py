"""Input for a run in virtual time: when which events arrive, in runs where they are frequent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from flumina.model.event import Event
from flumina.model.order import Point
from flumina.model.tag import Tag
from flumina.plan.sources import Inputs
from flumina.plan.tree import Plan
from flumina.runtime.messages import PartId

Flow = tuple[str, PartId, str, float]
"""A worker's events of one tag on one part, and how many a second."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """An event (or a run of them), when it arrives, and for whom; without an event it is a heartbeat."""

    at: float
    point: Point
    event: Event | None
    worker: str


@dataclass(frozen=True)
class Arrivals:
    """All events of a run; ``weights`` says how many real ones an event of a tag stands for."""

    parts: Mapping[PartId, Sequence[Arrival]]
    weights: Mapping[str, float]


def arrivals(plan: Plan, inputs: Inputs, seconds: float, ticks: int) -> Arrivals:
    """Events at even distances, at the rates that are known; timestamps are in nanoseconds."""
    flows = _flows(plan, inputs)
    totals: dict[str, float] = {}
    for _, _, tag, rate in flows:
        totals[tag] = totals.get(tag, 0.0) + rate
    rarest = min(totals.values(), default=1.0)
    weights = {tag: _weight(tag, flows, rarest * ticks) for tag in totals}
    ranks = {shape.name: rank for rank, shape in enumerate(plan.streams)}
    made: dict[PartId, list[Arrival]] = {(s.name, part): [] for s in plan.streams for part in range(s.parts)}
    seq = 0
    for number, (worker, part, tag, rate) in enumerate(flows):
        step = weights[tag] / rate
        phase = (number * 0.618) % 1.0
        for n in range(int(seconds / step)):
            at = (n + phase) * step
            seq += 1
            event = _event(inputs.definition.tags[tag], at, part[0], seq)
            made[part].append(Arrival(at, Point(event.ts, ranks[part[0]], seq), event, worker))
    for entries in made.values():
        entries.sort(key=lambda arrival: arrival.point)
    return Arrivals(made, weights)


def _flows(plan: Plan, inputs: Inputs) -> list[Flow]:
    return [
        (worker.id, (itag.stream, part), tag, rate)
        for worker in plan.workers
        for itag in worker.itags
        for part in sorted(itag.parts)
        for tag, rate in inputs.rates_of(itag, part)
        if rate
    ]


def _weight(tag: str, flows: Sequence[Flow], most: float) -> float:
    """How many events of a tag come as one, so that no flow of it has more than so many a second."""
    rates = [rate for _, _, name, rate in flows if name == tag]
    return max(1.0, max(rates) / most)


def _event(tag: Tag, at: float, stream: str, seq: int) -> Event:
    columns: dict[str, Any] = dict.fromkeys(tag.columns.names)
    if tag.key is not None:
        columns[tag.key.name] = seq if pa.types.is_integer(tag.key.type) else str(seq)
    return tag.event(ts=int(at * 1e9), stream=stream, seq=seq, **columns)
