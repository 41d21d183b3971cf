"""Small plans and input that several tests use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flumina.model.order import Point
from flumina.model.tag_set import KeySet, TagSet
from flumina.plan.tree import Itag, Plan, PlanWorker, StreamShape
from flumina.program.base import AnyProgram, define
from flumina.sim.case import Case, Entry

Row = tuple[int, str, Mapping[str, Any]]
"""Timestamp, tag and columns."""


def itag(program: AnyProgram, stream: str, tag: str, *parts: int, keys: Sequence[Any] | None = None) -> Itag:
    universe = define(program).everything[tag]
    key_set = universe if keys is None else KeySet.of(*keys)
    return Itag(stream, frozenset(parts), TagSet([(tag, key_set)]))


def shape(program: AnyProgram, name: str, parts: int, *tags: str) -> StreamShape:
    return StreamShape(name, parts, TagSet.all_of(define(program).tags[tag] for tag in tags))


def two_leaves(program: AnyProgram, value: str = "value", barrier: str = "barrier") -> Plan:
    """A root for the barriers, and a leaf for each of two parts of the values."""
    kind = define(program).initial
    streams = [shape(program, "values", 2, value), shape(program, "barriers", 1, barrier)]
    leaves = tuple(
        PlanWorker(name, kind, (itag(program, "values", value, part),)) for part, name in enumerate(("left", "right"))
    )
    return Plan.of(program, streams, PlanWorker("root", kind, (itag(program, "barriers", barrier, 0),), leaves))


def case(program: AnyProgram, plan: Plan, rows: Mapping[tuple[str, int], Sequence[Row]]) -> Case:
    """A case with these rows for each part; ``seq`` is the position in the part plus a thousand for each part."""
    definition = define(program)
    ranks = {stream.name: rank for rank, stream in enumerate(plan.streams)}
    parts: dict[tuple[str, int], list[Entry]] = {
        (stream.name, part): [] for stream in plan.streams for part in range(stream.parts)
    }
    for (stream, part), given in rows.items():
        for place, (ts, tag, columns) in enumerate(given):
            seq = 1000 * part + place
            event = definition.tags[tag].event(ts=ts, stream=stream, seq=seq, **columns)
            parts[stream, part].append((Point(ts, ranks[stream], seq), event))
    return Case(definition, plan, parts)
