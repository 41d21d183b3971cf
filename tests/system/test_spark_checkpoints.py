"""Snapshots on Spark: tasks that are lost cost what came after the last one, and so does a driver."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

import flumina as fl
from flumina import local
from flumina.engine.results import RunResult
from flumina.errors import TaskLostError
from flumina.testing import assert_same_outputs
from tests.system.checkpoints import (
    CASES,
    EVENTS,
    SMALL,
    assert_crashed,
    assert_in_shares,
    assert_states_are_those_of_the_oracle,
    assert_synchronized,
    crash,
    die,
    divided,
    every,
    sharded,
    snapshots,
)
from tests.system.test_streaming_faults import end

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
        engine_options=SMALL,
        progress=False,
        **{"workers": 2, "optimizer": divided, **more},
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
    for stream in streams:
        (folder / stream.name).mkdir(parents=True)
        for number, table in enumerate(stream.parts()):
            pq.write_table(table, folder / stream.name / f"{number}.parquet", row_group_size=40)
    return files_in(folder, streams)


def files_in(folder: Path, streams: list[fl.Stream]) -> list[fl.Stream]:
    """The streams as files that have been written."""
    return [replace(stream, data=fl.Parquet(folder / stream.name)) for stream in streams]


def once(folder: Path) -> Callable[[fl.CheckpointProgress], bool]:
    """Snapshots after so many events; after the second, the process dies, if none did before."""
    died = folder / "died"

    def when(since: fl.CheckpointProgress) -> bool:
        if since.snapshots == 2 and since.events >= EVENTS // 2 and not died.exists():
            died.touch()
            die(folder)
        return since.events >= EVENTS

    return when


@every
def test_snapshots_of_a_run_on_dataframes(spark: SparkSession, case: str, tmp_path: Path) -> None:
    result = run(case, tmp_path, as_frames(spark, CASES[case][1]()))
    assert_synchronized(result, 2)
    assert_agrees(case, result)
    taken = snapshots(case, tmp_path)
    assert len(taken) == result.stats.snapshots >= 3
    assert_states_are_those_of_the_oracle(case, taken)


@every
def test_a_stage_that_is_tried_again_goes_on_from_the_last_snapshot(
    spark: SparkSession, case: str, tmp_path: Path
) -> None:
    assert spark.sparkContext.master == "local[4,4]"
    files = as_files(tmp_path / "in", CASES[case][1]())
    result = run(case, tmp_path, files, policy={"events": None, "when": once(tmp_path)})
    assert (tmp_path / "died").exists()
    assert_synchronized(result, 2)
    assert_agrees(case, result)
    program, streams = CASES[case]
    whole = fl.spec(program, streams()).events
    taken = snapshots(case, tmp_path)
    assert len(taken) == result.stats.snapshots >= 3
    assert whole - result.stats.events == taken[1].manifest.events, "it went on from the second"
    assert_states_are_those_of_the_oracle(case, taken)


@pytest.mark.parametrize("case", ["page-views", "key-counter"])
def test_every_tree_keeps_its_own_share(spark: SparkSession, case: str, tmp_path: Path) -> None:
    """Also through the death of a task."""
    assert spark.sparkContext.master == "local[4,4]"
    files = as_files(tmp_path / "in", CASES[case][1]())
    policy = {"events": None, "when": once(tmp_path)}
    result = run(case, tmp_path, files, workers=3, optimizer=sharded, policy=policy)
    assert (tmp_path / "died").exists()
    assert_agrees(case, result)
    taken = snapshots(case, tmp_path)
    assert len(taken) == result.stats.snapshots >= 3
    assert_in_shares(case, taken)
    assert_states_are_those_of_the_oracle(case, taken)


@pytest.mark.parametrize(
    ("case", "before", "after"), [*((case, 2, 4) for case in CASES), ("fraud", 2, 1), ("key-counter", 1, 3)]
)
def test_a_run_begun_in_local_processes_goes_on_on_spark(
    spark: SparkSession, case: str, before: int, after: int, tmp_path: Path
) -> None:
    assert spark.version
    program, streams = CASES[case]
    files = as_files(tmp_path / "in", streams())
    with pytest.raises(TaskLostError):
        local.run(
            program,
            files,
            workers=before,
            optimizer=divided,
            out=tmp_path / "out",
            checkpoint=fl.Checkpoint(tmp_path / "kept", when=crash(tmp_path), keep=100),
            engine_options=SMALL,
            progress=False,
        )
    assert_goes_on(case, tmp_path, files, before, after)


def assert_goes_on(case: str, folder: Path, files: list[fl.Stream], before: int, after: int) -> None:
    """After two snapshots by so many workers, others end the run: nothing is missing, and nothing is there twice."""
    taken = assert_crashed(case, folder, before)
    result = run(case, folder, files, workers=after)
    assert_synchronized(result, after)
    assert_agrees(case, result)
    program, streams = CASES[case]
    assert result.stats.events == fl.spec(program, streams()).events - taken[-1].manifest.events
    assert len(snapshots(case, folder)) == 2 + result.stats.snapshots >= 3
    assert_states_are_those_of_the_oracle(case, snapshots(case, folder))


DRIVER = """
import os, sys
from pathlib import Path
from tests.system.cluster import session
from tests.system import test_spark_checkpoints as t

folder, spark = Path(sys.argv[1]), session("local[2,2]")
files = t.files_in(folder / "in", t.CASES["fraud"][1]())
t.run("fraud", folder, files, policy={"events": None, "when": t.crash(folder, os.getpid())})
"""


def test_a_driver_on_spark_that_was_killed(spark: SparkSession, tmp_path: Path) -> None:
    """With a JVM of its own; the run goes on in another, with more workers."""
    assert spark.version
    files = as_files(tmp_path / "in", CASES["fraud"][1]())
    command = [sys.executable, "-c", DRIVER, str(tmp_path)]
    driver = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert end(driver) == -signal.SIGKILL
    assert_goes_on("fraud", tmp_path, files, before=2, after=4)
