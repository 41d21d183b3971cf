"""The forest of a plan: how a state is divided among trees, and how other trees go on with it."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

import flumina as fl
from flumina.apps import KeyCounter, PageViews
from flumina.model.tag_set import UNKEYED, KeySet, TagSet
from flumina.plan.forest import Forest
from flumina.plan.tree import Itag, PlanWorker, union
from flumina.program.base import AnyProgram, define
from flumina.program.definition import Definition
from flumina.sim.case import Case
from flumina.sim.plans import random_case, random_plan
from flumina.sim.programs import random_keyed_program, random_program
from flumina.state.compare import copied, same
from flumina.state.keyed_map import KeyedMap
from flumina.state.record import Record
from tests.plan.support import Typed

PAGES = define(PageViews)


def views(*keys: str) -> tuple[Itag, ...]:
    return (Itag("view", frozenset({0}), TagSet({"view": KeySet.of(*keys)})),)


def leaf(name: str, *keys: str) -> PlanWorker:
    return PlanWorker(name, "States", views(*keys))


def pages(*keys: str) -> KeyedMap:
    made = PAGES.init()
    for key in keys:
        made[key].info = f"info of {key}"
    assert isinstance(made, KeyedMap)
    return made


def shared_out(definition: Definition, states: dict[str, Any], before: Forest, forest: Forest) -> dict[str, Any]:
    """Each tree by itself, as in tasks of their own."""
    found: dict[str, Any] = {}
    for tree in forest.trees:
        found |= forest.distribute(definition, before, copied(states).items(), [tree.id])
    return found


def test_a_worker_with_tags_is_a_tree_with_all_below_it() -> None:
    below = PlanWorker("b", "States", (), (leaf("c", "x"), leaf("d", "y")))
    root = PlanWorker("a", "States", views("z"), (leaf("e", "w"), below))
    assert Forest.of(root).trees == (Forest("a", "States", TagSet({"view": KeySet.of("w", "x", "y", "z")})),)


def test_below_workers_without_tags_are_trees() -> None:
    hot = PlanWorker("hot", "States", views("h"), (leaf("one", "i"), leaf("other", "j")))
    root = PlanWorker("a", "States", (), (hot, PlanWorker("b", "States", (), (leaf("c", "x"), leaf("d", "y")))))
    forest = Forest.of(root)
    assert [tree.id for tree in forest.trees] == ["hot", "c", "d"]
    states = forest.divide(PAGES, pages("h", "i", "y", "nobody's"))
    assert {name: set(state) for name, state in states.items()} == {
        "hot": {"h", "i", "nobody's"},
        "c": set(),
        "d": {"y"},
    }
    assert forest.unite(PAGES, states) == pages("h", "i", "y", "nobody's")


def test_crowns_are_equal_if_they_divide_a_state_alike() -> None:
    one = PlanWorker("a", "States", (), (leaf("b", "x"), leaf("c", "y")))
    renamed = replace(one, id="q", children=(leaf("r", "x"), leaf("s", "y")))
    turned = replace(one, children=(leaf("b", "y"), leaf("c", "x")))
    more = replace(one, children=(leaf("b", "x", "z"), leaf("c", "y")))
    assert Forest.of(one) == Forest.of(renamed)
    assert Forest.of(one) != Forest.of(turned)
    assert Forest.of(one) != Forest.of(more)


class Own(fl.Program):
    """State of its own, whose fork may go by the order of a set."""

    put = fl.Tag("v string", key="k string")
    depends = fl.depends((put, put))
    output = "n long"

    def init(self) -> set[str]:
        return set()

    def update(self, state: set[str], event: fl.Event, emit: fl.Emit) -> None:
        state.add(event.v)

    def fork(self, state: set[str], left: fl.TagSet, right: fl.TagSet) -> tuple[set[str], set[str]]:
        items = list(state)
        return set(items[: len(items) // 2]), set(items[len(items) // 2 :])

    def join(self, left: set[str], right: set[str]) -> set[str]:
        return left | right


class OwnOfKey(fl.KeyedProgram):
    """The same for each key, with a tag that sees all of them."""

    put = fl.Tag("v string", key="k string")
    get = fl.Tag("v string", key="k string")
    look = fl.Tag()
    depends = fl.depends((put, put), (get, get))
    output = "n long"

    init, update, fork, join = Own.init, Own.update, Own.fork, Own.join

    def update_all(self, states: Any, event: fl.Event, emit: fl.Emit) -> None:
        pass


def test_only_derived_forks_divide_a_state_alike_in_every_process() -> None:
    def tree(name: str, **keys: KeySet) -> PlanWorker:
        return PlanWorker(name, "any", (Itag("s", frozenset({0}), TagSet(keys)),))

    def forest(*trees: PlanWorker) -> Forest:
        return Forest.of(trees[0] if len(trees) == 1 else PlanWorker("top", "any", (), trees))

    x, y = KeySet.of("x"), KeySet.of("y")
    apart = forest(tree("a", put=x), tree("b", put=y))
    shared = forest(tree("a", put=x), tree("b", get=x))
    looks = forest(tree("a", put=x), tree("b", look=UNKEYED))
    for program, certain in ((PageViews, {0, 1, 2, 3}), (Own, {0}), (OwnOfKey, {0, 1})):
        definition = define(program)
        forests = [forest(tree("a", put=x)), apart, shared, looks]
        assert {n for n, one in enumerate(forests) if one.is_certain(definition)} == certain, program


def test_other_trees_never_have_the_whole() -> None:
    """What a tree does not need is dropped as soon as it was read."""
    before = Forest.of(PlanWorker("a", "States", (), (leaf("b", "x", "z"), leaf("c", "y", "w"))))
    after = Forest.of(PlanWorker("q", "States", (), (leaf("r", "x", "y"), leaf("s", "z", "w"))))
    joined: list[set[Any]] = []

    def watched(left: KeyedMap, right: KeyedMap) -> Any:
        joined.append({*left, *right})
        return plain.function(left, right)

    (plain,) = PAGES.joins
    definition = replace(PAGES, joins=(replace(plain, function=watched),))
    states = {"b": pages("x", "z", "nobody's"), "c": pages("y", "w")}
    found = shared_out(definition, states, before, after)
    assert {name: set(state) for name, state in found.items()} == {"r": {"x", "y", "nobody's"}, "s": {"z", "w"}}
    assert joined == [{"x", "y", "nobody's"}, {"z", "w"}]


@pytest.mark.parametrize("program", [KeyCounter, PageViews, None, "keyed"])
def test_a_state_is_shared_out_as_if_it_had_been_one(program: AnyProgram | str | None) -> None:
    """Under any two plans: what each tree is given is what forks of the whole would give it, and makes up the whole."""
    otherwise = narrowed = 0
    for seed in range(40):
        random = Random(seed)
        if program is None or isinstance(program, str):
            made: AnyProgram = random_program(random) if program is None else random_keyed_program(random)
        else:
            made = program
        case = random_case(random, define(made), 40)
        other = case.under(random_plan(random, case.definition, case.plan.streams))
        state = case.state()
        states = case.forest.divide(case.definition, copied(state))
        found = shared_out(case.definition, states, case.forest, other.forest)
        assert same(other.forest.unite(case.definition, copied(found)), state, case.definition.tolerance)
        if case.forest != other.forest:
            otherwise += 1
            wanted = other.forest.divide(case.definition, case.forest.unite(case.definition, copied(states)))
            for tree, mine in found.items():
                assert same(mine, wanted[tree], case.definition.tolerance), (seed, tree)
            narrowed += isinstance(state, KeyedMap) and any(
                _narrowed(other, tree, state) for tree in other.forest.trees
            )
    assert otherwise > 5
    if program in (KeyCounter, PageViews, "keyed"):
        assert narrowed > 3


def _narrowed(case: Case, tree: Forest, state: KeyedMap) -> bool:
    """Whether a tree needs less than the whole."""
    return case.definition.narrow is not None and len(case.definition.narrow(copied(state), tree.tags, None)) < len(
        state
    )


def test_several_state_types_are_joined_and_forked_each_by_its_own() -> None:
    definition = define(Typed)

    def counting(name: str, kind: str, *keys: int, reads: bool = False) -> PlanWorker:
        tags = {"inc": KeySet.of(*keys)} | ({"read": KeySet.of(*keys)} if reads else {})
        return PlanWorker(name, kind, (Itag("s", frozenset({0}), TagSet(tags)),))

    reader, counters = (
        counting("b", "Reader", 1, reads=True),
        (counting("c", "Counter", 2), counting("d", "Counter", 3)),
    )
    before = Forest.of(PlanWorker("a", "Whole", (), (reader, PlanWorker("e", "Counter", (), counters))))
    assert [tree.id for tree in before.trees] == ["b", "c", "d"]
    after = Forest.of(
        PlanWorker("q", "Whole", (), (counting("r", "Reader", 1, 2, reads=True), counting("s", "Counter", 3)))
    )
    assert shared_out(definition, {"b": 3, "c": 4, "d": 5}, before, after) == {"r": 12, "s": 0}
    alone = Forest.of(counting("alone", "Whole", 1, 2, 3, reads=True))
    assert shared_out(definition, {"b": 3, "c": 4, "d": 5}, before, alone) == {"alone": 12}
    assert shared_out(definition, {"alone": 12}, alone, before) == {"b": 12, "c": 0, "d": 0}


def test_declared_maps_are_narrowed_to_the_keys_that_are_observed() -> None:
    """In a program for all keys at once, whose fields are divided by who observes them."""
    counted = 0
    for seed in range(200):
        random = Random(seed)
        case = random_case(random, define(random_program(random)), 40)
        narrow = case.definition.narrow
        assert narrow is not None
        whole, everything = case.state(), union(tree.tags for tree in case.forest.trees)
        for tree in case.forest.trees[1:]:
            mine = narrow(copied(whole), tree.tags, None)
            again = narrow(copied(whole), tree.tags, everything)
            assert isinstance(mine, Record)
            for name, value in mine.__dict__.items():
                if isinstance(value, KeyedMap):
                    assert set(value) <= set(again.__dict__[name]) <= set(whole.__dict__[name])
                    counted += len(value) < len(whole.__dict__[name])
    assert counted > 5
