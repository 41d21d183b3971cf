"""The report: Markdown with figures beside it, and one HTML page that needs nothing else."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template

from benchmarks.evaluation.figures import Drawn, drawn
from benchmarks.evaluation.record import SECTIONS, Results, load_all
from benchmarks.evaluation.tables import Table, tables


@dataclass(frozen=True)
class Part:
    """A heading, what it is about, and the tables and figures below it."""

    heading: str
    text: str
    tables: tuple[str, ...]
    figures: tuple[str, ...]


PARTS = (
    Part(
        "Flumina and plain PySpark",
        "The paper asks of Flink and Timely what we ask of Spark: can programs that need synchronization be parallel "
        "without giving up that they are independent of the number of workers (PIP1), of how input is divided (PIP2), "
        "and within what the API promises (PIP3)? Three programs are written in plain PySpark in three ways (see "
        "`benchmarks/baselines`), all with the outputs of the sequential program, and once with Flumina.",
        ("trade-offs",),
        ("systems-value-barrier", "systems-page-views", "systems-fraud"),
    ),
    Part(
        "Throughput and workers",
        "Measured where this machine has cores; beyond that, the same workers run in virtual time, with prices for "
        "events, messages and hops that were fitted to measured runs.",
        ("model-error",),
        ("speed-up", "throughput"),
    ),
    Part("Throughput and latency", "Section 4.3 of the paper.", (), ("curve-page-views", "curve-fraud")),
    Part(
        "Latency, workers, ratio and heartbeats",
        "Appendix D.1 of the paper.",
        (),
        ("latency-workers", "latency-heartbeats"),
    ),
    Part("Case studies", "Appendix A of the paper.", ("network",), ("network", "outliers")),
)

_STYLE = """
body { font: 15px/1.5 sans-serif; max-width: 1180px; margin: 2em auto; padding: 0 1em; color: #222 }
h1, h2 { line-height: 1.2 } h2 { margin-top: 2em; border-top: 1px solid #ddd; padding-top: 1em }
table { border-collapse: collapse; margin: 1em 0 } th, td { border: 1px solid #ccc; padding: .25em .6em }
th { background: #f4f4f4; text-align: left; font-weight: 600 } td { font-variant-numeric: tabular-nums }
td.yes, td.no { text-align: center; color: #067a3a } td.no { color: #b3261e } td:first-child { white-space: nowrap }
td + td { white-space: nowrap } tr.first td { border-top: 2px solid #888 }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(480px, 1fr)); gap: 1.5em }
figure { margin: 0 } figure svg { width: 100%; height: auto } figcaption, .about { color: #444; font-size: 13px }
figure h3 { margin: .2em 0; font-size: 15px }
"""

_PAGE = Template("""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Flumina: evaluation</title><style>$style</style></head>
<body><h1>Flumina: evaluation</h1>
$body
</body></html>
""")


def write(folder: Path) -> list[Path]:
    """Make the report from the data in a folder; returns what was written."""
    found = load_all(folder / "data")
    made, shown = tables(found), drawn(found)
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    paths = []
    for name, figure in shown.items():
        paths.append(folder / "figures" / f"{name}.svg")
        paths[-1].write_text(figure.svg + "\n", encoding="utf-8")
    for name, text in (("report.md", _markdown(found, made, shown)), ("report.html", _html(found, made, shown))):
        paths.append(folder / name)
        paths[-1].write_text(text, encoding="utf-8")
    return paths


def about(found: Mapping[str, Results]) -> str:
    """What the figures were made with, and how to make them again."""
    missing = [name for name in SECTIONS if name not in found]
    machines = {
        ", ".join(f"{name} {value}" for name, value in results.machine.items() if name not in ("load before", "date"))
        for results in found.values()
    }
    lines = ["Made by `make bench`; one section alone by `python -m benchmarks.evaluation throughput`."]
    lines += [f"Machine: {machine}." for machine in sorted(machines)]
    lines += [f"Not measured yet: {', '.join(missing)}."] if missing else []
    return " ".join(lines)


def _markdown(found: Mapping[str, Results], made: Mapping[str, Table], shown: Mapping[str, Drawn]) -> str:
    lines = ["# Evaluation", "", about(found), ""]
    for part in PARTS:
        lines += [f"## {part.heading}", "", part.text, ""]
        for table in (made[name] for name in part.tables if name in made):
            lines += [f"### {table.title}", "", table.markdown(), "", f"{table.how} {table.caption}", ""]
        for one in (shown[name] for name in part.figures if name in shown):
            lines += [f"### {one.figure.title}", "", f"![{one.figure.title}](figures/{one.figure.name}.svg)", ""]
            lines += [f"{one.how} {one.figure.caption}", ""]
    return "\n".join(lines)


def _html(found: Mapping[str, Results], made: Mapping[str, Table], shown: Mapping[str, Drawn]) -> str:
    body = [f'<p class="about">{_inline(about(found))}</p>']
    for part in PARTS:
        body += [f"<h2>{html.escape(part.heading)}</h2>", f"<p>{_inline(part.text)}</p>"]
        body += [_table(made[name]) for name in part.tables if name in made]
        body += ['<div class="figures">']
        body += [_figure(shown[name]) for name in part.figures if name in shown]
        body += ["</div>"]
    return _PAGE.substitute(style=_STYLE, body="\n".join(body))


def _figure(one: Drawn) -> str:
    caption = f"<figcaption>{_inline(one.how)} {_inline(one.figure.caption)}</figcaption>"
    return f"<figure><h3>{html.escape(one.figure.title)}</h3>{one.svg}{caption}</figure>"


def _table(table: Table) -> str:
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in table.header)
    rows, before = [], None
    for cells in table.rows:
        kinds = {"✓": ' class="yes"', "✗": ' class="no"'}
        first = ' class="first"' if cells[0] != before and before is not None else ""
        before = cells[0] if len(table.header) > 4 else None
        rows.append(f"<tr{first}>" + "".join(f"<td{kinds.get(c, '')}>{html.escape(c)}</td>" for c in cells) + "</tr>")
    return (
        f"<h3>{html.escape(table.title)}</h3><table><tr>{head}</tr>{''.join(rows)}</table>"
        f'<p class="about">{_inline(table.how)} {_inline(table.caption)}</p>'
    )


def _inline(text: str) -> str:
    """The little Markdown that captions have: bold and code."""
    escaped = html.escape(text)
    escaped = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", escaped)
    return re.sub(r"`(.+?)`", r"<code>\1</code>", escaped)
