"""The programs in plain PySpark give the outputs of the sequential ones, or comparing speeds would mean nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import flumina as fl
from flumina.apps.registry import APPS
from flumina.testing import assert_same_outputs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


INPUTS: dict[str, dict[str, Any]] = {
    "value-barrier": {"events": 4_010, "ratio": 500},
    "page-views": {"events": 3_001, "gets": 100, "changes": 400, "pages": 5, "hot": 2, "skew": 0.8, "seed": 6},
    "fraud": {"events": 12_020, "ratio": 1_500},
}
"""Few rare events, as each costs a second where tasks synchronize by hand; the last events come after all of them.

With this seed two changes happen at the very time of a view of the page, which still sees what was there before.
"""

EMPTY: dict[str, dict[str, Any]] = {
    "value-barrier": {"events": 10, "ratio": 100},
    "page-views": {"events": 10, "gets": 100, "changes": 100},
    "fraud": {"events": 10, "ratio": 100},
}
"""Nothing rare happens."""


def collected(app: str, frames: dict[str, DataFrame], spark: SparkSession) -> dict[str, pa.Table]:
    """What the DataFrames hold, streaming or not, as the outputs of the program."""
    from benchmarks.baselines import fraud  # noqa: PLC0415 -- only where pyspark is
    from benchmarks.baselines.keyed import finished  # noqa: PLC0415

    held = {}
    for name, frame in frames.items():
        if frame.isStreaming:
            finished(frame, "memory", "held")
            held[name] = spark.table("held")
        else:
            held[name] = frame
    if set(held) == {"both"}:
        both = held["both"].localCheckpoint()  # a gang should run once
        held = fraud.divided(both)
    return {name: frame.toArrow() for name, frame in held.items()}


@pytest.mark.parametrize("form", ["batch", "streaming", "manual"])
@pytest.mark.parametrize("app", INPUTS)
def test_a_baseline_is_the_sequential_program(spark: SparkSession, tmp_path: Path, app: str, form: str) -> None:
    wanted = compared(spark, tmp_path, app, form, INPUTS[app])
    assert all(table.num_rows > 2 for table in wanted.values()), "the comparison should be about something"


@pytest.mark.parametrize("app", EMPTY)
def test_there_may_be_no_rare_event_at_all(spark: SparkSession, tmp_path: Path, app: str) -> None:
    compared(spark, tmp_path, app, "batch", EMPTY[app])


def compared(
    spark: SparkSession, tmp_path: Path, app: str, form: str, parameters: dict[str, Any]
) -> dict[str, pa.Table]:
    """Compare a baseline with the oracle; returns what the oracle says."""
    from benchmarks.baselines.inputs import Folder  # noqa: PLC0415
    from benchmarks.baselines.registry import BASELINES  # noqa: PLC0415

    workload = APPS[app].generate(**parameters)
    folder = Folder.write(workload, tmp_path / "input", slices=3)
    expected = fl.spec(APPS[app].program, workload.streams()).outputs
    wanted = {name: table.drop(["event_ts", "event_stream"]) for name, table in expected.items()}
    found = collected(app, BASELINES[app][form](spark, folder), spark)
    assert_same_outputs({name: found[name].cast(table.schema) for name, table in wanted.items()}, wanted)
    return wanted


def test_what_is_written_is_what_the_program_reads(tmp_path: Path) -> None:
    from benchmarks.baselines.inputs import Folder  # noqa: PLC0415

    workload = APPS["fraud"].generate(events=1_000, ratio=100)
    folder = Folder.write(workload, tmp_path)
    program = APPS["fraud"].program
    found, wanted = (fl.spec(program, streams).outputs for streams in (folder.streams(workload), workload.streams()))
    assert_same_outputs(found, wanted)
