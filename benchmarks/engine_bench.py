# ruff: noqa: INP001, T201, ARG001 -- a script, which prints; all measurements are called alike
"""How fast the engines are: each figure is a ratio of two things measured in the same run, in turns.

    python benchmarks/engine_bench.py                 # everything, on Spark
    python benchmarks/engine_bench.py parquet --engine local --rows 5000000

Two input parts, 10,000 values for each barrier and part, two cores. Time is from the first event read to the last
output of the slowest task, as the tasks tell it; the median of five runs, with the lowest and the highest.
"""

from __future__ import annotations

import argparse
import queue
import selectors
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import flumina as fl
from flumina import local
from flumina.apps import Fraud, PageViews, ValueBarrier
from flumina.engine.results import RunResult
from flumina.engine.transport.listener import Listener, Secret
from flumina.input.decode import decode
from flumina.local.pool import POOL
from flumina.model.emit import Emit

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
        options.setdefault("out", fl.DISCARD)
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
            one.append(engine.run(program, streams, optimizer="sequential").stats.seconds)
        ratios = [h / t for h, t in zip(hand, two, strict=True)]
        single = [h / t for h, t in zip(hand, one, strict=True)]
        rate = 2 * inputs.rows / 1e6
        print(
            f"| {program.__name__} | {rate / statistics.median(hand):.1f} | {rate / statistics.median(two):.1f} "
            f"| {shown(ratios)} | {shown(single)} |",
            flush=True,
        )


def frame(engine: Engine, inputs: Inputs, rounds: int) -> None:
    """2. One pre-sorted DataFrame with two partitions, against a bare mapInArrow that counts rows."""
    if engine.name != "spark":
        return
    rows = min(inputs.rows, 5_000_000)
    print(f"\n## 2. From one DataFrame with two partitions, {2 * rows:,} rows, against a mapInArrow that counts rows\n")
    mixed = (
        engine.spark.range(0, 2 * rows, 1, 2)
        .selectExpr("id AS ts", "id AS v", f"IF(id % {2 * WINDOW} = {2 * WINDOW - 1}, 'barrier', 'value') AS kind")
        .cache()
    )
    mixed.count()
    tags = {"value": ValueBarrier.value, "barrier": ValueBarrier.barrier}
    streams = [fl.Stream("all", tags, mixed, tag_column="kind")]

    def count(found: Any) -> Any:  # noqa: ANN401
        total = sum(batch.num_rows for batch in found)
        yield pa.record_batch([pa.array([total])], names=["n"])

    def bare() -> None:
        batch = "spark.sql.execution.arrow.maxRecordsPerBatch"
        before = engine.spark.conf.get(batch)
        engine.spark.conf.set(batch, 65_536)
        assert sum(row.n for row in mixed.mapInArrow(count, "n long").collect()) == 2 * rows
        engine.spark.conf.set(batch, before)

    plan = engine.run(ValueBarrier, streams).plan
    bare()
    ratios, included, inside, alone = [], [], [], []
    for _ in range(rounds):
        alone.append(timed(bare))
        began = time.perf_counter()
        result = engine.run(ValueBarrier, streams, plan=plan)
        included.append(alone[-1] / (time.perf_counter() - began))
        assert result.stats.shuffled_bytes == 0
        inside.append(result.stats.seconds)
        ratios.append(alone[-1] / inside[-1])
    million = 2 * rows / 1e6
    print("| bare, M rows/s | flumina, M rows/s | ratio (at least 0.8) | start-up of the run included |")
    print("|---|---|---|---|")
    fast, ours = million / statistics.median(alone), million / statistics.median(inside)
    print(f"| {fast:.2f} | {ours:.2f} | {shown(ratios)} | {shown(included)} |")


class ValueBarrierOneByOne(ValueBarrier):
    """Without code for batches."""

    update_batch = None  # type: ignore[assignment]


class FraudOneByOne(Fraud):
    """Without code for batches."""

    update_batch = None  # type: ignore[assignment]


class PageViewsOneByOne(PageViews):
    """Without code for batches."""

    update_batch = None  # type: ignore[assignment]


