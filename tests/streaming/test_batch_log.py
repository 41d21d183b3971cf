"""Logs: the first entry counts, and damage is noticed."""

from pathlib import Path

import pytest

import flumina as fl
from flumina.checkpoint.store.layout import CheckpointDirectory
from flumina.checkpoint.store.verify import verify_log
from flumina.storage.directory import Directory
from flumina.streaming.batch_log import BatchLog
from flumina.streaming.batch_watermark import BatchWatermark


@pytest.fixture
def folder(tmp_path: Path) -> Directory:
    made = Directory.of(tmp_path / "folder", "checkpoint")
    made.create()
    return made


def test_a_checkpoint_belongs_to_one_query(folder: Directory) -> None:
    log = BatchLog(folder)
    log.create()
    log.register_query("q")
    log.register_query("q")
    with pytest.raises(fl.CheckpointError, match="of Spark's query q, not of r"):
        log.register_query("r")


def test_the_first_cut_of_a_batch_counts(folder: Directory) -> None:
    log = BatchLog(folder)
    log.create()
    first = BatchWatermark(2, 10, {"a": 10}, {"a": 3}, {"a": 2}, {"a": 77})
    assert log.decide(first) == first
    assert log.decide(BatchWatermark(2, 99, {"a": 99}, {"a": 3}, {"a": 2}, {"a": 77})) == first
    for rows, good, digest, told in (
        (4, 2, 77, r"had 3 rows of stream 'a'.*has 4"),
        (3, 1, 77, r"had 2 events of stream 'a'.*has 1"),
        (3, 2, 78, r"had 3 rows of stream 'a'.*as many now, but not the same"),
    ):
        with pytest.raises(fl.CheckpointError, match=f"NOT_REPLAYED.*{told}"):
            log.decide(BatchWatermark(2, 10, {"a": 10}, {"a": rows}, {"a": good}, {"a": digest}))


def test_every_byte_of_an_entry_counts(folder: Directory) -> None:
    log = BatchLog(folder)
    log.create()
    log.decide(BatchWatermark(2, 10, {"a": 10}, {"a": 3}, {"a": 2}, {"a": 77}))
    entries, read = log.watermarks, log.watermark
    path = Path(entries.at("000000000002.json"))
    whole = path.read_bytes()
    for at in range(len(whole)):
        for damaged in (whole[:at], whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]):
            path.write_bytes(damaged)
            with pytest.raises(fl.CheckpointError, match="DAMAGED"):
                read(2)
    Path(entries.at("000000000003.json")).write_bytes(whole)
    with pytest.raises(fl.CheckpointError, match="it is the watermark of batch 2"):
        read(3)


def test_verification_finds_a_damaged_entry(folder: Directory) -> None:
    log = BatchLog(folder)
    log.create()
    log.decide(BatchWatermark(2, 10, {"a": 10}, {"a": 3}, {"a": 2}, {"a": 77}))
    checkpoint = CheckpointDirectory(folder.filesystem, folder.path)
    assert verify_log(checkpoint) == []
    path = Path(log.watermarks.at("000000000002.json"))
    whole = path.read_bytes()
    path.write_bytes(whole[:-2] + bytes([whole[-2] ^ 1]) + whole[-1:])
    assert [finding.damaged for finding in verify_log(checkpoint)] == [True]


def test_old_entries_go(folder: Directory) -> None:
    log = BatchLog(folder)
    log.create()
    for batch in range(131):
        log.decide(BatchWatermark(batch, 10, {}, {}, {}, {}))
        log.prune(batch)
    assert log.watermarks.names()[0] == "000000000030.json"
    assert log.watermark(130) is not None
    assert log.watermark(131) is None
