"""What was found out: plain records, kept in a file for each section so that any of them can be made anew."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

SECTIONS = ("throughput", "baselines", "curves", "latency", "network", "outliers")
"""In this order: throughput finds the prices that others simulate with."""

How = Literal["measured", "simulated"]


@dataclass(frozen=True)
class Record:
    """One point of a figure: the median, and the lowest and the highest where there were several runs.

    ``figure`` and ``series`` say where it belongs, ``how`` whether a clock or the simulator said so.
    """

    figure: str
    series: str
    x: float
    y: float
    how: How
    low: float | None = None
    high: float | None = None

    @staticmethod
    def of(figure: str, series: str, x: float, values: Sequence[float], how: How = "measured") -> Record:
        """The record of several runs."""
        return Record(figure, series, x, statistics.median(values), how, min(values), max(values))


@dataclass(frozen=True)
class Results:
    """All records of a section, and where and how they were made."""

    section: str
    machine: dict[str, Any]
    quick: bool
    seconds: float
    records: tuple[Record, ...]

    def save(self, folder: Path) -> Path:
        """Write it beside the other sections; one record a line, so that changes can be read."""
        folder.mkdir(parents=True, exist_ok=True)
        about = {name: value for name, value in asdict(self).items() if name != "records"}
        head = json.dumps(about, indent=1)[:-2]
        rows = ",\n  ".join(json.dumps({k: v for k, v in asdict(r).items() if v is not None}) for r in self.records)
        path = folder / f"{self.section}.json"
        path.write_text(f'{head},\n "records": [\n  {rows}\n ]\n}}\n', encoding="utf-8")
        return path

    @staticmethod
    def load(path: Path) -> Results:
        """What :meth:`save` has written."""
        given = json.loads(path.read_text(encoding="utf-8"))
        return Results(**{**given, "records": tuple(Record(**row) for row in given["records"])})


def load_all(folder: Path) -> dict[str, Results]:
    """The sections that there are."""
    return {path.stem: Results.load(path) for path in sorted(folder.glob("*.json"))}
