"""Format what became of cases, as lines and as a table of a document."""

from __future__ import annotations

from collections.abc import Sequence

from tests.scale.watch import OK, Verdict

BEGIN, END = "<!-- table: scale -->", "<!-- end of table -->"
_ROLES = ("driver", "task", "jvm")


def row(verdict: Verdict) -> str:
    """Format one case as a line for people who wait."""
    figures = verdict.figures
    took = f"{figures['seconds']:.1f} s, {figures['rows/s']:,} rows/s" if "seconds" in figures else "no end"
    memory = ", ".join(f"{role} {_megabytes(verdict, role)} MB" for role in _ROLES if f"{role} bytes" in figures)
    detail = f": {verdict.detail[:400]}" if verdict.detail else ""
    return f"{verdict.status.upper() if verdict.status != OK else OK} ({took}; {memory}){detail}"


def table(verdicts: Sequence[Verdict]) -> str:
    """Format all cases as a table in Markdown."""
    lines = [
        "| section | case | result | s | rows/s | driver MB | largest task MB | JVM MB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for verdict in verdicts:
        figures = verdict.figures
        seconds = f"{figures['seconds']:.1f}" if "seconds" in figures else ""
        rate = f"{figures['rows/s']:,}" if "rows/s" in figures else ""
        memory = " | ".join(_megabytes(verdict, role) for role in _ROLES)
        lines.append(
            f"| {verdict.case.section} | {verdict.case.name} | {verdict.status} | {seconds} | {rate} | {memory} |"
        )
    return "\n".join(lines)


def record(document: str, text: str) -> str:
    """Return a document with another text between the marks of the table."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"Expected {BEGIN} and {END} in the document")
    return f"{before}{begin}\n\n{text}\n\n{end}{after}"


def _megabytes(verdict: Verdict, role: str) -> str:
    found = verdict.figures.get(f"{role} bytes")
    return "" if found is None else f"{found / 2**20:.0f}"
