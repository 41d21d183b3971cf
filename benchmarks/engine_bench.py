# ruff: noqa: INP001, T201 -- a script, which prints
"""How fast the engines are: each figure is a ratio of two things measured in the same run, in turns.

    python benchmarks/engine_bench.py                 # everything, on Spark
    python benchmarks/engine_bench.py parquet --engine local --rows 5000000

Two input parts, 10,000 values for each barrier and part, two cores. Time is from the first event read to the last
output of the slowest task, as the tasks tell it; the median of five runs, with the lowest and the highest.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import flumina as fl
from flumina import local
from flumina.apps import Fraud, PageViews, ValueBarrier
from flumina.engine.driver import RunResult

WINDOW = 10_000
PAGES = ("home", "news")


class Inputs:
    """Sorted Parquet files for the three programs, made once."""

    def __init__(self, folder: Path, rows: int) -> None:
        self.folder, self.rows = folder, rows
        rng = np.random.default_rng(1)
        rare = np.arange(2 * WINDOW - 1, 2 * rows, 2 * WINDOW)
        for part in range(2):
            ts = np.arange(rows) * 2 + part
            values = pa.table({"ts": ts, "v": rng.integers(0, 1 << 40, rows)})
            pq.write_table(values, folder / f"values-{part}.parquet")
            pages = pa.DictionaryArray.from_arrays(rng.integers(0, 2, rows).astype(np.int32), pa.array(PAGES))
            views = pa.table({"ts": ts, "page": pages.dictionary_decode(), "user": rng.integers(0, 1 << 30, rows)})
            pq.write_table(views, folder / f"views-{part}.parquet")
        pq.write_table(pa.table({"ts": rare}), folder / "barriers.parquet")
        pq.write_table(pa.table({"ts": rare, "r": rng.integers(0, 1000, len(rare))}), folder / "rules.parquet")
        pages = pa.array([PAGES[i % 2] for i in range(len(rare))])
        changes = pa.table({"ts": rare, "page": pages, "info": [f"info {i}" for i in range(len(rare))]})
        pq.write_table(changes, folder / "changes.parquet")

    def files(self, name: str) -> fl.Parquet:
        """The parts of a stream."""
        return fl.Parquet(sorted(str(path) for path in self.folder.glob(f"{name}*.parquet")))

    def streams(self, program: type[fl.Program]) -> list[fl.Stream]:
        """The streams of one of the programs."""
        if program is ValueBarrier:
            often, rare = ("values", ValueBarrier.value), ("barriers", ValueBarrier.barrier)
        elif program is Fraud:
            often, rare = ("values", Fraud.transaction), ("rules", Fraud.rule)
        else:
            often, rare = ("views", PageViews.view), ("changes", PageViews.change)
        return [fl.Stream(name, tag, self.files(name)) for name, tag in (often, rare)]


# -- the same by hand, in one process ---------------------------------------------------------------------------


def batches(path: Path, columns: Sequence[str]) -> Any:  # noqa: ANN401
    """The rows of a file, as fast as one thread reads them."""
    file = pq.ParquetFile(path)
    yield from file.iter_batches(131_072, columns=list(columns), use_threads=False)


class Windows:
    """A file cut at barriers, read as far as needed."""

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self.source = batches(path, ["ts", *columns])
        self.held: list[pa.RecordBatch] = []

    def upto(self, ts: int) -> list[pa.RecordBatch]:
        """All rows up to a timestamp that were not given before."""
        found = []
        while True:
            batch = self.held.pop() if self.held else next(self.source, None)
            if batch is None:
                return found
            times = batch.column(0).to_numpy()
            at = int(times.searchsorted(ts, "right"))
            if at:
                found.append(batch.slice(0, at))
            if at < len(times):
                self.held.append(batch.slice(at))
                return found


def by_hand_value_barrier(inputs: Inputs) -> int:
    """Sums between barriers."""
    bars = pq.read_table(inputs.folder / "barriers.parquet").column("ts").to_numpy()
    totals = np.zeros(len(bars) + 1, np.int64)
    for part in range(2):
        for batch in batches(inputs.folder / f"values-{part}.parquet", ["ts", "v"]):
            ts, values = batch.column(0).to_numpy(), batch.column(1).to_numpy()
            low, high = np.searchsorted(bars, (ts[0], ts[-1]))
            cuts = np.concatenate(([0], np.searchsorted(ts, bars[low:high], side="right")))
            full = cuts < len(values)
            totals[low : low + len(cuts)][full] += np.add.reduceat(values, cuts[full])
    return len(bars)


def by_hand_fraud(inputs: Inputs) -> int:
    """Flags and totals; the model of a window needs the total of the one before, of both parts."""
    rules = pq.read_table(inputs.folder / "rules.parquet")
    parts = [Windows(inputs.folder / f"values-{part}.parquet", ["v"]) for part in range(2)]
    model, rows = None, 0
    ends = [*zip(rules.column("ts").to_pylist(), rules.column("r").to_pylist(), strict=True), (1 << 62, 0)]
    for ts, rule in ends:
        total = 0
        for part in parts:
            for batch in part.upto(ts):
                values = batch.column(1).to_numpy()
                if model is not None:
                    rows += len(values[values % 1000 == model])
                total += int(values.sum())
        model, rows = (total + rule) % 1000, rows + 1
    return rows - 1


def by_hand_page_views(inputs: Inputs) -> int:
    """Columns of output for every view: page, user and what the page says."""
    changes = pq.read_table(inputs.folder / "changes.parquet").to_pylist()
    parts = [Windows(inputs.folder / f"views-{part}.parquet", ["page", "user"]) for part in range(2)]
    info: dict[str, str | None] = dict.fromkeys(PAGES)
    rows = 0
    for change in [*changes, {"ts": 1 << 62, "page": None, "info": None}]:
        for part in parts:
            for batch in part.upto(change["ts"]):
                pages = batch.column(1)
                for page in PAGES:
                    mine = batch.filter(pa.compute.equal(pages, page))
                    out = pa.record_batch(
                        [mine.column(1), mine.column(2), pa.repeat(pa.scalar(info[page], pa.string()), len(mine))],
                        names=["page", "user", "info"],
                    )
                    rows += out.num_rows
        if change["page"] is not None:
            rows += 1
            info[change["page"]] = change["info"]
    return rows


BY_HAND: dict[type[fl.Program], Callable[[Inputs], int]] = {
    ValueBarrier: by_hand_value_barrier,
    PageViews: by_hand_page_views,
    Fraud: by_hand_fraud,
}


# -- measuring --------------------------------------------------------------------------------------------------


class Engine:
    """Runs programs, and tells how long they took without starting up."""

    def __init__(self, name: str) -> None:
        self.name = name
        if name == "spark":
            from pyspark.sql import SparkSession  # noqa: PLC0415

            import flumina.spark  # noqa: PLC0415

            self.spark = (
                SparkSession.builder.master("local[2]")
                .config("spark.ui.enabled", "false")
                .config("spark.ui.showConsoleProgress", "false")
                .config("spark.driver.host", "127.0.0.1")
                .config("spark.driver.bindAddress", "127.0.0.1")
                .getOrCreate()
            )
            self.spark.sparkContext.setLogLevel("ERROR")
            self.call: Callable[..., RunResult] = flumina.spark.run
        else:
            self.call = local.run

    def run(self, program: type[fl.Program], streams: Sequence[fl.Stream], **options: Any) -> RunResult:  # noqa: ANN401
        """One run; outputs are counted and dropped unless they have a place to go."""
        options.setdefault("progress", False)
        options.setdefault("out", fl.NOWHERE)
        return self.call(program, streams, **options)


def timed(function: Callable[[], Any]) -> float:
    """Seconds of one call."""
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def shown(values: Sequence[float]) -> str:
    """Median, lowest and highest."""
    return f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})"


def parquet(engine: Engine, inputs: Inputs, rounds: int) -> None:
    """1. Direct Parquet with update_batch, against one plain process."""
    print(f"\n## 1. From sorted Parquet, {2 * inputs.rows:,} events, against one plain process\n")
    print("| program | by hand, M/s | two leaves, M/s | ratio (aim 1.6, at least 1.3) | sequential plan, ratio |")
    print("|---|---|---|---|---|")
    for program, by_hand in BY_HAND.items():
        streams = inputs.streams(program)
        engine.run(program, streams, workers=2)
        hand, two, one = [], [], []
        for _ in range(rounds):
            hand.append(timed(lambda: by_hand(inputs)))  # noqa: B023
            result = engine.run(program, streams, workers=2)
            assert sum(1 for s in result.stats.workers.values() if s.events > inputs.rows / 2) == 2, (
                result.plan.explain()
            )
            two.append(result.stats.seconds)
            one.append(engine.run(program, streams, optimiser="sequential").stats.seconds)
        ratios = [h / t for h, t in zip(hand, two, strict=True)]
        single = [h / t for h, t in zip(hand, one, strict=True)]
        rate = 2 * inputs.rows / 1e6
        print(
            f"| {program.__name__} | {rate / statistics.median(hand):.1f} | {rate / statistics.median(two):.1f} "
            f"| {shown(ratios)} | {shown(single)} |",
            flush=True,
        )


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", choices=["parquet", []], default=["parquet"])
    parser.add_argument("--engine", choices=["spark", "local"], default="spark")
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows of each part")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        inputs = Inputs(Path(folder), given.rows)
        engine = Engine(given.engine)
        for what in given.what:
            globals()[what](engine, inputs, given.rounds)


if __name__ == "__main__":
    main()
