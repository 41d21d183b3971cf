import random
from collections import Counter

import pytest

from flumina import apps
from flumina.check.choices import BLOCK, Choices
from flumina.check.scenario import REST, SCENARIO_BLOCKS, Nested, Scenario, Universe, Wire
from flumina.program.base import define
from tests.check.broken import EveryMinute
from tests.check.lawful import LAWFUL, TwoStateTypes

PROGRAMS = [*(getattr(apps, name) for name in apps.__all__), *LAWFUL]


def scenarios(universe: Universe, count: int) -> list[Scenario]:
    size = SCENARIO_BLOCKS * BLOCK
    return [Scenario(universe, Choices(random.Random(n).randbytes(size))) for n in range(count)]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_forks_have_non_empty_independent_predicates_within_the_wire(program: type) -> None:
    universe = Universe(define(program))
    depends, forks = universe.definition.depends, 0
    for scenario in scenarios(universe, 100):
        wires = scenario.reach()
        outer = wires[-1]
        choice = scenario.fork_of(outer)
        if choice is None:
            continue
        forks += 1
        fork, left, right = choice
        assert left
        assert right
        sets = universe.tag_set(left), universe.tag_set(right)
        assert not depends.between(*sets)
        within = universe.tag_set(outer.atoms)
        kinds = universe.definition.kinds
        assert sets[0] <= within & kinds[fork.left].predicate
        assert sets[1] <= within & kinds[fork.right].predicate
    assert forks > 50


def test_a_tag_set_of_all_atoms_is_every_event() -> None:
    universe = Universe(define(apps.PageViews))
    assert universe.tag_set(universe.atoms) == universe.definition.everything
    assert ("view", REST) in universe.atoms


def test_scenarios_are_not_trivial() -> None:
    """States beyond init, wires inside forks, and nested forks all turn up often."""
    universe = Universe(define(apps.KeyCounterByHand))
    seen: Counter[str] = Counter()
    for scenario in scenarios(universe, 300):
        wires = scenario.reach()
        seen["inside a fork"] += len(wires) > 1
        seen["two deep"] += len(wires) > 2
        seen["state"] += bool(wires[-1].state)
        seen["nested"] += any(isinstance(step, Nested) for step in wires[-1].trace)
    assert seen["inside a fork"] > 60
    assert seen["two deep"] > 20
    assert seen["state"] > 60
    assert seen["nested"] > 60


def test_wires_of_every_state_type_are_reached() -> None:
    universe = Universe(define(TwoStateTypes))
    kinds = {wire.kind.name for scenario in scenarios(universe, 200) for wire in scenario.reach()}
    assert kinds == {"whole", "part"}


def test_running_the_program_leaves_the_given_state_alone() -> None:
    universe = Universe(define(apps.KeyCounterByHand))
    scenario = scenarios(universe, 1)[0]
    kind = universe.definition.kinds[universe.definition.initial]
    wire = Wire(kind, universe.atoms, {1: 5}, ())
    event = universe.definition.tags["inc"].event(k=1)
    after, rows = scenario.update(wire, event)
    assert (after.state, wire.state, rows) == ({1: 6}, {1: 5}, [])
    choice = scenario.fork_of(wire)
    assert choice is not None
    halves = scenario.divide(wire, *choice)
    assert wire.state == {1: 5}
    assert scenario.merge(choice[0], *halves) == {1: 5}
    assert sum(half.state.get(1, 0) for half in halves) == 5


def test_time_mostly_creeps_and_sometimes_jumps_around_the_programs_own_numbers() -> None:
    universe = Universe(define(EveryMinute))
    assert {59, 60, 61, 120} <= set(universe.jumps)
    assert list(universe.jumps) == sorted(universe.jumps), "so that shrinking finds a small one"
    ahead = []
    for scenario in scenarios(universe, 400):
        before = scenario.clock
        event = scenario.event(universe.atoms)
        assert event is not None
        ahead.append(event.ts - before)
    steps = Counter(ahead)
    assert steps[0] + steps[1] > 300
    assert {60, 10, 10**11} < set(steps)
    still = Scenario(universe, Choices(bytes(SCENARIO_BLOCKS * BLOCK)))
    assert [e.ts for e in (still.event(universe.atoms) for _ in range(3)) if e is not None] == [0, 0, 0]
