import os
import pickle
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyarrow import fs

from flumina.checkpoint.store import checkpoints as store_module
from flumina.checkpoint.store.checkpoints import Checkpoints
from flumina.checkpoint.store.layout import Listing, SnapshotId
from flumina.checkpoint.store.manifest import REPLAY, EpochOutputs, Inputs, OutputFile
from flumina.errors import CheckpointError, UsageError
from flumina.model.order import Point
from flumina.output.staged_outputs import SortedRun
from flumina.storage.directory import temporary_name
from flumina.storage.filesystem import put
from tests.checkpoint.store.support import commit, digest, fill, names


def test_an_absent_and_an_empty_folder_are_a_fresh_start(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path / "a" / "b").latest() is None
    assert not (tmp_path / "a").exists()
    assert Checkpoints(tmp_path).latest() is None
    assert Checkpoints(tmp_path).latest(allow_older=True) is None


def test_everything_that_is_committed_is_there_again(tmp_path: Path) -> None:
    owner = Checkpoints(tmp_path).take_over(resumes=None, fingerprint={"name": "P"}, run="run-1")
    runs = (SortedRun(Point(1, 0, 2), Point(-(2**63), 1, 2**63 - 1), 5),)
    file = OutputFile("flagged", "00001-a/flagged.parquet", 1234, 2**32 - 1, 5, runs, "é")
    outputs = EpochOutputs("out/_staged", (file,), {"flagged": 5})
    before = datetime.now(UTC)
    committed = commit(
        owner,
        number=7,
        end=-3,
        state=b"\x00state",
        events=12,
        plan="{}",
        outputs=outputs,
        finished=True,
    )
    found = Checkpoints(tmp_path).latest()
    assert found is not None
    assert found.manifest == committed.manifest
    manifest = found.manifest
    assert (manifest.number, manifest.term, manifest.owner, manifest.run) == (7, 1, owner.token.id, "run-1")
    assert before <= manifest.created <= datetime.now(UTC)
    assert (manifest.end, manifest.events, manifest.finished, manifest.plan) == (-3, 12, True, "{}")
    assert (manifest.outputs, manifest.rows, manifest.inputs) == (outputs, {"flagged": 5}, Inputs(REPLAY))
    assert (manifest.fingerprint, manifest.parent, found.end, found.number) == ({"name": "P"}, None, -3, 7)
    assert found.state() == b"\x00state"


def test_the_last_k_are_kept_with_all_their_files_and_no_other(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path, keep=2)
    owner = store.take_over(resumes=None)
    for n in range(1, 6):
        commit(owner, state=b"%d" % n)
        assert [snapshot.number for snapshot in store.all()] == list(range(max(1, n - 1), n + 1))
    assert [snapshot.state() for snapshot in store.all()] == [b"4", b"5"]
    assert len(names(tmp_path)) == 1 + 2 * 3
    assert store.verify() == []


def test_a_new_driver_keeps_what_it_went_on_from_until_it_has_enough_of_its_own(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path, keep=2)
    fill(store, epochs=1, snapshots=3)
    latest = store.latest()
    assert latest is not None
    assert latest.number == 3
    owner = store.take_over(resumes=latest)
    assert digest(store.latest()) == digest(latest)
    commit(owner, state=b"new")
    assert [snapshot.manifest.snapshot_id for snapshot in store.all()] == [(1, 3), (2, 4)]
    commit(owner, state=b"newer")
    assert [snapshot.manifest.snapshot_id for snapshot in store.all()] == [(2, 4), (2, 5)]
    assert {owner.term for owner in store.folder.listing().owners} == {2}  # the first is needed by nobody


def test_tasks_write_states_with_nothing_but_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = Checkpoints("relative")
    owner = store.take_over(resumes=None)
    sent = pickle.dumps((store, owner.snapshot_id(3)))
    code = "import pickle, sys; s, p = pickle.load(sys.stdin.buffer); f = s.write_state(p, b'from afar'); "
    code += "sys.stdout.buffer.write(pickle.dumps(f))"
    done = subprocess.run([sys.executable, "-c", code], input=sent, capture_output=True, cwd="/", check=True)
    other_attempt = store.write_state(owner.snapshot_id(3), b"of an attempt that was lost")
    file = pickle.loads(done.stdout)  # noqa: S301
    assert file.name != other_attempt.name
    assert commit(owner, number=3, state=[file]).state() == b"from afar"
    # The lost attempt's file goes with the snapshot that it was for.
    for number in (4, 5, 6):
        commit(owner, number=number, state=b"")
    assert not [name for name in names(tmp_path / "relative") if "-0000000003" in name]


