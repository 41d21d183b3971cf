"""Snapshots on Spark: tasks that are lost cost what came after the last one, and so does a driver."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

import flumina as fl
from flumina import local
from flumina.engine.driver import RunResult
from flumina.testing import assert_same_outputs
from tests.system.test_checkpoints import (
    CASES,
    EVENTS,
    SMALL,
    assert_states_are_those_of_the_oracle,
    crash,
    snapshots,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(case: str, folder: Path, streams: list[fl.Stream], **more: Any) -> RunResult:
    from flumina import spark as engine  # noqa: PLC0415 -- only where it is needed

    policy = {"events": EVENTS, **more.pop("policy", {})}
    return engine.run(
        CASES[case][0],
        streams,
        out=folder / "out",
        checkpoint=fl.Checkpoint(folder / "kept", keep=100, **policy),
        settings=SMALL,
        progress=False,
        **{"workers": 2, **more},
    )


def assert_agrees(case: str, result: RunResult) -> None:
    program, streams = CASES[case]
    outputs = {name: frame.toArrow() for name, frame in result.outputs.items()}
    assert_same_outputs(outputs, fl.spec(program, streams()).outputs)


def as_frames(spark: SparkSession, streams: list[fl.Stream]) -> list[fl.Stream]:
    """The streams as DataFrames, the parts of each as one."""
    import pyarrow as pa  # noqa: PLC0415

    return [
        replace(stream, sorted=False, data=spark.createDataFrame(pa.concat_tables(stream.parts())))
        for stream in streams
    ]


def as_files(folder: Path, streams: list[fl.Stream]) -> list[fl.Stream]:
    found = []
    for stream in streams:
        (folder / stream.name).mkdir(parents=True)
        for number, table in enumerate(stream.parts()):
            pq.write_table(table, folder / stream.name / f"{number}.parquet", row_group_size=40)
        found.append(replace(stream, data=fl.Parquet(folder / stream.name)))
    return found


def once(marker: Path) -> Callable[[fl.Since], bool]:
    """Snapshots after so many events; behind the second, the process dies, if it did not before."""

    def when(since: fl.Since) -> bool:
        if since.snapshots == 2 and since.events >= EVENTS // 2 and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return since.events >= EVENTS

    return when


@pytest.mark.parametrize("case", ["fraud", "page-views"])
def test_snapshots_of_a_run_on_dataframes(spark: SparkSession, case: str, tmp_path: Path) -> None:
    result = run(case, tmp_path, as_frames(spark, CASES[case][1]()))
    assert_agrees(case, result)
    taken = snapshots(case, tmp_path)
    assert len(taken) == result.stats.snapshots >= 3
    assert_states_are_those_of_the_oracle(case, taken)


@pytest.mark.parametrize("case", ["fraud", "key-counter"])
def test_a_stage_that_is_tried_again_goes_on_from_the_last_snapshot(
    spark: SparkSession, case: str, tmp_path: Path
) -> None:
    assert spark.sparkContext.master == "local[4,4]"
    files = as_files(tmp_path / "in", CASES[case][1]())
    result = run(case, tmp_path, files, policy={"events": None, "when": once(tmp_path / "died")})
    assert (tmp_path / "died").exists()
    assert_agrees(case, result)
    program, streams = CASES[case]
    whole = fl.spec(program, streams()).events
    taken = snapshots(case, tmp_path)
    assert result.stats.events < whole
    assert whole - result.stats.events in {one.manifest.events for one in taken}
    assert_states_are_those_of_the_oracle(case, taken)


def test_a_run_begun_in_local_processes_goes_on_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    assert spark.version
    program, streams = CASES["page-views"]
    files = as_files(tmp_path / "in", streams())
    with pytest.raises(fl.TaskLostError):
        local.run(
            program,
            files,
            workers=2,
            out=tmp_path / "out",
            checkpoint=fl.Checkpoint(tmp_path / "kept", when=crash, keep=100),
            settings=SMALL,
            progress=False,
        )
    before = snapshots("page-views", tmp_path)
    assert len(before) == 2
    result = run("page-views", tmp_path, files, workers=3)
    assert_agrees("page-views", result)
    assert result.stats.events == fl.spec(program, streams()).events - before[-1].manifest.events
