from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import flumina as fl
from tests.system.agree import assert_agrees
from tests.system.cases import CASES, Case

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from flumina.engine.driver import RunResult

pytestmark = pytest.mark.xdist_group("spark")

CHOSEN = [case for number, case in enumerate(CASES) if number % 7 == 0 or case.planner.__name__ in ("forest",)]


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


@pytest.mark.parametrize("case", CHOSEN, ids=lambda case: case.id)
def test_a_run_on_spark_is_the_sequential_program(spark: SparkSession, case: Case) -> None:
    from flumina import spark as engine

    result = engine.run(
        case.program, case.streams, plan=case.plan, state=True, order=True, settings=case.settings, progress=False
    )
    assert_agrees(case, result, collected(case, result), ordered=True)
    assert result.stats.shuffled_bytes == 0