def test_states_that_are_ahead_of_the_commits_are_kept(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path, keep=1)
    owner = store.take_over(resumes=None)
    ahead = store.write_state(owner.snapshot_id(4), b"ahead")
    for number in (1, 2, 3):
        commit(owner, number=number, state=b"")
    assert commit(owner, number=4, state=[ahead]).state() == b"ahead"
    assert len(names(tmp_path)) == 1 + 3


def test_a_state_may_come_in_pieces_or_not_at_all(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path)
    owner = store.take_over(resumes=None)
    files = [store.write_state(owner.snapshot_id(1), piece) for piece in (b"a", b"b")]
    snapshot = commit(owner, number=1, state=files)
    assert snapshot.states() == [b"a", b"b"]
    with pytest.raises(UsageError, match=r"STATE_FILES.*2 state files"):
        snapshot.state()
    assert commit(owner, number=2, finished=True).states() == []


def test_state_files_are_those_of_the_snapshot_and_there(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path)
    owner = store.take_over(resumes=None)
    file = store.write_state(owner.snapshot_id(1), b"abc")
    with pytest.raises(UsageError, match="was not written for snapshot 2"):
        commit(owner, number=2, state=[file])
    (tmp_path / file.name).write_bytes(b"ab")
    with pytest.raises(CheckpointError, match=r"CHECKPOINT_DAMAGED.*2 bytes, a task wrote 3"):
        commit(owner, number=1, state=[file])
    (tmp_path / file.name).unlink()
    with pytest.raises(CheckpointError, match="CHECKPOINT_MISSING_FILE"):
        commit(owner, number=1, state=[file])
    assert store.latest() is None


def test_numbers_increase(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path)
    owner = store.take_over(resumes=None)
    with pytest.raises(UsageError, match="from 0 on"):
        commit(owner, number=-1)
    assert commit(owner, number=0).number == 0  # the first batch of a stream has it
    assert commit(owner, number=5).number == 5
    for number in (5, 4, -1, True, "6"):
        with pytest.raises(UsageError, match="SNAPSHOT_NUMBER"):
            commit(owner, number=number)  # type: ignore[arg-type]
    owner = store.take_over(resumes=store.latest())
    with pytest.raises(UsageError, match="the last one was 5"):
        commit(owner, number=5)
    assert (owner.next_number, commit(owner).number, commit(owner).number) == (6, 6, 7)


def test_snapshots_are_found_by_their_numbers(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path)
    fill(store, epochs=2, snapshots=2)
    assert (store.at(3).manifest.snapshot_id, store.at(2).state()) == (SnapshotId(2, 3), b"state 0/1")
    with pytest.raises(UsageError, match=r"no snapshot 9\n.*there are 4, 3, 2"):
        store.at(9)


def test_what_is_no_json_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    owner = Checkpoints(tmp_path).take_over(resumes=None)
    before = names(tmp_path)
    for wrong in (object(), float("nan")):
        with pytest.raises(UsageError, match="NOT_JSON"):
            commit(owner, outputs=EpochOutputs(rows={"x": wrong}))  # type: ignore[dict-item]
    assert names(tmp_path) == before


def test_foreign_folders_and_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    for call in (Checkpoints(tmp_path).latest, lambda: Checkpoints(tmp_path).take_over(resumes=None)):
        with pytest.raises(CheckpointError, match=r"CHECKPOINT_FOREIGN.*notes\.txt"):
            call()
    with pytest.raises(CheckpointError, match=r"CHECKPOINT_FOREIGN.*is a file"):
        Checkpoints(tmp_path / "notes.txt").latest()
    assert names(tmp_path) == ["notes.txt"]


def test_errors_of_the_file_system_are_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(CheckpointError, match=r"CHECKPOINT_FAILED.*file/below") as caught:
        Checkpoints(tmp_path / "file" / "below").take_over(resumes=None)
    assert caught.value.hint is not None
    with pytest.raises(UsageError, match="checkpoint= is the empty path"):
        Checkpoints("")
    with pytest.raises(UsageError, match="no file system"):
        Checkpoints("nothing://a/b")
    with pytest.raises(UsageError, match="KEEP"):
        Checkpoints(tmp_path, keep=0)


