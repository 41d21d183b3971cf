"""The cases: a covering array over engines, inputs, programs and sizes, and the sizes that stand alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from tests.scale.pairs import Pair, Value, covering

LOCAL, SPARK = "local", "spark"
MEMORY, FILE, FILES = "memory", "file", "files"
FRAME, TWO, THREE, UNION, PARTITIONS = "frame", "frames-2", "frames-3", "union", "partitions-8"
FRAMES = (FRAME, TWO, THREE, UNION, PARTITIONS)

DIMENSIONS: dict[str, list[Value]] = {
    # One DataFrame with a partition for each task; two and three DataFrames; one that is a union; one of 8 partitions
    # on 2 tasks; in memory; a Parquet file for each stream; 100 Parquet files.
    "shape": [MEMORY, FILE, FILES, *FRAMES],
    "program": ["value-barrier", "page-views", "fraud", "keys-1M", "keys-200k-report"],
    "rows": [100_000, 500_000, 2_000_000, 5_000_000],
    "engine": [LOCAL, SPARK],
    "seq": [False, True],
    "sorted": [True, False],
    "ordered": [False, True],
}
FORBIDDEN: set[Pair] = {frozenset((("engine", LOCAL), ("shape", shape))) for shape in FRAMES}
"""DataFrames are an input of Spark only."""

SECTIONS = {
    "memory": "tables in memory",
    "files": "one Parquet file for each stream, and 100",
    "frame": "one DataFrame: in place, a union, 8 partitions on 2 tasks",
    "frames": "two and three DataFrames",
    "outputs": "10 M output rows, ordered and not",
    "huge": "50 M rows in one file",
    "streaming": "200 batches with 100,000 keys",
}


@dataclass(frozen=True)
class Case:
    """One run: which program, on what input, in which engine."""

    section: str
    engine: str
    shape: str
    program: str
    rows: int
    seq: bool = False
    sorted: bool = True
    ordered: bool = False
    batches: int = 0
    """How many micro-batches the input is divided into; 0 for a run over all of it."""
    seed: int = 1

    @property
    def name(self) -> str:
        """What the case is called: everything that tells it from others."""
        words = [self.engine, self.shape, self.program, size(self.rows)]
        words += ["seq"] * self.seq + ["unsorted"] * (not self.sorted) + ["ordered"] * self.ordered
        words += [f"{self.batches}-batches"] * bool(self.batches)
        return "/".join(words)

    @property
    def limit(self) -> float:
        """Seconds after which the run counts as hung on two idle cores: some five times what it should take."""
        return 120 + min(self.rows / 20_000, 600) + 5 * self.batches

    def to_json(self) -> dict[str, Any]:
        """Return what :meth:`of_json` takes."""
        return asdict(self)

    @staticmethod
    def of_json(fields: dict[str, Any]) -> Case:
        """Make a case of its fields."""
        return Case(**fields)


def size(rows: int) -> str:
    """Format a number of rows: 500k, 2M."""
    return f"{rows // 10**6}M" if rows % 10**6 == 0 else f"{rows / 1000:g}k"


def pairwise() -> Iterator[Case]:
    """Yield the covering array as cases."""
    sections = {MEMORY: "memory", FILE: "files", FILES: "files", TWO: "frames", THREE: "frames"}
    for choice in covering(DIMENSIONS, FORBIDDEN):
        fields: dict[str, Any] = dict(choice)
        yield Case(section=sections.get(fields["shape"], "frame"), **fields)


def all_cases() -> list[Case]:
    """List all cases, section by section."""
    alone = [
        Case("outputs", engine, FILES, "page-views", 10_000_000, ordered=ordered)
        for engine in (LOCAL, SPARK)
        for ordered in (False, True)
    ]
    alone += [Case("huge", engine, FILE, "value-barrier", 50_000_000) for engine in (LOCAL, SPARK)]
    alone += [Case("huge", SPARK, TWO, "value-barrier", 50_000_000, sorted=False)]
    alone += [Case("streaming", SPARK, FRAME, "keys-100k", 1_000_000, sorted=False, batches=200)]
    cases = [*pairwise(), *alone]
    return sorted(cases, key=lambda case: list(SECTIONS).index(case.section))


def smaller(case: Case, rows: int) -> Case:
    """Return the case with at most so many rows."""
    return replace(case, rows=min(case.rows, rows))
