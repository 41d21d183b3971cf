"""The crown of a plan: how a state is divided among trees, and how other trees go on with it."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

import flumina as fl
from flumina.apps import KeyCounter, PageViews
from flumina.definition import Definition
from flumina.keymap import KeyMap
from flumina.plan.crown import Crown
from flumina.plan.tree import Itag, Worker, union
from flumina.program import AnyProgram, define
from flumina.sim.case import Case
from flumina.sim.plans import random_case, random_plan
from flumina.sim.programs import random_keyed_program, random_program
from flumina.state import Record, copied, same
from flumina.tagsets import UNKEYED, KeySet, TagSet
from tests.plan.support import Typed

PAGES = define(PageViews)


def views(*keys: str) -> tuple[Itag, ...]:
    return (Itag("view", frozenset({0}), TagSet({"view": KeySet.of(*keys)})),)


def leaf(name: str, *keys: str) -> Worker:
    return Worker(name, "States", views(*keys))


def pages(*keys: str) -> KeyMap:
    made = PAGES.init()
    for key in keys:
        made[key].info = f"info of {key}"
    assert isinstance(made, KeyMap)
    return made


def shared_out(definition: Definition, states: dict[str, Any], before: Crown, crown: Crown) -> dict[str, Any]:
    """Each tree by itself, as in tasks of their own."""
    found: dict[str, Any] = {}
    for tree in crown.trees:
        found |= crown.share_out(definition, before, copied(states).items(), [tree.id])
    return found


def test_a_worker_with_tags_is_a_tree_with_all_below_it() -> None:
    below = Worker("b", "States", (), (leaf("c", "x"), leaf("d", "y")))
    root = Worker("a", "States", views("z"), (leaf("e", "w"), below))
    assert Crown.of(root).trees == (Crown("a", "States", TagSet({"view": KeySet.of("w", "x", "y", "z")})),)


def test_below_workers_without_tags_are_trees() -> None:
    hot = Worker("hot", "States", views("h"), (leaf("one", "i"), leaf("other", "j")))
    root = Worker("a", "States", (), (hot, Worker("b", "States", (), (leaf("c", "x"), leaf("d", "y")))))
    crown = Crown.of(root)
    assert [tree.id for tree in crown.trees] == ["hot", "c", "d"]
    states = crown.divide(PAGES, pages("h", "i", "y", "nobody's"))
    assert {name: set(state) for name, state in states.items()} == {
        "hot": {"h", "i", "nobody's"},
        "c": set(),
        "d": {"y"},
    }
    assert crown.unite(PAGES, states) == pages("h", "i", "y", "nobody's")


def test_crowns_are_equal_if_they_divide_a_state_alike() -> None:
    one = Worker("a", "States", (), (leaf("b", "x"), leaf("c", "y")))
    renamed = replace(one, id="q", children=(leaf("r", "x"), leaf("s", "y")))
    turned = replace(one, children=(leaf("b", "y"), leaf("c", "x")))
    more = replace(one, children=(leaf("b", "x", "z"), leaf("c", "y")))
    assert Crown.of(one) == Crown.of(renamed)
    assert Crown.of(one) != Crown.of(turned)
    assert Crown.of(one) != Crown.of(more)


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
    def tree(name: str, **keys: KeySet) -> Worker:
        return Worker(name, "any", (Itag("s", frozenset({0}), TagSet(keys)),))

    def crown(*trees: Worker) -> Crown:
        return Crown.of(trees[0] if len(trees) == 1 else Worker("top", "any", (), trees))

    x, y = KeySet.of("x"), KeySet.of("y")
    apart = crown(tree("a", put=x), tree("b", put=y))
    shared = crown(tree("a", put=x), tree("b", get=x))
    looks = crown(tree("a", put=x), tree("b", look=UNKEYED))
    for program, certain in ((PageViews, {0, 1, 2, 3}), (Own, {0}), (OwnOfKey, {0, 1})):
        definition = define(program)
        crowns = [crown(tree("a", put=x)), apart, shared, looks]
        assert {n for n, one in enumerate(crowns) if one.is_certain(definition)} == certain, program


def test_other_trees_never_have_the_whole() -> None:
    """What a tree does not need is dropped as soon as it was read."""
    before = Crown.of(Worker("a", "States", (), (leaf("b", "x", "z"), leaf("c", "y", "w"))))
    after = Crown.of(Worker("q", "States", (), (leaf("r", "x", "y"), leaf("s", "z", "w"))))
    joined: list[set[Any]] = []

    def watched(left: KeyMap, right: KeyMap) -> Any:
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
        states = case.crown.divide(case.definition, copied(state))
        found = shared_out(case.definition, states, case.crown, other.crown)
        assert same(other.crown.unite(case.definition, copied(found)), state, case.definition.tolerance)
        if case.crown != other.crown:
            otherwise += 1
            wanted = other.crown.divide(case.definition, case.crown.unite(case.definition, copied(states)))
            for tree, mine in found.items():
                assert same(mine, wanted[tree], case.definition.tolerance), (seed, tree)
            narrowed += isinstance(state, KeyMap) and any(_narrowed(other, tree, state) for tree in other.crown.trees)
    assert otherwise > 5
    if program in (KeyCounter, PageViews, "keyed"):
        assert narrowed > 3


def _narrowed(case: Case, tree: Crown, state: KeyMap) -> bool:
    """Whether a tree needs less than the whole."""
    return case.definition.narrow is not None and len(case.definition.narrow(copied(state), tree.tags, None)) < len(
        state
    )


def test_several_state_types_are_joined_and_forked_each_by_its_own() -> None:
    definition = define(Typed)

    def counting(name: str, kind: str, *keys: int, reads: bool = False) -> Worker:
        tags = {"inc": KeySet.of(*keys)} | ({"read": KeySet.of(*keys)} if reads else {})
        return Worker(name, kind, (Itag("s", frozenset({0}), TagSet(tags)),))

    reader, counters = (
        counting("b", "Reader", 1, reads=True),
        (counting("c", "Counter", 2), counting("d", "Counter", 3)),
    )
    before = Crown.of(Worker("a", "Whole", (), (reader, Worker("e", "Counter", (), counters))))
    assert [tree.id for tree in before.trees] == ["b", "c", "d"]
    after = Crown.of(Worker("q", "Whole", (), (counting("r", "Reader", 1, 2, reads=True), counting("s", "Counter", 3))))
    assert shared_out(definition, {"b": 3, "c": 4, "d": 5}, before, after) == {"r": 12, "s": 0}
    alone = Crown.of(counting("alone", "Whole", 1, 2, 3, reads=True))
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
        whole, everything = case.state(), union(tree.tags for tree in case.crown.trees)
        for tree in case.crown.trees[1:]:
            mine = narrow(copied(whole), tree.tags, None)
            again = narrow(copied(whole), tree.tags, everything)
            assert isinstance(mine, Record)
            for name, value in mine.__dict__.items():
                if isinstance(value, KeyMap):
                    assert set(value) <= set(again.__dict__[name]) <= set(whole.__dict__[name])
                    counted += len(value) < len(whole.__dict__[name])
    assert counted > 5
