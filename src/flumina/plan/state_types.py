"""Assign state types to a tree of itags: the last step of appendix B.

From the leaves up, ``best[w][k]`` is the largest number of leaves that w's subtree can keep if w has state type k::

    best[w][k] = none                                            if k does not take the events of w's subtree
               = max(1,  max over forks k -> (l, r) that have a join:  best[left][l] + best[right][r])

where 1 means that the subtree becomes one worker, and sides may be swapped. That is one step for each worker and fork;
and since the initial state type takes everything, the root always has an answer.
"""

from __future__ import annotations

from dataclasses import dataclass

from flumina.plan.tree import PlanWorker, merged
from flumina.program.definition import Definition


@dataclass(frozen=True, slots=True)
class _Choice:
    """The leaves that remain, the kinds of the sides (None: one worker), and whether sides are swapped."""

    leaves: int
    sides: tuple[str, str] | None = None
    swapped: bool = False


_Table = dict[str, _Choice]
_WHOLE = _Choice(1)


def assign_state_types(root: PlanWorker, definition: Definition) -> PlanWorker:
    """Return the same tree with state types, and ids in preorder; subtrees that no fork fits become one worker each."""
    forks = _usable_forks(definition)
    numbered = list(root.walk())
    tables: dict[int, _Table] = {}
    for worker in reversed(numbered):
        tables[id(worker)] = _table(worker, definition, forks, [tables[id(child)] for child in worker.children])
    count = 0

    def build(worker: PlanWorker, kind: str) -> PlanWorker:
        nonlocal count
        count += 1
        name, choice = f"w{count}", tables[id(worker)][kind]
        if choice.sides is None:
            itags = worker.itags if worker.is_leaf else merged(i for below in worker.walk() for i in below.itags)
            return PlanWorker(name, kind, itags)
        sides = reversed(worker.children) if choice.swapped else worker.children
        children = tuple(build(child, side) for child, side in zip(sides, choice.sides, strict=True))
        return PlanWorker(name, kind, worker.itags, children)

    return build(root, definition.initial)


def _usable_forks(definition: Definition) -> dict[str, list[tuple[str, str]]]:
    """Return for each state type the pairs it can be forked into and joined from."""
    joins = {(join.left, join.right, join.target) for join in definition.joins}
    usable: dict[str, list[tuple[str, str]]] = {kind: [] for kind in definition.kinds}
    for fork in definition.forks:
        if (fork.left, fork.right, fork.source) in joins:
            usable[fork.source].append((fork.left, fork.right))
    return usable


def _table(
    worker: PlanWorker, definition: Definition, forks: dict[str, list[tuple[str, str]]], below: list[_Table]
) -> _Table:
    assert len(below) in {0, 2}, "a worker has no children or two"
    table: _Table = {}
    for name, kind in definition.kinds.items():
        if len(definition.kinds) > 1 and not worker.subtree_tags <= kind.predicate:
            continue
        table[name] = _WHOLE
        if not below:
            continue
        left, right = below
        for sides in forks[name]:
            for one, other, swapped in ((left, right, False), (right, left, True)):
                if sides[0] in one and sides[1] in other:
                    leaves = one[sides[0]].leaves + other[sides[1]].leaves
                    if leaves > table[name].leaves:
                        table[name] = _Choice(leaves, sides, swapped)
    return table
