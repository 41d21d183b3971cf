# ruff: noqa: INP001, T201 -- a script, which prints
"""Rows a second written to Parquet through the sinks of two tasks, against pyarrow alone in two processes.

The rows are those of page views: chunks of 10,000, each with one information. The target is 0.7 of pyarrow with its own
defaults, given the same columns as large tables. Time is from the first row to the last byte (for sinks: until the
results are published), without the start of processes. The other lines show what the settings are worth.
"""

from __future__ import annotations

import argparse
import multiprocessing
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from flumina.apps.page_views import PageViews
from flumina.model.batch import Batch
from flumina.model.emit import Chunk
from flumina.output.commit import commit_outputs
from flumina.output.staged_outputs import Manifest, Outputs
from flumina.output.writer import OutputWriter
from flumina.program.base import define
from flumina.storage.output_directory import OutputDirectory

TASKS, ROWS, CHUNK, TABLE = 2, 20_000_000, 10_000, 100
STREAMS = ("views", "changes")
Seconds = float
Writer = Callable[[Outputs, int, list[Chunk]], Manifest | None]


def chunks(task: int, rows: int) -> list[Chunk]:
    """What a leaf emits for views of two pages."""
    definition = define(PageViews)
    tag, schema = definition.tags["view"], definition.outputs["output"].arrow
    random = np.random.default_rng(task)
    made: list[Chunk] = []
    for number, start in enumerate(range(0, rows, CHUNK)):
        ts = np.arange(start, start + CHUNK)
        page, user = pa.array([f"page-{task}"] * CHUNK), pa.array(random.integers(0, 1_000_000, CHUNK))
        batch = Batch.one_tag(tag, pa.record_batch([page, user], schema=tag.schema), ts, 0, ts, STREAMS)
        info = pa.repeat(pa.scalar(f"information {number}"), CHUNK)
        made.append(Chunk("output", pa.record_batch([page, user, info], schema=schema), batch, np.arange(CHUNK)))
    return made


def through_sink(outputs: Outputs, task: int, made: list[Chunk]) -> Manifest:
    """As a task does it: one small list after the other."""
    sink = OutputWriter(outputs, task, "first")
    for chunk in made:
        sink.write([chunk])
    return sink.close()


def by_pyarrow(outputs: Outputs, task: int, made: list[Chunk], **options: object) -> None:
    """The same columns, ready before the clock starts, in tables of a row group each."""
    assert outputs.location is not None
    path = f"{outputs.location.staging}/{task}.parquet"
    with pq.ParquetWriter(path, outputs.final("output"), **options) as writer:
        for table in made:
            writer.write_table(table)


def tables(outputs: Outputs, made: list[Chunk], size: int) -> list[pa.Table]:
    """Chunks with their event columns, some of them to a table."""
    final = outputs.final("output")
    batches = [
        pa.record_batch([*c.columns.columns, pa.array(c.batch.ts), pa.repeat(pa.scalar("views"), CHUNK)], schema=final)
        for c in made
    ]
    return [pa.Table.from_batches(batches[i : i + size]) for i in range(0, len(batches), size)]


WAYS: dict[str, tuple[str, dict[str, object]]] = {
    "pyarrow, its defaults": ("pyarrow", {}),
    "pyarrow, uncompressed": ("pyarrow", {"compression": "none"}),
    "pyarrow, chunk by chunk": ("chunks", {}),
    "sink": ("sink", {}),
    "sink, snappy": ("sink", {"compression": "snappy"}),
    "sink, in order": ("sink", {"ordered": True}),
}


def task(number: int, rows: int, pipe: multiprocessing.connection.Connection, start: Barrier) -> None:
    """A process that writes what it made, in whatever way it is asked to."""
    made = chunks(number, rows)
    prepared: dict[str, list[pa.Table]] = {}
    while (job := pipe.recv()) is not None:
        kind, options, outputs = job
        if kind != "sink" and kind not in prepared:
            prepared[kind] = tables(outputs, made, TABLE if kind == "pyarrow" else 1)
        start.wait()
        if kind == "sink":
            pipe.send(through_sink(outputs, number, made))
        else:
            by_pyarrow(outputs, number, prepared[kind], **options)
            pipe.send(None)


def measure(folder: Path, kind: str, options: dict[str, object], pipes: list, start: Barrier) -> tuple[Seconds, int]:
    """One turn of all processes: seconds, and bytes on disk."""
    run = f"{kind}-{time.monotonic_ns()}"
    location = OutputDirectory.of(folder / run, run)
    settings = options if kind == "sink" else {}
    outputs = Outputs(define(PageViews).outputs, pa.int64(), STREAMS, run, location, **settings)
    outputs.prepare()
    for pipe in pipes:
        pipe.send((kind, options, outputs))
    start.wait()
    begin = time.perf_counter()
    manifests = [pipe.recv() for pipe in pipes]
    if kind == "sink":
        commit_outputs(outputs, manifests)
    spent = time.perf_counter() - begin
    size = sum(file.stat().st_size for file in folder.rglob("*.parquet"))
    outputs.discard()
    shutil.rmtree(folder / run, ignore_errors=True)
    return spent, size


def main() -> int:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows, three turns")
    quick = parser.parse_args().quick
    rows, turns = (ROWS // 10, 3) if quick else (ROWS, 5)
    start = multiprocessing.Barrier(TASKS + 1)
    pairs = [multiprocessing.Pipe() for _ in range(TASKS)]
    processes = [
        multiprocessing.Process(target=task, args=(n, rows // TASKS, pair[1], start)) for n, pair in enumerate(pairs)
    ]
    for process in processes:
        process.start()
    pipes = [pair[0] for pair in pairs]
    spent: dict[str, list[Seconds]] = {way: [] for way in WAYS}
    sizes: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(turns):
            for way, (kind, options) in WAYS.items():
                seconds, sizes[way] = measure(Path(folder), kind, options, pipes, start)
                spent[way].append(seconds)
    for pipe, process in zip(pipes, processes, strict=True):
        pipe.send(None)
        process.join()
    report(rows, spent, sizes)
    return 0


def report(rows: int, spent: dict[str, list[Seconds]], sizes: dict[str, int]) -> None:
    """A line for each way, with the ratio to pyarrow turn by turn."""
    print(f"{rows:,} rows in {TASKS} processes: median (lowest to highest)")
    print(f"{'':<26}{'M rows/s':>22}{'of pyarrow':>22}{'MB':>7}")
    base = spent["pyarrow, its defaults"]
    for way, seconds in spent.items():
        rates = [rows / s / 1e6 for s in seconds]
        ratios = [b / s for b, s in zip(base, seconds, strict=True)]
        shown = "".join(f"{f'{statistics.median(v):.2f} ({min(v):.2f} to {max(v):.2f})':>22}" for v in (rates, ratios))
        print(f"{way:<26}{shown}{sizes[way] / 1e6:>7.0f}")


if __name__ == "__main__":
    sys.exit(main())
