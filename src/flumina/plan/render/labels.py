"""Label workers in drawings: name, state type, place and itags."""

from __future__ import annotations

from dataclasses import dataclass

from flumina.plan.render.collapse import CollapsedWorker
from flumina.plan.render.formatting import count, parts_text, tags_text
from flumina.plan.tree import Itag, Plan, union


@dataclass(frozen=True, slots=True)
class Line:
    """The text of one itag: its events and their origin."""

    events: str
    origin: str

    def __str__(self) -> str:
        return f"{self.events} ← {self.origin}"


def headline(plan: Plan) -> str:
    """Return the size of a plan in one line."""
    size = f"{count(len(plan), 'worker')}, {count(len(plan.leaves), 'leaf')}, depth {plan.depth}"
    return size + (f", {count(len(plan.places), 'place')}" if plan.places else "")


def name(plan: Plan, node: CollapsedWorker) -> str:
    """Return the worker's id, and its state type if the plan has several; or how many are alike."""
    worker = node.example
    if node.times > 1:
        return f"{node.times} {'leaves' if worker.is_leaf else 'subtrees'}, {worker.id} … {node.last}"
    return f"{worker.id} : {worker.kind}" if len(plan.kinds) > 1 else worker.id


def place(node: CollapsedWorker) -> str:
    """Return the place of a worker; for similar ones, the number of places."""
    places = dict.fromkeys(worker.place for worker in node.members or (node.example,) if worker.place is not None)
    if len(places) > 1:
        return count(len(places), "place")
    return next(iter(places), "")


def lines(plan: Plan, node: CollapsedWorker) -> list[Line]:
    """Return what a worker handles itself; for similar ones, together."""
    if node.times == 1:
        return [Line(tags_text(itag.tags), _origin(plan, itag)) for itag in node.example.itags]
    return [_together(plan, [m.itags[i] for m in node.members]) for i in range(len(node.example.itags))]


def _origin(plan: Plan, itag: Itag) -> str:
    """Return the origin of an itag; ticks come by themselves, and an invalid plan may lack its stream."""
    shape = plan.shapes.get(itag.stream)
    if shape is not None and shape.ticks:
        return "ticks"
    return parts_text(itag, 0 if shape is None else shape.parts)


def _together(plan: Plan, itags: list[Itag]) -> Line:
    """Return the same itag of several workers as one line."""
    whole = Itag(itags[0].stream, frozenset().union(*(itag.parts for itag in itags)), union(i.tags for i in itags))
    where = _origin(plan, whole)
    if len({itag.parts for itag in itags}) > 1:
        where += ", divided by part"
    if len({itag.tags for itag in itags}) == 1:
        return Line(tags_text(whole.tags), where)
    return Line(f"{tags_text(whole.tags)}, divided by key", where)
