"""Plans as text trees for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from flumina.plan.render.shown import Shown, shown
from flumina.plan.render.words import count, parts_text, tags_text
from flumina.plan.tree import Plan, Worker


def to_text(plan: Plan, *, full: bool = False) -> str:
    """The tree, root first; ``full`` shows each of many alike workers too."""
    lines = [headline(plan)]
    top = shown(plan, full=full)
    lines += [first + _label(plan, node, index) for first, node, index in _lines(top)]
    return "\n".join(line.rstrip() for line in lines)


def headline(plan: Plan) -> str:
    """The size of a plan in one line."""
    size = f"{count(len(plan), 'worker')}, {count(len(plan.leaves), 'leaf')}, depth {plan.depth}"
    return f"{plan.program}: {size}" + (f", {count(len(plan.places), 'place')}" if plan.places else "")


def _lines(top: Shown) -> Iterator[tuple[str, Shown, int]]:
    """What to draw before each line, the node, and which of its lines it is."""
    waiting: list[tuple[str, str, Shown]] = [("", "", top)]
    while waiting:
        first, later, node = waiting.pop()
        for index in range(max(1, len(node.example.itags) + (node.times > 1))):
            bar = "│  " if node.children else "   "
            yield (first if index == 0 else later + bar), node, index
        children = list(node.children)
        for child in reversed(children):
            last = child is children[-1]
            waiting.append((later + ("└─ " if last else "├─ "), later + ("   " if last else "│  "), child))


def _label(plan: Plan, node: Shown, index: int) -> str:
    worker = node.example
    if node.times > 1:
        return _group(plan, node, index)
    head = f"{worker.id}{_place(worker)}  " if index == 0 else " " * (len(worker.id) + len(_place(worker)) + 2)
    return head + _events(plan, worker, index)


def _group(plan: Plan, node: Shown, index: int) -> str:
    if index == 0:
        what = "leaves" if node.example.is_leaf else "subtrees"
        return f"{node.times} {what} like {node.example.id}{_place(node.example)}, up to {node.last}"
    return "  " + _events(plan, node.example, index - 1)


def _place(worker: Worker) -> str:
    return f" @{worker.place}" if worker.place is not None else ""


def _events(plan: Plan, worker: Worker, index: int) -> str:
    if not worker.itags:
        return "·"
    itag = worker.itags[index]
    parts = next((stream.parts for stream in plan.streams if stream.name == itag.stream), 0)
    return f"{tags_text(itag.tags)}  ← {parts_text(itag, parts)}"
