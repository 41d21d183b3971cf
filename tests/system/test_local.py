from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import flumina as fl
from flumina import local
from tests.system.agree import assert_agrees
from tests.system.cases import CASES, Case

every = pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)


@every
def test_a_run_in_processes_is_the_sequential_program(case: Case) -> None:
    result = local.run(
        case.program,
        case.streams,
        plan=case.plan,
        return_state=True,
        engine_options=case.engine_options,
        progress=False,
    )
    assert_agrees(case, result, result.outputs, ordered=False)


@every
def test_outputs_come_in_order_where_that_is_asked_for(case: Case) -> None:
    result = local.run(
        case.program,
        case.streams,
        plan=case.plan,
        return_state=True,
        ordered=True,
        engine_options=case.engine_options,
        progress=False,
    )
    assert_agrees(case, result, result.outputs, ordered=True)


@pytest.mark.parametrize("case", CASES[::2], ids=lambda case: case.id)
def test_from_files_to_files(case: Case, tmp_path: Path) -> None:
    result = local.run(
        case.program,
        in_files(case, tmp_path / "in"),
        plan=case.plan,
        return_state=True,
        ordered=True,
        out=tmp_path / "out",
        engine_options=case.engine_options,
        progress=False,
    )
    assert_agrees(case, result, result.outputs, ordered=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"], "nothing else is left"


def in_files(case: Case, folder: Path) -> list[fl.Stream]:
    """The streams as files, one a part, with short row groups."""
    found = []
    for stream in case.streams:
        (folder / stream.name).mkdir(parents=True)
        for number, table in enumerate(stream.parts()):
            pq.write_table(table, folder / stream.name / f"{number:03d}.parquet", row_group_size=40)
        found.append(replace(stream, data=fl.Parquet(folder / stream.name)))
    return found
