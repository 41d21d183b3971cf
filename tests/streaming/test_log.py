"""Logs, and the folders they lie in: whole or not at all, and damage is noticed."""

from pathlib import Path

import pytest

import flumina as fl
from flumina.streaming.cut import Cut
from flumina.streaming.folder import Folder
from flumina.streaming.log import Log


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    made = Folder.of(tmp_path / "folder", "checkpoint")
    made.make()
    return made


def test_a_file_is_written_once(folder: Folder) -> None:
    assert folder.write("a", [b"1"], once=True)
    assert not folder.write("a", [b"2"], once=True)
    assert folder.read("a") == b"1"
    folder.write("a", [b"3", b"4"])
    assert folder.read("a") == b"34"
    assert folder.names() == ["a"]
    assert folder.read("b") is None


def test_what_a_crash_left_half_written_goes(folder: Folder) -> None:
    Path(folder.at(".a.123")).touch()
    folder.make()
    assert folder.names() == []


def test_stores_that_cannot_rename_are_refused() -> None:
    with pytest.raises(fl.UsageError, match="NO_RENAME"):
        Folder.of("mock:///x", "checkpoint")
    with pytest.raises(fl.UsageError, match="PATH"):
        Folder.of(3, "checkpoint")  # type: ignore[arg-type]


def test_a_checkpoint_belongs_to_one_query(folder: Folder) -> None:
    log = Log(folder)
    log.make()
    log.claim_query("q")
    log.claim_query("q")
    with pytest.raises(fl.CheckpointError, match="of Spark's query q, not of r"):
        log.claim_query("r")


def test_the_first_cut_of_a_batch_counts(folder: Folder) -> None:
    log = Log(folder)
    log.make()
    first = Cut(2, 10, {"a": 10}, {"a": 3}, {"a": 2})
    assert log.decide(first) == first
    assert log.decide(Cut(2, 99, {"a": 99}, {"a": 3}, {"a": 2})) == first
    with pytest.raises(fl.CheckpointError, match=r"NOT_REPLAYED.*had 3 rows of stream 'a'.*has 4"):
        log.decide(Cut(2, 10, {"a": 10}, {"a": 4}, {"a": 2}))
    Path(log.cuts.at("000000000002.json")).write_bytes(b"{")
    with pytest.raises(fl.CheckpointError, match="DAMAGED"):
        log.cut(2)


def test_old_entries_go(folder: Folder) -> None:
    log = Log(folder)
    log.make()
    for batch in range(131):
        log.commit(batch)
        log.prune(batch)
    assert log.commits.names()[0] == "000000000030.json"
    assert log.committed(130)
    assert not log.committed(131)
