"""Ties at run time: found in every schedule where spec finds them, and nowhere else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import flumina as fl
from flumina.apps import KeyCounter, PageViews
from flumina.apps.value_barrier import ValueBarrier
from flumina.errors import OrderError
from flumina.input.decode import Part
from flumina.input.tie_checks import check_ties
from flumina.model.batch import Batch
from flumina.model.order import END, START, Point
from flumina.model.tag_set import KeySet, TagSet
from flumina.plan.tree import Itag, Plan, PlanWorker
from flumina.program import tie_finder
from flumina.program.base import AnyProgram, define
from flumina.program.definition import Definition
from flumina.runtime.build import workers
from flumina.runtime.messages import Data, ForkState, Item, Origin, PartId, Request
from flumina.runtime.run import Run
from flumina.runtime.tie_watch import MayTie, TieWatch
from flumina.runtime.topology import ProtocolOptions, topology
from flumina.sim.case import Case, Entry
from flumina.sim.conditions import random_conditions
from flumina.sim.plans import random_case
from flumina.sim.programs import random_program
from flumina.sim.scheduler import Simulation, judge
from tests.runtime.support import (
    ColumnSimulation,
    MixedSimulation,
    Scripted,
    itag,
    leaf,
    one_event,
    plan_of,
    streams,
)

UNNUMBERED = ProtocolOptions(sequenced=frozenset())
SIMULATIONS = [Simulation, ColumnSimulation, MixedSimulation]
Tie = tuple[PartId, Entry, PartId, Entry]


class Log(fl.Program):
    """Everything depends on everything; but for ``free``, which depends on nothing."""

    word = fl.Tag("text string", key="k long")
    mark = fl.Tag()
    free = fl.Tag(key="k long")
    depends = fl.depends((mark, mark), (mark, word), always=[(word, word)])
    output = "text string"
    last = fl.Replicated("string", read_by=[word, mark], set_by=[word])

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        if event.tag is self.word:
            state.last = event.text
        elif event.tag is self.mark:
            emit(state.last)


# -- what should be found ---------------------------------------------------------------------------------------------


def numbered(case: Case, *, sequenced: bool) -> Case:
    """The same case with every event numbered by its place in its part; or by its place among those of its time."""
    return replace(case, parts={part: renumbered(entries, sequenced) for part, entries in case.parts.items()})


def renumbered(entries: Sequence[Entry], by_time: bool) -> list[Entry]:  # noqa: FBT001
    count: Counter[int] = Counter()
    made = []
    for point, event in entries:
        time = point.ts if by_time else 0
        values = (event.ts, event.stream, count[time], *tuple(event)[3:])
        made.append((point._replace(seq=count[time]), event.tag.event_class._make(values)))
        count[time] += 1
    return made


def dependent_ties(case: Case, *, sequenced: bool) -> Iterator[Tie]:
    """Every pair, by the definition."""
    for (part, entries), (other, others) in combinations(case.parts.items(), 2):
        for (at, a), (also, b) in (
            (x, y) for x in entries for y in others if part[0] == other[0] and x[0].ts == y[0].ts
        ):
            if (not sequenced or at.seq == also.seq) and case.definition.depends(a.tag.name, a.key, b.tag.name, b.key):
                yield part, (at, a), other, (also, b)


def without_ties(random: Random, case: Case, *, sequenced: bool, but: int = 0) -> Case:
    """The same case with events left out until no dependent ones tie, ``but`` so many."""
    while len(found := list(dependent_ties(case, sequenced=sequenced))) > but:
        part, entry, other, tied = random.choice(found)
        dropped_from, dropped = random.choice(((part, entry), (other, tied)))
        kept = [e for e in case.parts[dropped_from] if e[1] is not dropped[1]]
        case = replace(case, parts={**case.parts, dropped_from: kept})
    return case


def spec_refuses(case: Case, *, sequenced: bool) -> bool:
    names = [shape.name for shape in case.plan.streams]
    parts = []
    for (name, number), entries in case.parts.items():
        if entries:
            tags = {tag: case.definition.tags[tag] for tag in case.plan.stream(name).tags.tags}
            stream = fl.Stream(name, tags, None, tag_column="tag", seq="n" if sequenced else None)
            batch = Batch.of_events([event for _, event in entries], names)
            parts.append(Part(stream, names.index(name), number, batch, len(batch), pa.int64()))
    try:
        check_ties(case.definition, parts)
    except OrderError:
        return True
    return False


def where(case: Case, tie: Tie) -> str:
    """How the workers of two events are related."""
    handlers = [case.router.route(event.tag, event.key, *part) for part, (_, event) in (tie[:2], tie[2:])]
    kinds = ["leaf" if case.plan[name].is_leaf else "inner" for name in handlers]
    return f"one {kinds[0]}" if handlers[0] == handlers[1] else "-".join(sorted(kinds))


# -- random cases -----------------------------------------------------------------------------------------------------


def drawn(random: Random, program: AnyProgram | None, *, sequenced: bool, but: int) -> Case:
    definition = define(random_program(random) if program is None else program)
    case = numbered(random_case(random, definition, 40), sequenced=sequenced)
    return without_ties(random, case, sequenced=sequenced, but=but)


def runs(random: Random, case: Case, *, sequenced: bool, count: int = 3) -> Iterator[Simulation]:
    """Schedules with all savings on, and then with others under which everything is announced."""
    names = frozenset(shape.name for shape in case.plan.streams) if sequenced else frozenset()
    for number in range(count):
        options = ProtocolOptions(sequenced=names)
        if number == count - 1:
            plain = random.random() < 0.3
            flags = (False, False) if plain else (random.random() < 0.5, True)
            options = ProtocolOptions(*flags, random.random() < 0.5, random.random() < 0.5, sequenced=names)
        conditions = random_conditions(random, [worker.id for worker in case.plan.workers])
        simulation = random.choice(SIMULATIONS)
        yield simulation(case, random, options=options, conditions=conditions)


@pytest.mark.parametrize("sequenced", [False, True])
@pytest.mark.parametrize("program", [None, KeyCounter, PageViews, Log], ids=["random", "counter", "views", "log"])
def test_exactly_what_spec_refuses_is_refused_in_every_schedule(
    program: Any, *, sequenced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: Counter[str] = Counter()
    for seed in range(70):
        random = Random(f"{seed} {sequenced}")
        monkeypatch.setattr(tie_finder, "FEW", random.choice((0, 16)))  # in columns, or one by one
        case = drawn(random, program, sequenced=sequenced, but=random.choice((0, 0, 1, 1, 1, 1000)))
        found = list(dependent_ties(case, sequenced=sequenced))
        assert spec_refuses(case, sequenced=sequenced) == bool(found)
        for simulation in runs(random, case, sequenced=sequenced):
            if not found:
                judge(case, simulation.run())
            else:
                with pytest.raises(OrderError) as caught:
                    simulation.run()
                assert any(names_both(str(caught.value), tie) for tie in found)
        seen[where(case, found[0]) if len(found) == 1 else "many" if found else "none"] += 1
    assert {"none", "one leaf"} <= seen.keys(), seen
    assert program is Log or {"inner-leaf", "inner-inner", "one inner"} & seen.keys(), seen


def names_both(message: str, tie: Tie) -> bool:
    """Whether an error names the two events, with what is known of them, and their parts."""
    part, (_, one), other, (_, two) = tie
    return (
        all(
            f"{event.stream}#{event.seq} in part {p[1]}" in message and f"{event.tag.name}(" in message
            for p, event in ((part, one), (other, two))
        )
        and f"stream {one.stream!r}: two dependent events have the timestamp {one.ts} with" in message
    )


# -- one by one -------------------------------------------------------------------------------------------------------


def two_readers(keys: Sequence[int] = (1, 1), times: Sequence[int] = (5, 5), seqs: Sequence[int] = (0, 0)) -> Case:
    """Part 0 of the reads is handled above, part 1 below, together with the increments."""
    counter = define(KeyCounter)
    sides = []
    for name, of_side in (("left", KeySet.everything() - KeySet.of(99)), ("right", KeySet.of(99))):
        both = [Itag(tag, frozenset(on), TagSet({tag: of_side})) for tag, on in (("inc", [0, 1]), ("read", [1]))]
        sides.append(leaf(name, counter, *both))
    root = PlanWorker("root", counter.initial, (itag(counter, "read", "read"),), tuple(sides))
    plan = plan_of(KeyCounter, streams(KeyCounter, inc=2, read=2), root)
    parts: dict[PartId, list[Entry]] = {("inc", n): [] for n in range(2)}
    for n in range(2):
        parts["read", n] = [one_event(counter, plan, "read", times[n], seqs[n], k=keys[n])]
    return Case(counter, plan, parts)


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("by_key", [True, False])
def test_above_and_below_whichever_comes_first(first: int, *, by_key: bool) -> None:
    run = Scripted(two_readers(seqs=(3, 8)), options=replace(UNNUMBERED, by_key=by_key))
    run.send(("read", first), 1)
    run.send(("read", 1 - first), 1)
    with pytest.raises(OrderError) as caught:
        run.finish()
    assert caught.value.condition == "AMBIGUOUS_ORDER"
    assert str(caught.value) == (
        "[AMBIGUOUS_ORDER] stream 'read': two dependent events have the timestamp 5 without a seq column, so their "
        "order is not determined: read(k=1, ...)@5 read#3 in part 0 and read(k=1)@5 read#8 in part 1\n"
        "  hint: give the stream a seq= column that orders events with equal timestamps"
    )


@pytest.mark.parametrize("by_key", [True, False])
def test_two_inner_workers(*, by_key: bool) -> None:
    """Part 0 of the reads is handled by the root, part 1 by a worker between it and the leaves."""
    counter = define(KeyCounter)
    most, one = KeySet.everything() - KeySet.of(99), KeySet.of(99)

    def of(tag: str, keys: KeySet, *parts: int) -> Itag:
        return Itag(tag, frozenset(parts), TagSet({tag: keys}))

    below = tuple(leaf(f"l{n}", counter, of("inc", most, n)) for n in range(2))
    middle = PlanWorker("middle", counter.initial, (of("read", most, 1),), below)
    right = leaf("right", counter, of("inc", one, 0, 1), of("read", one, 1))
    root = PlanWorker("root", counter.initial, (itag(counter, "read", "read"),), (middle, right))
    plan = plan_of(KeyCounter, streams(KeyCounter, inc=2, read=2), root)
    for key in (1, 2):
        parts: dict[PartId, list[Entry]] = {("inc", n): [] for n in range(2)}
        parts |= {("read", n): [one_event(counter, plan, "read", 5, n, k=(1, key)[n])] for n in range(2)}
        case = Case(counter, plan, parts)
        for seed in range(10):
            simulation = Simulation(case, Random(seed), options=replace(UNNUMBERED, by_key=by_key))
            if key == 2:
                judge(case, simulation.run())
            else:
                with pytest.raises(OrderError, match=r"read#0 in part 0 and .* in part 1"):
                    simulation.run()


@pytest.mark.parametrize("by_key", [True, False])
@pytest.mark.parametrize("case", [two_readers(keys=(1, 2)), two_readers(times=(5, 6)), two_readers(times=(6, 5))])
def test_other_keys_and_other_times_are_no_ties(case: Case, *, by_key: bool) -> None:
    for seed in range(10):
        judge(case, Simulation(case, Random(seed), options=replace(UNNUMBERED, by_key=by_key)).run())


def test_another_seq_is_no_tie_where_there_is_a_column() -> None:
    sequenced = ProtocolOptions(sequenced=frozenset({"read"}))
    case = two_readers(seqs=(3, 8))
    judge(case, Simulation(case, Random(0), options=sequenced).run())
    with pytest.raises(OrderError, match="with the same seq"):
        Simulation(two_readers(seqs=(3, 3)), Random(0), options=sequenced).run()


def test_without_pipelining_and_coalescing_everything_is_announced() -> None:
    with pytest.raises(OrderError):
        Simulation(two_readers(), Random(0), options=replace(UNNUMBERED, pipeline=False, coalesce=False)).run()


class TestOneLeaf:
    """A leaf that has both parts of a stream, which come in any number of pieces."""

    def made(self, *, sequenced: bool = False) -> Any:
        log = define(Log)
        only = leaf("only", log, itag(log, "word", "word", parts=[0, 1]))
        plan = Plan.of(Log, streams(Log, word=2), only)
        options = ProtocolOptions(sequenced=frozenset({"word"} if sequenced else ()))
        made = workers(plan, log, options)["only"]
        made.handle("^", start(log))
        made.handle("^", Request((), END, END))
        return made

    def send(self, made: Any, part: int, times: Sequence[int], first: int = 0, upto: Point | None = None) -> None:
        log = define(Log)
        table = pa.record_batch(
            [pa.array(range(len(times)), pa.int64()), pa.array(["x"] * len(times))], schema=log.tags["word"].schema
        )
        ts = np.array(times, np.int64)
        run = Run(batch=Batch.one_tag(log.tags["word"], table, ts, 0, np.arange(first, first + len(ts)), ["word"]))
        made.handle(("word", part), Data(("word", part), run, upto or run.last))

    def test_in_one_release(self) -> None:
        made = self.made()
        self.send(made, 0, range(0, 100, 2))
        with pytest.raises(OrderError, match=r"timestamp 50 .* word#25 in part 0 and .* word#40 in part 1"):
            self.send(made, 1, sorted({*range(1, 80, 2), 50}), first=15)

    def test_at_the_border_of_releases(self) -> None:
        made = self.made()
        self.send(made, 0, range(0, 100, 2), upto=Point(98, 0, 49))
        self.send(made, 1, range(1, 98, 2), upto=Point(98, 0, 49))
        assert made.stats.events == 99, "the first of that time has been processed"
        made.handle(("word", 0), Data(("word", 0), Run(), END))
        with pytest.raises(OrderError, match="timestamp 98 "):
            self.send(made, 1, [98] * 30, first=50, upto=Point(98, 0, 60))

    def test_times_that_are_over_are_forgotten(self) -> None:
        made = self.made()
        for start in range(0, 10_000, 100):
            self.send(made, 0, range(start, start + 100, 2), first=start)
            self.send(made, 1, range(start + 1, start + 100, 2), first=start)
        (finder,) = made.components[0].watch.finders.values()
        assert len(finder.open) == len(finder.times) <= 2

    def test_the_same_seq_in_one_part_across_pieces(self) -> None:
        made = self.made(sequenced=True)
        made.handle(("word", 1), Data(("word", 1), Run(), END))
        self.send(made, 0, range(50))
        with pytest.raises(OrderError, match="timestamp 49 with the same seq"):
            self.send(made, 0, [49], first=49, upto=END)


def start(definition: Definition) -> ForkState:
    return ForkState(definition.init(), START)


def test_announcements_that_are_over_are_forgotten() -> None:
    """Also by a leaf whose own part of the stream has long ended."""
    case = two_readers()
    made = workers(case.plan, case.definition, UNNUMBERED)["left"]
    made.handle("root", start(case.definition))
    for part in (("inc", 0), ("inc", 1), ("read", 1)):
        made.handle(part, Data(part, Run(), END))
    for ts in range(1, 200):
        item = Item(Point(ts, 1, ts), ("root", "read"), 1, Origin(0, 1))
        made.handle("root", Request((item,), item.point, END))
    watches = [component.watch for component in made.components if component.watch is not None]  # type: ignore[attr-defined]
    assert watches
    assert all(len(finder.open) <= 1 for watch in watches for finder in watch.finders.values())


class TestWhereToLook:
    @pytest.mark.parametrize("sequenced", [None, frozenset[str](), frozenset({"values"})])
    def test_common_programs_are_not_watched(self, sequenced: frozenset[str] | None) -> None:
        program = define(ValueBarrier)
        leaves = tuple(leaf(f"l{n}", program, itag(program, "value", "value", parts=[n])) for n in range(2))
        root = PlanWorker("root", program.initial, (itag(program, "barrier", "barrier"),), leaves)
        plan = plan_of(ValueBarrier, streams(ValueBarrier, value=2, barrier=1), root)
        assert unwatched(plan, program, sequenced) == {"root", "l0", "l1"}

    def test_a_stream_with_numbers_is_watched_where_its_events_depend_on_each_other(self) -> None:
        case = two_readers()
        assert unwatched(case.plan, case.definition, frozenset({"read"})) == set()
        assert unwatched(case.plan, case.definition, frozenset({"inc"})) == {"root"}
        assert unwatched(case.plan, case.definition, None) == {"root", "left", "right"}

    def test_one_part_above_and_another_below(self) -> None:
        case = two_readers()
        shapes = topology(case.plan, case.definition, UNNUMBERED)
        assert shapes["root"].ties is None, "one part does not tie with itself"
        assert shapes["root"].ties_below == {"read"}
        assert [[name for _, name, _ in c.ties.streams] for c in shapes["left"].components if c.ties] == [["read"]]
        assert not MayTie(case.plan, case.definition, None).rules

    def test_origins_are_told_only_where_they_matter(self) -> None:
        case = two_readers(keys=(1, 2))
        for options, origin in ((UNNUMBERED, Origin(0, 1)), (ProtocolOptions(), None)):
            made = workers(case.plan, case.definition, options)["root"]
            made.handle("^", start(case.definition))
            made.handle("^", Request((), END, END))
            point, event = case.parts["read", 0][0]
            sends = made.handle(("read", 0), Data(("read", 0), Run([point], [event]), END)).sends
            items = [item for _, message in sends if isinstance(message, Request) for item in message.items]
            assert {item.origin for item in items} == {origin}


def unwatched(plan: Plan, definition: Definition, sequenced: frozenset[str] | None) -> set[str]:
    made: Mapping[str, Any] = workers(plan, definition, ProtocolOptions(sequenced=sequenced))
    watches: dict[str, list[TieWatch | None]] = {
        name: [worker.watch, *(c.watch for c in getattr(worker, "components", ()))] for name, worker in made.items()
    }
    return {name for name, mine in watches.items() if mine.count(None) == len(mine)}
