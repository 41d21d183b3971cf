"""The sequential program and every wire diagram of it give the same outputs and the same state (theorem 2.4)."""

import random
from collections import Counter
from functools import cache
from typing import Any

import pytest

import flumina as fl
from flumina import apps
from flumina.model.tag_set import UNKEYED, KeySet, TagSet
from flumina.program.base import AnyProgram, define
from flumina.program.definition import Definition
from flumina.state.compare import same
from tests.system.programs import TwoCounters
from tests.wires import (
    Diagram,
    Empty,
    Generator,
    Meaning,
    Parallel,
    Then,
    Update,
    Wire,
    depth,
    has_events,
    interpret,
    with_events_on_both_sides,
)

DIAGRAMS = 120


class Shop(fl.Program):
    """Declared state of every kind: a keyed read, an unkeyed report over all keys, sets and extremes."""

    sale = fl.Tag("v long", key="item string")
    price = fl.Tag("v long", key="item string")
    best = fl.Tag(key="item string")
    report = fl.Tag()
    depends = fl.depends(
        (price, price),
        (price, sale),
        (best, sale),
        (best, best),
        (report, report),
        (report, sale),
        (report, price),
        (report, best),
    )
    output = "what string, n long"
    total = fl.Sum()
    sold = fl.PerKey(fl.Count())
    highest = fl.PerKey(fl.Max())
    prices = fl.PerKey(fl.Replicated("long"))
    seen = fl.Set("long")
    pair = fl.PerKey(fl.Tuple(fl.Sum(), fl.Max()), read_by=[best, report], set_by=[best], added_by=[sale])

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        if event.tag is self.sale:
            emit("price", state.prices[event.item])
            state.total += event.v
            state.sold[event.item] += 1
            state.highest[event.item] = fl.greatest(state.highest[event.item], event.v)
            state.seen.add(event.v)
            total, most = state.pair[event.item]
            state.pair[event.item] = (total + event.v, fl.greatest(most, event.v))
        elif event.tag is self.price:
            state.prices[event.item] = event.v
        elif event.tag is self.best:
            emit("highest", state.highest[event.item])
            emit("sum", state.pair[event.item][0])
            state.highest[event.item] = None
            state.pair[event.item] = (0, None)
        else:
            emit("total", state.total)
            for item, count in sorted(state.sold.items()):
                emit(item, count)
            for item, (total, _) in sorted(state.pair.items()):
                emit(item, total)
            emit("seen", len(state.seen))
            state.total = 0
            state.sold.clear()
            state.seen.clear()


class PerPage(fl.KeyedProgram):
    """A keyed program with a map inside, and unkeyed tags that see and change all keys."""

    view = fl.Tag("v long", key="page string")
    best = fl.Tag(key="page string")
    clear = fl.Tag()
    depends = fl.depends((best, best), (best, view), (clear, clear), (clear, view), (clear, best))
    output = "page string, n long"
    users = fl.PerKey(fl.Count())

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        if event.tag is self.view:
            state.users[event.v] += 1
        else:
            for user, count in sorted(state.users.items()):
                emit(event.page, user * 1000 + count)
            state.users.clear()

    def update_all(self, states: Any, event: fl.Event, emit: fl.Emit) -> None:
        emit(None, len(states))
        for page, state in sorted(states.items()):
            emit(page, len(state.users))
            state.users.clear()


class Duplicating(apps.ValueBarrierByHand):
    """Its fork gives the sum to both sides."""

    def fork(self, state: int, left: fl.TagSet, right: fl.TagSet) -> tuple[int, int]:
        return state, state


class Losing(apps.PageViewsByHand):
    """Its fork drops pages that neither side has."""

    def fork(self, state: dict[str, str], left: fl.TagSet, right: fl.TagSet) -> tuple[dict[str, str], dict[str, str]]:
        halves = [
            {p: i for p, i in state.items() if s.has(self.view, p) or s.has(self.change, p)} for s in (left, right)
        ]
        return halves[0], halves[1]


