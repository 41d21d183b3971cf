"""What a picture writes on a worker: who it is, and what it handles."""

from __future__ import annotations

from dataclasses import dataclass

from flumina.plan.render.shown import Shown
from flumina.plan.render.words import count, parts_text, tags_text
from flumina.plan.tree import Itag, Plan, union


@dataclass(frozen=True, slots=True)
class Line:
    """One itag in words: which events, and where they come from."""

    events: str
    origin: str

    def __str__(self) -> str:
        return f"{self.events} ← {self.origin}"


def headline(plan: Plan) -> str:
    """The size of a plan in one line."""
    size = f"{count(len(plan), 'worker')}, {count(len(plan.leaves), 'leaf')}, depth {plan.depth}"
    return size + (f", {count(len(plan.places), 'place')}" if plan.places else "")


def name(plan: Plan, node: Shown) -> str:
    """The worker's id, and its state type if the plan has several; or how many are alike."""
    worker = node.example
    if node.times > 1:
        return f"{node.times} {'leaves' if worker.is_leaf else 'subtrees'}, {worker.id} … {node.last}"
    several = len({other.kind for other in plan.workers}) > 1
    return f"{worker.id} : {worker.kind}" if several else worker.id


def place(node: Shown) -> str:
    """Where it runs; for alike ones, at how many places."""
    places = dict.fromkeys(worker.place for worker in node.members or (node.example,) if worker.place is not None)
    if len(places) > 1:
        return count(len(places), "place")
    return next(iter(places), "")


def lines(plan: Plan, node: Shown) -> list[Line]:
    """What a worker handles itself; for alike ones, what they handle together."""
    parts = {stream.name: stream.parts for stream in plan.streams}
    if node.times == 1:
        return [Line(tags_text(i.tags), parts_text(i, parts.get(i.stream, 0))) for i in node.example.itags]
    return [_together([m.itags[i] for m in node.members], parts) for i in range(len(node.example.itags))]


def _together(itags: list[Itag], parts: dict[str, int]) -> Line:
    """The same itag of several workers as one line."""
    whole = Itag(itags[0].stream, frozenset().union(*(itag.parts for itag in itags)), union(i.tags for i in itags))
    where = parts_text(whole, parts.get(whole.stream, 0))
    if len({itag.parts for itag in itags}) > 1:
        where += ", divided by part"
    if len({itag.tags for itag in itags}) == 1:
        return Line(tags_text(whole.tags), where)
    return Line(f"{tags_text(whole.tags)}, divided by key", where)
