from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import flumina as fl
from flumina.apps import Fraud, KeyCounter, PageViews, ValueBarrier
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

    return engine.run(case.program, streams, state=True, settings=case.settings, progress=False, **more)


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
    result = run(case, case.streams, plan=case.plan, order=True)
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
    result = run(case, framed(spark, case.streams), order=True)
    assert_agrees(case, result, collected(case, result), ordered=True, cut=False)
    moved = result.stats.shuffled_bytes
    if case.note.startswith("in place"):
        assert moved == 0, "as many partitions as tasks"
    elif not case.input.empty:
        assert moved > 0, "brought together by Spark"


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
    settings = fl.Settings(chunk_rows=8, window=4)
    result = engine.run(
        ValueBarrier,
        [replace(stream, data=spark.createDataFrame(stream.data)) for stream in streams],
        workers=2,
        optimiser="greedy",
        settings=settings,
        progress=False,
    )
    assert_same_outputs(result.output.toArrow(), fl.spec(ValueBarrier, streams).output)
    assert result.stats.shuffled_bytes > 0
