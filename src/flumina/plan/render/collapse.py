"""Collapse large plans for drawing: similar workers are drawn once.

Two subtrees are alike if they have the same state types, tags, streams and shape, whatever their keys, parts and
places. Workers without events of their own only divide; in a large plan they are left out, and what is below them hangs
on the next worker above that is drawn.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from flumina.plan.tree import Plan, PlanWorker

SMALL = 24
"""Up to this many workers, every one is drawn."""

ALIKE = 3
"""From this many on, alike subtrees are drawn once."""


@dataclass(frozen=True, slots=True)
class CollapsedWorker:
    """A worker that is drawn, for itself or for several that are alike."""

    example: PlanWorker
    children: tuple[CollapsedWorker, ...] = ()
    members: tuple[PlanWorker, ...] = ()

    @property
    def times(self) -> int:
        """The number of workers that it stands for."""
        return max(1, len(self.members))

    @property
    def last(self) -> str:
        """The id of the last one that it stands for."""
        return self.members[-1].id if self.members else self.example.id


def collapsed(plan: Plan, *, full: bool = False) -> CollapsedWorker:
    """Return the tree to draw."""
    if full or len(plan) <= SMALL:
        return _exactly(plan.root)
    return _summary(plan.root, {})


def _exactly(worker: PlanWorker) -> CollapsedWorker:
    return CollapsedWorker(worker, tuple(_exactly(child) for child in worker.children))


def _summary(worker: PlanWorker, known: dict[int, Hashable]) -> CollapsedWorker:
    below: list[PlanWorker] = []
    waiting = list(reversed(worker.children))
    while waiting:
        child = waiting.pop()
        if child.itags or child.is_leaf:
            below.append(child)
        else:
            waiting.extend(reversed(child.children))
    alike: dict[Hashable, list[PlanWorker]] = {}
    for child in below:
        alike.setdefault(_signature(child, known), []).append(child)
    children = []
    for members in alike.values():
        if len(members) >= ALIKE:
            inner = _summary(members[0], known)
            children.append(CollapsedWorker(inner.example, inner.children, tuple(members)))
        else:
            children += [_summary(member, known) for member in members]
    return CollapsedWorker(worker, tuple(children))


def _signature(worker: PlanWorker, known: dict[int, Hashable]) -> Hashable:
    found = known.get(id(worker))
    if found is None:
        events = tuple((itag.stream, itag.tags.tags) for itag in worker.itags)
        found = (worker.kind, events, tuple(_signature(child, known) for child in worker.children))
        known[id(worker)] = found
    return found
