"""Damage of any byte of any file is found, and never a silent fresh start."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flumina.checkpoint.store.checkpoints import Checkpoints
from flumina.checkpoint.store.snapshot import Snapshot
from flumina.errors import CheckpointError
from flumina.storage import checksummed_file
from flumina.storage.checksum import damaged
from tests.checkpoint.store.support import InMemory, commit, digest, fill, names


def damages(data: bytes) -> list[bytes]:
    """One flipped bit in every byte (and another one, which turns digits and letters into others); every cut."""
    flipped = [data[:n] + bytes([byte ^ bit]) + data[n + 1 :] for n, byte in enumerate(data) for bit in (0x01, 0x20)]
    return [*flipped, *(data[:n] for n in range(len(data))), data + b"\n", data + b"\0"]


def loaded(store: Checkpoints) -> Any:
    """What a driver would go on from, or the error."""
    try:
        return digest(store.latest())
    except CheckpointError as error:
        return error


@pytest.mark.parametrize("idle", [False, True])
def test_every_byte_of_every_file(tmp_path: Path, *, idle: bool) -> None:
    """``idle``: the last driver has committed nothing, so that its claim says which snapshot is the latest."""
    fill(Checkpoints(tmp_path), epochs=2, snapshots=2, name="P")
    store = Checkpoints(tmp_path)
    if idle:
        store.take_over(resumes=store.latest(), fingerprint={"name": "P"})
    good = digest(store.latest())
    store.folder = folder = InMemory.of_folder(tmp_path)
    assert store.verify() == []
    needed = {"snapshot-000002-0000000004.json", "snapshot-000002-0000000004.done"}
    needed |= {name for name in folder.held if name.startswith("state-000002-0000000004")}
    needed |= {name for name in folder.held if name.startswith("owner-000003")}
    assert len(needed) == 3 + idle
    tried = 0
    for name, data in list(folder.held.items()):
        for wrong in damages(data):
            folder.held[name] = wrong
            found = [finding for finding in store.verify() if finding.damaged]
            assert found, (name, wrong)
            assert any(finding.file.endswith(name) for finding in found)
            result = loaded(store)
            if name in needed:
                assert (result.condition, result.file) == ("CHECKPOINT_DAMAGED", folder.at(name))
                assert folder.at(name) in result.message
                assert result.hint
            else:
                assert result == good
            tried += 1
        folder.held[name] = data
    assert tried > 9_000
    assert store.verify() == []


def test_every_file_that_is_deleted(tmp_path: Path) -> None:
    fill(Checkpoints(tmp_path), epochs=2, snapshots=2)
    store = Checkpoints(tmp_path)
    good = digest(store.latest())
    store.folder = folder = InMemory.of_folder(tmp_path)
    for name, data in list(folder.held.items()):
        del folder.held[name]
        found = [finding.file for finding in store.verify() if finding.damaged]
        if name.endswith(".done"):  # as if the driver had died before it wrote the marker: nothing is lost
            assert found == []
            assert digest(store.latest()) == good
        else:
            assert found, name
        if "000002-0000000004" in name and not name.endswith(".done"):
            with pytest.raises(CheckpointError, match="CHECKPOINT_MISSING_FILE"):
                digest(store.latest())
        folder.held[name] = data


@pytest.mark.parametrize("lost", ["owner", "snapshot", "state", "snapshot-*.json"])
def test_a_folder_of_which_much_is_lost_is_no_fresh_start(tmp_path: Path, lost: str) -> None:
    store = Checkpoints(tmp_path)
    fill(store)
    for file in list(tmp_path.glob(lost if "*" in lost else f"{lost}*")):
        file.unlink()
    if lost == "snapshot":  # markers and all: states that belong to nothing are told, not taken for a start
        assert [finding for finding in store.verify() if finding.damaged]
    for older in (False, True) if lost not in {"owner", "snapshot"} else (False,):
        with pytest.raises(CheckpointError, match="CHECKPOINT_MISSING_FILE"):
            digest(store.latest(allow_older=older))
    before = names(tmp_path)
    with pytest.raises(CheckpointError, match="CHECKPOINT_EXISTS" if lost == "state" else "CHECKPOINT_MISSING_FILE"):
        store.take_over(resumes=None)
    assert names(tmp_path) == before


def test_files_that_were_exchanged_are_found(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path)
    fill(store, epochs=1, snapshots=2)
    first, second = (tmp_path / f"snapshot-000001-000000000{n}.json" for n in (1, 2))
    whole = second.read_bytes()
    second.write_bytes(first.read_bytes())
    with pytest.raises(CheckpointError, match=r"CHECKPOINT_DAMAGED.*manifest of snapshot 000001-0000000001"):
        store.latest()
    second.write_bytes(
        checksummed_file.encode("manifest", {**checksummed_file.decode(whole, "manifest", ""), "events": 99})
    )
    with pytest.raises(CheckpointError, match="not the manifest that was committed"):
        store.latest()
    second.write_bytes(next(tmp_path.glob("owner-*")).read_bytes())
    with pytest.raises(CheckpointError, match="is not the manifest of a checkpoint"):
        store.latest()


def test_an_older_snapshot_is_used_only_on_request(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path)
    fill(store, epochs=1, snapshots=3)
    state = next(tmp_path.glob("state-000001-0000000003-*"))
    state.write_bytes(b"x" * state.stat().st_size)
    latest = store.latest()
    assert latest is not None
    with pytest.raises(CheckpointError, match=r"CHECKPOINT_DAMAGED.*checksum(.|\n)*allow_older=True"):
        latest.state()
    (tmp_path / "snapshot-000001-0000000002.json").write_bytes(b"")
    older = store.latest(allow_older=True)
    assert older is not None
    assert (older.number, older.state()) == (1, b"state 0/0")
    owner = store.take_over(resumes=older)
    assert digest(store.latest()) == digest(older)  # from now on it is the one to go on from
    assert commit(owner, state=b"again").number == 4  # no number is used twice
    assert [snapshot.number for snapshot in store.all()] == [1, 4]
    assert store.verify() == []


def test_without_the_last_claim_older_snapshots_can_be_had_on_request(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path)
    fill(store, epochs=1)
    good = digest(store.latest())
    store.take_over(resumes=store.latest())
    next(tmp_path.glob("owner-000002-*")).write_bytes(b"{}")
    with pytest.raises(CheckpointError, match=r"CHECKPOINT_DAMAGED.*owner-000002"):
        store.latest()
    older = store.latest(allow_older=True)
    assert digest(older) == good
    assert commit(store.take_over(resumes=older), state=b"").manifest.snapshot_id == (3, 3)


def test_if_nothing_is_whole_there_is_no_older_one(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path)
    fill(store)
    before = names(tmp_path)
    for file in tmp_path.glob("state-*"):
        file.write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"0 bytes, 9 were written") as caught:
        store.latest(allow_older=True)
    assert caught.value.__notes__ == [f"none of the 3 snapshots in {tmp_path} is whole"]
    assert caught.value.hint
    assert "older" not in caught.value.hint, "that is what was asked for"
    assert names(tmp_path) == before


def test_whoever_asks_for_an_older_one_may_look_at_more_than_its_state(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path)
    fill(store, epochs=1, snapshots=3)
    looked_at: list[int] = []

    def up_to(number: int) -> Callable[[Snapshot], None]:
        def check(snapshot: Snapshot) -> None:
            looked_at.append(snapshot.number)
            if snapshot.number > number:
                raise damaged("rows.parquet", "it is not what was written")

        return check

    found = store.latest(allow_older=True, check=up_to(2))
    assert found is not None
    assert (found.number, looked_at) == (2, [3, 2])
    with pytest.raises(CheckpointError, match=r"CHECKPOINT_DAMAGED\] rows\.parquet"):
        store.latest(allow_older=True, check=up_to(0))
    owner = store.take_over(resumes=found)
    assert commit(owner, state=b"other").manifest.snapshot_id == (2, 4)
    looked_at.clear()
    store.latest(allow_older=True, check=up_to(9))
    assert looked_at == [4]


@pytest.mark.parametrize("written", [checksummed_file.VERSION - 1, checksummed_file.VERSION + 1])
def test_another_format_is_told_from_damage(written: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Checkpoints(tmp_path)
    monkeypatch.setattr(checksummed_file, "VERSION", written)
    fill(store)
    monkeypatch.undo()
    told = f"CHECKPOINT_VERSION.*format {written}; this version of flumina reads format {checksummed_file.VERSION}"
    with pytest.raises(CheckpointError, match=told):
        store.latest()
    assert store.verify()
