"""Pack components into a balanced tree with a given number of leaves.

A component goes to one leaf whole, or is divided at its own worker; components without a common ancestor's tags are
spread over the leaves by rate, and the tree above them is balanced, so that its depth is about log2 of the leaves.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from flumina.plan.atoms import InputAtom
from flumina.plan.optimize.decomposition import GraphComponent
from flumina.plan.tree import PlanWorker, merged

_TINY = 1e-9


@dataclass(slots=True)
class Node:
    """A worker to be: its own atoms (by number), and two sides or none."""

    atoms: list[int]
    sides: tuple[Node, Node] | None = None


@dataclass(slots=True)
class _Unit:
    """Components that share one leaf, or one component with several leaves."""

    components: list[GraphComponent]
    leaves: int

    @property
    def first(self) -> int:
        return min(component.first for component in self.components)


def tree_of(components: Sequence[GraphComponent], leaves: int, atoms: Sequence[InputAtom]) -> Node:
    """Return a tree over these components with at most this many leaves."""
    if leaves < 2 or (len(components) == 1 and components[0].leaves == 1):
        return Node([atom for component in components for atom in component.atoms()])
    if len(components) == 1:
        (component,) = components
        below = tree_of(component.parts, leaves, atoms)
        assert below.sides is not None, "a component that falls apart has two sides"
        return Node(component.top + below.atoms, below.sides)
    return _balanced(_units(components, leaves, atoms), atoms)


def _balanced(units: list[_Unit], atoms: Sequence[InputAtom]) -> Node:
    """Return a tree over units, with about as many leaves on either side of every worker."""
    if len(units) == 1:
        return tree_of(units[0].components, units[0].leaves, atoms)
    sides = _halves(units)
    if sides[1][0].first < sides[0][0].first:
        sides = (sides[1], sides[0])
    return Node([], (_balanced(sides[0], atoms), _balanced(sides[1], atoms)))


def _halves(units: list[_Unit]) -> tuple[list[_Unit], list[_Unit]]:
    """Return two lists, both in order of the first atom; units with the most leaves are dealt out first."""
    if units[0].leaves == units[-1].leaves and len({unit.leaves for unit in units}) == 1:
        middle = (len(units) + 1) // 2
        return units[:middle], units[middle:]
    left: set[int] = set()
    right: set[int] = set()
    weights = [0, 0]
    for index in sorted(range(len(units)), key=lambda i: -units[i].leaves):
        side = 0 if weights[0] <= weights[1] else 1
        (left, right)[side].add(index)
        weights[side] += units[index].leaves
    return [units[i] for i in sorted(left)], [units[i] for i in sorted(right)]


def _units(components: Sequence[GraphComponent], leaves: int, atoms: Sequence[InputAtom]) -> list[_Unit]:
    """Return units with their numbers of leaves, in order of the first atom."""
    if len(components) <= leaves:
        counts = _apportion(components, leaves)
        units = [_Unit([c], count) for c, count in zip(components, counts, strict=True)]
    else:
        fair = sum(c.rate for c in components) / leaves + _TINY
        large = [c for c in components if c.leaves > 1 and c.rate > 1.5 * fair]
        small = [c for c in components if not (c.leaves > 1 and c.rate > 1.5 * fair)]
        counts = [min(c.leaves, round(c.rate / fair)) for c in large]
        bins = max(1, leaves - sum(counts))
        while large and sum(counts) + bins > leaves:  # rounding gave away more leaves than available
            most = max(range(len(counts)), key=counts.__getitem__)
            counts[most] -= 1
        units = [_Unit([c], count) for c, count in zip(large, counts, strict=True)]
        units += [_Unit(together, 1) for together in _bins(small, bins, atoms)]
    return sorted(units, key=lambda unit: unit.first)


def _apportion(components: Sequence[GraphComponent], leaves: int) -> list[int]:
    """Give each unit one leaf, and the others one by one to the highest rate per leaf."""
    counts = [1] * len(components)
    spare = leaves - len(components)
    queue = [(-c.rate, number) for number, c in enumerate(components) if c.leaves > 1]
    heapq.heapify(queue)
    while spare and queue:
        _, number = heapq.heappop(queue)
        counts[number] += 1
        spare -= 1
        if counts[number] < components[number].leaves:
            heapq.heappush(queue, (-components[number].rate / counts[number], number))
    return counts


def _bins(components: list[GraphComponent], count: int, atoms: Sequence[InputAtom]) -> list[list[GraphComponent]]:
    """Group components by about equal rate: the largest first, each to the lightest group."""
    count = min(count, len(components))
    if not count:
        return []
    queue = [(0.0, number) for number in range(count)]
    bin_of: dict[int, int] = {}
    for index in sorted(range(len(components)), key=lambda i: (-components[i].rate, components[i].first)):
        weight, number = heapq.heappop(queue)
        bin_of[index] = number
        heapq.heappush(queue, (weight + components[index].rate + _TINY, number))
    groups: list[list[GraphComponent]] = [[] for _ in range(count)]
    for index, number in _in_order(components, bin_of, atoms).items():
        groups[number].append(components[index])
    return [group for group in groups if group]


def _in_order(components: list[GraphComponent], bin_of: dict[int, int], atoms: Sequence[InputAtom]) -> dict[int, int]:
    """Return the same division with neighboring buckets together, which is easier to read."""
    alike: dict[tuple[float, int, str, str], list[int]] = defaultdict(list)
    for index, component in enumerate(components):
        atom = atoms[component.first]
        if not atom.keys.is_finite and not component.parts:
            alike[round(component.rate, 6), len(component.top), atom.stream, atom.tag].append(index)
    found = dict(bin_of)
    for indices in alike.values():
        bins = sorted(bin_of[index] for index in indices)
        ordered = sorted(indices, key=lambda index: components[index].first)
        found.update(zip(ordered, bins, strict=True))
    return found


def worker_of(node: Node, atoms: Sequence[InputAtom]) -> PlanWorker:
    """Return the tree of workers, still without ids and state types."""
    children = () if node.sides is None else tuple(worker_of(side, atoms) for side in node.sides)
    return PlanWorker("", "", merged(atoms[number].itag for number in sorted(node.atoms)), children)
