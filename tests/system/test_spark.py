from __future__ import annotations

import importlib
import logging
import pickle
import random
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import flumina as fl
from flumina.apps import Fraud, KeyCounter, PageViews, ValueBarrier
from flumina.engine.transport.secret import Secret
from flumina.testing import assert_same_outputs
from tests.system.agree import assert_agrees
from tests.system.cases import CASES, TINY, UTC, Case, Input, sequential
from tests.system.programs import Cells, Stock, TwoCounters

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from flumina.engine.results import RunResult


CHOSEN = {
    "ValueBarrier-sequential",
    "ValueBarrier-three levels-tiny",
    "FraudByHand-two leaves-unsorted",
    "PageViews-forest-tiny",
    "PageViews-three levels-plain protocol",
    "PageViews-two leaves-dates",
    "KeyCounterByHand-random 3",
    "Cells-two leaves-empty part",
    "TwoCounters-random 1",
    "Stock-two leaves-seq",
    "Stock-two leaves-one stream",
    "ValueBarrier-two leaves-empty all",
}
"""Every way to run a program once: what differs from local runs is how tasks are started and how results come back."""


def run(case: Case, streams: Sequence[fl.Stream], **more: Any) -> RunResult:
    from flumina import spark as engine  # noqa: PLC0415 -- only where it is needed

    return engine.run(
        case.program, streams, return_state=True, engine_options=case.engine_options, progress=False, **more
    )


def collected(case: Case, result: RunResult) -> dict[str, pa.Table]:
    """DataFrames as tables; Spark says of no column that it is never null."""
    found = {}
    for name, frame in result.outputs.items():
        wanted = case.expected.outputs[name].schema
        table = frame.toArrow()
        assert table.schema.names == wanted.names
        assert table.schema.types == wanted.types
        found[name] = table.cast(wanted)
    return found


@pytest.mark.parametrize("case", [case for case in CASES if case.id in CHOSEN], ids=lambda case: case.id)
def test_a_run_on_spark_is_the_sequential_program(spark: SparkSession, case: Case) -> None:
    result = run(case, case.streams, plan=case.plan, ordered=True)
    assert_agrees(case, result, collected(case, result), ordered=True)
    assert result.stats.shuffled_bytes == 0, "what the tasks read themselves is not shuffled"


def test_all_that_was_chosen_is_there() -> None:
    assert {case.id for case in CASES} >= CHOSEN


def frame(spark: SparkSession, tables: Sequence[pa.Table]) -> DataFrame:
    """A DataFrame with one partition for each table, which nothing has shuffled."""
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415

    rows = [[tuple(row.values()) for row in table.to_pylist()] for table in tables]
    return spark.createDataFrame(
        spark.sparkContext.parallelize(rows, len(rows)).flatMap(lambda row: row), from_arrow_schema(tables[0].schema)
    )


def framed(spark: SparkSession, streams: Sequence[fl.Stream]) -> list[fl.Stream]:
    return [replace(stream, data=frame(spark, stream.parts())) for stream in streams]


together = Input(together=True, parts=2, meetings=2, ties="seq")
FRAMES = [
    Case(ValueBarrier, sequential, together, note="in place"),
    Case(Stock, sequential, replace(together, sorted=False), TINY, note="in place, unsorted"),
    Case(PageViews, sequential, Input(ts=UTC), note="two frames"),
    Case(KeyCounter, sequential, Input(ties="seq", meetings=3, parts=3, sorted=False), TINY, note="three partitions"),
    Case(Fraud, sequential, Input(empty="stream"), note="an empty frame"),
    Case(TwoCounters, sequential, Input(rows=1, ts=pa.date32()), note="one event"),
    Case(Cells, sequential, Input(empty="all"), note="nothing"),
]


@pytest.mark.parametrize("case", FRAMES, ids=lambda case: case.id)
def test_data_frames_are_streams(spark: SparkSession, case: Case) -> None:
    result = run(case, framed(spark, case.streams), ordered=True)
    assert_agrees(case, result, collected(case, result), ordered=True, cut=False)
    moved = result.stats.shuffled_bytes
    if case.note.startswith("in place"):
        assert moved == 0, "as many partitions as tasks"
    elif not case.input.empty:
        assert moved, "brought together by Spark"


