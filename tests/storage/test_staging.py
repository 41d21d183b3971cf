"""Two drivers on one checkpoint: what one has staged is nobody else's until its turn is over."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import flumina as fl
from flumina.apps import ValueBarrier
from flumina.storage.directory import Directory, temporary_name
from flumina.storage.owner_token import OwnerName, OwnerToken
from flumina.storage.staging import Staging
from flumina.testing import assert_same_outputs
from tests.streaming.failpoints import At
from tests.streaming.support import Query
from tests.streaming.test_batches import IN_ORDER, LATE, barriers, batch, oracle, streams, values

NEXT = batch(values(6, 7, 9), barriers(7, 9))


def owner(term: int) -> OwnerToken:
    return OwnerToken("run", OwnerName(term, "00ff00ff00ff00ff"))


def once(query: Query, point: str, do: Callable[[], object]) -> None:
    """Do something when batch 1 of a query comes to a step the first time."""
    todo = [do]

    def reached(here: str, batch: int) -> None:
        if (here, batch) == (point, 1) and todo:
            todo.pop()()

    query.batches.hooks = At(reached)


@pytest.mark.parametrize("point", ["after-ingest", "before-state", "before-sink"])
def test_a_start_leaves_the_driver_at_work_alone(tmp_path: Path, point: str) -> None:
    old = Query(tmp_path, ValueBarrier, streams())
    old.feed(0, IN_ORDER[0])
    once(old, point, lambda: Query(tmp_path, ValueBarrier, streams()))
    old.feed(1, NEXT)
    assert_same_outputs(old.output(), oracle([IN_ORDER[0], NEXT]))


def test_half_written_entries_of_a_log_outlive_a_start(tmp_path: Path) -> None:
    query = Query(tmp_path, ValueBarrier, streams())
    beside = tmp_path / "checkpoint" / "log" / "watermarks" / ".000000000000.json.0123456789abcdef.tmp"
    beside.touch()
    query.start()
    assert beside.exists(), "it may be that of a driver at work"
    query.feed(0, IN_ORDER[0])
    assert not beside.exists()


def replace(folder: Path) -> None:
    Query(folder, ValueBarrier, streams()).feed(1, NEXT)


@pytest.mark.parametrize("point", ["before-state", "after-state", "before-sink"])
def test_who_was_replaced_publishes_nothing(tmp_path: Path, point: str) -> None:
    old = Query(tmp_path, ValueBarrier, streams())
    old.feed(0, IN_ORDER[0])
    once(old, point, lambda: replace(tmp_path))
    with pytest.raises(fl.CheckpointError, match="CHECKPOINT_IN_USE"):
        old.feed(1, NEXT)
    assert_same_outputs(old.output(), oracle([IN_ORDER[0], NEXT]))


def test_who_is_replaced_while_it_publishes_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its successor has made the batch visible, which the manifest names; it is there once."""
    old = Query(tmp_path, ValueBarrier, streams())
    old.feed(0, IN_ORDER[0])
    show = old.batches.sink.show

    def late(*given: Any) -> None:
        replace(tmp_path)
        show(*given)

    monkeypatch.setattr(old.batches.sink, "show", late)
    with pytest.raises(fl.CheckpointError, match="CHECKPOINT_IN_USE"):
        old.feed(1, NEXT)
    assert_same_outputs(old.output(), oracle([IN_ORDER[0], NEXT]))


def test_who_was_replaced_during_a_run_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = Query(tmp_path, ValueBarrier, streams())
    old.feed(0, IN_ORDER[0])

    def run(*_: Any) -> None:
        replace(tmp_path)
        raise fl.OutputError("OUT_LOST", "a file is gone")

    monkeypatch.setattr(old.engine, "run", run)
    with pytest.raises(fl.CheckpointError, match="CHECKPOINT_IN_USE"):
        old.feed(1, NEXT)


def test_what_drivers_before_have_left_goes(tmp_path: Path) -> None:
    """Also what earlier versions left, which had one folder for all; but nothing of a driver that came after."""
    folder = Directory.of(tmp_path, "sink")
    before, after = str(owner(2).name), str(owner(12).name)
    for name in (f"{before}/3-x", f"{after}/3-x", "3-0123abcd", temporary_name(before)):
        (tmp_path / name).mkdir(parents=True)
    staging = Staging(folder)
    staging.begin(owner(11))
    assert folder.names() == [str(owner(11).name), after]


def test_a_folder_is_renamed_before_it_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = str(owner(1).name)
    (tmp_path / name / "3-x").mkdir(parents=True)
    monkeypatch.setattr(Directory, "remove", lambda *_: None)  # dies before it has deleted anything
    Staging(Directory.of(tmp_path, "sink")).begin(owner(2))
    assert not (tmp_path / name).exists()
    assert any(path.name.startswith(f".{name}.") for path in tmp_path.iterdir())


def test_nothing_is_left_of_batches_that_are_done(tmp_path: Path) -> None:
    query = Query(tmp_path, ValueBarrier, streams(), late="dead-letter")
    for number, given in enumerate(LATE):
        query.feed(number, given)
    for folder in ("out", "dead"):
        (own,) = (tmp_path / folder / "_flumina").iterdir()
        assert list(own.iterdir()) == []
