"""Logs, and the folders they lie in: whole or not at all, and damage is noticed."""

import os
from pathlib import Path

import pytest

import flumina as fl
from flumina.storage.directory import Folder
from flumina.streaming.batch_watermark import BatchWatermark
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
    for name in (".a.json.0123456789ab", ".env", ".git", ".b.123"):
        Path(folder.at(name)).touch()
    folder.make()
    assert len(folder.names()) == 4
    folder.sweep()
    assert folder.names() == [".b.123", ".env", ".git"], "what is not ours stays"


def test_a_file_in_place_of_a_folder_is_named(folder: Folder) -> None:
    folder.write("a", [b"1"])
    with pytest.raises(fl.UsageError, match="is a file, where a folder is needed"):
        folder.below("a").make()


@pytest.mark.parametrize(
    ("other", "meets"), [("folder", True), ("folder/in", True), ("", True), ("folder2", False), ("link/in", True)]
)
def test_folders_that_lie_in_each_other(folder: Folder, tmp_path: Path, other: str, meets: bool) -> None:  # noqa: FBT001
    (tmp_path / "link").symlink_to(folder.path)
    one = Folder.of(tmp_path / other, "sink")
    assert (one.meets(folder), folder.meets(one)) == (meets, meets)


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


@pytest.mark.parametrize("kind", ["cut", "commit"])
def test_every_byte_of_an_entry_counts(folder: Folder, kind: str) -> None:
    log = Log(folder)
    log.make()
    log.decide(BatchWatermark(2, 10, {"a": 10}, {"a": 3}, {"a": 2}, {"a": 77}))
    log.commit(2)
    entries, read = {"cut": (log.cuts, log.cut), "commit": (log.commits, log.committed)}[kind]
    path = Path(entries.at("000000000002.json"))
    whole = path.read_bytes()
    for at in range(len(whole)):
        for damaged in (whole[:at], whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]):
            path.write_bytes(damaged)
            with pytest.raises(fl.CheckpointError, match="DAMAGED"):
                read(2)
    Path(entries.at("000000000003.json")).write_bytes(whole)
    with pytest.raises(fl.CheckpointError, match=f"it is the {kind} of batch 2"):
        read(3)


def test_old_entries_go(folder: Folder) -> None:
    log = Log(folder)
    log.make()
    for batch in range(131):
        log.commit(batch)
        log.prune(batch)
    assert log.commits.names()[0] == "000000000030.json"
    assert log.committed(130)
    assert not log.committed(131)


def test_a_folder_is_on_the_disk_before_it_is_seen(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    staged = Path(folder.path) / "staged"
    (staged / "below").mkdir(parents=True)
    (staged / "one").write_bytes(b"1")
    (staged / "below" / "two").write_bytes(b"2")
    synced: list[tuple[str, bool]] = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        synced.append((path.name, folder.has("batch=0")))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    assert folder.move_folder(str(staged), "batch=0")
    assert sorted(synced[:-1]) == [(name, False) for name in ("below", "one", "staged", "two")]
    assert synced[-1] == (Path(folder.path).name, True)
