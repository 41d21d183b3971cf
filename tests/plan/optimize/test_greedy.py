import math
import os
import random
import subprocess
import sys
from itertools import product

import pytest

import flumina as fl
from flumina.apps import Fraud, KeyCounter, ValueBarrier
from flumina.errors import UsageError
from flumina.model.tag_set import KeySet, TagSet
from flumina.plan import StreamRates, bind, make_plan, validate
from flumina.plan.optimize import OptimizerName
from flumina.plan.optimize.greedy import greedy
from tests.plan.support import Finite, Global, Keyed, Typed

PAPER = [
    StreamRates("r1", {"read": 15}, keys=[[1]], hosts="E1"),
    StreamRates("i1", {"inc": 100}, keys=[[1]], hosts="E1"),
    StreamRates("r2", {"read": 10}, keys=[[2]], hosts="E0"),
    StreamRates("i2a", {"inc": 200}, keys=[[2]], hosts="E2"),
    StreamRates("i2b", {"inc": 300}, keys=[[2]], hosts="E3"),
]


def test_the_papers_example_gives_its_tree_and_its_placement() -> None:
    plan = make_plan(KeyCounter, PAPER, optimizer="greedy")
    found = [(w.id, [str(i) for i in w.itags], [c.id for c in w.children], w.place) for w in plan.workers]
    assert found == [
        ("w1", [], ["w2", "w3"], "E0"),
        ("w2", ["inc(1) on i1[0]", "read(1) on r1[0]"], [], "E1"),
        ("w3", ["read(2) on r2[0]"], ["w4", "w5"], "E0"),
        ("w4", ["inc(2) on i2a[0]"], [], "E2"),
        ("w5", ["inc(2) on i2b[0]"], [], "E3"),
    ]


def test_removal_goes_by_rate_not_by_name() -> None:
    """With more reads than increments, increments are what has to wait."""
    sources = [StreamRates("r", {"read": 100}), StreamRates("i", {"inc": 1}, parts=2)]
    plan = make_plan(KeyCounter, sources, optimizer="greedy")
    assert [str(i) for i in plan.root.itags] == ["inc(*) on i[0-1]", "read(*) on r[0]"]
    assert len(plan) == 1


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 33, 100])
def test_trees_are_balanced(count: int) -> None:
    rates = [random.Random(count).expovariate(1) ** 4 for _ in range(count)]
    sources = [StreamRates("v", {"value": rates}, parts=count), StreamRates("b", {"barrier": 0})]
    plan = make_plan(ValueBarrier, sources, optimizer="greedy")
    assert len(plan.leaves) == count
    assert plan.depth == math.ceil(math.log2(count))
    if count > 1:
        assert plan.root.tags == TagSet({"barrier": KeySet.of(None)})


def test_hot_keys_get_subtrees_and_other_keys_are_divided_by_buckets() -> None:
    sources = [StreamRates("s", {"inc": 1000, "read": 10}, parts=2, hot={"inc": {7: 500}})]
    plan = make_plan(KeyCounter, sources, workers=8, optimizer="greedy")
    assert len(plan.leaves) == 8
    hot = next(w for w in plan.workers if w.tags == TagSet({"read": KeySet.of(7)}))
    assert [str(child.itags[0]) for child in hot.children] == ["inc(7) on s[0]", "inc(7) on s[1]"]
    cold = [w for w in plan.leaves if w.tags["inc"] != KeySet.of(7)]
    assert len(cold) == 6
    sizes = [w.tags["inc"].buckets.bit_count() for w in cold]
    assert max(sizes) <= 1.4 * min(sizes)
    assert all(w.tags["inc"] == w.tags["read"] for w in cold)


def test_at_most_as_many_leaves_as_asked_for_and_evenly_loaded() -> None:
    hot = {key: 1000.0 / (key + 1) for key in range(300)}
    sources = [StreamRates("s", {"inc": 20_000, "read": 1}, hot={"inc": hot})]
    inputs = bind(KeyCounter, sources)
    for workers in (1, 2, 3, 7, 16):
        plan = make_plan(KeyCounter, sources, workers=workers, optimizer="greedy")
        assert len(plan.leaves) == workers
        loads = [sum(r for i in w.itags for p in i.parts for _, r in inputs.rates_of(i, p)) for w in plan.leaves]
        assert max(loads) <= 1.25 * sum(loads) / len(loads)


