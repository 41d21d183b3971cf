"""Line charts as SVG, with nothing but text: measured points are filled, simulated ones are hollow on dashed lines.

Every point may have a bar from its lowest to its highest value. Axes are linear or logarithmic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 560, 340
LEFT, RIGHT, TOP, BOTTOM = 66, 14, 14, 46
ROW = 17
"""Height of a line of the legend, which stands below the chart."""
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#444444")
"""Told apart by people who do not see all colors."""


@dataclass(frozen=True)
class Dot:
    """A point of a line, perhaps with a bar."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Line:
    """Points that belong together; lines with the same color number have the same color."""

    name: str
    dots: Sequence[Dot]
    color: int
    hollow: bool = False
    joined: bool = True
    """Whether there is a line between the points."""


@dataclass(frozen=True)
class Axis:
    """What is told along an axis, and how: ``unit`` is written behind the numbers."""

    title: str
    log: bool = False
    unit: str = ""
    zero: bool = True
    """Whether a linear axis begins at 0."""


class _Scale:
    """From values to places on the paper."""

    def __init__(self, values: Sequence[float], axis: Axis, start: float, end: float) -> None:
        self.axis, self.start, self.end = axis, start, end
        known = [value for value in values if not axis.log or value > 0] or [1.0]
        low, high = min(known), max(known)
        if axis.log:
            self.low, self.high = math.log10(low) - 0.08, math.log10(high) + 0.08
        else:
            self.low = 0.0 if axis.zero and low >= 0 else low - 0.05 * (high - low)
            self.high = high + 0.06 * (high - self.low)
        if self.high <= self.low:
            self.high = self.low + 1.0

    def at(self, value: float) -> float:
        """Where a value lies; what is not above 0 lies at the edge of a logarithmic axis."""
        raw = (math.log10(value) if value > 0 else self.low) if self.axis.log else value
        return self.start + (raw - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Round values to write at the axis."""
        if not self.axis.log:
            return _round_steps(self.low, self.high)
        decades = range(math.floor(self.low), math.ceil(self.high) + 1)
        parts = (1, 2, 5) if self.high - self.low < 2.2 else (1,)
        found = [part * 10.0**decade for decade in decades for part in parts]
        return [value for value in found if self.low <= math.log10(value) <= self.high]


def _round_steps(low: float, high: float) -> list[float]:
    raw = (high - low) / 5
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= raw)
    first = math.ceil(low / step - 1e-9)
    return [n * step for n in range(first, math.floor(high / step + 1e-9) + 1)]


def short(value: float, unit: str = "") -> str:
    """A number as people write it at an axis.

    >>> short(2_500_000), short(0.004, "s"), short(0.25), short(12), short(0.05, "%")
    ('2.5 M', '4 ms', '0.25', '12', '5 %')
    """
    if unit == "%":
        return f"{100 * value:.3g} %"
    if unit == "s" and value and abs(value) < 1:
        return f"{value * 1e3:.3g} ms" if abs(value) >= 1e-3 else f"{value * 1e6:.3g} µs"
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g} {letter}{unit}"
    return f"{value:.3g}{' ' if unit else ''}{unit}"


def chart(lines: Sequence[Line], x: Axis, y: Axis, title: str) -> str:
    """The chart as an SVG element; the title is for those who hear it read out."""
    dots = [dot for line in lines for dot in line.dots]
    heights = [v for dot in dots for v in (dot.y, dot.low, dot.high) if v is not None]
    across = _Scale([dot.x for dot in dots], x, LEFT, WIDTH - RIGHT)
    up = _Scale(heights, y, HEIGHT - BOTTOM, TOP)
    height = HEIGHT + ROW * len(lines)
    body = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"',
        f' role="img" font-family="sans-serif" font-size="12"><title>{escape(title)}</title>',
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        *_grid(across, up),
    ]
    for line in lines:
        body += _drawn(line, across, up)
    for number, line in enumerate(lines):
        body += _legend(line, HEIGHT + ROW * number + 2)
    return "\n".join([*body, "</svg>"])


def _grid(across: _Scale, up: _Scale) -> list[str]:
    found = []
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    for value in across.ticks():
        at = across.at(value)
        found.append(f'<path d="M{at:.1f} {TOP}V{bottom}" stroke="#e4e4e4"/>')
        text = short(value, across.axis.unit)
        found.append(f'<text x="{at:.1f}" y="{bottom + 16}" text-anchor="middle" fill="#444">{text}</text>')
    for value in up.ticks():
        at = up.at(value)
        found.append(f'<path d="M{LEFT} {at:.1f}H{right}" stroke="#e4e4e4"/>')
        text = short(value, up.axis.unit)
        found.append(f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end" fill="#444">{text}</text>')
    middle = (TOP + bottom) / 2
    found += [
        f'<path d="M{LEFT} {TOP}V{bottom}H{right}" fill="none" stroke="#888"/>',
        f'<text x="{(LEFT + right) / 2}" y="{HEIGHT - 10}" text-anchor="middle">{escape(across.axis.title)}</text>',
        f'<text transform="translate(13 {middle}) rotate(-90)" text-anchor="middle">{escape(up.axis.title)}</text>',
    ]
    return found


def _drawn(line: Line, across: _Scale, up: _Scale) -> list[str]:
    color = COLORS[line.color % len(COLORS)]
    places = [(across.at(dot.x), up.at(dot.y)) for dot in line.dots]
    found = []
    if line.joined and len(places) > 1:
        path = "L".join(f"{a:.1f} {b:.1f}" for a, b in places)
        dash = ' stroke-dasharray="5 4"' if line.hollow else ""
        found.append(f'<path d="M{path}" fill="none" stroke="{color}" stroke-width="1.6"{dash}/>')
    for dot, (a, b) in zip(line.dots, places, strict=True):
        if dot.low is not None and dot.high is not None and dot.high > dot.low:
            found.append(
                f'<path d="M{a:.1f} {up.at(dot.low):.1f}V{up.at(dot.high):.1f}" stroke="{color}" opacity=".55"/>'
            )
        fill = "#fff" if line.hollow else color
        label = f"{line.name}: {short(dot.x, across.axis.unit)}, {short(dot.y, up.axis.unit)}"
        found.append(
            f'<circle cx="{a:.1f}" cy="{b:.1f}" r="{3 if line.hollow else 4}" fill="{fill}" stroke="{color}">'
            f"<title>{escape(label)}</title></circle>"
        )
    return found


def _legend(line: Line, y: float) -> list[str]:
    color = COLORS[line.color % len(COLORS)]
    dash = ' stroke-dasharray="5 4"' if line.hollow else ""
    stroke = f'<path d="M{LEFT} {y + 6}H{LEFT + 26}" stroke="{color}" stroke-width="1.6"{dash}/>'
    fill = "#fff" if line.hollow else color
    return [
        stroke if line.joined else "",
        f'<circle cx="{LEFT + 13}" cy="{y + 6}" r="3.5" fill="{fill}" stroke="{color}"/>',
        f'<text x="{LEFT + 34}" y="{y + 10}">{escape(line.name)}</text>',
    ]
