"""Rows that can't be read are put aside on Spark, too: of files that tasks read, and of DataFrames."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import flumina as fl
from flumina.apps import PageViews
from flumina.engine.results import RunResult
from flumina.errors import OrderError
from flumina.output.staged_outputs import DEAD_LETTERS
from flumina.testing import assert_same_outputs
from tests.system.checkpoints import CASES, SMALL, divided
from tests.system.strict import BROKEN, SHOPS, STRICT_DDL, Strict, strict_rows
from tests.system.test_dead_letters import REASONS, as_files, assert_accounted_for, with_bad_rows
from tests.system.test_spark_checkpoints import as_files as as_parts
from tests.system.test_spark_checkpoints import once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def broken() -> tuple[pa.Table, Any]:
    return strict_rows(10 * BROKEN)


def run(program: Any, streams: list[fl.Stream], **more: Any) -> RunResult:
    from flumina import spark as engine  # noqa: PLC0415 -- only where it is needed

    options: dict[str, Any] = {"workers": 3, "optimizer": "greedy", "bad_rows": "dead-letter", **more}
    return engine.run(program, streams, progress=False, **options)


def test_of_files_that_tasks_read(spark: SparkSession, broken: Any, tmp_path: Path) -> None:
    stream = replace(SHOPS, data=as_files(broken[0], tmp_path / "in"))
    result = run(Strict, [stream], out=tmp_path / "out")
    outputs = {"output": result.output.toArrow().cast(fl.spec(Strict, [stream], bad_rows="dead-letter").output.schema)}
    letters = result.dead_letters.toArrow()
    assert_accounted_for(result, outputs, letters, broken, tmp_path / "in")
    assert spark.read.parquet(str(tmp_path / "out")).count() == len(outputs["output"]), "readers do not see them"
    assert spark.read.parquet(str(tmp_path / "out" / DEAD_LETTERS)).count() == BROKEN


@pytest.mark.parametrize("partitions", [2, 7])
def test_of_frames_where_they_lie_and_moved(spark: SparkSession, broken: Any, partitions: int) -> None:
    table, ways = broken
    frame = spark.createDataFrame(table, STRICT_DDL).repartition(partitions)
    result = run(Strict, [replace(SHOPS, data=frame)])
    assert (result.stats.events, result.stats.dead_letters) == (9 * BROKEN, BROKEN)
    bad = zip(table.filter(pa.array(ways >= 0)).to_pylist(), ways[ways >= 0].tolist(), strict=True)
    wanted = Counter((REASONS[way], frozenset(row.items())) for row, way in bad)
    letters = [(row["reason"], json.loads(row["data"])) for row in result.dead_letters.toArrow().to_pylist()]
    assert Counter((why, frozenset({**row, "price": Decimal(row["price"])}.items())) for why, row in letters) == wanted
    good = fl.spec(Strict, [replace(SHOPS, data=table.filter(pa.array(ways < 0)))]).output
    assert_same_outputs({"output": result.output.toArrow().cast(good.schema)}, {"output": good})


def test_ties_of_gathered_rows_are_told_by_the_places_of_those_that_are_left(spark: SparkSession) -> None:
    """A row that is put aside does not shift the places of the others: pairs tie within a partition, which is fine."""

    def changes(ts: str) -> fl.Stream:
        rows = spark.range(0, 42, 1, 7).selectExpr(f"if(id in (2, 13, 24), null, {ts}) ts", "'a' page", "'x' info")
        return fl.Stream("changes", PageViews.change, rows, sorted=False)

    result = run(PageViews, [changes("id div 2")])
    assert (result.stats.events, result.stats.dead_letters) == (39, 3)
    with pytest.raises(OrderError, match=r"AMBIGUOUS_ORDER.*timestamp 5"):
        run(PageViews, [changes("id % 6 + 5")])


def test_a_stage_that_is_tried_again_has_each_once(spark: SparkSession, tmp_path: Path) -> None:
    program, streams = CASES["fraud"]
    spoilt, bad = with_bad_rows(streams())
    files = as_parts(tmp_path / "in", spoilt)
    checkpoint = fl.Checkpoint(tmp_path / "kept", keep=100, when=once(tmp_path))
    more = {
        "out": tmp_path / "out",
        "checkpoint": checkpoint,
        "engine_options": SMALL,
        "optimizer": divided,
        "workers": 2,
    }
    result = run(program, files, **more)
    assert (tmp_path / "died").exists()
    oracle = fl.spec(program, files, bad_rows="dead-letter")
    assert result.committed_dead_letters.rows == bad == len(oracle.dead_letters)

    def places(letters: pa.Table) -> list[tuple[Any, ...]]:
        return sorted((row["file"], row["row"]) for row in letters.to_pylist())

    assert places(result.dead_letters.toArrow()) == places(oracle.dead_letters)
    outputs = {name: frame.toArrow().cast(oracle.outputs[name].schema) for name, frame in result.outputs.items()}
    assert_same_outputs(outputs, oracle.outputs)