class LeftOnly(apps.KeyCounterByHand):
    """Its join forgets the right half."""

    def join(self, left: dict[int, int], right: dict[int, int]) -> dict[int, int]:
        return left


class Unreset(apps.ValueBarrierByHand):
    """Barriers that do not depend on each other, and do not reset."""

    depends = fl.depends((apps.ValueBarrierByHand.barrier, apps.ValueBarrierByHand.value))

    def update(self, state: int, event: fl.Event, emit: fl.Emit) -> int:
        if event.tag is self.value:
            return state + int(event.v)
        emit(state)
        return state


NUMBERED = {name for name in apps.__all__ if name.startswith(("KeyCounter", "SmartHome"))}
SIZES = {"SmartHome": 40, "SmartHomeByHand": 40}
"""Events of a diagram, where 14 are too few to be interesting."""

PROGRAMS: dict[str, tuple[AnyProgram, tuple[Any, ...]]] = {
    **{name: (getattr(apps, name), (1, 2, 3, 4, 5) if name in NUMBERED else ("a", "b", "c")) for name in apps.__all__},
    "TwoCounters": (TwoCounters, ()),
    "Shop": (Shop, ("a", "b", "c")),
    "PerPage": (PerPage, ("a", "b", "c")),
    "not lawful: duplicating": (Duplicating, ()),
    "not lawful: losing": (Losing, ("a", "b")),
    "not lawful: left only": (LeftOnly, (1, 2)),
    "not lawful: no reset": (Unreset, ()),
}
lawful = pytest.mark.parametrize("name", [name for name in PROGRAMS if not name.startswith("not lawful")])


@cache
def made(name: str) -> tuple[Definition, list[Diagram]]:
    """The program of this name, and its diagrams."""
    program, keys = PROGRAMS[name]
    definition = define(program)
    size = SIZES.get(name, 14)
    return definition, [Generator(definition, keys, random.Random(seed)).diagram(size) for seed in range(DIAGRAMS)]


def run(definition: Definition, diagram: Diagram) -> Meaning:
    return interpret(diagram, Wire(definition, definition.initial, definition.everything, definition.init()))


def specified(definition: Definition, inputs: tuple[fl.Event, ...]) -> fl.SpecResult:
    """The oracle on the same events in the same order: the position is the timestamp."""
    streams = []
    for tag in definition.tags.values():
        names = [field.name for field in tag.schema]
        data = [{"ts": t, **{n: e[n] for n in names}} for t, e in enumerate(inputs) if e.tag is tag]
        streams.append(fl.Stream(tag.name, tag, data))
    return fl.spec(definition, streams)


def compare(definition: Definition, diagram: Diagram) -> None:
    meaning = run(definition, diagram)
    result = specified(definition, meaning.inputs)
    position = {event.seq: t for t, event in enumerate(meaning.inputs)}
    found = Counter(repr((row.output, row.values, position[row.event.seq])) for row in meaning.outputs)
    wanted = Counter(repr((row.output, row.values, row.event.ts)) for row in result.rows)
    assert found - wanted == Counter(), "the diagram gives out what the sequential program does not"
    assert wanted - found == Counter(), "the sequential program gives out what the diagram does not"
    assert same(meaning.state, result.state)
    assert result.events == len(meaning.inputs)


@lawful
def test_diagrams_agree_with_the_sequential_program(name: str) -> None:
    definition, diagrams = made(name)
    for diagram in diagrams:
        compare(definition, diagram)


