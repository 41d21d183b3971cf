"""What workers know of the plan."""

from __future__ import annotations

from random import Random

import pytest

from flumina.apps import KeyCounter, ValueBarrier
from flumina.apps.fraud import Fraud
from flumina.apps.value_barrier import ValueBarrierByHand
from flumina.model.tag_set import KeySet, TagSet
from flumina.plan.tree import Itag, PlanWorker
from flumina.program.base import define
from flumina.runtime.messages import EVERYTHING
from flumina.runtime.topology import TREE_ROOT, ProtocolOptions, topology
from flumina.sim.case import Case
from flumina.sim.plans import random_case
from flumina.sim.programs import random_program
from flumina.sim.scheduler import Simulation, judge
from tests.runtime.support import Chain, chain_plan, leaf, one_event, plan_of, streams

A, C = ("root", "a"), ("middle", "c")


def test_a_chain() -> None:
    definition = define(Chain)
    shapes = topology(chain_plan(), definition, ProtocolOptions())
    assert list(shapes) == ["root", "middle", "leaf x", "leaf z", "leaf y"]
    assert [shapes[name].parent for name in shapes] == [TREE_ROOT, "root", "middle", "middle", "root"]
    assert shapes["root"].causes == (EVERYTHING,)
    assert set(shapes["leaf x"].causes) == {A, C, EVERYTHING}
    assert shapes["middle"].components == ()
    causes = {name: shapes[name].components[0].causes for name in shapes if name.startswith("leaf")}
    assert causes == {"leaf x": {EVERYTHING}, "leaf y": {A, EVERYTHING}, "leaf z": {C, EVERYTHING}}
    assert [name for name in causes if shapes[name].components[0].free] == ["leaf x"]
    assert [child.id for child in shapes["root"].children] == ["middle", "leaf y"]
    assert all(shapes[name].hands_over for name in causes)
    assert not any(shapes[name].hands_over for name in ("root", "middle"))
    assert [child.hands_over for child in shapes["root"].children] == [False, True]


def test_hand_over_can_be_switched_off() -> None:
    shapes = topology(chain_plan(), define(Chain), ProtocolOptions(hand_over=False))
    assert not any(shape.hands_over or any(c.hands_over for c in shape.children) for shape in shapes.values())


def test_only_leaves_that_only_add_hand_over() -> None:
    found = {}
    for program in (ValueBarrier, ValueBarrierByHand, Fraud):
        definition = define(program)
        handing: set[bool] = set()
        for seed in range(10):
            case = random_case(Random(seed), definition, 0)
            for shape in topology(case.plan, definition, ProtocolOptions()).values():
                adds = case.plan[shape.id].is_leaf and definition.adding.issuperset(case.plan[shape.id].tags.tags)
                assert shape.hands_over == (adds and shape.parent != TREE_ROOT)
                handing.add(shape.hands_over)
        found[program.__name__] = handing
    assert found == {"ValueBarrier": {True, False}, "ValueBarrierByHand": {False}, "Fraud": {False}}


def test_every_part_of_a_leaf_is_in_its_components() -> None:
    for seed in range(20):
        random = Random(seed)
        case = random_case(random, define(random_program(random)), 0)
        for shape in topology(case.plan, case.definition, ProtocolOptions()).values():
            inside = {part for component in shape.components for part, _ in component.parts}
            assert inside == (set() if shape.children else set(shape.parts))
            assert all(component.causes <= set(shape.causes) for component in shape.components)


@pytest.mark.parametrize("by_key", [True, False])
def test_a_leaf_that_names_a_part_twice_with_different_keys_gets_its_events_once(by_key: bool) -> None:  # noqa: FBT001
    """Such a plan is valid; the events of both sets of keys come through one buffer."""
    counter = define(KeyCounter)
    one, others = KeySet.of(1), KeySet.everything() - KeySet.of(1)
    own = [Itag(tag, frozenset({0}), TagSet({tag: keys})) for tag in ("inc", "read") for keys in (one, others)]
    counting = [Itag("inc", frozenset({1}), TagSet({"inc": keys})) for keys in (one, others)]
    alone = PlanWorker("root", counter.initial, (*own, *counting))
    below = PlanWorker(
        "root", counter.initial, tuple(own[2:]), (leaf("a", counter, *own[:2]), leaf("b", counter, *counting))
    )
    for root in (alone, below):
        plan = plan_of(KeyCounter, streams(KeyCounter, inc=2, read=1), root)
        counts = {("inc", n): [one_event(counter, plan, "inc", t, k=t % 3) for t in range(n, 20, 2)] for n in (0, 1)}
        reads = [one_event(counter, plan, "read", 5 * n, n, k=n % 3) for n in range(6)]
        case = Case(counter, plan, {**counts, ("read", 0): reads})
        for seed in range(20):
            judge(case, Simulation(case, Random(seed), options=ProtocolOptions(by_key=by_key)).run())
