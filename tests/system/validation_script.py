"""Every row on every path of an engine, each path with timestamps of its own. Run by test_validation.py."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import flumina as fl
from flumina import local
from flumina.apps import ValueBarrier
from flumina.input.dead_letters import BadRows

ROWS = 40
"""Rows of a path: every fourth is a barrier, and with dead letters every eighth has no value."""

LOCAL = ("spec", "spec, dead letters", "tables", "tables, dead letters", "files, dead letters")
SPARK = ("files", "one frame, dead letters", "two frames", "batches, dead letters")


def rows(path: str, number: int) -> tuple[pa.Table, pa.Table]:
    """The values and the barriers of a path."""
    every = range(number * 1000, number * 1000 + ROWS)
    ts = [t for t in every if t % 4]
    bad = "dead letters" in path
    values = pa.table({"ts": ts, "v": pa.array([None if bad and t % 8 == 1 else t for t in ts], pa.int64())})
    return values, pa.table({"ts": [t for t in every if t % 4 == 0]})


def streams(values: object, barriers: object) -> list[fl.Stream]:
    """The streams of the program with such data."""
    return [fl.Stream("values", ValueBarrier.value, values), fl.Stream("barriers", ValueBarrier.barrier, barriers)]


def in_files(table: pa.Table, folder: Path) -> Path:
    """The rows in two files."""
    folder.mkdir(parents=True)
    for number in range(2):
        half = table.slice(number * len(table) // 2, (number + 1) * len(table) // 2 - number * len(table) // 2)
        pq.write_table(half, folder / f"{number}.parquet")
    return folder


def along(engine: str, folder: Path) -> Iterator[int]:
    """Run the program on each path of an engine; gives how many events it has processed."""
    for number, path in enumerate(LOCAL if engine == "local" else SPARK):
        bad_rows: BadRows = "dead-letter" if "dead letters" in path else "error"
        tables = rows(path, number)
        if path.startswith("spec"):
            yield fl.spec(ValueBarrier, streams(*tables), bad_rows=bad_rows).events
            continue
        if path.startswith("files"):
            places = [in_files(table, folder / f"{number}{name}") for name, table in zip("vb", tables, strict=True)]
            given = streams(*map(fl.Parquet, places))
        else:
            given = streams(*tables)
        options: dict[str, Any] = {"workers": 2, "optimizer": "greedy", "bad_rows": bad_rows, "progress": False}
        if engine == "local":
            yield local.run(ValueBarrier, given, **options).stats.events
        else:
            yield on_spark(path, tables, given, folder, options)


def on_spark(
    path: str, tables: tuple[pa.Table, pa.Table], given: list[fl.Stream], folder: Path, options: dict[str, Any]
) -> int:
    """Run the program on one path of Spark."""
    from flumina import spark as engine  # noqa: PLC0415 -- only where it is needed
    from tests.system.cluster import session  # noqa: PLC0415
    from tests.system.streaming import start  # noqa: PLC0415

    spark = session("local[2,4]")
    if "frame" in path:
        values, barriers = (spark.createDataFrame(table).repartition(1) for table in tables)
        given = streams(values, barriers if "two" in path else tables[1])
    if not path.startswith("batches"):
        return engine.run(ValueBarrier, given, **options).stats.events
    read = spark.readStream.option("maxFilesPerTrigger", 1)
    frames = []
    for name, table in zip("vb", tables, strict=True):
        # The barriers come a batch later, so that values are buffered.
        late = [table.slice(0, 0)] if name == "b" else []
        halves = [*late, table.slice(0, len(table) // 2), table.slice(len(table) // 2)]
        (folder / name).mkdir()
        for number, piece in enumerate(halves):
            file = folder / name / f"{number}.parquet"
            pq.write_table(piece, file)
            os.utime(file, (number, number))  # the order in which they are read
        frames.append(read.schema("ts long, v long" if name == "v" else "ts long").parquet(str(folder / name)))
    query = start(
        spark, streams(*frames), folder, program=ValueBarrier, bad_rows="dead-letter", watermarks=fl.BoundedDelay(0)
    )
    query.awaitTermination()
    batches = query.recentProgress
    assert any(sum(batch["buffered"].values()) for batch in batches), "rows were buffered for a later batch"
    return sum(int(batch["processed"]) for batch in batches)


if __name__ == "__main__":
    sys.stdout.write(" ".join(map(str, along(sys.argv[1], Path(sys.argv[2])))))
