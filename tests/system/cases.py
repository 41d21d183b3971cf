"""The table of whole runs: programs, their input in all shapes, and plans.

Every case runs on the oracle, in the simulator and in local processes, some also on Spark; all must agree.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

import flumina as fl
from flumina.apps import (
    Fraud,
    FraudByHand,
    KeyCounter,
    KeyCounterByHand,
    KeyCounterMap,
    PageViews,
    PageViewsByHand,
    ValueBarrier,
    ValueBarrierByHand,
)
from flumina.engine.options import EngineOptions
from flumina.model.tag_set import KeySet, TagSet
from flumina.plan import Itag, Plan, PlanWorker, StreamShape, estimate, make_plan
from flumina.program.base import define
from flumina.runtime.topology import ProtocolOptions
from flumina.sim.plans import random_plan
from tests.system.programs import Cells, Stock, TwoCounters

WORK = {
    ValueBarrier: ("value",),
    ValueBarrierByHand: ("value",),
    Fraud: ("transaction",),
    FraudByHand: ("transaction",),
    PageViews: ("view",),
    PageViewsByHand: ("view",),
    KeyCounter: ("inc",),
    KeyCounterMap: ("inc",),
    KeyCounterByHand: ("inc",),
    Cells: ("add",),
    TwoCounters: ("a", "b"),
    Stock: ("move",),
}
"""The tags of each program that are independent of each other; all others synchronize."""

UTC = pa.timestamp("us", tz="UTC")
EPOCH = 1_700_000_000_000_000


@dataclass(frozen=True)
class Input:
    """The shape of the input.

    ``rows``        events of each part of the tags that work
    ``every``       events that work for each one that synchronizes
    ``parts``       of the streams that work; ``meetings`` of those that synchronize
    ``empty``       a part, a stream, or everything
    ``ties``        "apart": events tie only where that can't matter; "seq": a column breaks all ties
    ``together``    all tags on one stream, told apart by a column
    """

    rows: int = 150
    every: int = 25
    parts: int = 2
    meetings: int = 1
    ts: pa.DataType = field(default_factory=pa.int64)
    ties: str = "apart"
    sorted: bool = True
    empty: str = ""
    together: bool = False
    seed: int = 1


Planner = Callable[[type[fl.Program], Sequence[fl.Stream]], Plan]


@dataclass(frozen=True)
class Case:
    """One run: what, on which input, under which plan."""

    program: type[fl.Program]
    planner: Planner
    input: Input = field(default_factory=Input)
    engine_options: EngineOptions = field(default_factory=EngineOptions)
    note: str = ""

    @property
    def id(self) -> str:
        name = getattr(self.planner, "__name__", "?").replace("_", " ")
        return "-".join(filter(None, [self.program.__name__, name, self.note]))

    @cached_property
    def streams(self) -> list[fl.Stream]:
        return make_streams(self.program, self.input)

    @cached_property
    def plan(self) -> Plan:
        return self.planner(self.program, self.streams)

    @cached_property
    def expected(self) -> fl.SpecResult:
        return fl.spec(self.program, self.streams)

    @property
    def busy(self) -> bool:
        """Whether more than one worker has something to do."""
        return len(self.plan.leaves) > 1 and self.input.rows > 1 and self.input.empty != "all"


# -- input -------------------------------------------------------------------------------------------------------------


def make_streams(program: type[fl.Program], shape: Input) -> list[fl.Stream]:
    """One stream for each tag, those that synchronize first, or one for all."""
    tags = define(program).tags
    work = WORK[program]
    names = [*(name for name in tags if name not in work), *work]
    rng = np.random.default_rng(shape.seed)
    span = max(2, shape.rows * shape.parts // 2)
    made = {name: _tables(rng, program, tags[name], shape, span, works=name in work) for name in names}
    seq = "n" if shape.ties == "seq" else None
    if shape.together:
        return [_one_stream(tags, made, shape, seq)]
    if shape.empty == "stream":
        made[names[0]] = [table.slice(0, 0) for table in made[names[0]]]
    return [fl.Stream(n, tags[n], tables, seq=seq, sorted=shape.sorted) for n, tables in made.items()]


def _tables(
    rng: np.random.Generator, program: type[fl.Program], tag: fl.Tag, shape: Input, span: int, *, works: bool
) -> list[pa.Table]:
    parts = shape.parts if works else shape.meetings
    rows = shape.rows if works else max(1, shape.rows * shape.parts // shape.every)
    found = []
    ties = works or shape.ties == "seq"
    distinct = np.sort(rng.choice(max(span, rows), rows, replace=False))
    for part in range(parts):
        times = np.sort(rng.integers(0, span, rows)) if ties else distinct[part::parts]
        if shape.empty == "all" or (shape.empty == "part" and part == parts - 1 and works):
            times = times[:0]
        columns: dict[str, Any] = {"ts": _times(times, shape.ts)}
        if shape.ties == "seq":
            columns["n"] = np.arange(len(times)) * parts + part
        for column in tag.schema:
            columns[column.name] = _values(rng, tag, column, len(times))
        table = pa.table(columns)
        found.append(table if shape.sorted else table.take(pa.array(rng.permutation(len(times)))))
    return found


def _times(times: Any, kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        return pa.array(EPOCH + times * 1000, pa.int64()).cast(kind)
    return pa.array(times, pa.int32() if pa.types.is_date(kind) else pa.int64()).cast(kind)


def _values(rng: np.random.Generator, tag: fl.Tag, column: pa.Field, count: int) -> pa.Array:
    if tag.key is not None and column.name == tag.key.name:
        # Two keys have most of the events, and a few others the rest.
        keys = np.where(rng.random(count) < 0.8, rng.integers(1, 3, count), rng.integers(3, 13, count))
        return pa.array(
            ["_abcdefghijkl"[key] for key in keys] if pa.types.is_string(column.type) else keys, column.type
        )
    if pa.types.is_string(column.type):
        return pa.array([None if n == 0 else f"info {n}" for n in rng.integers(0, 9, count)], pa.string())
    return pa.array(rng.integers(0, 3000, count), column.type)


def _one_stream(
    tags: dict[str, fl.Tag] | Any, made: dict[str, list[pa.Table]], shape: Input, seq: str | None
) -> fl.Stream:
    """All tags on one stream; positions order those of a part, so that it has to have a ``seq`` or one part."""
    assert shape.parts == shape.meetings
    parts = []
    for part in range(shape.parts):
        tables = [
            made[n][part].append_column("what", pa.array([n] * made[n][part].num_rows, pa.string())) for n in made
        ]
        whole = pa.concat_tables(tables, promote_options="default")
        if seq is not None:
            unique = pa.array(np.arange(whole.num_rows) * shape.parts + part)
            whole = whole.set_column(whole.schema.get_field_index(seq), seq, unique)
        parts.append(whole.sort_by([("ts", "ascending"), *([(seq, "ascending")] if seq else [])]))
    return fl.Stream("all", {n: tags[n] for n in made}, parts, tag_column="what", seq=seq, sorted=shape.sorted)


# -- plans -------------------------------------------------------------------------------------------------------------


def sequential(program: type[fl.Program], streams: Sequence[fl.Stream]) -> Plan:
    return make_plan(program, estimate(program, streams), optimizer="sequential")


def two_leaves(program: type[fl.Program], streams: Sequence[fl.Stream]) -> Plan:
    return make_plan(program, estimate(program, streams), workers=2, optimizer="greedy")


def greedy_four(program: type[fl.Program], streams: Sequence[fl.Stream]) -> Plan:
    return make_plan(program, estimate(program, streams), workers=4, optimizer="greedy")


def three_levels(program: type[fl.Program], streams: Sequence[fl.Stream]) -> Plan:
    """All that synchronizes at the root, and below it a leaf for each part of what works, by halves."""
    shapes = shapes_of(streams)
    work, kind = WORK[program], define(program).initial
    numbers = iter(range(100))

    def itag(shape: StreamShape, *parts: int) -> Itag:
        return Itag(shape.name, frozenset(parts), shape.tags)

    def grow(itags: Sequence[Itag]) -> PlanWorker:
        name = f"w{next(numbers)}"
        if len(itags) == 1:
            return PlanWorker(name, kind, tuple(itags), place=name)
        middle = len(itags) // 2
        left, right = grow(itags[:middle]), grow(itags[middle:])
        return PlanWorker(name, kind, (), (left, right), place=left.place)

    leaves = [itag(s, part) for s in shapes if s.name in work for part in range(s.parts)]
    below = grow(leaves)
    above = tuple(itag(s, *range(s.parts)) for s in shapes if s.name not in work)
    root = PlanWorker("root", kind, above, below.children, place=below.children[-1].place)
    return Plan.of(program, shapes, root)


def forest(program: type[fl.Program], streams: Sequence[fl.Stream]) -> Plan:
    """A root without tags; on its left one hot key with a leaf for each part, on its right all other keys."""
    shapes = shapes_of(streams)
    definition = define(program)
    work, kind = WORK[program], definition.initial
    only = KeySet.of(
        next("a" if pa.types.is_string(tag.key.type) else 1 for tag in definition.tags.values() if tag.key)
    )

    def itags(keys: Callable[[KeySet], KeySet], *, works: bool | None, parts: slice = slice(None)) -> tuple[Itag, ...]:
        return tuple(
            Itag(s.name, frozenset(range(s.parts)[parts]), TagSet([(name, keys(held)) for name, held in s.tags]))
            for s in shapes
            if works is None or (s.name in work) == works
        )

    views = [itags(lambda _: only, works=True, parts=slice(n, n + 1)) for n in range(2)]
    leaves = tuple(PlanWorker(f"hot{n}", kind, of_part, place=f"p{n}") for n, of_part in enumerate(views))
    left = PlanWorker("hot", kind, itags(lambda _: only, works=False), leaves, place="p0")
    right = PlanWorker("cold", kind, itags(lambda held: held - only, works=None), place="p2")
    return Plan.of(program, shapes, PlanWorker("root", kind, (), (left, right), place="p1"))


def no_places(program: type[fl.Program], streams: Sequence[fl.Stream]) -> Plan:
    """A plan written by hand, which does not say where its workers run."""
    plan = two_leaves(program, streams)

    def bare(worker: PlanWorker) -> PlanWorker:
        return replace(worker, place=None, children=tuple(map(bare, worker.children)))

    return replace(plan, root=bare(plan.root))


def by_chance(seed: int) -> Planner:
    """Any valid plan, with its workers anywhere on three places."""

    def planner(program: type[fl.Program], streams: Sequence[fl.Stream]) -> Plan:
        rng = random.Random(seed)
        plan = random_plan(rng, define(program), shapes_of(streams))
        return plan.at({worker.id: f"p{rng.randrange(3)}" for worker in plan.workers})

    planner.__name__ = f"random {seed}"
    return planner


def shapes_of(streams: Sequence[fl.Stream]) -> list[StreamShape]:
    return [StreamShape(s.name, s.source().parts, TagSet.all_of(s.tags)) for s in streams]


# -- the table ---------------------------------------------------------------------------------------------------------

TINY = EngineOptions(chunk_rows=7, window=10)
PLAIN = EngineOptions(protocol=ProtocolOptions(coalesce=False, pipeline=False, hand_over=False, by_key=False))

KEYED = (PageViews, KeyCounter)
BY_MAP = (PageViewsByHand, KeyCounterByHand, KeyCounterMap)
SUMS = (ValueBarrier, ValueBarrierByHand, Fraud, FraudByHand, Cells)


def _cases() -> Iterator[Case]:
    four = Input(parts=4, rows=80)
    for program in WORK:
        yield Case(program, sequential)
        yield Case(program, two_leaves)
        yield Case(program, greedy_four, four)
        yield Case(program, two_leaves, engine_options=TINY, note="tiny")
        yield Case(program, two_leaves, Input(sorted=False, parts=3), note="unsorted")
        yield Case(program, two_leaves, Input(ties="seq", meetings=2, seed=3), note="seq")
        yield Case(program, two_leaves, Input(rows=1), note="one event")
        for empty in ("part", "stream", "all"):
            yield Case(program, two_leaves, Input(empty=empty), note=f"empty {empty}")
        for seed in range(4):
            yield Case(program, by_chance(seed), Input(parts=2 + seed % 2, seed=seed))
    for program in (*SUMS, *KEYED, *BY_MAP):
        yield Case(program, three_levels, four)
        yield Case(program, three_levels, four, TINY, note="tiny")
        yield Case(program, three_levels, replace(four, sorted=False), PLAIN, note="plain protocol")
    for program in (*KEYED, *BY_MAP):
        yield Case(program, forest)
        yield Case(program, forest, engine_options=TINY, note="tiny")
    for program in (ValueBarrier, PageViews, KeyCounterByHand, Stock, TwoCounters):
        yield Case(program, two_leaves, Input(together=True, parts=2, meetings=2, ties="seq"), note="one stream")
        yield Case(program, two_leaves, Input(together=True, parts=1), TINY, note="one stream of one part")
    for name, kind in (("timestamps", UTC), ("without zone", pa.timestamp("us")), ("dates", pa.date32())):
        yield Case(Fraud, two_leaves, Input(ts=kind), note=name)
        yield Case(PageViews, two_leaves, Input(ts=kind, sorted=False), TINY, note=name)
    for program in (ValueBarrier, PageViews):
        yield Case(program, no_places, note="by hand")
        yield Case(
            program, by_chance(11), Input(parts=3, rows=2000, every=300), EngineOptions(chunk_rows=100), note="longer"
        )


CASES = list(_cases())
