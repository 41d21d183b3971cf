import random

import flumina as fl
from flumina.plan import StreamRates, bind
from flumina.plan.atoms import Graph, atoms
from flumina.plan.optimize.decomposition import GraphComponent, by_rate, decompose
from flumina.plan.optimize.local_search import connected, neighbors
from tests.plan.support import Finite, Global, Keyed


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