def test_uris_and_other_file_systems(tmp_path: Path) -> None:
    fill(Checkpoints(f"file://{tmp_path}/a"))
    inside = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    assert digest(Checkpoints("a", inside).latest()) == digest(Checkpoints(tmp_path / "a/").latest())
    assert fill(Checkpoints("b/c", inside)).token.term == 2
    assert Checkpoints("b/c", inside).verify() == []
    mock = fs._MockFileSystem()
    fill(Checkpoints("x", mock))
    found = Checkpoints("x", mock).latest()
    assert found is not None
    assert found.state() == b"state 1/1"


def test_file_systems_that_remember_what_they_listed_are_asked_anew() -> None:
    asked: list[str] = []
    remembering = SimpleNamespace(protocol="store", invalidate_cache=lambda: asked.append("anew"))
    below = fs.SubTreeFileSystem("bucket", fs.PyFileSystem(fs.FSSpecHandler(remembering)))
    with pytest.raises(AttributeError):  # it can do nothing else
        Checkpoints("x", below).latest()
    assert asked


def test_where_nothing_can_be_renamed_files_are_put_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flumina.storage.directory.can_rename", lambda _: False)
    written: list[str] = []

    def note(filesystem: fs.FileSystem, path: str, data: bytes) -> None:
        written.append(path)
        put(filesystem, path, data)

    monkeypatch.setattr("flumina.storage.directory.put", note)
    store = Checkpoints(tmp_path)
    fill(store)
    assert not [path for path in written if path.endswith(".tmp")]
    assert len(written) == 2 * (1 + 2 * 3)
    assert store.verify() == []


def test_every_file_is_on_the_disk_before_its_name_and_its_name_before_the_next_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a loss of power no name stands for bytes that were not written, and no file for another one."""
    done: list[tuple[str, str]] = []
    fsync = os.fsync

    def recorded(descriptor: int) -> None:
        fsync(descriptor)
        done.append(("fsync", Path(f"/proc/self/fd/{descriptor}").readlink().name))

    class Recorded(fs.LocalFileSystem):  # type: ignore[misc]  # pyarrow has no types
        def open_output_stream(self, path: str, *given: Any, **options: Any) -> Any:
            done.append(("write", Path(path).name))
            return super().open_output_stream(path, *given, **options)

        def move(self, src: str, dest: str) -> None:
            done.append(("move", Path(src).name))
            done.append(("to", Path(dest).name))
            super().move(src, dest)

    monkeypatch.setattr(os, "fsync", recorded)
    owner = Checkpoints(tmp_path, Recorded()).take_over(resumes=None)
    commit(owner, state=b"state")
    names_in_order = [name.partition("-")[0] + Path(name).suffix for what, name in done if what == "to"]
    assert names_in_order == ["owner.json", "state.bin", "snapshot.json", "snapshot.done"]
    assert len(done) == 5 * len(names_in_order)
    for start in range(0, len(done), 5):
        (write, partial), synced, moved, _, last = done[start : start + 5]
        assert write == "write"
        assert partial.endswith(".tmp")
        assert (synced, moved, last) == (("fsync", partial), ("move", partial), ("fsync", tmp_path.name))


def test_names_are_sorted_by_what_they_mean() -> None:
    listing = Listing.of(
        ["owner-000012-00ff00ff00ff00ff.json", "snapshot-000012-0000000003.json", "notes.txt", "owner-1.json"]
    )
    assert (listing.term, set(listing.snapshot_ids)) == (12, {SnapshotId(12, 3)})
    assert listing.foreign == ("notes.txt", "owner-1.json")
    snapshot_id = SnapshotId(1234567, 12345678901)  # more digits than usual are no problem
    assert Listing.of([snapshot_id.manifest, snapshot_id.marker, snapshot_id.new_file("state", "bin")]).markers == {
        snapshot_id
    }
    assert store_module.KEEP == 3
    beside = temporary_name(snapshot_id.manifest)
    listing = Listing.of([beside, temporary_name("notes.txt")])
    assert listing.partial == {(1234567, beside)}, "the term of the driver that wrote it is in its name"
    assert len(listing.foreign) == 1