@lawful
def test_diagrams_are_not_trivial(name: str) -> None:
    definition, diagrams = made(name)
    forks = [list(with_events_on_both_sides(diagram)) for diagram in diagrams]
    nested = [any(any(with_events_on_both_sides(side)) for f in fs for side in (f.left, f.right)) for fs in forks]
    assert sum(map(bool, forks)) > 0.6 * len(diagrams)
    assert sum(nested) > 0.2 * len(diagrams)
    assert max(map(depth, diagrams)) == 3
    pairs = [(fork.left_predicate, fork.right_predicate) for fs in forks for fork in fs]
    keys = {tag.name: None if tag.key is None else PROGRAMS[name][1][0] for tag in definition.tags.values()}
    both = any(not definition.depends(tag, key, tag, key) for tag, key in keys.items())  # such events go to either side
    assert both == any(not (left & right).is_empty() for left, right in pairs)
    keyed = any(tag.key is not None for tag in definition.tags.values())
    assert keyed == any(not keys.is_finite for left, right in pairs for _, keys in (*left, *right))
    meanings = [run(definition, diagram) for diagram in diagrams]
    assert {event.tag.name for meaning in meanings for event in meaning.inputs} == set(definition.tags)
    assert sum(bool(meaning.outputs) for meaning in meanings) > 0.8 * len(diagrams)


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name.startswith("not lawful")])
def test_programs_that_break_a_law_are_told_apart(name: str) -> None:
    definition, diagrams = made(name)

    def disagrees(diagram: Diagram) -> bool:
        try:
            compare(definition, diagram)
        except AssertionError:
            return True
        return False

    assert sum(map(disagrees, diagrams)) > 5


class TestSideConditions:
    definition = define(apps.KeyCounterByHand)
    inc, read = apps.KeyCounterByHand.inc, apps.KeyCounterByHand.read

    def parallel(self, left: TagSet, right: TagSet, one: Diagram, two: Diagram) -> Parallel:
        fork = self.definition.forks[0]
        return Parallel(fork, self.definition.join_of(fork), left, right, one, two, 0)

    def incs(self, *keys: int) -> TagSet:
        return TagSet({"inc": KeySet.of(*keys)})

    def test_figure_2(self) -> None:
        """r(1), a fork of a fork with three i(1) in parallel, r(1)."""
        one, one_read = Update(self.inc.event(k=1)), Update(self.read.event(k=1))
        inner = self.parallel(self.incs(1), self.incs(1), Empty(), one)
        outer = self.parallel(self.incs(1), self.incs(1), one, Then(one, inner))
        meaning = run(self.definition, Then(one_read, Then(outer, one_read)))
        assert [row.values for row in meaning.outputs] == [(1, 0), (1, 3)]
        assert [event.tag.name for event in meaning.inputs] == ["read", "inc", "inc", "inc", "read"]

    @pytest.mark.parametrize(
        ("left", "right", "says"),
        [
            (TagSet({"inc": KeySet.of(1)}), TagSet({"read": KeySet.of(1)}), "indep"),
            (TagSet({"read": KeySet.everything()}), TagSet({"read": KeySet.of(5)}), "indep"),
        ],
    )
    def test_dependent_predicates(self, left: TagSet, right: TagSet, says: str) -> None:
        with pytest.raises(AssertionError, match=says):
            run(self.definition, self.parallel(left, right, Empty(), Empty()))

    def test_an_event_outside_its_wire(self) -> None:
        diagram = self.parallel(self.incs(1), self.incs(2), Update(self.inc.event(k=2)), Empty())
        with pytest.raises(AssertionError, match="e satisfies pred"):
            run(self.definition, diagram)

    def test_a_predicate_wider_than_its_wire(self) -> None:
        inner = self.parallel(self.incs(1), self.incs(2), Empty(), Empty())
        with pytest.raises(AssertionError, match="pred2 implies pred"):
            run(self.definition, self.parallel(self.incs(1), self.incs(3), inner, Empty()))

    def test_a_predicate_wider_than_its_state_type(self) -> None:
        definition = define(TwoCounters)
        with pytest.raises(AssertionError, match="pred implies pred_i"):
            Wire(definition, "First", TagSet({"b": UNKEYED}), 0)

    def test_shapes(self) -> None:
        update = Update(self.inc.event(k=1))
        diagram = self.parallel(self.incs(1), self.incs(2), Then(Empty(), update), Empty())
        assert has_events(diagram)
        assert not has_events(Then(Empty(), Empty()))
        assert list(with_events_on_both_sides(diagram)) == []
        assert depth(Then(diagram, Empty())) == 1
