"""Format sizes, durations and tables for terminals and reports."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Sequence


def size(count: float) -> str:
    """Format a number of bytes.

    >>> size(17), size(2048), size(3 * 2**30)
    ('17 bytes', '2 KiB', '3.0 GiB')
    """
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:,.1f} GiB"


def duration(seconds: float) -> str:
    """Format a duration with two or three significant digits.

    >>> duration(0), duration(0.00035), duration(0.0123), duration(2.345), duration(312)
    ('0 s', '0.35 ms', '12 ms', '2.3 s', '312 s')
    """
    if seconds == 0:
        return "0 s"
    if seconds < 1:
        return f"{seconds * 1e3:.2g} ms" if seconds < 0.0995 else f"{seconds * 1e3:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds:,.0f} s"


def table(rows: Sequence[Sequence[str]], *, right: Collection[int] = ()) -> str:
    """Format rows as aligned columns; the columns ``right`` are right-aligned.

    >>> print(table([["page", "views"], ["home", "7"]], right=[1]))
    page  views
    home      7
    """
    widths = [max(map(width, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(_padded(cell, widths[n], right=n in right) for n, cell in enumerate(row)).rstrip() for row in rows
    )
    return "\n".join(lines)


def width(text: str) -> int:
    """Return the number of terminal columns that a text takes.

    >>> width("Zürich"), width("東京")
    (6, 4)
    """
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _padded(text: str, wide: int, *, right: bool) -> str:
    room = " " * (wide - width(text))
    return room + text if right else text + room


def printable(text: str) -> str:
    r"""Escape control characters of a terminal, except newlines.

    >>> print(printable("one\n\x1b[31mred\r"))
    one
    \x1b[31mred\r
    """
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)
