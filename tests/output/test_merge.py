"""Merging sorted runs, against sorting everything."""

from collections.abc import Iterator, Sequence
from functools import partial
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flumina.output import merge
from flumina.output.merge import RunFile, SortedRunReader, merged
from flumina.output.row_buffer import in_order
from flumina.output.staged_outputs import RANK, SEQ

SCHEMA = pa.schema([("label", pa.string()), ("event_ts", pa.timestamp("us")), RANK, SEQ])
Line = tuple[int, int, int]


def run_of(
    task: int, groups: Sequence[Sequence[Line]]
) -> tuple[list[SortedRunReader], list[tuple[Line, int, int, int, str]]]:
    """A staged file with one row group for each run, and its rows as they compare."""
    sink = pa.BufferOutputStream()
    runs, wanted = [], []
    with pq.ParquetWriter(sink, SCHEMA) as writer:
        for number, lines in enumerate(groups):
            labels = [f"{task}/{number}/{n}" for n in range(len(lines))]
            ts, rank, seq = zip(*lines, strict=True)
            table, run = in_order(pa.table([labels, pa.array(ts).cast("timestamp[us]"), rank, seq], schema=SCHEMA))
            writer.write_table(table)
            runs.append(run)
            wanted += [
                (line, task, number, n, label) for n, (line, label) in enumerate(zip(lines, labels, strict=True))
            ]
    file = RunFile(lambda: pq.ParquetFile(pa.BufferReader(sink.getvalue())))
    return [SortedRunReader(file, (task, number), run) for number, run in enumerate(runs)], wanted


def merged_labels(runs: Sequence[SortedRunReader]) -> list[str]:
    return [label for table in merged(runs) for label in table.column("label").to_pylist()]


@pytest.mark.parametrize("block", [1, 3, 1000])
@pytest.mark.parametrize("seed", range(20))
def test_merging_is_sorting(seed: int, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few different places, so that equal ones lie in several runs and across blocks."""
    monkeypatch.setattr(merge, "BLOCK_ROWS", block)
    random = Random(seed)
    runs: list[SortedRunReader] = []
    wanted: list[tuple[Line, int, int, int, str]] = []
    for task in range(random.randint(1, 4)):
        drift = random.choice((0, 3))
        groups = [
            [
                (drift * number + random.randint(-2, 4), random.randint(0, 1), random.randint(0, 2))
                for _ in range(random.randint(1, 12))
            ]
            for number in range(random.randint(1, 5))
        ]
        more, rows = run_of(task, groups)
        runs += more
        wanted += rows
    random.shuffle(runs)
    assert merged_labels(runs) == [row[-1] for row in sorted(wanted)]


def test_runs_are_opened_when_the_merge_gets_to_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory: runs one after the other are never held together."""
    monkeypatch.setattr(merge, "BLOCK_ROWS", 4)
    runs, _ = run_of(0, [[(10 * number + n, 0, 0) for n in range(10)] for number in range(20)])
    most = 0
    for _ in merged(runs):
        most = max(most, sum(run._block is not None for run in runs))
    assert most == 1


class Counted:
    """A staged file that counts its row groups under way, and whether it is open."""

    def __init__(self, file: pq.ParquetFile, readers: list[object]) -> None:
        self.file, self.readers = file, readers
        readers.append(self)

    def iter_batches(self, **options: Any) -> Iterator[pa.RecordBatch]:
        reader = object()
        self.readers.append(reader)
        try:
            yield from self.file.iter_batches(**options)
        finally:
            self.readers.remove(reader)

    def close(self, **options: Any) -> None:
        self.file.close(**options)
        self.readers.remove(self)


def counted(tasks: int, readers: list[object]) -> list[SortedRunReader]:
    """Runs one after the other, ten to a task."""
    runs: list[SortedRunReader] = []
    for task in range(tasks):
        more, _ = run_of(task, [[(100 * task + 10 * number + n, 0, 0) for n in range(10)] for number in range(10)])
        file = more[0]._file
        assert file is not None
        file._open_file = partial(lambda open_file: Counted(open_file(), readers), file._open_file)
        runs += more
    return runs


def test_runs_that_have_ended_hold_no_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory: a reader holds the pages and dictionaries of its row group for as long as it lives."""
    monkeypatch.setattr(merge, "BLOCK_ROWS", 4)
    readers: list[object] = []
    runs = counted(3, readers)
    most = 0
    for _ in merged(runs):
        most = max(most, len(readers))
    assert most == 2, "one file, and one row group of it"
    assert readers == []


def test_a_merge_that_is_given_up_holds_no_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "BLOCK_ROWS", 4)
    readers: list[object] = []
    tables = merged(counted(3, readers))
    next(tables)
    assert readers
    tables.close()
    assert readers == []


def test_nothing_to_merge() -> None:
    assert list(merged([])) == []
