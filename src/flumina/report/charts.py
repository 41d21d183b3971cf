"""Draw bars, tables and histograms as HTML without scripts or external files."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from html import escape

from flumina.formatting import duration
from flumina.runtime.histogram import Histogram, upper_bound

_BARS = 28
"""The most bars of a histogram; neighboring buckets are merged."""


def stacked(parts: Mapping[str, float], whole: float) -> str:
    """Return a stacked bar: each part is as long as its fraction of ``whole``, and names a class of the style sheet."""
    bars = [
        f'<i class="{escape(name)}" style="width:{100 * value / whole:.2f}%" '
        f'title="{escape(name)}: {duration(value)}"></i>'
        for name, value in parts.items()
        if whole > 0 and value > 0
    ]
    return f'<span class="bar">{"".join(bars)}</span>'


def legend(names: Mapping[str, str]) -> str:
    """Return a legend of the colors of bars: the class of each color, and its label."""
    items = [f'<span><i class="{escape(name)}"></i>{escape(label)}</span>' for name, label in names.items()]
    return f'<p class="legend">{"".join(items)}</p>'


def table(
    head: Sequence[str], rows: Sequence[Sequence[str]], *, right: Collection[int] = (), narrow: bool = False
) -> str:
    """Return a table; its cells are HTML already, and the columns ``right`` are right-aligned."""

    def cells(kind: str, row: Sequence[str]) -> str:
        looks = (' class="number"' if n in right else "" for n in range(len(row)))
        return "".join(f"<{kind}{look}>{cell}</{kind}>" for look, cell in zip(looks, row, strict=True))

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    kind = ' class="narrow"' if narrow else ""
    header = f"<thead><tr>{cells('th', head)}</tr></thead>"
    return f'<div class="wide"><table{kind}>{header}<tbody>{body}</tbody></table></div>'


def histogram(durations: Histogram) -> str:
    """Return a histogram of durations as SVG, on a logarithmic scale."""
    bars = _bars(durations)
    most = max(bars.values())
    wide, high = 22, 120
    drawn = []
    for n, (longest, times) in enumerate(bars.items()):
        tall = max(1.0 if times else 0.0, high * times / most)
        drawn.append(
            f'<g><title>up to {duration(longest)}: {times:,}</title><rect x="{n * wide}" y="{high - tall:.1f}" '
            f'width="{wide - 3}" height="{tall:.1f}" fill="#3b6fb6"/></g>'
        )
        if n % 4 == 0 or (n == len(bars) - 1 and n % 4 > 1):
            drawn.append(
                f'<text x="{n * wide}" y="{high + 16}" font-size="11" fill="#5b6b7b">{duration(longest)}</text>'
            )
    width = max(len(bars) * wide + 50, 120)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="latency of outputs" width="{width}" '
        f'height="{high + 24}" viewBox="0 0 {width} {high + 24}">{"".join(drawn)}</svg>'
    )


def _bars(durations: Histogram) -> dict[float, int]:
    """Return the count of each bar, by its longest duration."""
    first, last = min(durations.counts), max(durations.counts)
    step = -(-(last - first + 1) // _BARS)
    bars: dict[float, int] = {}
    for start in range(first, last + 1, step):
        buckets = range(start, min(start + step, last + 1))
        bars[upper_bound(buckets[-1])] = sum(durations.counts.get(bucket, 0) for bucket in buckets)
    return bars
