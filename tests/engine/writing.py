"""Runs that write, for the tests of outputs: emitted items, tasks, and what should come out."""

import pickle
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

import flumina as fl
from flumina.model.batch import Batch
from flumina.model.emit import ONLY_OUTPUT, Chunk, Emit, Row, rows
from flumina.model.schema import Schema
from flumina.output.staged_outputs import Manifest, Outputs
from flumina.output.writer import OutputWriter
from flumina.storage.output_directory import OutputDirectory

STREAMS = ("left", "right")
ONE = {ONLY_OUTPUT: Schema.parse("name string, n long")}
TWO = {"big": Schema.parse("name string, n long"), "small": Schema.parse("n int NOT NULL")}


TICK = fl.Tag("n long")
TICK.name = "tick"


def make(place: Path | str | OutputDirectory | None, schemas: Mapping[str, Schema] = ONE, **options: Any) -> Outputs:
    """Outputs of a run, as they arrive in another process."""
    run = options.pop("run", "run1")
    options = {"ts_type": pa.int64(), **options}
    overwrite = options.pop("overwrite", False)
    if isinstance(place, Path | str):
        place = OutputDirectory.of(place, run, overwrite=overwrite)
    return Outputs(schemas, streams=STREAMS, run=run, location=place, **options)


def without_renames(path: Path, *, overwrite: bool = False) -> OutputDirectory:
    """A location as in an object store: staged below the results, files moved one by one."""
    found = OutputDirectory.of(path, "run1", overwrite=overwrite)
    return replace(found, renames=False, staging=f"{path}/_flumina-run1")


def batch(ts: Sequence[int], rank: int, seq: Sequence[int]) -> Batch:
    values = pa.record_batch([pa.array(ts, pa.int64())], schema=TICK.schema)
    return Batch.one_tag(TICK, values, np.array(ts, np.int64), rank, np.array(seq, np.int64), STREAMS)


def emitted(seed: int, schemas: Mapping[str, Schema] = ONE, events: int = 300) -> list[Row | Chunk]:
    """What one worker emits: single rows and columns in turn, several for some events, in order O."""
    random, emit, at = Random(seed), Emit(schemas), 0
    names = [name for name in schemas if name != "small"]
    while at < events:
        count = random.randint(1, 40)
        ts = sorted(random.randint(at, at + count) for _ in range(count))
        part = batch(ts, seed % 2, range(seed * 1000 + at, seed * 1000 + at + count))
        at += count
        if random.random() < 0.5:
            emit.batch = part
            for _ in range(random.randint(0, 2)):
                causes = np.sort(np.array([random.randrange(count) for _ in range(random.randint(0, 2 * count))], int))
                labels = [f"{seed}/{n}" for n in range(len(causes))]
                for name in names:
                    Emit.__getattr__(emit, name).columns(labels, np.arange(len(causes)), at=causes)
            emit.batch = None
        else:
            for emit.event in part:
                for nth in range(random.randint(0, 3)):
                    for name in names:
                        Emit.__getattr__(emit, name)(f"{seed}:{nth}", None if nth else at)
                if "small" in schemas and random.random() < 0.1:
                    emit.small(at)
            emit.event = None
    return emit.drain()


def run_task(
    outputs: Outputs, task: int, items: Sequence[Row | Chunk], attempt: str = "a0", *, pickled: bool = True
) -> Manifest:
    """One attempt that succeeds, fed with small lists; description and manifest travel pickled."""
    if pickled:
        outputs = pickle.loads(pickle.dumps(outputs))  # noqa: S301
    sink = OutputWriter(outputs, task, attempt)
    for start in range(0, len(items), 3):
        sink.write(items[start : start + 3])
    assert sink.rows == sum(len(item.at) if isinstance(item, Chunk) else 1 for item in items)
    manifest: Manifest = pickle.loads(pickle.dumps(sink.close()))  # noqa: S301
    return manifest


def expected(items: Iterable[Row | Chunk], output: str = ONLY_OUTPUT) -> list[tuple[Any, ...]]:
    """The rows of one output in O; rows of one event as they were emitted."""
    mine = [row for row in rows(items) if row.output == output]
    mine.sort(key=lambda row: (row.event.ts, STREAMS.index(row.event.stream), row.event.seq))
    return [(*row.values, row.event.ts, row.event.stream) for row in mine]


def listed(table: pa.Table) -> list[tuple[Any, ...]]:
    table.validate(full=True)
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def assert_same(table: pa.Table, wanted: list[tuple[Any, ...]], *, ordered: bool = False) -> None:
    """Nothing is missing and nothing is there that should not be."""
    found = listed(table)
    missing, surplus = Counter(wanted) - Counter(found), Counter(found) - Counter(wanted)
    assert not missing
    assert not surplus
    if ordered:
        assert found == wanted


def visible(folder: Path) -> list[str]:
    """What lies in a folder, files and folders below it, whatever they are called."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))
