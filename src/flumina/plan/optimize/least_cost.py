"""Find the plan of the least cost by :mod:`flumina.plan.cost_model`.

The optimizer makes many trees and keeps the cheapest. They differ in

- what is removed first to divide a component: itags with low rates (appendix B), or whole tags in any order;
- how keys that no source names are divided: not at all (cut by part), or by hash buckets (cut by key);
- how many leaves there are, from one to as many as offered.

Small plans are then improved step by step (:mod:`flumina.plan.optimize.local_search`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import permutations

from flumina.plan.atoms import Graph, InputAtom, affordable, atoms
from flumina.plan.cost_model import Cost, CostModel, evaluate, evaluate_sites, model_of
from flumina.plan.optimize.decomposition import GraphComponent, by_rate, decompose
from flumina.plan.optimize.local_search import local_search
from flumina.plan.optimize.packing import Node, tree_of, worker_of
from flumina.plan.optimize.sequential import sequential
from flumina.plan.placement import Site, choose_places, placed, site_of
from flumina.plan.sources import Inputs, Profile
from flumina.plan.state_types import assign_state_types
from flumina.plan.tree import Plan

DEFAULT_SLOTS = 8
"""Leaves considered where the caller gives no number."""

_MANY = 2000
"""With more atoms than this, fewer trees are tried: two orders of removal, and every other number of leaves."""

_EXACT_TAGS = 4
"""With more tags than this, not all their orders are tried."""

_SEARCHED = 16
"""Up to this many atoms a plan is improved step by step."""

Judge = Callable[[Node], Cost]


def cost(inputs: Inputs, slots: int | None = None, model: CostModel | None = None) -> Plan:
    """Return the cheapest plan that was found, with at most this many leaves."""
    inputs.require_rates("cost")
    model = model or model_of(inputs.definition)
    leaves = DEFAULT_SLOTS if slots is None else slots
    finalists = [sequential(inputs, 1)]
    for pieces in _divisions(inputs, leaves):
        graph = Graph(pieces, inputs.definition.depends)
        judge = judge_for(inputs, pieces, model)
        found = [(judge(node), node) for node in _trees(graph, leaves)]
        chosen = min(found, key=lambda pair: pair[0].key)
        if len(pieces) <= _SEARCHED:
            starts = sorted(found, key=lambda pair: pair[0].key)[:3]
            improved = [local_search(graph, node, judge, leaves) for _, node in starts]
            chosen = min([chosen, *((judge(node), node) for node in improved)], key=lambda pair: pair[0].key)
        root = assign_state_types(worker_of(chosen[1], pieces), inputs.definition)
        finalists.append(Plan.of(inputs.definition, inputs.shapes, placed(root, inputs)))
    # While trees are compared, equal parts count as one; now they are placed one by one.
    return min(finalists, key=lambda plan: evaluate(plan, inputs, model).key)


def with_model(model: CostModel) -> Callable[[Inputs, int | None], Plan]:
    """Return the same optimizer with other costs."""
    return partial(cost, model=model)


def judge_for(inputs: Inputs, pieces: Sequence[InputAtom], model: CostModel) -> Judge:
    """Return a function for the cost of a tree after state types and places are assigned."""
    definition = inputs.definition

    def judge(node: Node) -> Cost:
        if len(definition.kinds) > 1:  # not every tree has the state types it needs, so evaluate the assigned one
            site = site_of(assign_state_types(worker_of(node, pieces), definition), inputs)
        else:
            site = _site(node, pieces)
        choose_places(site)
        return evaluate_sites(site, model, inputs)

    return judge


def _site(node: Node, pieces: Sequence[InputAtom]) -> Site:
    site = Site(children=[] if node.sides is None else [_site(side, pieces) for side in node.sides])
    for number in node.atoms:
        atom = pieces[number]
        source = None if atom.ticks else ((atom.stream, atom.parts), atom.host)
        site.add(atom.tag, source, atom.rate, atom.keys)
    return site


def _divisions(inputs: Inputs, leaves: int) -> Iterator[list[InputAtom]]:
    """Yield divisions of the input: by part and hot key, by part, and for unbounded keys by hash buckets."""
    whole = atoms(inputs)
    yield whole
    if any(load.profile.hot for load in inputs.loads):  # the same leaves can serve all keys, each from its own part
        cold = [replace(load, profile=Profile(load.profile.keys, {}, load.profile.distinct)) for load in inputs.loads]
        yield atoms(replace(inputs, loads=tuple(cold)))
    if leaves > 1 and any(not atom.keys.is_finite for atom in whole):
        counts = [leaves, 4 * leaves] if len(whole) <= _MANY else [4 * leaves]
        for buckets in dict.fromkeys(affordable(inputs, count) for count in counts):
            if buckets > 1:
                yield atoms(inputs, buckets)


def _trees(graph: Graph, leaves: int) -> Iterator[Node]:
    divided = [decompose(graph, order) for order in _orders(graph)]
    for components in _distinct([*divided, _best_of(divided)]):
        most = min(leaves, sum(component.leaves for component in components))
        for count in _counts(most, step=4 / 3 if len(graph.atoms) <= _MANY else 2):
            yield tree_of(components, count, graph.atoms)


def _orders(graph: Graph) -> Iterator[list[int]]:
    """Orders of removal."""
    low_first = by_rate(graph)
    yield low_first
    totals: dict[str, float] = {}
    for atom in graph.atoms:
        totals[atom.tag] = totals.get(atom.tag, 0.0) + atom.rate
    tags = sorted(totals, key=totals.__getitem__)
    if len(graph.atoms) > _MANY:
        orders = [tags]
    elif len(tags) <= _EXACT_TAGS:
        orders = [list(order) for order in permutations(tags)]
    else:
        orders = [tags, *([tag, *(t for t in tags if t != tag)] for tag in tags[1:])]
    for order in orders:
        rank = {tag: number for number, tag in enumerate(order)}
        yield sorted(low_first, key=lambda number, rank=rank: rank[graph.atoms[number].tag])  # type: ignore[misc]


def _best_of(divided: Sequence[Sequence[GraphComponent]]) -> list[GraphComponent]:
    """Return for each component the division that removes the least."""
    chosen: dict[int, GraphComponent] = {}
    for components in divided:
        for component in components:
            known = chosen.get(component.first)
            if known is None or _removed(component) < _removed(known):
                chosen[component.first] = component
    return [chosen[first] for first in sorted(chosen)]


def _removed(component: GraphComponent) -> tuple[bool, float]:
    """Return whether a component can't be divided, and what share of its events is above all its leaves if it can."""
    below = sum(part.rate for part in component.parts)
    return component.leaves == 1, component.rate - below


def _distinct(divided: Sequence[list[GraphComponent]]) -> list[list[GraphComponent]]:
    """Return the divisions without duplicates."""
    seen, found = set(), []
    for components in divided:
        shape = tuple(_shape(component) for component in components)
        if shape not in seen:
            seen.add(shape)
            found.append(components)
    return found


def _shape(component: GraphComponent) -> tuple[object, ...]:
    return (frozenset(component.top), frozenset(_shape(part) for part in component.parts))


def _counts(most: int, step: float) -> list[int]:
    """Return numbers of leaves to try: small ones one by one, then in steps by this factor."""
    counts, count = [], 1
    while count < most:
        counts.append(count)
        count = max(count + 1, int(count * step))
    return [*counts, most]
