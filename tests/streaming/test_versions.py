"""Versions, logs and the folders they lie in: whole or not at all, and damage is noticed."""

import os
from pathlib import Path

import pytest

import flumina as fl
from flumina.streaming.cut import Cut
from flumina.streaming.folder import Folder
from flumina.streaming.log import Log
from flumina.streaming.versions import Versions


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    made = Folder.of(tmp_path / "folder", "checkpoint")
    made.make()
    return made


def test_a_version_comes_back(folder: Folder) -> None:
    versions = Versions(folder)
    versions.write(4, {"done": 7}, {"state": b"abc", "carried a": b""})
    found = versions.read(4)
    assert found.facts == {"done": 7}
    assert {name: bytes(blob) for name, blob in found.blobs.items()} == {"state": b"abc", "carried a": b""}
    versions.write(4, {"done": 8}, {"state": b"abd"})
    assert versions.read(4).facts == {"done": 8}


def test_a_blob_is_found_without_the_rest(folder: Folder) -> None:
    versions = Versions(folder)
    versions.write(4, {"done": 7}, {"carried a": b"12", "state": b"abc", "carried b": b"3"})
    for again in (versions, Versions(folder)):
        assert again.locate(4, "state").read() == b"abc"
    path = Path(folder.at("000000000004"))
    path.write_bytes(path.read_bytes().replace(b"abc", b"abd"))
    with pytest.raises(fl.CheckpointError, match="DAMAGED"):
        versions.locate(4, "state").read()


def test_every_damaged_byte_is_noticed(folder: Folder) -> None:
    versions = Versions(folder)
    versions.write(1, {"done": 7}, {"state": b"abcdef"})
    path = Path(folder.at("000000000001"))
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(fl.CheckpointError, match="DAMAGED"):
            versions.read(1)
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(fl.CheckpointError, match="DAMAGED"):
            versions.read(1)


def test_a_version_that_is_not_there_or_of_another_batch(folder: Folder) -> None:
    versions = Versions(folder)
    with pytest.raises(fl.CheckpointError, match="MISSING_VERSION"):
        versions.read(3)
    versions.write(1, {}, {})
    os.rename(folder.at("000000000001"), folder.at("000000000002"))  # noqa: PTH104 -- paths of ours are text
    with pytest.raises(fl.CheckpointError, match="of batch 1"):
        versions.read(2)


def test_old_versions_go(folder: Folder) -> None:
    versions = Versions(folder, kept=2)
    for batch in range(5):
        versions.write(batch, {}, {})
        versions.prune()
    assert versions.batches() == [3, 4]


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


def test_a_checkpoint_belongs_to_one_program_and_one_query(folder: Folder) -> None:
    log = Log(folder)
    log.make()
    owner = log.claim({"program": "A", "streams": ["a"]})
    assert log.claim({"program": "A", "streams": ["a"]}) == owner
    with pytest.raises(fl.CheckpointError, match="another streams"):
        log.claim({"program": "A", "streams": ["b"]})
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
