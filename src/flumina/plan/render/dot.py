"""Render plans for Graphviz: ``dot -Tsvg plan.dot``."""

from __future__ import annotations

from flumina.plan.render.collapse import CollapsedWorker, collapsed
from flumina.plan.render.labels import headline, lines, name, place
from flumina.plan.tree import Plan


def to_dot(plan: Plan, *, full: bool = False) -> str:
    """Return the tree as a directed graph; edges within one place are dashed."""
    drawn = [
        "digraph plan {",
        f"  label={_quoted(f'{plan.program}: {headline(plan)}')}; labelloc=t; fontname=Helvetica; fontsize=14;",
        "  rankdir=LR; nodesep=0.15; ranksep=0.5;",
        '  node [shape=box, style="rounded,filled", fillcolor=white, color="#5b6b7b"];',
        "  node [fontname=Helvetica, fontsize=11];",
        '  edge [arrowhead=none, color="#5b6b7b"];',
    ]
    count = 0
    waiting: list[tuple[CollapsedWorker, int, str | None]] = [(collapsed(plan, full=full), 0, None)]
    while waiting:
        node, parent, above = waiting.pop()
        count += 1
        looks = ', peripheries=2, fillcolor="#eef3f8"' if node.times > 1 else ""
        drawn.append(f"  n{count} [label={_label(plan, node)}{looks}];")
        if parent:
            near = above is not None and above == node.example.place and node.times == 1
            drawn.append(f"  n{parent} -> n{count}{' [style=dashed]' if near else ''};")
        waiting += [(child, count, node.example.place) for child in reversed(node.children)]
    return "\n".join([*drawn, "}"]) + "\n"


def _label(plan: Plan, node: CollapsedWorker) -> str:
    head = name(plan, node) + (f"  @ {place(node)}" if place(node) else "")
    # \l ends a line and sets it to the left.
    return _quoted(head, *map(str, lines(plan, node)))


def _quoted(*texts: str) -> str:
    safe = [text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ") for text in texts]
    return '"' + ("\\l".join([*safe, ""]) if len(safe) > 1 else safe[0]) + '"'
