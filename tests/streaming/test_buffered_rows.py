"""Rows that wait are written once, taken in prefixes, and lie in few files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import flumina as fl
from flumina.apps import ValueBarrier
from flumina.checkpoint.store.checkpoints import Checkpoints
from flumina.input.event_table import TS
from flumina.input.watermark_policy import NOTHING
from flumina.streaming.buffered_rows import FILES, BufferedRows, buffer
from flumina.streaming.validation import PLACE, ROW
from flumina.testing import assert_same_outputs
from tests.streaming.support import Query
from tests.streaming.test_batches import BARRIERS, VALUES, barriers, batch, oracle, streams, values

STREAM = fl.Stream(VALUES, ValueBarrier.value, None)


def rows(*ts: int) -> pa.Table:
    places = {PLACE: pa.array([0] * len(ts), pa.int64()), ROW: pa.array(range(len(ts)), pa.int64())}
    return pa.table({TS: pa.array(ts, pa.int64()), **places})


def waiting(found: list[BufferedRows]) -> list[list[int]]:
    return [one.table.column(TS).to_pylist() for one in found]


def test_a_prefix_is_taken_and_the_file_stays(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path)
    owner = store.take_over(resumes=None)
    first = buffer(store, owner.snapshot_id(1), STREAM, [], rows(1, 3, 5, 7), 2)
    assert waiting(first) == [[3, 5, 7]]
    second = buffer(store, owner.snapshot_id(2), STREAM, first, rows(4, 9), 5)
    assert waiting(second) == [[7], [9]]
    assert second[0].file.name == first[0].file.name, "it is not written again"
    assert second[0].file[4:] == (2, 1, 7, 7)
    assert [waiting([BufferedRows.read(store, one.file)]) for one in second] == [[[7]], [[9]]]
    assert waiting(buffer(store, owner.snapshot_id(3), STREAM, second, rows(), 8)) == [[9]]
    assert buffer(store, owner.snapshot_id(3), STREAM, second, rows(), 9) == []
    assert len(list(tmp_path.glob("buffered-*"))) == 2


def test_rows_that_wait_for_long_lie_in_few_files_and_are_rarely_written_again(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path)
    owner = store.take_over(resumes=None)
    found: list[BufferedRows] = []
    most = written = 0
    for number in range(1, 501):
        names = {one.file.name for one in found}
        found = buffer(store, owner.snapshot_id(number), STREAM, found, rows(number), NOTHING)
        written += sum(one.file.rows for one in found if one.file.name not in names)
        most = max(most, len(found))
    assert most <= (FILES - 1) * 5, "five sizes, up to 512 rows"
    assert written < 500 * 7
    assert sorted(ts for table in waiting(found) for ts in table) == list(range(1, 501))


@pytest.mark.parametrize("restarts", [False, True])
def test_a_query_writes_no_row_twice_and_deletes_files_that_are_processed(tmp_path: Path, *, restarts: bool) -> None:
    query = Query(tmp_path, ValueBarrier, streams(), watermarks=dict.fromkeys((VALUES, BARRIERS), fl.BoundedDelay()))
    given = [batch(values(10, 20, 30, 40), barriers(1)), *(batch(values(), barriers(ts)) for ts in (11, 21, 31, 50))]
    first: set[str] = set()
    for number, one in enumerate(given):
        if restarts:
            query.start()
        query.feed(number, one)
        latest = query.batches.store.latest()
        assert latest is not None
        assert sum(file.rows for file in latest.manifest.buffered) == sum(query.last["buffered"].values())
        assert query.batches.store.verify() == []
        of_values = {file.name for file in latest.manifest.buffered if file.stream == VALUES}
        first = first or of_values
        assert of_values in (first, set()), "its rows are in the file that was written with them"
    query.feed(len(given), batch(values(), barriers()), closed=True)
    assert_same_outputs(query.output(), oracle(given))


def test_damage_of_a_file_that_waits_is_noticed(tmp_path: Path) -> None:
    query = Query(tmp_path, ValueBarrier, streams(), watermarks=dict.fromkeys((VALUES, BARRIERS), fl.BoundedDelay()))
    query.feed(0, batch(values(10, 20), barriers(1)))
    for file in (tmp_path / "checkpoint" / "state").glob("buffered-*"):
        file.write_bytes(file.read_bytes()[:-1] + b"?")
    assert [finding.damaged for finding in query.batches.store.verify()] == [True] * 2, "of both streams"
    query.start()
    with pytest.raises(fl.CheckpointError, match=r"CHECKPOINT_DAMAGED.*buffered-"):
        query.feed(1, batch(values(), barriers(11)))
