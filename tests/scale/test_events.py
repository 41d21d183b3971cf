"""Two computations that know nothing of each other, numpy's and the oracle's, agree; and the judge sees where not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import flumina as fl
from tests.scale.cases import FRAME, MEMORY, THREE, TWO, Case
from tests.scale.inputs import PROGRAMS, Input
from tests.scale.judge import complaints

ROWS = 5_000
OUTPUT = {
    "output": pa.table({"n": [1, 2, 2], "name": ["a", None, None], "event_ts": [5, 6, 6], "event_stream": ["s"] * 3})
}


@pytest.mark.parametrize("order", ["ts", "seq"])
@pytest.mark.parametrize("shape", [MEMORY, TWO, THREE, FRAME])
@pytest.mark.parametrize("program", PROGRAMS)
def test_numpy_and_the_oracle_agree(program: str, shape: str, order: str, tmp_path: Path) -> None:
    seq = order == "seq"
    given = Input(Case("memory", "local", shape, program, ROWS, seq=seq, sorted=seq), tmp_path / "in")
    given.make()
    streams = given.tables()
    oracle = fl.spec(PROGRAMS[program], streams)
    expected = given.expected()
    assert oracle.events == ROWS
    assert all(table.num_rows for table in expected.values()), "nothing is compared"
    found = {name: table.to_batches() for name, table in oracle.outputs.items()}
    assert complaints(found, expected, [stream.name for stream in streams]) == []


def judged(rows: list[int], order: list[str] | None = None) -> list[str]:
    return complaints({"output": OUTPUT["output"].take(pa.array(rows)).to_batches()}, OUTPUT, order)


def test_rows_are_compared_as_multisets() -> None:
    assert judged([0, 1, 2]) == judged([2, 0, 1]) == []
    (missing,) = judged([0, 1])
    assert "expected 3 rows, got 2; 1 missing, 0 surplus; missing are e.g. [{'n': 2, 'name': None" in missing
    (surplus,) = judged([0, 1, 2, 0])
    assert "expected 3 rows, got 4; 0 missing, 1 surplus" in surplus
    (both,) = judged([0, 0, 1])
    assert "1 missing, 1 surplus" in both


def test_order_counts_where_it_was_asked_for() -> None:
    assert judged([0, 1, 2], ["s"]) == []
    assert judged([1, 0, 2], ["s"]) == ["output 'output': rows 0 to 3 are not in order"]
    single = [OUTPUT["output"].slice(row, 1).to_batches()[0] for row in (1, 0, 2)]
    assert complaints({"output": single}, OUTPUT, ["s"]) == ["output 'output': rows 1 to 2 are not in order"]


def test_the_rank_of_a_stream_orders_rows_of_one_time() -> None:
    table = pa.table({"n": [1, 2], "event_ts": [5, 5], "event_stream": ["a", "b"]})
    assert complaints({"o": table.to_batches()}, {"o": table}, ["a", "b"]) == []
    assert complaints({"o": table.to_batches()}, {"o": table}, ["b", "a"]) != []


def test_every_column_counts() -> None:
    for name in OUTPUT["output"].column_names:
        index = OUTPUT["output"].column_names.index(name)
        column = OUTPUT["output"].column(name).to_pylist()
        other = ["x" if isinstance(value, str) else 9 for value in column[:1]] + column[1:]
        changed = OUTPUT["output"].set_column(index, name, pa.array(other))
        assert complaints({"output": changed.to_batches()}, OUTPUT, None) != [], name
    renamed = OUTPUT["output"].rename_columns(["m", "name", "event_ts", "event_stream"])
    assert "expected the columns" in complaints({"output": renamed.to_batches()}, OUTPUT, None)[0]


def test_columns_with_exchanged_values_are_told_apart() -> None:
    one = pa.table({"a": np.array([1, 2]), "b": np.array([2, 1])})
    other = pa.table({"a": np.array([1, 2]), "b": np.array([1, 2])})
    assert complaints({"o": one.to_batches()}, {"o": other}, None) != []
