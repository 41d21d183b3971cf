"""What workers know of the plan."""

from __future__ import annotations

from random import Random

from flumina.apps import ValueBarrier
from flumina.apps.fraud import Fraud
from flumina.apps.value_barrier import ValueBarrierByHand
from flumina.program import define
from flumina.runtime.messages import EVERYTHING
from flumina.runtime.topology import COORDINATOR, Options, topology
from flumina.sim.plans import random_case
from flumina.sim.programs import random_program
from tests.runtime.support import Chain, chain_plan

A, C = ("root", "a"), ("middle", "c")


def test_a_chain() -> None:
    definition = define(Chain)
    shapes = topology(chain_plan(), definition, Options())
    assert list(shapes) == ["root", "middle", "leaf x", "leaf z", "leaf y"]
    assert [shapes[name].parent for name in shapes] == [COORDINATOR, "root", "middle", "middle", "root"]
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
    shapes = topology(chain_plan(), define(Chain), Options(hand_over=False))
    assert not any(shape.hands_over or any(c.hands_over for c in shape.children) for shape in shapes.values())


def test_only_leaves_that_only_add_hand_over() -> None:
    found = {}
    for program in (ValueBarrier, ValueBarrierByHand, Fraud):
        definition = define(program)
        handing: set[bool] = set()
        for seed in range(10):
            case = random_case(Random(seed), definition, 0)
            for shape in topology(case.plan, definition, Options()).values():
                adds = case.plan[shape.id].is_leaf and definition.adding.issuperset(case.plan[shape.id].tags.tags)
                assert shape.hands_over == (adds and shape.parent != COORDINATOR)
                handing.add(shape.hands_over)
        found[program.__name__] = handing
    assert found == {"ValueBarrier": {True, False}, "ValueBarrierByHand": {False}, "Fraud": {False}}


def test_every_part_of_a_leaf_is_in_its_components() -> None:
    for seed in range(20):
        random = Random(seed)
        case = random_case(random, define(random_program(random)), 0)
        for shape in topology(case.plan, case.definition, Options()).values():
            inside = {part for component in shape.components for part, _ in component.parts}
            assert inside == (set() if shape.children else set(shape.parts))
            assert all(component.causes <= set(shape.causes) for component in shape.components)
