import math
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

import flumina as fl
from flumina.apps import Fraud, KeyCounter, PageViews, ValueBarrier
from flumina.model.depends import Rule, RuleDependence
from flumina.model.tag_set import KeySet
from flumina.plan import CostModel, Inputs, StreamRates, bind, evaluate, make_plan, with_model
from flumina.plan.atoms import Graph, atoms
from flumina.plan.optimize.least_cost import cost, judge_for
from flumina.plan.optimize.local_search import Tree, is_valid, neighbors, ones, reach
from flumina.plan.optimize.packing import Node
from flumina.program.base import define
from flumina.program.definition import Definition


class Five(fl.Program):
    a = fl.Tag()
    b = fl.Tag()
    c = fl.Tag()
    d = fl.Tag()
    e = fl.Tag()
    depends = fl.depends()

    def init(self) -> int:
        return 0

    def update(self, state: int, event: fl.Event, emit: fl.Emit) -> int:
        return state

    def fork(self, state: int, left: fl.TagSet, right: fl.TagSet) -> tuple[int, int]:
        return state, state

    def join(self, left: int, right: int) -> int:
        return left


def all_trees(mask: int, links: list[int]) -> Iterator[Tree]:
    """Every valid tree over these atoms, up to the order of sides."""
    yield Tree(mask)
    for own in subsets(mask):
        rest = mask & ~own
        lowest = rest & -rest
        for others in subsets(rest & ~lowest):
            left = lowest | others
            right = rest & ~left
            if right and not reach(left, links) & right:
                for one in all_trees(left, links):
                    yield from (Tree(own, (one, other)) for other in all_trees(right, links))


def subsets(mask: int) -> Iterator[int]:
    subset = mask
    while True:
        yield subset
        if not subset:
            return
        subset = (subset - 1) & mask


def node(tree: Tree) -> Node:
    return Node(list(ones(tree.own)), None if tree.sides is None else (node(tree.sides[0]), node(tree.sides[1])))


