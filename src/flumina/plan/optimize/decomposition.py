"""Decompose a graph of atoms by removing atoms one after the other.

Appendix B removes the atom with the lowest rate until the graph has at least two components, and goes on in each of
them. Searching components after every removal would take quadratic time; so this goes backwards. Add atoms in the
opposite order and note which components each one connects: adding an atom that connects two or more is exactly the
removal that separates them. With union-find that is near-linear.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from flumina.plan.atoms import Graph, Group, InputAtom


@dataclass(slots=True)
class GraphComponent:
    """A connected set of atoms (by number).

    ``top`` are the atoms to remove before it falls apart into ``parts``, two or more; without parts it never does, and
    ``top`` is all of it. An atom that only a leaf can have keeps what it connects together. ``rate`` is that of all its
    atoms, ``leaves`` the most leaves it can be divided into, and ``first`` its lowest atom.
    """

    top: list[int]
    parts: list[GraphComponent] = field(default_factory=list)
    rate: float = 0.0
    leaves: int = 1
    first: int = 0

    def atoms(self) -> Iterator[int]:
        """Yield all atoms of the component."""
        waiting = [self]
        while waiting:
            component = waiting.pop()
            yield from component.top
            waiting.extend(component.parts)


class _Forest:
    """Union-find over atoms, where every set knows its component."""

    def __init__(self, size: int) -> None:
        self.parent = list(range(size))
        self.component: dict[int, GraphComponent] = {}

    def find(self, atom: int) -> int:
        parent = self.parent
        while parent[atom] != atom:
            parent[atom] = parent[parent[atom]]
            atom = parent[atom]
        return atom


def decompose(graph: Graph, removal: Sequence[int]) -> list[GraphComponent]:
    """Return the components of a graph, each divided further by removing its atoms in this order."""
    forest = _Forest(len(graph.atoms))
    members: dict[Group, list[int]] = {}
    for number in reversed(removal):
        atom = graph.atoms[number]
        roots = dict.fromkeys(forest.find(other) for group in graph.reaches(atom) for other in members.get(group, ()))
        # All members of a group that an atom reaches are now connected: from here on one of them stands for all.
        for group in graph.reaches(atom):
            if group in members:
                members[group] = members[group][:1]
        _add(forest, number, atom, list(roots))
        for group in graph.groups(atom):
            members.setdefault(group, []).append(number)
    found = [forest.component[root] for root in range(len(graph.atoms)) if forest.parent[root] == root]
    return sorted(found, key=lambda component: component.first)


def _add(forest: _Forest, number: int, atom: InputAtom, roots: list[int]) -> None:
    """Add an atom that connects these components."""
    rate = atom.rate
    joined = sorted((forest.component.pop(root) for root in roots), key=lambda component: component.first)
    for root in roots:
        forest.parent[root] = number
    if len(joined) == 1:
        component = joined[0]
        component.top.append(number)
        component.rate += rate
        component.first = min(component.first, number)
    else:
        component = GraphComponent([number], joined, rate + sum(part.rate for part in joined))
        component.leaves = max(1, sum(part.leaves for part in joined))
        component.first = min([number, *(part.first for part in joined)])
    if atom.leaf_only and component.parts:
        whole = sorted(component.atoms())
        component = GraphComponent(whole, [], component.rate, 1, component.first)
    forest.component[number] = component


def by_rate(graph: Graph) -> list[int]:
    """Return appendix B's order of removal: the lowest rate first, then the most dependents."""
    atoms, degrees = graph.atoms, graph.degrees
    return sorted(range(len(atoms)), key=lambda n: (atoms[n].rate, -degrees[n], atoms[n].tag, n))