def bare_loop(program: type[fl.Program], streams: Sequence[fl.Stream]) -> float:
    """Seconds of a loop of Python that calls ``update`` for all events of the first part, made beforehand."""
    definition = fl.define(program)
    part = streams[0].source().read(0).slice(0, 300_000)
    batch = decode(streams[0], 0, 0, part, [stream.name for stream in streams]).batch
    events = list(batch)
    one = definition.lifted.one if definition.lifted is not None else definition
    kind, emit = one.kinds[one.initial], Emit(definition.outputs)
    states = {page: one.init() for page in (*PAGES, None)}
    began = time.perf_counter()
    update = kind.update
    for event in events:
        emit.event = event
        update(states[event.key], event, emit)
        emit.items.clear()
    return (time.perf_counter() - began) / len(events)


def one_by_one(engine: Engine, inputs: Inputs, rounds: int) -> None:
    """3. No batch code: against a bare loop of Python, and two leaves against one."""
    rows = 500_000
    print(f"\n## 3. One event at a time, {2 * rows:,} events\n")
    print(
        "| program | bare loop, ns/event | a worker, of the bare loop (at least 0.5) | two leaves, of one (at least 1.7) |"  # noqa: E501
    )
    print("|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        small = Inputs(Path(folder), rows)
        for program, plain in (
            (ValueBarrierOneByOne, ValueBarrier),
            (PageViewsOneByOne, PageViews),
            (FraudOneByOne, Fraud),
        ):
            streams = [replace_tag(stream, program) for stream in small.streams(plain)]
            engine.run(program, streams, workers=2)
            share, gain, loops = [], [], []
            for _ in range(rounds):
                loops.append(bare_loop(program, streams))
                two = engine.run(program, streams, workers=2)
                assert len(two.plan.leaves) == 2, two.plan.explain()
                one = engine.run(program, streams, optimizer="sequential")
                share.append(loops[-1] * rows / two.stats.seconds)
                gain.append(one.stats.seconds / two.stats.seconds)
            print(
                f"| {plain.__name__} | {1e9 * statistics.median(loops):.0f} | {shown(share)} | {shown(gain)} |",
                flush=True,
            )


def replace_tag(stream: fl.Stream, program: type[fl.Program]) -> fl.Stream:
    """The same stream; subclasses share their tags."""
    assert isinstance(stream.tag, fl.Tag)
    return replace(stream, tag=fl.define(program).tags[stream.tag.name])


def round_trips(engine: Engine, inputs: Inputs, rounds: int) -> None:
    """4. A join over two leaves in other tasks, against round trips of the bare transport."""
    print("\n## 4. A root that joins, updates and forks over two leaves\n")
    rows, every = 200_000, 100
    with tempfile.TemporaryDirectory() as folder:
        for part in range(2):
            ts = np.arange(rows) * 2 + part
            pq.write_table(pa.table({"ts": ts, "v": ts}), Path(folder) / f"t-{part}.parquet")
        ends = np.arange(2 * every - 1, 2 * rows, 2 * every)
        pq.write_table(pa.table({"ts": ends, "r": ends}), Path(folder) / "r.parquet")
        streams = [
            fl.Stream("t", Fraud.transaction, fl.Parquet([f"{folder}/t-0.parquet", f"{folder}/t-1.parquet"])),
            fl.Stream("r", Fraud.rule, fl.Parquet(f"{folder}/r.parquet")),
        ]
        plan = engine.run(Fraud, streams, workers=2, optimizer="greedy").plan
        leaves = [leaf.id for leaf in plan.leaves]
        root = plan.root.id
        for title, apart in (
            ("root beside a leaf", {leaves[0]: "slot0", leaves[1]: "slot1", root: "slot0"}),
            ("all three apart", {leaves[0]: "slot0", leaves[1]: "slot1", root: "slot2"}),
        ):
            if engine.name == "spark" and title != "root beside a leaf":
                continue  # three tasks on two cores
            joins, trips = [], []
            for _ in range(rounds):
                trips.append(bare_round_trip())
                result = engine.run(Fraud, streams, plan=plan.at(apart))
                joins.append(result.stats.seconds / result.stats.joins)
            ratios = [join / trip for join, trip in zip(joins, trips, strict=True)]
            print(
                f"{title}: {1e6 * statistics.median(joins):.0f} us a join (with its 200 events), a round trip "
                f"{1e6 * statistics.median(trips):.0f} us, ratio {shown(ratios)} (at most 10)",
                flush=True,
            )


ECHO = """
import selectors, sys
from flumina.engine.transport.listener import Secret, connect
channel = connect((sys.argv[1], int(sys.argv[2])), Secret(bytes.fromhex(sys.argv[3])), "echo", within=30)
channel.unblock()
with selectors.DefaultSelector() as selector:
    selector.register(channel, selectors.EVENT_READ)
    while True:
        selector.select()
        for frame in channel.take():
            if len(frame[0]) == 1:
                raise SystemExit
            channel.put(frame)
"""


def bare_round_trip() -> float:
    """The median of 2,000 round trips of 200 bytes to another process and back."""
    secret = Secret.make()
    found: queue.Queue[Any] = queue.Queue()
    listener = Listener("127.0.0.1", secret, lambda _, channel: found.put(channel))
    command = [sys.executable, "-c", ECHO, "127.0.0.1", str(listener.address[1]), secret.key.hex()]
    with subprocess.Popen(command):
        channel = found.get(timeout=30)
        channel.unblock()
        times = []
        with selectors.DefaultSelector() as selector:
            selector.register(channel, selectors.EVENT_READ)
            for _ in range(2_000):
                began = time.perf_counter()
                channel.put([bytes(200)])
                while not channel.take():
                    selector.select()
                times.append(time.perf_counter() - began)
        channel.put([b"!"])
    channel.close()
    listener.close()
    return statistics.median(times)


def start_up(engine: Engine, inputs: Inputs, rounds: int) -> None:
    """5. A run in a warm session, against an empty barrier stage."""
    if engine.name != "spark":
        return
    print("\n## 5. Start-up in a warm session\n")
    data = {"ts": list(range(100)), "v": list(range(100))}
    streams = [
        fl.Stream("values", ValueBarrier.value, [pa.table(data), pa.table(data)]),
        fl.Stream("barriers", ValueBarrier.barrier, {"ts": [50]}),
    ]
    plan = engine.run(ValueBarrier, streams, workers=2, optimizer="greedy").plan

    def empty(found: Any) -> Any:  # noqa: ANN401
        for _ in found:
            pass
        yield pa.record_batch([pa.array([1])], names=["n"])

    def stage() -> None:
        engine.spark.range(0, 2, 1, 2).mapInArrow(empty, "n long", barrier=True).repartition(1).collect()

    stage()
    bare, ours = [], []
    for _ in range(2 * rounds):
        bare.append(timed(stage))
        ours.append(timed(lambda: engine.run(ValueBarrier, streams, plan=plan)))
    over = [o - b for o, b in zip(ours, bare, strict=True)]
    print(f"empty stage {shown(bare)} s, a run {shown(ours)} s, over it {shown(over)} s (at most 0.5)")


def latency(engine: Engine, inputs: Inputs, rounds: int) -> None:
    """7. Paced at 50,000 events a second on each of two parts, a barrier for every 10,000."""
    print("\n## 7. Latency, 50,000 events/s on each of two parts, one barrier per 10,000\n")
    seconds = 10

    def values(part: int) -> Any:  # noqa: ANN401
        for first in range(0, 50_000 * seconds, 50_000):
            yield {"v": np.arange(first, first + 50_000)}

    def barriers(part: int) -> Any:  # noqa: ANN401
        yield {"ts": np.arange(100_000, 1_000_000 * seconds, 200_000)}

    for beats in (100.0, 1000.0):
        streams = [
            fl.Stream("values", ValueBarrier.value, fl.GeneratorSource(values, parts=2, rate=50_000, heartbeats=beats)),
            fl.Stream("barriers", ValueBarrier.barrier, fl.GeneratorSource(barriers, rate=5, heartbeats=beats)),
        ]
        plan = engine.run(ValueBarrier, streams, workers=2, optimizer="greedy", plan=None).plan
        found = [engine.run(ValueBarrier, streams, plan=plan).stats.latency for _ in range(max(1, rounds // 2))]
        total = sum(found[1:], found[0])
        print(
            f"heartbeats every {1000 / beats:.0f} ms: p50 {1e3 * total.percentile(50):.1f} ms, "
            f"p99 {1e3 * total.percentile(99):.1f} ms (at most {1000 / beats + 10:.0f}) over {total.total} outputs",
            flush=True,
        )


def many_keys(engine: Engine, inputs: Inputs, rounds: int) -> None:
    """8. Page views over a million pages, ten of them hot, against two pages."""
    rows = min(inputs.rows, 2_000_000)
    print(f"\n## 8. Page views over 1,000,000 pages, ten of them hot, against two pages; {2 * rows:,} views\n")
    rng = np.random.default_rng(2)
    with tempfile.TemporaryDirectory() as folder:
        two = Inputs(Path(folder), rows).streams(PageViews)
        many = Path(folder) / "many"
        many.mkdir()
        for part in range(2):
            pages = np.where(rng.random(rows) < 0.9, rng.integers(0, 10, rows), rng.integers(10, 1_000_000, rows))
            table = pa.table(
                {"ts": np.arange(rows) * 2 + part, "page": pa.array(pages).cast(pa.string()), "user": pages}
            )
            pq.write_table(table, many / f"views-{part}.parquet")
        ends = np.arange(2 * WINDOW - 1, 2 * rows, 2 * WINDOW)
        pages = pa.array(rng.integers(0, 10, len(ends))).cast(pa.string())
        pq.write_table(pa.table({"ts": ends, "page": pages, "info": pages}), many / "changes.parquet")
        hot = [
            fl.Stream("views", PageViews.view, fl.Parquet([str(many / f"views-{part}.parquet") for part in range(2)])),
            fl.Stream("changes", PageViews.change, fl.Parquet(str(many / "changes.parquet"))),
        ]
        ratios = []
        for _ in range(rounds):
            few = engine.run(PageViews, two, workers=2)
            lots = engine.run(PageViews, hot, workers=2)
            ratios.append(few.stats.seconds / lots.stats.seconds)
        print(lots.plan.explain())
        print(
            f"events/s of the two-page case: {shown(ratios)} (at least 0.5); bytes between workers: two pages "
            f"{few.stats.bytes_between:,}, a million {lots.stats.bytes_between:,} for {len(ends):,} changes"
        )


def memory(engine: Engine, inputs: Inputs, rounds: int) -> None:
    """Peak memory of a worker for 10, 100 and 200 M events from Parquet."""
    print("\n## Memory\n\n| events | peak of a worker, MiB |\n|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        base = Inputs(Path(folder), 5_000_000)
        for times in (1, 10, 20):
            streams = [
                fl.Stream("values", ValueBarrier.value, fl.GeneratorSource(Repeated(base.folder, times), parts=2)),
                fl.Stream("barriers", ValueBarrier.barrier, {"ts": np.arange(19_999, times * 10_000_000, 20_000)}),
            ]
            POOL.close()  # a fresh process each time
            result = engine.run(ValueBarrier, streams, workers=2)
            peak = max(task.peak_memory for task in result.stats.tasks.values())
            print(f"| {result.stats.events:,} | {peak / 2**20:.0f} |", flush=True)


class Repeated:
    """The rows of a file again and again, later each time."""

    def __init__(self, folder: Path, times: int) -> None:
        self.folder, self.times = folder, times

    def __call__(self, part: int) -> Any:  # noqa: ANN401
        """The rows of a part."""
        for turn in range(self.times):
            for batch in batches(self.folder / f"values-{part}.parquet", ["ts", "v"]):
                ts = batch.column(0).to_numpy() + turn * 10_000_000
                yield pa.record_batch([pa.array(ts), batch.column(1)], names=["ts", "v"])


WHAT = {
    "parquet": parquet,
    "frame": frame,
    "one_by_one": one_by_one,
    "round_trips": round_trips,
    "start_up": start_up,
    "latency": latency,
    "many_keys": many_keys,
    "memory": memory,
}


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", help=f"some of {', '.join(WHAT)}; everything by default")
    parser.add_argument("--engine", choices=["spark", "local"], default="spark")
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows of each part")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        inputs = Inputs(Path(folder), given.rows)
        engine = Engine(given.engine)
        for what in given.what or WHAT:
            WHAT[what](engine, inputs, given.rounds)


if __name__ == "__main__":
    main()
