"""Improve small plans step by step: move and swap atoms, collapse and divide workers.

Each step is the one that saves most, and the search ends where none saves anything. Sets of atoms are bit masks, so
that V2 is a few operations: no atom of one side of a worker may be a neighbor of an atom on the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations

from flumina.plan.atoms import Graph
from flumina.plan.cost_model import Cost
from flumina.plan.optimize.packing import Node

_MAX_STEPS = 50


@dataclass(frozen=True, slots=True)
class Tree:
    """A tree over bit masks of atoms."""

    own: int
    sides: tuple[Tree, Tree] | None = None

    def all(self) -> int:
        """Return the atoms of the whole tree."""
        return self.own if self.sides is None else self.own | self.sides[0].all() | self.sides[1].all()

    def leaves(self) -> int:
        """Return how many leaves it has."""
        return 1 if self.sides is None else self.sides[0].leaves() + self.sides[1].leaves()

    def ordered(self) -> Tree:
        """Return the same tree, or its mirror image, with the side of the lower first atom on the left everywhere."""
        if self.sides is None:
            return self
        left, right = sorted((side.ordered() for side in self.sides), key=lambda side: first(side.all()))
        return Tree(self.own, (left, right))

    def walk(self) -> Iterator[Tree]:
        """Yield this tree and all below."""
        yield self
        if self.sides is not None:
            yield from self.sides[0].walk()
            yield from self.sides[1].walk()


def neighbors(graph: Graph) -> list[int]:
    """Return for each atom the mask of the atoms it depends on."""
    members: dict[tuple[str, int | None], int] = {}
    for number, atom in enumerate(graph.atoms):
        for group in graph.groups(atom):
            members[group] = members.get(group, 0) | 1 << number
    masks = []
    for atom in graph.atoms:
        mask = 0
        for group in graph.reaches(atom):
            mask |= members.get(group, 0)
        masks.append(mask)
    return masks


def first(mask: int) -> int:
    """Return the lowest bit that is set."""
    return mask & -mask


def ones(mask: int) -> Iterator[int]:
    """Yield the numbers of the bits that are set."""
    while mask:
        low = first(mask)
        yield low.bit_length() - 1
        mask ^= low


def reach(mask: int, links: list[int]) -> int:
    """Return all neighbors of these atoms."""
    found = 0
    for number in ones(mask):
        found |= links[number]
    return found


def connected(mask: int, links: list[int]) -> list[int]:
    """Return the connected components of these atoms."""
    found = []
    while mask:
        component = first(mask)
        while True:
            grown = component | (reach(component, links) & mask)
            if grown == component:
                break
            component = grown
        found.append(component)
        mask &= ~component
    return found


def is_valid(tree: Tree, links: list[int], leaf_only: int = 0) -> bool:
    """Return whether V2 and V3 hold and no leaf is without atoms; ``leaf_only`` are the atoms for leaves."""
    if tree.sides is None:
        return tree.own != 0
    if tree.own & leaf_only or reach(tree.sides[0].all(), links) & tree.sides[1].all():
        return False
    return all(is_valid(side, links, leaf_only) for side in tree.sides)


def local_search(graph: Graph, node: Node, judge: Callable[[Node], Cost], leaves: int) -> Node:
    """Return the node, or a better one with at most this many leaves."""
    links = neighbors(graph)
    low = sum(1 << number for number, atom in enumerate(graph.atoms) if atom.leaf_only)
    tree, best = _tree(node), judge(node)
    for _ in range(_MAX_STEPS):
        few = (step for step in _steps(tree, links) if step.leaves() <= leaves)
        steps = (step.ordered() for step in few if is_valid(step, links, low))
        candidates = dict.fromkeys(steps)  # not a set: the first of equals is to be the same in every process
        judged = [(judge(_node(candidate)), candidate) for candidate in candidates]
        if not judged:
            break
        cost, candidate = min(judged, key=lambda pair: pair[0].key)
        if cost.key >= best.key:
            break
        tree, best = candidate, cost
    return _node(tree)


def _steps(tree: Tree, links: list[int]) -> Iterator[Tree]:
    """Yield all trees that are one step away; some are not valid."""
    nodes = list(tree.walk())
    units = sorted(
        {unit for node in nodes for unit in (*connected(node.own, links), *(1 << n for n in ones(node.own)))}
    )
    for unit in units:
        without = _without(tree, unit)
        if without is not None:
            for place in without.walk():
                yield _replaced(without, place, Tree(place.own | unit, place.sides))
                yield _replaced(without, place, Tree(0, (place, Tree(unit))))
                if place.sides is None:  # with the unit above, what is left may fall apart
                    yield from (_replaced(without, place, Tree(unit, sides)) for sides in _divided(place.own, links))
    for node in nodes:
        if node.sides is not None:
            yield _replaced(tree, node, Tree(node.all()))
        else:
            yield from (_replaced(tree, node, Tree(0, sides)) for sides in _divided(node.own, links))
    for one, other in combinations(units, 2):
        if not one & other:
            yield _swapped(tree, one, other)


def _divided(mask: int, links: list[int]) -> Iterator[tuple[Tree, Tree]]:
    """Yield ways to divide a leaf in two: each component against all others."""
    for component in connected(mask, links):
        if component != mask:
            yield Tree(component), Tree(mask & ~component)


def _without(tree: Tree, unit: int) -> Tree | None:
    """Return the tree without these atoms, and without workers that have nothing left."""
    own = tree.own & ~unit
    if tree.sides is None:
        return Tree(own) if own else None
    left, right = (_without(side, unit) for side in tree.sides)
    if left is not None and right is not None:
        return Tree(own, (left, right))
    rest = left if left is not None else right
    if rest is None:
        return Tree(own) if own else None
    return Tree(own | rest.own, rest.sides)


def _replaced(tree: Tree, place: Tree, new: Tree) -> Tree:
    """Return the tree with another one at the place of this very object."""
    if tree is place:
        return new
    if tree.sides is None:
        return tree
    left, right = (_replaced(side, place, new) for side in tree.sides)
    return Tree(tree.own, (left, right))


def _swapped(tree: Tree, one: int, other: int) -> Tree:
    """Return the tree with two units at each other's place."""

    def swap(own: int) -> int:
        both = one | other
        kept = own & ~both
        return kept | (other if own & one else 0) | (one if own & other else 0)

    if tree.sides is None:
        return Tree(swap(tree.own))
    left, right = (_swapped(side, one, other) for side in tree.sides)
    return Tree(swap(tree.own), (left, right))


def _tree(node: Node) -> Tree:
    mask = 0
    for number in node.atoms:
        mask |= 1 << number
    return Tree(mask, None if node.sides is None else (_tree(node.sides[0]), _tree(node.sides[1])))


def _node(tree: Tree) -> Node:
    return Node(list(ones(tree.own)), None if tree.sides is None else (_node(tree.sides[0]), _node(tree.sides[1])))
