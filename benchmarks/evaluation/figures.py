"""Which records become which chart, and what is said below it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from benchmarks.evaluation.case import PROGRAMS, RATIO
from benchmarks.evaluation.machine import was_loaded
from benchmarks.evaluation.plot import Axis, Dot, Line, chart
from benchmarks.evaluation.record import Record, Results

WORKERS = Axis("workers")
EVENTS = Axis("events/s", log=True)


@dataclass(frozen=True)
class Figure:
    """A chart of one section. ``pick`` gives its records; their series are what the legend says."""

    name: str
    section: str
    title: str
    x: Axis
    y: Axis
    caption: str
    pick: Callable[[Results], Iterable[Record]]


def named(figure: str) -> Callable[[Results], Iterable[Record]]:
    """The records of a figure as they are."""
    return lambda results: [record for record in results.records if record.figure == figure]


def _throughput(results: Results) -> Iterable[Record]:
    """One series for each program, at the paper's ratio."""
    for program in PROGRAMS:
        for record in named(f"throughput {program}")(results):
            if record.series == f"ratio {RATIO}":
                yield replace(record, series=program)


def speed_ups(results: Results, most: int = 20) -> list[Record]:
    """Throughput as multiples of one worker's: measured by measured, simulated by simulated."""
    found = list(_throughput(results))
    alone = {(record.series, record.how): record.y for record in found if record.x == 1}
    ups = []
    for record in found:
        base = alone.get((record.series, record.how))
        if base and record.x <= most:
            low, high = (None if v is None else v / base for v in (record.low, record.high))
            ups.append(replace(record, y=record.y / base, low=low, high=high))
    return ups


FIGURES = (
    *(
        Figure(
            f"systems-{program}",
            "baselines",
            f"{program}: Flumina and plain PySpark",
            replace(WORKERS, log=True),
            EVENTS,
            "Whole runs from the same Parquet files, start-up and planning included; outputs are dropped. One part of "
            "input for each worker. By hand on 12 tasks, too: they sleep nearly all the time.",
            named(f"systems {program}"),
        )
        for program in PROGRAMS
    ),
    Figure(
        "speed-up",
        "throughput",
        "Speed-up of Flumina up to 20 workers",
        WORKERS,
        Axis("multiple of one worker"),
        "The paper's figure for its own prototype; input grows with the workers, one synchronizing event for 10,000 "
        "events on each part.",
        speed_ups,
    ),
    Figure(
        "throughput",
        "throughput",
        "Throughput of Flumina up to 1,000 workers",
        replace(WORKERS, log=True),
        EVENTS,
        "The same in events a second. From the first event read to the last output, without start-up.",
        _throughput,
    ),
    *(
        Figure(
            f"curve-{program}",
            "curves",
            f"{program}: latency as input grows",
            Axis("events/s reached", log=True),
            Axis("latency of outputs, median", log=True, unit="s"),
            "Bars go from the 10th to the 90th percentile. Spark: keyed stateful streaming, with the shortest interval "
            "between micro-batches that it keeps up with when idle. A curve ends where it reaches less than 70 % of "
            "what comes in.",
            named(f"curve {program}"),
        )
        for program in ("page-views", "fraud")
    ),
    Figure(
        "latency-workers",
        "latency",
        "Latency of barriers against workers",
        WORKERS,
        Axis("latency, median", log=True, unit="s"),
        "Value-barrier with 10,000 values/s on each part, 200 heartbeats/s; the ratio is that of values to barriers on "
        "each part. Bars: 10th to 90th percentile. More than 2 workers share the cores.",
        named("latency workers"),
    ),
    Figure(
        "latency-heartbeats",
        "latency",
        "Latency of barriers against heartbeats",
        Axis("heartbeats/s", log=True),
        Axis("latency, median", log=True, unit="s"),
        "The same with 5 workers, on fewer cores.",
        named("latency heartbeats"),
    ),
    Figure(
        "network",
        "network",
        "Smart homes: bytes between workers",
        replace(WORKERS, log=True),
        Axis("bytes", log=True, unit="B"),
        "A day of 20 houses with 1,040 plugs, a prediction every hour. Sent: all bytes of messages between processes; "
        "read: 28 bytes a reading.",
        named("network"),
    ),
    Figure(
        "outliers",
        "outliers",
        "Outlier detection: speed-up",
        WORKERS,
        Axis("multiple of one worker"),
        "The same connections on more workers, a query for 40,000. The paper reports 7.3 on 8 nodes, and 7.7 for the "
        "original implementation in C++.",
        named("outliers"),
    ),
)


@dataclass(frozen=True)
class Drawn:
    """A figure with what there is to see and to say."""

    figure: Figure
    svg: str
    how: str


def draw(figure: Figure, results: Results) -> Drawn:
    """The chart of a figure; measured points before simulated ones."""
    records = list(figure.pick(results))
    series = list(dict.fromkeys(record.series for record in records))
    lines = []
    for number, name in enumerate(series):
        for how in ("measured", "simulated"):
            dots = [Dot(r.x, r.y, r.low, r.high) for r in records if (r.series, r.how) == (name, how)]
            if dots:
                lines.append(Line(f"{name}, {how}", dots, number, hollow=how == "simulated"))
    return Drawn(figure, chart(lines, figure.x, figure.y, figure.title), origin(results, records))


def origin(results: Results, records: Iterable[Record]) -> str:
    """A sentence about where figures come from."""
    kinds = dict.fromkeys(record.how for record in records)
    machine = results.machine
    where = f"on {machine['cores']} cores"
    if was_loaded(machine):
        where += f" (load {machine['load before']} when it began, what was measured just before included)"
    said = {
        "measured": f"**Measured** {where}, {machine['date']}{', the quick form' if results.quick else ''}",
        "simulated": "**simulated** in virtual time, with prices fitted to runs on one and two workers",
    }
    text = "; ".join(said[kind] for kind in ("measured", "simulated") if kind in kinds)
    return f"{text}.".replace("**s", "**S", 1) if text.startswith("**s") else f"{text}."


def drawn(found: Mapping[str, Results]) -> dict[str, Drawn]:
    """All figures for which there are data, by name."""
    return {
        figure.name: draw(figure, found[figure.section])
        for figure in FIGURES
        if figure.section in found and any(True for _ in figure.pick(found[figure.section]))
    }