def optimum(inputs: Inputs, slots: int, model: CostModel) -> float:
    pieces = atoms(inputs)
    links = neighbors(Graph(pieces, inputs.definition.depends))
    judge = judge_for(inputs, pieces, model)
    trees = [tree for tree in all_trees((1 << len(pieces)) - 1, links) if tree.leaves() <= slots]
    assert all(is_valid(tree, links) for tree in trees[:: max(1, len(trees) // 20)])
    return min(judge(node(tree)).load for tree in trees)


def random_dependence(rng: random.Random, tags: str) -> Definition:
    share = rng.choice([0.2, 0.4, 0.7])
    pairs = [(x, y) for x in tags for y in tags if x <= y and rng.random() < share]
    rules = {pair: Rule.ALWAYS for x, y in pairs for pair in ((x, y), (y, x))}
    return replace(fl.define(Five), depends=RuleDependence(rules))


def random_model(rng: random.Random) -> CostModel:
    return CostModel(
        event=10 ** rng.uniform(-8, -5),
        join=10 ** rng.uniform(-7, -4),
        fork=10 ** rng.uniform(-7, -4),
        message=10 ** rng.uniform(-6, -4),
        hop=10 ** rng.uniform(-6, -3),
        send=10 ** rng.uniform(-9, -7),
        receive=10 ** rng.uniform(-9, -7),
    )


def test_never_ten_per_cent_worse_than_the_best_of_all_valid_plans() -> None:
    rng = random.Random(7)
    sizes = set()
    for trial in range(600):
        count = rng.randint(2, 5)
        tags = "abcde"[: rng.randint(1, count)]
        low, high = rng.choice([(-1, 6), (4, 5)])
        inputs = bind(
            random_dependence(rng, tags),
            [
                StreamRates(
                    f"s{number}",
                    {tags[number] if number < len(tags) else rng.choice(tags): 10 ** rng.uniform(low, high)},
                    hosts=rng.choice([None, "A", "B", "C"]) if trial % 3 == 0 else None,
                )
                for number in range(count)
            ],
        )
        model, slots = random_model(rng), rng.randint(1, 5)
        plan = cost(inputs, slots, model)
        sizes.add(len(plan))
        assert evaluate(plan, inputs, model).load <= 1.1 * optimum(inputs, slots, model)
    assert sizes >= {1, 3, 5, 7}


def test_the_same_for_keys_and_parts() -> None:
    rng = random.Random(9)
    for _ in range(150):
        parts = rng.choice([1, 2])
        sources = [
            StreamRates("r", {"read": 10 ** rng.uniform(-1, 5)}, keys=[rng.choice([[1], [1, 2]])]),
            StreamRates("i", {"inc": [10 ** rng.uniform(-1, 6) for _ in range(parts)]}, parts, keys=[[1]] * parts),
        ]
        inputs = bind(KeyCounter, sources)
        model, slots = random_model(rng), rng.randint(1, 4)
        assert len(atoms(inputs)) <= 5
        plan = cost(inputs, slots, model)
        assert evaluate(plan, inputs, model).load <= 1.1 * optimum(inputs, slots, model)


def values(barriers: float) -> list[StreamRates]:
    return [StreamRates("v", {"value": 1e6}, parts=4), StreamRates("b", {"barrier": barriers})]


def test_fewer_workers_than_offered_where_synchronizing_costs_more_than_it_gains() -> None:
    leaves = [len(make_plan(ValueBarrier, values(rate), workers=4).leaves) for rate in (1, 100, 300_000)]
    assert leaves == sorted(leaves, reverse=True)
    assert (leaves[0], leaves[-1]) == (4, 1)


def test_waiting_counts_where_leaves_read_the_state() -> None:
    """A barrier costs value-barrier less than a rule costs fraud detection, because only the latter has to wait."""
    rules = [StreamRates("t", {"transaction": 1e6}, parts=4), StreamRates("r", {"rule": 100})]
    assert len(make_plan(Fraud, rules, workers=4).leaves) < len(make_plan(ValueBarrier, values(100), workers=4).leaves)


def test_cuts_by_part_where_moving_events_is_dear_and_by_key_where_changes_are_many() -> None:
    def sources(changes: float) -> list[StreamRates]:
        return [StreamRates("v", {"view": 1e6}, parts=4), StreamRates("c", {"change": changes})]

    by_part = make_plan(PageViews, sources(0.1), workers=4, optimizer=with_model(CostModel(send=1e-7, receive=1e-7)))
    assert all(leaf.tags == fl.TagSet({"view": KeySet.everything()}) for leaf in by_part.leaves)
    by_key = make_plan(PageViews, sources(1e5), workers=4, optimizer=with_model(CostModel(event=1e-6)))
    assert len(by_key.leaves) == 4
    assert all(worker.is_leaf or not worker.itags for worker in by_key.workers)
    assert all(set(leaf.tags.tags) == {"view", "change"} for leaf in by_key.leaves)


def test_a_hot_key_is_isolated_and_a_very_hot_one_is_divided() -> None:
    def sources(share: float) -> list[StreamRates]:
        hot = {"view": {"home": 1e6 * share}}
        return [
            StreamRates("v", {"view": 1e6}, 4, hot),
            StreamRates("c", {"change": 1000}, hot={"change": {"home": 0.01}}),
        ]

    model = CostModel(event=1e-6, send=1e-7, receive=1e-7)
    warm = make_plan(PageViews, sources(0.25), workers=4, optimizer=with_model(model))
    holders = [leaf for leaf in warm.leaves if leaf.tags.has("view", "home")]
    assert len(holders) == 1
    assert holders[0].tags["view"].is_finite or holders[0].tags["view"].buckets.bit_count() < 1024
    very = make_plan(PageViews, sources(0.9), workers=4, optimizer=with_model(model))
    assert len([leaf for leaf in very.leaves if leaf.tags.has("view", "home")]) >= 3
    above = next(worker for worker in very.workers if worker.tags.has("change", "home"))
    assert not above.is_leaf


@pytest.mark.parametrize("workers", [1, 2, 16, 64])
def test_never_worse_than_greedy_or_sequential_by_its_own_model(workers: int) -> None:
    hot = {key: 3e5 / (key + 1) for key in range(20)}
    sources = [StreamRates("s", {"inc": 2e6, "read": 100}, 4, {"inc": hot})]
    inputs = bind(KeyCounter, sources)
    costs = {
        name: evaluate(make_plan(KeyCounter, sources, workers=workers, optimizer=name), inputs)
        for name in ("cost", "greedy", "sequential")
    }
    assert costs["cost"].load <= 1.01 * min(costs["greedy"].load, costs["sequential"].load)


@pytest.mark.parametrize("leaves", [2, 4, 8, 16, 64])
@pytest.mark.parametrize("program", [ValueBarrier, Fraud], ids=lambda p: p.__name__)
def test_trees_are_balanced(program: type[fl.Program], leaves: int) -> None:
    """The original builds chains of depth n - 1; ours are about as deep as the logarithm.

    One level more where that pays: workers at one place talk for nothing, so the root's place may hold several levels.
    """
    many, rare = (name for name in define(program).tags)
    streams = [StreamRates("many", {many: 1e6 * leaves}, parts=leaves), StreamRates("rare", {rare: 1.0})]
    plan = make_plan(program, streams, workers=leaves)
    assert len(plan.leaves) == leaves
    assert plan.depth <= math.log2(leaves) + 1
    assert make_plan(program, streams, workers=leaves, optimizer="greedy").depth == math.log2(leaves)


class Hits(fl.KeyedProgram):
    """Written as most are: one event at a time."""

    hit = fl.Tag(key="user long")
    depends = fl.depends((hit, hit))
    output = "user long, n long"
    n = fl.Replicated("long", 0)

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        state.n += 1
        emit(event.user, state.n)


class HitsInBatches(Hits):
    def update_batch(self, state: fl.State, batch: fl.Batch, emit: fl.Emit) -> None:
        """Never called here."""


@pytest.mark.parametrize("workers", [2, 8])
def test_a_call_of_update_costs_more_than_moving_an_event(workers: int) -> None:
    """So the keys of a program without update_batch are worth dividing, though events have to be moved for it."""
    sources = [StreamRates("hits", {"hit": 1e5}, 2)]
    assert len(make_plan(Hits, sources, workers=workers).leaves) == workers
    assert len(make_plan(HitsInBatches, sources, workers=workers).leaves) < workers
