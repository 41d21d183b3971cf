"""What users of Spark see when something is wrong: our errors, within seconds, and never pages of Java."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import flumina as fl
from flumina import local
from flumina.apps.value_barrier import ValueBarrier
from flumina.engine.options import EngineOptions
from flumina.engine.results import RunResult
from flumina.errors import FluminaError, GangError, InputError, OutputError, UsageError, UserCodeError
from flumina.testing import assert_same_outputs
from tests.system import failing
from tests.system.cluster import kill
from tests.system.test_bad_calls import ODD, odd
from tests.system.test_cluster import assert_exact, run_with
from tests.system.test_failures import USER_CODE, alive, assert_tells, blocking, readers, streams
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def run(program: Any, given: Any, **more: Any) -> RunResult:
    from flumina import spark as engine  # noqa: PLC0415 -- only where it is needed

    return engine.run(program, given, **{"workers": 2, "optimizer": "greedy", "progress": False, **more})


def assert_ours(error: FluminaError) -> None:
    """Nothing of what Java or Py4J say about themselves."""
    text = str(error)
    for alien in ("py4j", "Py4J", "java.", "org.apache.spark", "JVM"):
        assert alien not in text, text


@pytest.mark.parametrize(("program", "mark", "function", "event"), [USER_CODE[0], USER_CODE[3]], ids=str)
def test_an_exception_in_user_code_ends_the_run(
    spark: SparkSession,
    program: Any,
    mark: str,
    function: str,
    event: bool,  # noqa: FBT001 -- as the table has it
    tmp_path: Path,
) -> None:
    with pytest.raises(UserCodeError) as caught:
        run(program, streams(program), out=tmp_path / "out")
    assert_tells(caught.value, mark, function, event=event)
    assert_ours(caught.value)
    assert list(tmp_path.iterdir()) == []
    assert spark.sparkContext.statusTracker().getActiveJobsIds() == []


def test_an_output_of_another_type_ends_the_run(spark: SparkSession) -> None:
    with pytest.raises(OutputError) as caught:
        run(failing.InOutput, streams(failing.InOutput))
    assert_ours(caught.value)


def of_frame(spark: SparkSession, table: pa.Table, **more: Any) -> list[fl.Stream]:
    return [
        fl.Stream("barriers", ValueBarrier.barrier, pa.table({"ts": [5, 9]})),
        fl.Stream("values", ValueBarrier.value, spark.createDataFrame(table), **more),
    ]


def test_bad_rows_of_a_frame_are_named(spark: SparkSession) -> None:
    table = pa.table({"ts": range(100), "v": [*range(50), None, *range(49)]})
    with pytest.raises(InputError) as caught:
        run(ValueBarrier, of_frame(spark, table), workers=None)
    assert (caught.value.condition, caught.value.stream, caught.value.column) == ("NULL_VALUE", "values", "v")
    assert_ours(caught.value)


@pytest.mark.parametrize(
    ("table", "condition"),
    [
        (pa.table({"v": [1]}), "MISSING_COLUMN"),
        (pa.table({"ts": [1]}), "MISSING_COLUMN"),
        (pa.table({"ts": [1], "v": ["x"]}), "COLUMN_TYPE"),
        (pa.table({"ts": ["x"], "v": [1]}), "TIMESTAMP_TYPE"),
    ],
    ids=["no timestamps", "no values", "text", "text for timestamps"],
)
def test_bad_columns_of_a_frame_are_named(spark: SparkSession, table: pa.Table, condition: str) -> None:
    with pytest.raises(InputError) as caught:
        run(ValueBarrier, of_frame(spark, table), workers=None)
    assert caught.value.condition == condition
    assert_ours(caught.value)


@pytest.mark.parametrize("name", [ODD[0], ODD[1], ODD[4], ODD[8]])
def test_columns_of_frames_may_be_called_anything(spark: SparkSession, name: str) -> None:
    given = odd(name)
    frames = [replace(s, data=spark.createDataFrame(pa.concat_tables(s.parts())), sorted=False) for s in given]
    result = run(ValueBarrier, frames, workers=None)
    assert_same_outputs(result.output.toArrow(), fl.spec(ValueBarrier, given).output)


def test_a_frame_without_partitions(spark: SparkSession) -> None:
    nothing = spark.createDataFrame(spark.sparkContext.emptyRDD(), "ts long, v long")
    given = [fl.Stream("values", ValueBarrier.value, nothing), *streams(ValueBarrier, bad=None)[:1]]
    expected = fl.spec(ValueBarrier, [fl.Stream("values", ValueBarrier.value, {"ts": [], "v": []}), *given[1:]])
    result = run(ValueBarrier, given, workers=None)
    assert_same_outputs(result.output.toArrow(), expected.output)


def test_too_few_slots_are_named_at_once(spark: SparkSession) -> None:
    parts = [pa.table({"ts": range(n, 800, 8), "v": range(100)}) for n in range(8)]
    given = [*streams(ValueBarrier)[:1], fl.Stream("values", ValueBarrier.value, parts)]
    with pytest.raises(UsageError) as caught:
        run(ValueBarrier, given, workers=8)
    assert caught.value.condition == "TOO_FEW_SLOTS"
    assert "8" in str(caught.value)


@pytest.mark.parametrize("back", [True, False])
def test_slots_that_are_gone_when_a_stage_is_submitted(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, *, back: bool
) -> None:
    """An executor was there when slots were counted, and then was not: the run waits for it, but not forever."""
    from pyspark.errors import PySparkException  # noqa: PLC0415 -- only where it is needed

    frames: Any = type(spark.range(1))
    collect, tries = frames.collect, []

    def lacking(frame: Any) -> Any:
        tries.append(frame)
        if back and len(tries) > 2:
            return collect(frame)
        raise PySparkException("[SPARK-24819]: Barrier execution mode does not allow run a barrier stage that ...")

    monkeypatch.setattr(frames, "collect", lacking)
    given = streams(ValueBarrier)
    if back:
        assert_same_outputs(
            {name: frame.toArrow() for name, frame in run(ValueBarrier, given).outputs.items()},
            fl.spec(ValueBarrier, given).outputs,
        )
        assert len(tries) == 3
    else:
        with pytest.raises(GangError, match="0 of 2 came"):
            run(ValueBarrier, given, engine_options=EngineOptions(patience=2.0))


def test_what_is_no_session_is_named() -> None:
    pytest.importorskip("pyspark")

    class Connected:
        """What a Spark Connect session looks like: no Java behind it."""

    for thing in (Connected(), 7):
        with pytest.raises(UsageError) as caught:
            run(ValueBarrier, streams(ValueBarrier), spark=thing)
        assert caught.value.condition == "SPARK_CONNECT"


def test_dynamic_allocation_is_named(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    from flumina.spark.session import Cluster  # noqa: PLC0415

    settings = {"spark.dynamicAllocation.enabled": "true"}
    monkeypatch.setattr(Cluster, "conf", lambda self, key, default="": settings.get(key, default))
    with pytest.raises(UsageError) as caught:
        run(ValueBarrier, streams(ValueBarrier))
    assert caught.value.condition == "DYNAMIC_ALLOCATION"


def test_a_session_that_was_stopped_is_named(spark: SparkSession) -> None:
    spark.stop()
    with pytest.raises(UsageError) as caught:
        run(ValueBarrier, streams(ValueBarrier), spark=spark)
    assert caught.value.condition == "SESSION_STOPPED"
    with pytest.raises(UsageError) as caught:
        run(ValueBarrier, streams(ValueBarrier))
    assert caught.value.condition in ("NO_SESSION", "SESSION_STOPPED")


def test_a_killed_python_worker_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    assert_exact(
        run_with(lambda reading: kill(reading[1]), 1.0, tmp_path, engine_options=EngineOptions(patience=120.0))
    )


def test_a_python_worker_that_stands_still_is_ended_and_tried_again(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stopped: list[int] = []

    def stop(reading: list[int]) -> None:
        stopped.append(reading[1])
        os.kill(reading[1], signal.SIGSTOP)

    engine_options = EngineOptions(patience=120.0, liveness_interval=0.2, warn_after=1.0)
    assert_exact(run_with(stop, 1.0, tmp_path, engine_options=engine_options, task_timeout=5.0))
    assert f"process {stopped[0]} on " in caplog.text
    wait_until("the process that stood still has ended", lambda: not alive(stopped[0]))


def test_an_exception_is_told_though_inputs_block(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(UserCodeError, match="bad value") as caught:
        run(failing.InUpdate, blocking(failing.InUpdate, tmp_path / "told"))
    assert_ours(caught.value)
    left = readers(tmp_path / "told").values()
    wait_until("no process with such a reader is used again", lambda: not [pid for pid in left if alive(pid)])


def test_closing_wakes_the_readers_of_frames() -> None:
    """Each waits for another one to take its rows, which that one does no more."""
    pytest.importorskip("pyspark")
    from flumina.spark.frames import SharedFrameReader  # noqa: PLC0415 -- only where it is needed

    pieces = [pa.record_batch({"s": [0], "t": [number], "c0": [number]}) for number in range(100)]
    shared = SharedFrameReader(iter(pieces), {"many": {"v": "c0"}, "few": {"v": "c0"}}, ["many", "few"])
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(lambda: list(shared.of("many")))
        assert wait([reading], timeout=0.3).not_done, "it waits for the reader of the other stream"
        shared.close()
        reading.result(10)
    assert list(shared.of("few")) == []


def test_what_does_not_fit_into_the_driver_says_what_to_do() -> None:
    from flumina.spark.gang import explained  # noqa: PLC0415 -- only where there is Spark

    said = """An error occurred while calling o77.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Total size of serialized results of 3 tasks \