def random_sources(rng: random.Random, program: type[fl.Program]) -> list[StreamRates]:
    tags = list(program._tags)
    rng.shuffle(tags)
    sources: list[StreamRates] = []
    for number, tag in enumerate(tags):
        parts = rng.randint(1, 3)
        rate = rng.choice([0.0, 1.0, 10 ** rng.uniform(-1, 6)])
        keyed = program._tags[tag].key is not None
        hot = {tag: {rng.randint(1, 2): rate / 4, 50: rate / 8}} if keyed and program is not Finite else {}
        keys = [[1, 2, 50], *([None] * (parts - 1))] if keyed and rng.random() < 0.3 else None
        hosts = [rng.choice("ABC") for _ in range(parts)] if rng.random() < 0.3 else None
        sources.append(StreamRates(f"s{number}", {tag: rate}, parts, hot, keys, hosts))
    return sources


@pytest.mark.parametrize("optimizer", ["greedy", "cost", "sequential"])
def test_every_plan_is_valid_and_has_places(optimizer: OptimizerName) -> None:
    rng = random.Random(11)
    sizes = set()
    for _ in range(60):
        program: type[fl.Program] = rng.choice([KeyCounter, Global, Finite, Typed, Fraud, ValueBarrier])
        sources = random_sources(rng, program)
        slots = rng.choice([None, 1, 2, 3, 4, 9])
        plan = make_plan(program, sources, slots=slots, optimizer=optimizer)
        assert validate(plan, program) == []
        assert all(worker.place is not None for worker in plan.workers)
        assert slots is None or len(plan.leaves) <= slots
        sizes.add(len(plan))
    assert optimizer == "sequential" or max(sizes) > 5


def plans_with_ties() -> str:
    """Plans of streams for which many plans are as good as the best."""
    plans = []
    for program, parts in product((Keyed, Typed), (2, 3)):
        first, *others = program._tags
        for hot in ({}, {first: {7: 9e5}}):
            sources = [StreamRates(first, {first: 1e6}, parts, hot), *(StreamRates(tag, {tag: 1e3}) for tag in others)]
            plans += [make_plan(program, sources, slots=2, optimizer=name) for name in ("greedy", "cost")]
    return "\n".join(plan.explain() for plan in plans)


def test_plans_are_the_same_in_every_process() -> None:
    # hashes of texts differ by the seed, that of None by where Python was loaded
    code = "from tests.plan.optimize.test_greedy import plans_with_ties as go; print(go())"
    printed = {
        subprocess.run(
            [sys.executable, "-c", code],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
            timeout=500,
        ).stdout
        for seed in "123"
    }
    assert len(printed) == 1
    assert printed.pop().count("2 leaves") > 8


def test_bad_requests() -> None:
    sources = [StreamRates("v", {"value": 10}, parts=2), StreamRates("b", {"barrier": 1})]
    for workers in (0, -1, True, 1.5):
        with pytest.raises(UsageError, match="WORKERS"):
            make_plan(ValueBarrier, sources, workers=workers)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"4 workers for 3 itags.*\n.*workers=3"):
        make_plan(ValueBarrier, sources, workers=4)
    assert len(make_plan(ValueBarrier, sources, slots=4, optimizer="greedy").leaves) == 2
    assert len(make_plan(ValueBarrier, sources, workers=3, optimizer="greedy").leaves) == 2
    with pytest.raises(UsageError, match="not both"):
        make_plan(ValueBarrier, sources, workers=1, slots=1)
    with pytest.raises(UsageError, match="'cost' or 'greedy' or 'sequential', or a function, got 'magic'"):
        make_plan(ValueBarrier, sources, optimizer="magic")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="NO_STREAMS"):
        make_plan(ValueBarrier, [])
    unknown = [StreamRates("v", ["value"]), StreamRates("b", {"barrier": 1})]
    for optimizer in ("greedy", "cost"):
        with pytest.raises(UsageError, match=f"MISSING_RATE.*'{optimizer}' needs the rate of 'value'"):
            make_plan(ValueBarrier, unknown, optimizer=optimizer)
    assert len(make_plan(ValueBarrier, unknown, optimizer="sequential")) == 1


def test_an_optimizer_of_ones_own_is_checked() -> None:
    sources = [StreamRates("v", {"value": 10}, parts=2), StreamRates("b", {"barrier": 1})]
    assert make_plan(ValueBarrier, sources, optimizer=greedy) == make_plan(ValueBarrier, sources, optimizer="greedy")
    other = make_plan(KeyCounter, [StreamRates("s", {"inc": 1, "read": 1})], optimizer="sequential")
    with pytest.raises(fl.FluminaError, match="INVALID_PLAN"):
        make_plan(ValueBarrier, sources, optimizer=lambda inputs, slots: other)
