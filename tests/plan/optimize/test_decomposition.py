import random

import pyarrow as pa
import pytest

import flumina as fl
from flumina.model.tick import Tick
from flumina.plan import StreamRates, bind, check_valid, make_plan
from flumina.plan.atoms import Graph, atoms
from flumina.plan.optimize import OptimizerName
from flumina.plan.optimize.decomposition import GraphComponent, by_rate, decompose
from flumina.plan.optimize.local_search import connected, neighbors
from flumina.plan.render.json import from_json, to_json
from flumina.plan.render.text import to_text
from tests.plan.support import Finite, Global, Keyed
from tests.program.tick_programs import PROGRAMS, Tumbling


def slowly(mask: int, links: list[int], removal: list[int]) -> object:
    """Appendix B as it is written: remove one by one, and look for components each time."""
    parts = connected(mask, links)
    if len(parts) > 1:
        return frozenset(slowly(part, links, removal) for part in parts)
    removed = []
    left = mask
    for number in removal:
        if left >> number & 1:
            left &= ~(1 << number)
            removed.append(number)
            if len(connected(left, links)) > 1:
                return frozenset(removed), slowly(left, links, removal)
    return frozenset(removed), None


def shape(component: GraphComponent) -> object:
    below = frozenset(shape(part) for part in component.parts) if component.parts else None
    return frozenset(component.top), below


def test_going_backwards_gives_what_removing_one_by_one_gives() -> None:
    rng = random.Random(4)
    for _ in range(150):
        program: type[fl.Program] = rng.choice([Global, Finite, Keyed])
        sources = [
            StreamRates(f"s{number}", {tag: [rng.choice([1, 2, 3, 10]) for _ in range(parts)]}, parts)
            for number, tag in enumerate(program._tags)
            for parts in [rng.randint(1, 3)]
        ]
        inputs = bind(program, sources)
        graph = Graph(atoms(inputs, rng.choice([1, 3])), inputs.definition.depends)
        removal = by_rate(graph)
        if rng.random() < 0.3:
            rng.shuffle(removal)
        found = decompose(graph, removal)
        links = neighbors(graph)
        whole = slowly((1 << len(graph.atoms)) - 1, links, removal)
        expected = whole if isinstance(whole, frozenset) else frozenset([whole])
        assert frozenset(shape(component) for component in found) == expected
        assert sorted(number for component in found for number in component.atoms()) == list(range(len(graph.atoms)))
        for component in found:
            assert abs(component.rate - sum(graph.atoms[number].rate for number in component.atoms())) < 1e-9


def test_ticks_of_unnamed_keys_keep_a_leaf_together_and_named_ones_do_not() -> None:
    hot = StreamRates("loads", {"load": 1000}, parts=2, hot={"load": {1: 900}})
    inputs = bind(Tumbling, [hot])
    graph = Graph(atoms(inputs, 4), inputs.definition.depends)
    low = {number for number, atom in enumerate(graph.atoms) if atom.leaf_only}
    found = decompose(graph, by_rate(graph))
    for component in found:
        if low & set(component.atoms()):
            assert not component.parts
    assert len(low) == 4
    divided = [component for component in found if component.parts]
    assert [{str(graph.atoms[n].keys) for n in component.atoms()} for component in divided] == [{"1"}]


@pytest.mark.parametrize("optimizer", ["greedy", "cost", "sequential"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_plans_with_ticks_are_valid(program: type[fl.Program], optimizer: OptimizerName) -> None:
    definition = fl.define(program)
    tags = [tag for tag in definition.tags.values() if not isinstance(tag, Tick)]
    for parts in (1, 3):
        for name in {tag.name for tag in tags}:
            key = tags[0].key
            hot = {} if key is None else {name: {"a" if key.type == pa.string() else 1: 400.0}}
            rates: dict[fl.Tag | str, float | list[float]] = {tag.name: 10.0 for tag in tags}
            source = StreamRates("s", rates | {name: 1000.0}, parts, hot)
            plan = make_plan(definition, [source], optimizer=optimizer, slots=4)
            check_valid(plan, definition, bind(definition, [source]).shapes)
            assert from_json(to_json(plan)) == plan
            assert "← ticks" in to_text(plan)
