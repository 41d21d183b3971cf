"""Render plans as HTML with an inline SVG, without scripts, for notebooks.

The root is on the left, leaves on the right. A subtree takes as much height as its own card or its children need, so
that nothing overlaps whatever the shape.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape

from flumina.plan.render.collapse import CollapsedWorker, collapsed
from flumina.plan.render.labels import Line, headline, lines, name, place
from flumina.plan.tree import Plan

_LINE, _PAD, _GAP, _COLUMN_GAP = 17, 9, 10, 38
_CHAR = 6.2
_WIDEST = 60
"""Characters of a line before it is cut; the whole text is in the tooltip."""

_COLORS = ("#3b6fb6", "#b6533b", "#3b9a6d", "#8a5bb0", "#b08a2e", "#2e93a8", "#a83b74", "#6b7d2e")

_STYLE = (
    "font-family:system-ui,-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif;"
    "background:#fbfcfd;color:#1f2933;border:1px solid #e1e6eb;border-radius:8px;"
    "padding:12px 14px;overflow-x:auto;display:inline-block;max-width:100%;box-sizing:border-box"
)


@dataclass
class _Card:
    """A worker with its place on the page."""

    node: CollapsedWorker
    title: str
    place: str
    lines: list[Line]
    children: list[_Card] = field(default_factory=list)
    column: int = 0
    top: float = 0.0
    extent: float = 0.0

    @property
    def height(self) -> float:
        return 2 * _PAD + _LINE * (1 + len(self.lines)) - 3

    @property
    def middle(self) -> float:
        return self.top + self.height / 2

    @property
    def width(self) -> float:
        head = len(self.title) * 1.12 + (len(self.place) + 3 if self.place else 0)
        return 2 * _PAD + 8 + _CHAR * max([head, *(len(str(_cut(line))) for line in self.lines)])

    def walk(self) -> Iterator[_Card]:
        yield self
        for child in self.children:
            yield from child.walk()


def to_html(plan: Plan, *, full: bool = False) -> str:
    """Return the plan as an HTML fragment."""
    root = _card(plan, collapsed(plan, full=full), 0)
    _stack(root, 0.0)
    cards = list(root.walk())
    widths = [max(c.width for c in cards if c.column == n) for n in range(1 + max(c.column for c in cards))]
    lefts = [sum(widths[:n]) + n * _COLUMN_GAP for n in range(len(widths))]
    colors = {name: _COLORS[number % len(_COLORS)] for number, name in enumerate(plan.places)}
    edges = [_edge(card, child, lefts, widths) for card in cards for child in card.children]
    boxes = [_box(c, lefts[c.column], widths[c.column] if c.lines else c.width, colors) for c in cards]
    width, height = lefts[-1] + widths[-1] + 10, root.extent + 10
    head = f"{plan.program}: {headline(plan)}"
    return (
        f'<div style="{_STYLE}">'
        f'<div style="font-size:14px;margin-bottom:10px"><b>{escape(plan.program)}</b>'
        f'<span style="color:#5b6b7b"> &nbsp;{escape(headline(plan))}</span></div>'
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(head)}" width="{width:.0f}" '
        f'height="{height:.0f}" viewBox="-2 -2 {width:.0f} {height:.0f}" style="font-size:12px">'
        f"{''.join(edges)}{''.join(boxes)}</svg>{_legend(cards)}</div>"
    )


def to_page(plan: Plan, *, full: bool = False) -> str:
    """Return the plan as a whole HTML page."""
    title = escape(f"Plan of {plan.program}")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>'
        f'<body style="margin:16px">{to_html(plan, full=full)}</body></html>\n'
    )


def _card(plan: Plan, node: CollapsedWorker, column: int) -> _Card:
    children = [_card(plan, child, column + 1) for child in node.children]
    return _Card(node, name(plan, node), place(node), lines(plan, node), children, column)


def _stack(card: _Card, top: float) -> None:
    """Give a subtree its height from ``top`` down, every card in the middle of its children."""
    below = top
    for child in card.children:
        _stack(child, below)
        below += child.extent + _GAP
    card.extent = max(card.height, below - _GAP - top if card.children else 0.0)
    if card.children:
        slack = (card.extent - (below - _GAP - top)) / 2
        for child in card.children:
            for moved in child.walk():
                moved.top += slack
        center = (card.children[0].middle + card.children[-1].middle) / 2
        card.top = min(max(top, center - card.height / 2), top + card.extent - card.height)
    else:
        card.top = top


def _edge(card: _Card, child: _Card, lefts: list[float], widths: list[float]) -> str:
    x1, x2 = lefts[card.column] + (widths[card.column] if card.lines else card.width), lefts[child.column]
    bend = (x2 - x1) / 2
    near = card.node.example.place is not None and child.place == card.node.example.place
    dashes = ' stroke-dasharray="3 3"' if near else ""
    path = f"M{x1:.1f} {card.middle:.1f}C{x1 + bend:.1f} {card.middle:.1f} {x2 - bend:.1f} {child.middle:.1f} "
    return f'<path d="{path}{x2:.1f} {child.middle:.1f}" fill="none" stroke="#8795a3" stroke-width="1.4"{dashes}/>'


def _box(card: _Card, left: float, width: float, colors: dict[str, str]) -> str:
    color = colors.get(card.place, "#8795a3")
    pieces = []
    if card.node.times > 1:  # a stack of cards
        pieces += [_rect(left + shift, card.top + shift, width, card.height, "#eef2f6") for shift in (6, 3)]
    pieces.append(_rect(left, card.top, width, card.height, "#ffffff"))
    pieces.append(
        f'<rect x="{left:.1f}" y="{card.top + 5:.1f}" width="4" height="{card.height - 10:.1f}" fill="{color}"/>'
    )
    base, text = card.top + _PAD + 9, left + _PAD + 5
    pieces.append(_text(text, base, escape(card.title), 'font-weight="600" fill="#1f2933"'))
    if card.place:
        right = left + width - _PAD
        pieces.append(_text(right, base, escape(card.place), f'text-anchor="end" fill="{color}"'))
    for number, line in enumerate(map(_cut, card.lines), 1):
        words = f'{escape(line.events)}<tspan fill="#5b6b7b"> ← {escape(line.origin)}</tspan>'
        pieces.append(_text(text, base + number * _LINE, words, 'fill="#1f2933"'))
    tooltip = escape("\n".join([f"{card.title} {card.place}".strip(), *map(str, card.lines)]))
    return f"<g><title>{tooltip}</title>{''.join(pieces)}</g>"


def _text(x: float, y: float, words: str, looks: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {looks}>{words}</text>'


def _rect(x: float, y: float, width: float, height: float, fill: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="6" fill="{fill}" '
        'stroke="#b6c2cd" stroke-width="1"/>'
    )


def _cut(line: Line) -> Line:
    """Return the line if it is short; else shorten the events, and keep their origin."""
    room = max(12, _WIDEST - len(line.origin) - 3)
    return line if len(line.events) <= room else Line(f"{line.events[: room - 1]}…", line.origin)


def _legend(cards: list[_Card]) -> str:
    notes = []
    if any(child.place and child.place == card.node.example.place for card in cards for child in card.children):
        notes.append("dashed: within one place")
    if any(not card.lines for card in cards):
        notes.append("no lines: the worker only divides, it has no events of its own")
    if any(card.node.times > 1 for card in cards):
        notes.append("stacked cards: alike workers, drawn once")
    return f'<div style="font-size:11px;color:#5b6b7b;margin-top:10px">{"; ".join(notes)}</div>' if notes else ""
