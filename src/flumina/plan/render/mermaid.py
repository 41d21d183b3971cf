"""Render plans as Mermaid flowcharts, for Markdown."""

from __future__ import annotations

from flumina.plan.render.collapse import CollapsedWorker, collapsed
from flumina.plan.render.labels import lines, name, place
from flumina.plan.tree import Plan

_ESCAPES = {"#": "#35;", "&": "#amp;", "<": "#lt;", ">": "#gt;", '"': "#quot;", "`": "#96;"}


def to_mermaid(plan: Plan, *, full: bool = False) -> str:
    """Return the tree as a flowchart; ids in it are numbers, so that a worker may be called anything."""
    drawn = ["flowchart LR"]
    count = 0
    waiting: list[tuple[CollapsedWorker, int, str | None]] = [(collapsed(plan, full=full), 0, None)]
    while waiting:
        node, parent, above = waiting.pop()
        count += 1
        drawn.append(f"  n{count}{_box(plan, node)}")
        if parent:
            near = above is not None and above == node.example.place and node.times == 1
            drawn.append(f"  n{parent} {'-.-' if near else '---'} n{count}")
        waiting += [(child, count, node.example.place) for child in reversed(node.children)]
    return "\n".join(drawn) + "\n"


def _box(plan: Plan, node: CollapsedWorker) -> str:
    head = f"<b>{_safe(name(plan, node))}</b>"
    if place(node):
        head += f" @ {_safe(place(node))}"
    text = "<br/>".join([head, *(_safe(str(line)) for line in lines(plan, node))])
    if node.times > 1:
        return f'[["{text}"]]'
    return f'(["{text}"])' if node.children else f'["{text}"]'


def _safe(text: str) -> str:
    """Escape text for Mermaid and HTML."""
    return "".join(_ESCAPES.get(char, char) for char in text)
