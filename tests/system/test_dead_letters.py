"""Rows that can't be read are put aside on request: each once, with where it stood, and the others are processed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import flumina as fl
from flumina import local
from flumina.apps import PageViews, ValueBarrier
from flumina.engine.results import RunResult
from flumina.errors import OrderError, TaskLostError
from flumina.output.staged_outputs import DEAD_LETTERS
from flumina.state.compare import same
from flumina.testing import assert_same_outputs
from tests.system.checkpoints import CASES, SMALL, crash, divided, sharded, snapshots
from tests.system.strict import BROKEN, CONDITIONS, SHOPS, Strict, strict_rows

PARTS = 4
REASONS = (*CONDITIONS, "NULL_TIMESTAMP")
run = partial(local.run, progress=False, bad_rows="dead-letter")


@pytest.fixture(scope="module")
def broken() -> tuple[pa.Table, Any]:
    return strict_rows(10 * BROKEN)


def cut(table: pa.Table) -> list[pa.Table]:
    return [table.slice(part * len(table) // PARTS, len(table) // PARTS) for part in range(PARTS)]


def as_files(table: pa.Table, folder: Path) -> fl.Parquet:
    folder.mkdir()
    for part, rows in enumerate(cut(table)):
        pq.write_table(rows, folder / f"{part}.parquet", row_group_size=5_000)
    return fl.Parquet(folder)


def assert_are_the_bad_rows(letters: pa.Table, table: pa.Table, ways: Any, folder: Path | None = None) -> None:
    """Each once, with its reason, where it stood, and itself."""
    found = letters.to_pylist()
    at = [row["partition"] * len(table) // PARTS + row["row"] for row in found]
    assert sorted(at) == np.flatnonzero(ways >= 0).tolist(), "part and row say which one it is"
    assert [row["reason"] for row in found] == [REASONS[way] for way in ways[at]]
    assert {row["stream"] for row in found} == {"shops"}
    files = {(row["partition"], row["file"]) for row in found}
    assert files == {(part, None if folder is None else str(folder / f"{part}.parquet")) for part in range(PARTS)}
    rows = [json.loads(row["data"]) for row in found]
    assert [{**row, "price": Decimal(row["price"])} for row in rows] == table.take(pa.array(at)).to_pylist()


def assert_accounted_for(
    result: RunResult, outputs: Mapping[str, pa.Table], letters: pa.Table, broken: Any, folder: Path | None = None
) -> None:
    """The outputs are those of the good rows, and all others are dead letters."""
    table, ways = broken
    assert len(result.plan.leaves) > 1
    assert result.stats.events == 9 * BROKEN
    assert result.stats.dead_letters == result.committed_dead_letters.rows == BROKEN
    assert_are_the_bad_rows(letters, table, ways, folder)
    good = fl.spec(Strict, [replace(SHOPS, data=table.filter(pa.array(ways < 0)))])
    assert_same_outputs(outputs, good.outputs)


@pytest.mark.parametrize("out", [True, False])
@pytest.mark.parametrize("source", ["tables", "files", "generator"])
def test_every_bad_row_is_accounted_for(broken: Any, source: str, out: bool, tmp_path: Path) -> None:  # noqa: FBT001
    table, ways = broken
    folder = tmp_path / "in" if source == "files" else None
    given: dict[str, Callable[[], Any]] = {
        "tables": lambda: cut(table),
        "files": lambda: as_files(table, tmp_path / "in"),
        "generator": lambda: fl.GeneratorSource(lambda part: cut(table)[part].to_batches(3_000), parts=PARTS),
    }
    stream = replace(SHOPS, data=given[source]())
    with pytest.raises(fl.InputError):
        local.run(Strict, [stream], progress=False)
    place = tmp_path / "out" if out else None
    result = run(Strict, [stream], workers=3, optimizer="greedy", out=place, ordered=out)
    assert_accounted_for(result, result.outputs, result.dead_letters, broken, folder)
    assert f"{BROKEN:,} dead letters" in str(result.stats)
    oracle = fl.spec(Strict, [stream], bad_rows="dead-letter")
    assert oracle.events == 9 * BROKEN
    assert_are_the_bad_rows(oracle.dead_letters, table, ways, folder)
    assert_same_outputs(result.outputs, oracle.outputs)
    if place is not None:
        read = pq.read_table(place)
        assert len(read) == result.output.num_rows, "readers of the outputs do not see them"
        assert pq.read_table(place / DEAD_LETTERS).num_rows == BROKEN


def test_outputs_that_nobody_wants_are_counted_and_so_are_dead_letters(broken: Any) -> None:
    result = run(Strict, [replace(SHOPS, data=cut(broken[0]))], out=fl.DISCARD)
    assert (result.committed_dead_letters.rows, result.stats.events) == (BROKEN, 9 * BROKEN)
    with pytest.raises(fl.UsageError, match="NOT_KEPT"):
        _ = result.dead_letters


def test_without_bad_rows_there_are_none(tmp_path: Path) -> None:
    streams = [fl.Stream("barriers", ValueBarrier.barrier, {"ts": [1, 2]})]
    asked: list[dict[str, Any]] = [{}, {"out": tmp_path / "out"}, {"bad_rows": "error"}]
    for options in asked:
        result = run(ValueBarrier, streams, **options)
        assert result.dead_letters.num_rows == result.committed_dead_letters.rows == result.stats.dead_letters == 0
        assert "reason" in result.dead_letters.column_names


@pytest.mark.parametrize("start", [local.run, fl.spec])
def test_what_can_not_be_meant(start: Any) -> None:
    with pytest.raises(fl.UsageError, match="BAD_ROWS"):
        start(ValueBarrier, [fl.Stream("barriers", ValueBarrier.barrier, {"ts": [1]})], bad_rows="ignore")


def test_rows_out_of_order_and_columns_of_another_type_are_still_errors() -> None:
    for columns, condition in (
        ({"ts": [1, None, 3, 2], "v": [1, 2, 3, 4]}, "DECREASING_TIMESTAMP"),
        ({"ts": [1], "v": ["text"]}, "COLUMN_TYPE"),
    ):
        with pytest.raises(fl.InputError, match=condition):
            run(ValueBarrier, [fl.Stream("values", ValueBarrier.value, pa.table(columns))])


def test_dependent_ties_are_found_among_what_is_left() -> None:
    ties = [pa.table({"ts": [None, 1, 5], "page": ["a"] * 3, "info": ["x"] * 3}) for _ in range(2)]
    with pytest.raises(OrderError, match="AMBIGUOUS_ORDER"):
        run(PageViews, [fl.Stream("changes", PageViews.change, ties)])


def with_bad_rows(streams: list[fl.Stream]) -> tuple[list[fl.Stream], int]:
    """The same events, among rows without a timestamp: every seventh of each part."""
    spoilt, bad = [], 0
    for stream in streams:
        parts = []
        for table in stream.parts():
            places = pa.array([None if n % 7 == 3 else n - (n + 3) // 7 for n in range(len(table) * 7 // 6)])
            nothing = pa.nulls(len(places), pa.int64())
            ts = table.column("ts").take(places)
            rest = [table.column(name).take(places) for name in table.column_names[1:]]
            parts.append(pa.table([ts, *rest], names=table.column_names))
            assert ts.null_count == places.null_count < len(nothing)
            bad += ts.null_count
            assert ts.drop_null().to_pylist() == table.column("ts").to_pylist()[: len(ts) - ts.null_count]
        spoilt.append(replace(stream, data=parts))
    return spoilt, bad


@pytest.mark.parametrize(("case", "after"), [*zip(CASES, [2, 3, 1, 3, 1], strict=True)])
def test_a_run_that_goes_on_has_each_dead_letter_once(case: str, after: int, tmp_path: Path) -> None:
    """Also those that were found before the crash, and after the last snapshot."""
    program, streams = CASES[case]
    spoilt, bad = with_bad_rows(streams())
    shape = sharded if case in ("page-views", "key-counter") else divided
    begin = partial(
        run, program, spoilt, optimizer=shape, out=tmp_path / "out", engine_options=SMALL, return_state=True
    )
    keep = partial(fl.Checkpoint, tmp_path / "kept", keep=100)
    with pytest.raises(TaskLostError):
        begin(workers=2, checkpoint=keep(when=crash(tmp_path)))
    assert len(snapshots(case, tmp_path)) == 2
    assert not (tmp_path / "out").exists()
    result = begin(workers=after, checkpoint=keep(events=150))
    oracle = fl.spec(program, spoilt, bad_rows="dead-letter")
    assert 0 < result.stats.events < oracle.events
    assert_same_outputs(result.outputs, oracle.outputs)
    assert same(result.state, oracle.state)

    def places(letters: pa.Table) -> list[tuple[Any, ...]]:
        return sorted((row["stream"], row["partition"], row["row"], row["reason"]) for row in letters.to_pylist())

    assert result.committed_dead_letters.rows == bad
    assert places(result.dead_letters) == places(oracle.dead_letters)
    again = begin(workers=after, checkpoint=keep(events=150))
    assert again.stats.events == 0
    assert places(again.dead_letters) == places(oracle.dead_letters)
    assert not list(tmp_path.glob("*flumina-*")), "nothing of the first try is left"


def test_a_run_that_is_over_is_asked_again_in_the_other_way(tmp_path: Path) -> None:
    streams = [fl.Stream("barriers", ValueBarrier.barrier, {"ts": [1, 2]})]
    for place in (fl.DISCARD, tmp_path / "out"):
        kept = tmp_path / f"kept for {place}".replace("/", "-")
        for bad_rows in ("error", "dead-letter", "error"):
            result = run(ValueBarrier, streams, out=place, checkpoint=kept, bad_rows=bad_rows)
            assert (result.committed["output"].rows, result.committed_dead_letters.rows) == (2, 0)


def test_all_rows_of_a_stream_are_bad(tmp_path: Path) -> None:
    """What type its timestamps would have had, nobody can tell; beside times it does not matter."""
    moments = pa.array([10, 20]).cast(pa.timestamp("us"))
    streams = [
        fl.Stream("values", ValueBarrier.value, pa.table({"ts": pa.nulls(3), "v": [1, 2, 3]})),
        fl.Stream("barriers", ValueBarrier.barrier, pa.table({"ts": moments})),
    ]
    for result in (run(ValueBarrier, streams), fl.spec(ValueBarrier, streams, bad_rows="dead-letter")):
        assert result.output.column("total").to_pylist() == [0, 0]
        assert result.dead_letters.num_rows == 3