(14.1 MiB) is bigger than spark.driver.maxResultSize (1024.0 KiB)
\tat org.apache.spark.scheduler.DAGScheduler.failJobAndIndependentStages(DAGScheduler.scala:2785)"""
    told = str(explained(RuntimeError(said)))
    assert "bigger than spark.driver.maxResultSize (1024.0 KiB)" in told
    assert "maxFilesPerTrigger" in told
    assert "DAGScheduler" not in told


def test_a_frame_that_is_coalesced_says_what_to_do(spark: SparkSession) -> None:
    from flumina import spark as engine  # noqa: PLC0415 -- only where it is needed

    rows = spark.range(0, 100, 1, 4).selectExpr("id as ts", "id as v", "int(id % 10 = 9) as kind")
    tags = {0: ValueBarrier.value, 1: ValueBarrier.barrier}

    def begin(frame: DataFrame) -> RunResult:
        return engine.run(ValueBarrier, [fl.Stream("all", tags, frame, tag_column="kind")], progress=False)

    with pytest.raises(fl.FluminaError, match=r"SPARK[\s\S]*use repartition\(\)"):
        begin(rows.coalesce(1))
    assert begin(rows.repartition(1)).stats.events == 100


def test_what_a_frame_is_read_from_is_not_overwritten(spark: SparkSession, tmp_path: Path) -> None:
    from flumina import spark as engine  # noqa: PLC0415 -- only where it is needed

    values = fl.Stream("values", ValueBarrier.value, pa.table({"ts": [1, 2], "v": [1, 2]}))
    barriers = fl.Stream("barriers", ValueBarrier.barrier, pa.table({"ts": [3]}))
    local.run(ValueBarrier, [values, barriers], out=tmp_path / "a folder")
    frame = spark.read.parquet(str(tmp_path / "a folder"))
    again = fl.Stream("values", ValueBarrier.value, frame, ts="event_ts", rename={"v": "total"})
    with pytest.raises(UsageError, match=r"OUT_IS_INPUT.*stream 'values'"):
        engine.run(ValueBarrier, [again, barriers], out=tmp_path / "a folder", overwrite=True)
    assert frame.count() == 1
