import zlib
from pathlib import Path

import pytest

from flumina.checkpoint.store.checkpoints import Checkpoints
from flumina.checkpoint.store.manifest import Epoch, EpochOutputs, OutputFile
from tests.checkpoint.store.support import commit, fill


@pytest.fixture
def store(tmp_path: Path) -> Checkpoints:
    """A checkpoint with two output files, both in two snapshots."""
    made = Checkpoints(tmp_path / "checkpoint")
    staged = tmp_path / "staged"
    (staged / "a").mkdir(parents=True)
    files = []
    for name in ("a/x.parquet", "y.parquet"):
        (staged / name).write_bytes(name.encode() * 3)
        files.append(OutputFile("rows", name, len(name) * 3, zlib.crc32(name.encode() * 3), 5))
    owner = made.take_over(resumes=None)
    commit(owner, state=b"1", outputs=EpochOutputs(str(staged), tuple(files[:1])))
    commit(owner, state=b"2", outputs=EpochOutputs(str(staged), tuple(files)))
    return made


def test_outputs_are_read(store: Checkpoints, tmp_path: Path) -> None:
    assert store.verify() == []
    first, second = tmp_path / "staged/a/x.parquet", tmp_path / "staged/y.parquet"
    first.write_bytes(first.read_bytes()[:-1])
    second.write_bytes(second.read_bytes()[:-1] + b"?")
    assert [(f.file, f.what, f.damaged) for f in store.verify()] == [
        (str(first), "has 32 bytes, 33 were written", True),
        (str(second), "does not have the checksum that the manifest states", True),
    ]
    second.unlink()
    assert store.verify()[1].what == "is not there: 5 rows of output 'rows' are lost"


def test_outputs_that_are_elsewhere_are_no_damage(store: Checkpoints, tmp_path: Path) -> None:
    (tmp_path / "staged").rename(tmp_path / "published")
    assert [(f.damaged, "can't be checked" in f.what) for f in store.verify()] == [(False, True)] * 2


def test_outputs_that_were_being_published_when_the_driver_died(tmp_path: Path) -> None:
    """One is staged, one was moved, one was merged; and one is where only the next run can find it."""
    staged = tmp_path / "staged"
    (staged / "ready").mkdir(parents=True)
    files = {name: OutputFile("rows", name, 3, zlib.crc32(name.encode() * 3), 5) for name in "abcd"}
    for name in "abcd":
        (staged / name).write_bytes(name.encode() * 3)
    store = Checkpoints(tmp_path / "checkpoint")
    owner = store.take_over(resumes=None)
    commit(owner, state=b"1", outputs=EpochOutputs(str(staged), (files["a"], files["b"])))
    shown = tuple(files[name]._replace(name=final) for name, final in zip("bcd", "123", strict=True))
    owner.write(Epoch(number=2, outputs=EpochOutputs(str(staged), shown, {"rows": 10}), finished=True))
    assert store.verify() == []
    (staged / "b").rename(staged / "ready" / "1")
    (staged / "d").rename(tmp_path / "published")
    assert [(f.file, f.damaged) for f in store.verify()] == [(str(staged / "ready" / "3"), False)]
    (staged / "ready" / "1").write_bytes(b"bb?")
    (staged / "c").write_bytes(b"cc")
    (staged / "a").unlink()
    found = {Path(f.file).name: f.what for f in store.verify() if f.damaged}
    assert found == {
        "a": "is not there: 5 rows of output 'rows' are lost",
        "1": "does not have the checksum that the manifest states",
        "c": "has 2 bytes, 3 were written",
    }


def test_what_lies_there_without_need_is_told(store: Checkpoints, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    (folder / "notes.txt").write_text("mine")
    (folder / ".snapshot-000001-0000000009.json.0011223344556677.tmp").write_text("half")
    owner = store.take_over(resumes=store.latest())
    store.write_state(owner.snapshot_id(), b"to be committed")
    found = store.verify()
    assert [finding.what for finding in found] == [
        "belongs to a snapshot that was not committed",
        "is no file of a checkpoint",
    ]
    assert not any(finding.damaged for finding in found)


def test_what_a_driver_deletes_meanwhile_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Checkpoints(tmp_path, keep=1)
    owner = fill(store, epochs=1)
    listing = store.folder.listing()
    commit(owner, state=b"next")
    listings = iter([listing, store.folder.listing()])
    monkeypatch.setattr(type(store.folder), "listing", lambda self: next(listings))
    assert store.verify() == []
