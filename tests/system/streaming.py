"""What tests of Structured Streaming share: rows in files, streams over them, and the whole as the oracle sees it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import flumina as fl
from flumina.apps import Fraud, PageViews
from flumina.testing import assert_same_outputs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from flumina.spark.streaming.query import StreamingQuery

RULES, TRANSACTIONS = "rules", "transactions"
DDL = {RULES: "ts long, r long", TRANSACTIONS: "ts long, v long"}
NOW = {"availableNow": True}
DELAYED = dict.fromkeys(DDL, fl.BoundedDelay(40))


def declared() -> list[fl.Stream]:
    """The streams of fraud detection, without data."""
    return [
        fl.Stream(RULES, Fraud.rule, None, sorted=False),
        fl.Stream(TRANSACTIONS, Fraud.transaction, None, sorted=False),
    ]


@dataclass(frozen=True)
class Files:
    """Rows of fraud detection in files, one of each stream a batch; those of transactions are out of order."""

    folder: Path
    tables: Mapping[str, Sequence[pa.Table]]

    @staticmethod
    def make(folder: Path, batches: int = 4, rows: int = 60, seed: int = 1) -> Files:
        """Write the files; rules lag behind transactions, so that rows are buffered."""
        rng = np.random.default_rng(seed)
        found: dict[str, list[pa.Table]] = {name: [] for name in DDL}
        for number in range(batches):
            ts = rng.permutation(rows) + number * rows
            values = rng.integers(0, 8, rows) * 250
            found[TRANSACTIONS].append(pa.table({"ts": ts, "v": values}))
            times = np.arange(0, rows, 12) + number * rows - (25 if number else 0)
            found[RULES].append(pa.table({"ts": times, "r": rng.integers(0, 4, len(times)) * 250}))
        made = Files(folder, found)
        made.write()
        return made

    def write(self) -> None:
        """Have the rows in files."""
        for name, tables in self.tables.items():
            (self.folder / name).mkdir(parents=True)
            for number, table in enumerate(tables):
                path = self.folder / name / f"{number:03d}.parquet"
                pq.write_table(table, path)
                os.utime(path, (1e9 + number, 1e9 + number))  # files are taken in order of their age

    def read(self, spark: SparkSession, name: str, ddl: str) -> DataFrame:
        """A stream that takes one file a batch."""
        return spark.readStream.schema(ddl).option("maxFilesPerTrigger", 1).parquet(str(self.folder / name))

    def streams(self, spark: SparkSession) -> list[fl.Stream]:
        """One file of each stream a batch."""
        return [replace(stream, data=self.read(spark, stream.name, DDL[stream.name])) for stream in declared()]

    def whole(self) -> list[fl.Stream]:
        """All of it, as the oracle has it."""
        return [replace(s, data=pa.concat_tables(self.tables[s.name])) for s in declared()]

    def expected(self) -> dict[str, pa.Table]:
        """The sequential program on all of it."""
        return dict(fl.spec(Fraud, self.whole()).outputs)


PAGES = {"changes": "ts long, page string, info string", "views": "ts long, page string, user long"}


@dataclass(frozen=True)
class Pages(Files):
    """Rows of page views, in the same way: of many pages, which workers have between them."""

    @staticmethod
    def make(folder: Path, batches: int = 4, rows: int = 60, seed: int = 1) -> Pages:
        """Write the files; changes lag behind views."""
        rng = np.random.default_rng(seed)
        found: dict[str, list[pa.Table]] = {name: [] for name in PAGES}
        for number in range(batches):
            pages = [f"page {page}" for page in rng.integers(0, 25, 2 * rows)]
            infos = [f"info {number}.{n}" for n in range(rows)]
            changes = np.arange(rows) + number * rows
            found["changes"].append(pa.table({"ts": changes, "page": pages[:rows], "info": infos}))
            ts = rng.permutation(rows) + number * rows + 25
            found["views"].append(pa.table({"ts": ts, "page": pages[rows:], "user": rng.integers(0, 99, rows)}))
        made = Pages(folder, found)
        made.write()
        return made

    def streams(self, spark: SparkSession) -> list[fl.Stream]:
        return [replace(stream, data=self.read(spark, stream.name, PAGES[stream.name])) for stream in _pages()]

    def oracle(self) -> fl.SpecResult:
        """The sequential program on all of it."""
        return fl.spec(PageViews, [replace(s, data=pa.concat_tables(self.tables[s.name])) for s in _pages()])

    def expected(self) -> dict[str, pa.Table]:
        return dict(self.oracle().outputs)


def _pages() -> list[fl.Stream]:
    return [
        fl.Stream("changes", PageViews.change, None, sorted=False),
        fl.Stream("views", PageViews.view, None, sorted=False),
    ]


def start(spark: SparkSession, streams: Sequence[fl.Stream], folder: Path, **more: Any) -> StreamingQuery:
    """A query with its sink and its checkpoint in a folder; for so few rows the default plan would be one worker."""
    from flumina import spark as engine  # noqa: PLC0415 -- only where it is needed

    options: dict[str, Any] = {"trigger": NOW, "watermarks": DELAYED, "drain": True, "optimizer": "greedy", **more}
    sink = options.pop("sink", folder / "out")
    return engine.start(options.pop("program", Fraud), streams, sink, folder / "checkpoint", spark=spark, **options)


def found(folder: Path, expected: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """What is in the sink, as any reader of Parquet sees it."""
    tables = {}
    for name, wanted in expected.items():
        place = folder if tuple(expected) == ("output",) else folder / name
        files = sorted(place.glob("batch=*/*.parquet"))
        read = [pq.read_table(file, partitioning=None).cast(wanted.schema) for file in files]
        tables[name] = pa.concat_tables(read) if read else wanted.schema.empty_table()
    return tables


def assert_exactly_once(folder: Path, expected: Mapping[str, pa.Table]) -> None:
    """Every row of the oracle is in the sink once, and nothing else is."""
    assert_same_outputs(found(folder, expected), expected)


def collected(frame: DataFrame, like: pa.Table) -> pa.Table:
    """A DataFrame as a table; Spark says of no column that it is never null."""
    return frame.toArrow().cast(like.schema)


class Watcher:
    """Kills something whenever a batch runs on, until it has done so often enough."""

    def __init__(self, harm: Callable[[], bool], times: int) -> None:
        self.harm, self.left = harm, times
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._watch)

    def _watch(self) -> None:
        while self.left and not self.over.wait(0.05):
            if self.harm():
                self.left -= 1
                self.over.wait(1.0)

    def __enter__(self) -> None:
        self.thread.start()

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()
