"""Render plans as text trees for a terminal."""

from __future__ import annotations

from flumina.plan.render.collapse import CollapsedWorker, collapsed
from flumina.plan.render.labels import headline, lines, name, place
from flumina.plan.tree import Plan


def to_text(plan: Plan, *, full: bool = False) -> str:
    """Return the tree, root first; ``full`` shows each of many alike workers too."""
    drawn = [f"{plan.program}: {headline(plan)}"]
    waiting: list[tuple[str, str, CollapsedWorker]] = [("", "", collapsed(plan, full=full))]
    while waiting:
        first, later, node = waiting.pop()
        head, *rest = _block(plan, node)
        drawn.append(first + head)
        drawn += [later + ("│  " if node.children else "   ") + line for line in rest]
        for child in reversed(node.children):
            last = child is node.children[-1]
            waiting.append((later + ("└─ " if last else "├─ "), later + ("   " if last else "│  "), child))
    return "\n".join(drawn)


def _block(plan: Plan, node: CollapsedWorker) -> list[str]:
    """Return the lines of one worker; short ones have what they handle beside the name."""
    head = name(plan, node) + (f" @ {place(node)}" if place(node) else "")
    handled = [str(line) for line in lines(plan, node)]
    if len(handled) == 1 and node.times == 1:
        return [f"{head}   {handled[0]}"]
    return [head, *handled]
