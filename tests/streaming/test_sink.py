"""What a sink holds is what the query has made, whatever became of its checkpoint."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pyarrow.dataset as ds
import pytest

import flumina as fl
from flumina.apps import ValueBarrier
from flumina.streaming.sink import BATCH, ParquetSink
from flumina.testing import assert_same_outputs
from tests.streaming.support import Crash, Given, Query, crash_at
from tests.streaming.test_batches import (
    BARRIERS,
    IN_ORDER,
    LATE,
    SPOILT,
    VALUES,
    barriers,
    batch,
    oracle,
    streams,
    values,
)

OTHER = batch(values(6, 8, 9), barriers(9))
"""Another batch 1 than that of IN_ORDER."""


def restored(folder: Path, *given: Given, **rules: str) -> Query:
    """A query that has processed some batches, on a copy of its checkpoint from before the last of them."""
    query = Query(folder, ValueBarrier, streams(), **rules)
    for number, rows in enumerate(given):
        if number == len(given) - 1:
            shutil.copytree(folder / "checkpoint", folder / "copy")
        query.feed(number, rows)
    shutil.rmtree(folder / "checkpoint")
    (folder / "copy").rename(folder / "checkpoint")
    query.start()
    return query


def test_a_restored_checkpoint_with_other_rows_is_noticed(tmp_path: Path) -> None:
    query = restored(tmp_path, IN_ORDER[0], OTHER)
    given = [IN_ORDER[0], batch(values(6, 7), barriers(7, 9))]
    with pytest.raises(fl.OutputError, match=r"OUT_OTHER_BATCH.*batch=1 holds(.|\n)*restored(.|\n)*delete batch=1"):
        query.feed(1, given[1])
    shutil.rmtree(tmp_path / "out" / "batch=1")  # what the hint says
    query.start()
    query.feed(1, given[1])
    assert_same_outputs(query.output(), oracle(given))


def test_a_restored_checkpoint_with_the_same_rows_goes_on(tmp_path: Path) -> None:
    query = restored(tmp_path, IN_ORDER[0], OTHER)
    query.feed(1, OTHER)
    assert_same_outputs(query.output(), oracle([IN_ORDER[0], OTHER]))


@pytest.mark.parametrize("given", [batch(values(6), barriers()), batch(values(), barriers())])
def test_a_batch_without_outputs_is_not_the_one_that_has_some(tmp_path: Path, given: Given) -> None:
    query = restored(tmp_path, IN_ORDER[0], OTHER)
    with pytest.raises(fl.OutputError, match=r"OUT_OTHER_BATCH"):
        query.feed(1, given)


def test_a_batch_after_other_batches_is_another_one(tmp_path: Path) -> None:
    """Batch 1 has no outputs either way, so that the difference shows in batch 2, which has the same rows and cut."""
    after = batch(values(), barriers(12))
    query = Query(tmp_path, ValueBarrier, streams())
    query.feed(0, IN_ORDER[0])
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "copy")
    for number, rows in ((1, batch(values(6, 9), barriers())), (2, after)):
        query.feed(number, rows)
    shutil.rmtree(tmp_path / "checkpoint")
    (tmp_path / "copy").rename(tmp_path / "checkpoint")
    query.start()
    query.feed(1, batch(values(7, 9), barriers()))
    with pytest.raises(fl.OutputError, match=r"OUT_OTHER_BATCH.*batch=2"):
        query.feed(2, after)


def test_dead_letters_of_another_batch_are_noticed(tmp_path: Path) -> None:
    query = restored(tmp_path, *LATE, late="dead-letter")
    with pytest.raises(fl.OutputError, match=r"OUT_OTHER_BATCH.*dead/batch=1"):
        query.feed(1, batch(values(3, 6), barriers(8)))


def test_dead_letters_are_replayed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    query = Query(tmp_path, ValueBarrier, streams(), late="dead-letter")
    query.feed(0, LATE[0])
    crash_at(monkeypatch, "after-sink", 1)
    with pytest.raises(Crash):
        query.feed(1, LATE[1])
    monkeypatch.undo()
    query.start()
    query.feed(1, LATE[1])
    assert len(query.dead()) == 2


def words(folder: Path) -> Sequence[Path]:
    return sorted(folder.glob(f"*/batch=*/{BATCH}"))


def test_batches_of_versions_that_did_not_tell_are_accepted(tmp_path: Path) -> None:
    query = restored(tmp_path, IN_ORDER[0], OTHER)
    assert [path.parent.name for path in words(tmp_path)] == ["batch=0", "batch=1"]
    for path in words(tmp_path):
        path.unlink()
    query.feed(1, IN_ORDER[1])
    assert_same_outputs(query.output(), oracle([IN_ORDER[0], OTHER]))


def test_readers_pass_over_what_we_remember(tmp_path: Path) -> None:
    query = Query(tmp_path, ValueBarrier, streams())
    query.feed(0, IN_ORDER[0])
    assert words(tmp_path)
    assert ds.dataset(tmp_path / "out", format="parquet", partitioning="hive").count_rows() == 1


def test_a_query_goes_on_in_the_folder_where_it_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    query = Query(tmp_path, ValueBarrier, streams())
    query.out = tmp_path / "first"
    query.start()  # nothing was written yet, so that another folder is as good
    crash_at(monkeypatch, "after-sink", 0)
    with pytest.raises(Crash):
        query.feed(0, IN_ORDER[0])
    monkeypatch.undo()
    query.out = tmp_path / "second"
    with pytest.raises(fl.CheckpointError, match=r"CHECKPOINT_OUT.*/first, not to .*/second"):
        query.start()
    assert not (tmp_path / "second").exists()
    (tmp_path / "first").rename(tmp_path / "second")
    for number in (0, 1, 2, 3):
        query.start()  # moved as a whole
        query.feed(number, IN_ORDER[number])
    assert_same_outputs(query.output(), oracle(IN_ORDER))


@pytest.mark.parametrize("first", ["folder", "function"])
def test_a_folder_is_no_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str) -> None:
    query = Query(tmp_path, ValueBarrier, streams())
    if first == "function":
        monkeypatch.setattr(query.batches.sink, "place", None)
    query.feed(0, IN_ORDER[0])
    monkeypatch.undo()
    if first == "folder":
        monkeypatch.setattr(ParquetSink, "is_of", lambda *_: False)
        query.batches.sink.place = None
    with pytest.raises(fl.CheckpointError, match=r"CHECKPOINT_OUT.*a function"):
        query.batches.prepare() if first == "folder" else query.start()


def test_dead_letters_go_on_in_the_folder_where_they_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else those of a batch that is tried again would be in both."""
    rules = {"frontiers": dict.fromkeys((VALUES, BARRIERS), fl.BoundedDelay()), "bad_rows": "dead-letter"}
    query = Query(tmp_path, ValueBarrier, streams(), late="dead-letter", **rules)
    crash_at(monkeypatch, "after-sink", 0)
    with pytest.raises(Crash):
        query.feed(0, SPOILT[0])
    monkeypatch.undo()
    query.dead_letters = tmp_path / "elsewhere"
    with pytest.raises(fl.CheckpointError, match=r"CHECKPOINT_OUT.*dead letters.*/dead, not to .*/elsewhere"):
        query.start()
    assert not (tmp_path / "elsewhere").exists()
    (tmp_path / "dead").rename(tmp_path / "elsewhere")
    query.start()
    for number, given in enumerate(SPOILT):
        query.feed(number, given)
    totals = query.last["totals"]
    assert len(query.dead()) == totals["late"] + totals["bad"] > 0
