"""Tables of the report: table 1 of the paper for Spark, and what is better read than drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.evaluation.case import PROGRAMS
from benchmarks.evaluation.figures import origin, speed_ups
from benchmarks.evaluation.plot import short
from benchmarks.evaluation.record import Record, Results

FORMS = ("Spark batch", "Spark streaming", "Spark by hand", "Flumina")
YES, NO = "✓", "✗"
KEYS = {"value-barrier": 1, "page-views": 2, "fraud": 1}
"""Keys that have any work to do: more cores than that are idle in keyed streaming."""
NODES = 12


@dataclass(frozen=True)
class Table:
    """Rows of text below a header; ``how`` says where the numbers come from."""

    name: str
    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str
    how: str

    def markdown(self) -> str:
        """The table as Markdown."""
        lines = [self.header, ["---"] * len(self.header), *self.rows]
        return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def tables(found: Mapping[str, Results]) -> dict[str, Table]:
    """All tables for which there are data, by name."""
    made = [
        _trade_offs(found["baselines"], found.get("throughput")) if "baselines" in found else None,
        _errors([found[name] for name in ("throughput", "outliers") if name in found]),
        _network(found["network"]) if "network" in found else None,
    ]
    return {table.name: table for table in made if table is not None}


def _trade_offs(systems: Results, scaling: Results | None) -> Table:
    """Table 1 of the paper, with one more row: whether there are answers before the input has ended."""
    rates = {(r.figure.removeprefix("systems "), r.series, int(r.x)): r.y for r in systems.records}
    ups = {(r.series, r.x): r.y for r in speed_ups(scaling) if r.how == "simulated"} if scaling else {}
    rows = []
    for program in PROGRAMS:
        for form in FORMS:
            by_hand = form == "Spark by hand"
            one, two, many = (rates.get((program, form, n)) for n in (1, 2, NODES))
            rows.append(
                [
                    program,
                    form,
                    *([NO, NO, YES] if by_hand else [YES, YES, YES]),
                    NO if form == "Spark batch" else YES,
                    short(two) if two else "",
                    f"{two / one:.1f}x" if one and two else "",
                    _at_twelve(program, form, one, many, ups.get((program, NODES))),
                ]
            )
    return Table(
        "trade-offs",
        "Table 1: what is given up for parallelism",
        [
            "program",
            "form",
            "PIP1: any number of workers",
            "PIP2: any partitioning",
            "PIP3: within the API",
            "answers while input comes",
            "events/s on 2 workers",
            "scaling, 1 to 2",
            f"scaling, 1 to {NODES}",
        ],
        rows,
        "PIP1 to PIP3 are the paper's questions: does the program stay as it is with another number of workers, with "
        "input divided in another way, and within what the API promises? "
        f"A stream has no work for more cores than keys, but for the JVM beside them; by hand, the {NODES} tasks that "
        "were measured sleep most of the time. Batch is free of all this, but it begins when the input has ended. By "
        "hand, every synchronizing event costs a second of `allGather`, and the program has to know how many tasks "
        "there are and which part each one reads.",
        origin(systems, systems.records),
    )


def _at_twelve(program: str, form: str, one: float | None, many: float | None, simulated: float | None) -> str:
    if form == "Flumina":
        return f"{simulated:.1f}x simulated" if simulated else ""
    if form == "Spark streaming":
        return f"{KEYS[program]} key{'s' if KEYS[program] > 1 else ''}"
    return f"{many / one:.1f}x" if one and many else "not known"


def _errors(sections: Sequence[Results]) -> Table | None:
    """How far the simulator is from what was measured."""
    cells: dict[str, dict[int, str]] = {}
    records: list[Record] = []
    for results in sections:
        for record in results.records:
            if record.figure == "model error":
                records.append(record)
                cells.setdefault(record.series, {})[int(record.x)] = f"{100 * record.y:+.0f} %"
    if not records:
        return None
    return Table(
        "model-error",
        "How far the simulator is off",
        ["program", "1 worker", "2 workers"],
        [[series, found.get(1, ""), found.get(2, "")] for series, found in cells.items()],
        "Simulated over measured throughput, less one. Prices were fitted to the runs marked so; the others were "
        "predicted.",
        origin(sections[0], records),
    )


def _network(results: Results) -> Table:
    by = {(r.figure, r.series, int(r.x)): r.y for r in results.records}
    counts = sorted({int(r.x) for r in results.records})
    rows = [
        [
            str(n),
            short(by["network", "read by workers", n], "B"),
            short(by["network", "between workers", n], "B"),
            f"{100 * by['network share', 'of what is read', n]:.2f} %",
        ]
        for n in counts
    ]
    return Table(
        "network",
        "Smart homes: what is sent",
        ["workers", "read", "sent between workers", "share"],
        rows,
        "The paper: 362 MB of 29 GB, 1.2 %.",
        origin(results, results.records),
    )
