"""The smallest cases of `make scale`: pieces of a few rows, so that a few thousand rows are many pieces."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from flumina.engine.options import EngineOptions
from tests.scale.cases import DIMENSIONS, FORBIDDEN, FRAME, LOCAL, SPARK, Case
from tests.scale.inputs import Input
from tests.scale.one import Phases, run
from tests.scale.pairs import covering

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIECE = 50
FEW = EngineOptions(chunk_rows=PIECE, window=2 * PIECE)
ROWS = 3_000


def cases() -> list[Case]:
    """Every pair of values but those of rows and programs; programs take turns in each shape."""
    dimensions = {name: values for name, values in DIMENSIONS.items() if name not in {"rows", "program"}}
    turns = {shape: cycle(DIMENSIONS["program"][number % 5 :]) for number, shape in enumerate(DIMENSIONS["shape"])}
    found: list[dict[str, Any]] = [dict(case) for case in covering(dimensions, FORBIDDEN)]
    return [Case("", program=str(next(turns[case["shape"]])), rows=ROWS, **case) for case in found]


def outcome(case: Case, folder: Path, spark: SparkSession | None = None) -> list[str]:
    given = Input(case, folder / "in")
    given.make()
    wrong: list[str] = run(given, folder / "out", spark, Phases(), FEW)["wrong"]
    return wrong


@pytest.mark.parametrize("case", [case for case in cases() if case.engine == LOCAL], ids=lambda case: case.name)
def test_local(case: Case, tmp_path: Path) -> None:
    assert outcome(case, tmp_path) == []


@pytest.mark.parametrize("program", DIMENSIONS["program"])
def test_programs_from_many_files(program: str, tmp_path: Path) -> None:
    assert outcome(Case("", LOCAL, "files", program, ROWS, seq=True, ordered=True), tmp_path) == []


@pytest.mark.parametrize("case", [case for case in cases() if case.engine == SPARK], ids=lambda case: case.name)
def test_spark(case: Case, tmp_path: Path, spark: SparkSession) -> None:
    assert outcome(case, tmp_path, spark) == []


def test_streaming(tmp_path: Path, spark: SparkSession) -> None:
    assert outcome(Case("", SPARK, FRAME, "keys-100k", ROWS, sorted=False, batches=2), tmp_path, spark) == []