def test_frames_files_and_tables_in_one_run(spark: SparkSession, tmp_path: Path) -> None:
    case = Case(PageViews, sequential, Input(seed=5))
    *rare, views = case.streams
    for number, table in enumerate(views.parts()):
        pq.write_table(table, tmp_path / f"{number}.parquet", row_group_size=20)
    mixed = [*framed(spark, rare), replace(views, data=fl.Parquet(tmp_path))]
    result = run(case, mixed, out=tmp_path / "out")
    assert_agrees(case, result, collected(case, result), ordered=False)
    assert result.output.count() == result.output.count(), "read any number of times"


@pytest.mark.parametrize("name", ["x[1]", "y{1,2}", "back\\slash", "any*?"])
def test_a_folder_may_have_any_name(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """Spark takes paths for patterns, which might match nothing, or the folder of somebody else."""
    from flumina import spark as engine  # noqa: PLC0415 -- only where it is needed

    streams = [
        fl.Stream("values", ValueBarrier.value, {"ts": [1, 2], "v": [3, 4]}),
        fl.Stream("barriers", ValueBarrier.barrier, {"ts": [5]}),
    ]
    result = engine.run(ValueBarrier, streams, out=tmp_path / name, progress=False)
    assert [row.total for row in result.output.collect()] == [7]


@pytest.mark.parametrize("apart", [1, 50], ids=["ties", "apart"])
def test_two_frames_of_many_pieces(spark: SparkSession, apart: int) -> None:
    """Barriers are read by one task, values by both, a few rows at a time; most values have the time of a barrier."""
    from flumina import spark as engine  # noqa: PLC0415 -- only where it is needed

    times = [n // 100 * apart for n in range(800)]
    streams = [
        fl.Stream("barriers", ValueBarrier.barrier, pa.table({"ts": sorted(set(times)) * 3}), sorted=False),
        fl.Stream("values", ValueBarrier.value, pa.table({"ts": times, "v": list(range(800))}), sorted=False),
    ]
    engine_options = fl.EngineOptions(chunk_rows=8, window=4)
    result = engine.run(
        ValueBarrier,
        [replace(stream, data=spark.createDataFrame(stream.data)) for stream in streams],
        workers=2,
        optimizer="greedy",
        engine_options=engine_options,
        progress=False,
    )
    assert_same_outputs(result.output.toArrow(), fl.spec(ValueBarrier, streams).output)
    assert result.stats.shuffled_bytes


@pytest.mark.parametrize("partitions", [2, 8], ids=["in place", "moved"])
def test_rows_of_frames_need_not_be_sorted(spark: SparkSession, partitions: int) -> None:
    """Whatever the stream says of itself, and whether its rows stay in their partitions or not."""
    from flumina import spark as engine  # noqa: PLC0415 -- only where it is needed

    tags = {"value": ValueBarrier.value, "barrier": ValueBarrier.barrier}
    times = [(n * 37) % 101 for n in range(101)]
    rows = pa.table(
        {"ts": times, "v": list(range(101)), "kind": ["barrier" if t % 10 == 0 else "value" for t in times]}
    )
    streams = [fl.Stream("all", tags, rows, tag_column="kind", seq="v", sorted=False)]
    size = -(-len(rows) // partitions)
    lie = frame(spark, [rows.slice(start, size) for start in range(0, len(rows), size)])
    given = [replace(streams[0], data=lie, sorted=True)]
    result = engine.run(ValueBarrier, given, workers=2 if partitions == 8 else None, progress=False)
    assert_same_outputs(result.output.toArrow(), fl.spec(ValueBarrier, streams).output)
    assert bool(result.stats.shuffled_bytes) == (partitions == 8)


def test_the_key_of_a_run_is_in_nothing_that_pyspark_writes_to_a_file(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function of more than 1 MiB is broadcast by PySpark, through a file."""
    from pyspark import Broadcast  # noqa: PLC0415 -- only where it is needed

    from flumina import spark as engine  # noqa: PLC0415

    secret, dump = Secret.make(), Broadcast.dump
    written: list[bytes] = []

    def dumped(self: Any, value: Any, file: Any) -> Any:
        written.append(pickle.dumps(value))
        return dump(self, value, file)

    monkeypatch.setattr(Broadcast, "dump", dumped)
    monkeypatch.setattr(Secret, "make", lambda **_: secret)
    values = pa.table({"ts": range(200_000), "v": random.Random(1).sample(range(1 << 40), 200_000)})
    barriers = pa.table({"ts": [150_000, 200_000]})
    streams = [
        fl.Stream("values", ValueBarrier.value, values),
        fl.Stream("barriers", ValueBarrier.barrier, barriers),
    ]
    given = [streams[0], replace(streams[1], data=spark.createDataFrame(barriers))]
    result = engine.run(ValueBarrier, given, workers=2, progress=False)
    assert_same_outputs(result.output.toArrow(), fl.spec(ValueBarrier, streams).output)
    assert max(map(len, written)) > values.nbytes, "what is large was broadcast"
    assert not any(secret.key in one for one in written)


def test_time_spent_on_the_input_does_not_count(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark prepares the input for longer than tasks may take to come together."""
    from flumina import spark as engine  # noqa: PLC0415 -- only where it is needed

    module = importlib.import_module("flumina.spark.run")  # the package has a function of this name

    patience = 20.0
    begun, ready = tmp_path / "begun", tmp_path / "ready"
    executed, over = module.execute, threading.Event()

    def slow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        deadline = time.monotonic() + 300
        while begun.exists() and not ready.exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        yield from batches

    def execute(*args: Any, **more: Any) -> Any:
        begun.touch()  # a sample has been read: from now on, the input is slow
        return executed(*args, **more)

    def release() -> None:
        while not over.wait(0.1) and "prepare the input (stage 1 of" not in caplog.text:
            pass
        over.wait(patience + 1)
        ready.touch()

    monkeypatch.setattr(module, "execute", execute)
    streams = [
        fl.Stream("values", ValueBarrier.value, pa.table({"ts": [1, 2], "v": [3, 4]})),
        fl.Stream("barriers", ValueBarrier.barrier, pa.table({"ts": [5]})),
    ]
    given = [
        replace(stream, data=(made := spark.createDataFrame(stream.data)).mapInArrow(slow, made.schema))
        for stream in streams
    ]
    thread = threading.Thread(target=release)
    thread.start()
    try:
        with caplog.at_level(logging.INFO, logger="flumina"):
            result = engine.run(ValueBarrier, given, workers=2, engine_options=fl.EngineOptions(patience=patience))
    finally:
        over.set()
        thread.join()
    assert [row.total for row in result.output.collect()] == [7]
    assert ready.exists()
    assert "waiting for Spark to prepare the input (stage 1 of" in caplog.text


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"on_lost_slots": "wait"}, "ON_LOST_SLOTS.*on_lost_slots= as 'fail' or 'shrink', got 'wait'"),
        ({"on_lost_slots": "shrink"}, "LOST_SLOTS.*needs checkpoint="),
        ({"on_lost_slots": "shrink", "checkpoint": "kept", "plan": "plan.json"}, "LOST_SLOTS.*makes a new plan"),
    ],
    ids=["unknown", "no checkpoint", "a plan"],
)
def test_what_shrinking_needs(spark: SparkSession, more: dict[str, Any], message: str) -> None:
    from flumina import spark as engine  # noqa: PLC0415 -- only where it is needed

    streams = [
        fl.Stream("values", ValueBarrier.value, {"ts": [1], "v": [3]}),
        fl.Stream("barriers", ValueBarrier.barrier, {"ts": [5]}),
    ]
    with pytest.raises(fl.UsageError, match=message):
        engine.run(ValueBarrier, streams, out="out", progress=False, **more)
