"""The events of a case in the form that it asks for: tables, files or DataFrames."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

import flumina as fl
from flumina.apps import Fraud, PageViews, ValueBarrier
from tests.scale.cases import FILE, FILES, FRAME, MEMORY, PARTITIONS, THREE, TWO, UNION, Case
from tests.scale.events import MODELS, Model, expected, log
from tests.scale.programs import Reported, Totals

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PROGRAMS: dict[str, type[fl.Program]] = {
    "value-barrier": ValueBarrier,
    "page-views": PageViews,
    "fraud": Fraud,
    "keys-1M": Totals,
    "keys-100k": Totals,
    "keys-200k-report": Reported,
}
_PARTS = {MEMORY: 2, FILE: 1, FILES: 100, FRAME: 2, TWO: 2, THREE: 2, UNION: 2, PARTITIONS: 8}
"""How many parts the large stream of a shape has; on Spark, each is a file."""

_GROUP_ROWS = 250_000
"""Rows of a row group, so that writing and reading a large file takes little memory."""


@dataclass(frozen=True)
class Layout:
    """One stream of a case: its name and the kinds of its events."""

    name: str
    kinds: tuple[int, ...]
    half: int | None = None
    """Which half of these events it has, if they are divided over two streams."""


def layouts(model: Model, shape: str) -> list[Layout]:
    """List the streams of a shape, in their order: rare events first, as in the README."""
    kinds = model.kinds
    rare = [Layout(f"{kinds[number]}s", (number,)) for number in range(len(kinds) - 1, 0, -1)]
    large = Layout(f"{kinds[0]}s", (0,))
    if shape in {FRAME, UNION, PARTITIONS}:
        return [Layout("events", tuple(range(len(kinds))))]
    if shape == TWO and len(rare) > 1:
        return [Layout("others", tuple(range(1, len(kinds)))), large]
    if shape == THREE and len(rare) == 1:
        return [*rare, Layout(f"{large.name}-a", (0,), half=0), Layout(f"{large.name}-b", (0,), half=1)]
    return [*rare, large]


@dataclass(frozen=True)
class Input:
    """The events of a case in a folder: ``log.parquet``, and for each stream a folder with a file for each part."""

    case: Case
    folder: Path

    @property
    def model(self) -> Model:
        """The program as numpy sees it."""
        return MODELS[self.case.program]

    @property
    def streams(self) -> list[Layout]:
        """The streams of the case."""
        return layouts(self.model, self.case.shape)

    def make(self) -> None:
        """Write the files."""
        case, model = self.case, self.model
        self.folder.mkdir(parents=True, exist_ok=True)
        table = log(model, case.rows, case.seed, seq=case.seq)
        pq.write_table(table, self.folder / "log.parquet", row_group_size=_GROUP_ROWS, compression="none")
        stream = self._stream_of(table)
        rng = np.random.default_rng([case.seed, 2])
        for number, placement in enumerate(self.streams):
            mine = np.flatnonzero(stream == number)
            if case.batches:
                mine = _jittered(mine, rng)
            elif not case.sorted:
                mine = rng.permutation(mine)
            (self.folder / placement.name).mkdir()
            parts = case.batches or (_PARTS[case.shape] if 0 in placement.kinds else 1)
            for part, rows in enumerate(np.array_split(mine, parts)):
                self._write(table, placement, rows, self.folder / placement.name / f"{part:05d}.parquet", part)

    def _write(self, table: pa.Table, placement: Layout, rows: npt.NDArray[np.int64], path: Path, part: int) -> None:
        model = self.model
        fields = dict.fromkeys(field for kind in placement.kinds for field in model.fields[model.kinds[kind]])
        names = ["ts", *(["seq"] if self.case.seq else []), *(["kind"] if len(placement.kinds) > 1 else []), *fields]
        chosen = table.select(names)
        whole = len(rows) == table.num_rows and self.case.sorted and not self.case.batches
        mine = chosen if whole else chosen.take(pa.array(rows))
        pq.write_table(mine, path, row_group_size=_GROUP_ROWS, compression="none")
        os.utime(path, (1e9 + part, 1e9 + part))  # a streaming query takes files in the order of their age

    def _stream_of(self, table: pa.Table) -> npt.NDArray[np.int8]:
        """Return for each event of the log the number of its stream."""
        kind = table["kind"].to_numpy()
        found = np.empty(len(kind), np.int8)
        half = np.arange(len(kind)) // 7 % 2
        for number, placement in enumerate(self.streams):
            mine = np.isin(kind, placement.kinds)
            found[mine if placement.half is None else mine & (half == placement.half)] = number
        return found

    def expected(self) -> dict[str, pa.Table]:
        """Compute what the program must emit."""
        table = pq.read_table(self.folder / "log.parquet")
        return expected(self.model, table, self._stream_of(table), [placement.name for placement in self.streams])

    def paths(self, placement: Layout) -> list[Path]:
        """List the files of a stream."""
        return sorted((self.folder / placement.name).iterdir())

    def tables(self) -> list[fl.Stream]:
        """Return the streams in memory, as :data:`MEMORY` has them and for the oracle."""
        return [
            self._stream(placement, [pq.read_table(p) for p in self.paths(placement)]) for placement in self.streams
        ]

    def files(self) -> list[fl.Stream]:
        """Return the streams as files that tasks read."""
        return [self._stream(placement, fl.Parquet(self.paths(placement))) for placement in self.streams]

    def frames(self, spark: SparkSession, settings: ExitStack) -> list[fl.Stream]:
        """Return the streams as DataFrames; what that needs in the session is set back when the stack is closed."""
        if self.case.shape == PARTITIONS:
            least = "spark.sql.files.minPartitionNum"
            before = spark.conf.get(least, None)
            spark.conf.set(least, _PARTS[PARTITIONS])
            settings.callback(lambda: spark.conf.unset(least) if before is None else spark.conf.set(least, before))
        return [self._stream(placement, self._frame(spark, placement)) for placement in self.streams]

    def batches(self, spark: SparkSession) -> list[fl.Stream]:
        """Return the streams as streaming DataFrames that take a file a batch."""
        return [
            self._stream(
                placement,
                spark.readStream.schema(spark.read.parquet(str(self.paths(placement)[0])).schema)
                .option("maxFilesPerTrigger", 1)
                .parquet(str(self.folder / placement.name)),
            )
            for placement in self.streams
        ]

    def _frame(self, spark: SparkSession, placement: Layout) -> DataFrame:
        whole = spark.read.parquet(str(self.folder / placement.name))
        if self.case.shape != UNION:
            return whole
        union = whole.filter(f"kind = {placement.kinds[0]}")
        for kind in placement.kinds[1:]:
            union = union.unionByName(whole.filter(f"kind = {kind}"))
        return union

    def _stream(self, placement: Layout, data: Any) -> fl.Stream:
        tags = {number: getattr(PROGRAMS[self.case.program], self.model.kinds[number]) for number in placement.kinds}
        seq = "seq" if self.case.seq else None
        if len(tags) > 1:
            return fl.Stream(placement.name, tags, data, seq=seq, tag_column="kind", sorted=self.case.sorted)
        return fl.Stream(placement.name, tags[placement.kinds[0]], data, seq=seq, sorted=self.case.sorted)


LATE = 100
"""How many timestamps a row of a streaming case may be late by."""


def _jittered(rows: npt.NDArray[np.int64], rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Return rows a little out of order: none comes after one that is later than it by LATE timestamps."""
    return rows[np.argsort(rows + rng.integers(0, LATE // 4, len(rows)), kind="stable")]
