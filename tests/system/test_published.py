"""Outputs of runs with snapshots, from staged files to what everybody sees: whole, once, or not at all."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import flumina as fl
from flumina import local
from flumina.apps import Fraud, PageViews, ValueBarrier
from flumina.checkpoint.run_committer import RunCommitter, RunResults
from flumina.checkpoint.store.checkpoints import Checkpoints
from flumina.checkpoint.store.manifest import EpochManifest
from flumina.checkpoint.store.snapshot import Snapshot
from flumina.engine.results import RunResult
from flumina.errors import CheckpointError, OutputError, TaskLostError
from flumina.output import commit as publishing
from flumina.output.commit import OutputCommit
from flumina.output.staged_outputs import StagedFile
from flumina.state.compare import same
from flumina.storage.output_directory import OutputDirectory
from tests.system.checkpoints import (
    assert_agrees,
    crash,
    fraud,
    page_views,
    run,
    snapshots,
    value_barrier,
)


class DeadError(Exception):
    """The driver is gone, as far as anybody can see."""


@pytest.mark.parametrize(
    ("owner", "method"),
    [
        (RunCommitter, "finish"),
        (OutputDirectory, "commit"),
        (OutputDirectory, "_rename_in"),
        (OutputDirectory, "_mark"),
        (OutputDirectory, "discard"),
    ],
)
@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
def test_a_driver_that_dies_over_publishing(
    owner: type,
    method: str,
    done: bool,  # noqa: FBT001
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = getattr(owner, method)

    def dying(self: object, *arguments: object) -> None:
        if done:
            plain(self, *arguments)
        raise DeadError

    monkeypatch.setattr(owner, method, dying)
    with pytest.raises(DeadError):
        run("fraud", tmp_path, return_state=True)
    monkeypatch.undo()
    result = run("fraud", tmp_path, return_state=True)
    assert_agrees("fraud", result)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "out"]
    again = run("fraud", tmp_path, return_state=True)
    assert again.stats.events == 0
    assert_agrees("fraud", again)
    expected = fl.spec(Fraud, fraud()).state
    assert same(result.state, expected)
    assert same(again.state, expected)


def test_files_moved_one_by_one_before_the_driver_died(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moved: list[str] = []
    move_all = OutputDirectory._move_all

    def some(self: OutputDirectory, files: dict[str, str], folder: str) -> None:
        few = dict(list(files.items())[:2])
        move_all(self, few, folder)
        moved.extend(few)
        raise DeadError

    monkeypatch.setattr(OutputDirectory, "_move_all", some)
    with pytest.raises(DeadError):
        run("page-views", tmp_path)
    assert len(moved) == 2
    monkeypatch.undo()
    assert_agrees("page-views", run("page-views", tmp_path))


def test_a_replaced_driver_spoils_nothing_that_its_successor_publishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first stands still before it merges; the second does all the work, and is about to rename its files."""
    merge, show = publishing._merge, RunResults.show
    late: list[Any] = []
    results: list[RunResult] = []

    def stands_still(*arguments: Any) -> list[StagedFile]:
        if not late:
            late.append(arguments)
            results.append(run("value-barrier", tmp_path, ordered=True))
        return merge(*arguments)

    def is_overtaken(self: RunResults, epoch: EpochManifest) -> None:
        for file in merge(*late[0]) if epoch.finished else ():
            Path(file.path).write_bytes(b"half of a file")
        show(self, epoch)

    monkeypatch.setattr(publishing, "_merge", stands_still)
    monkeypatch.setattr(RunResults, "show", is_overtaken)
    with pytest.raises((CheckpointError, OutputError)):
        run("value-barrier", tmp_path, ordered=True)
    expected = fl.spec(ValueBarrier, value_barrier()).output.to_pylist()
    assert results[0].output.to_pylist() == expected
    assert run("value-barrier", tmp_path, ordered=True).output.to_pylist() == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "out"]


def test_a_replaced_driver_that_notices_in_time_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish, prepare = RunCommitter.finish, publishing.prepare
    results: list[RunResult] = []
    prepared: list[Any] = []

    def replaced(self: RunCommitter, *arguments: Any) -> Any:
        monkeypatch.setattr(RunCommitter, "finish", publish)
        results.append(run("fraud", tmp_path, ordered=True))
        return publish(self, *arguments)

    def counted(*given: Any) -> OutputCommit:
        prepared.append(given)
        return prepare(*given)

    monkeypatch.setattr(RunCommitter, "finish", replaced)
    monkeypatch.setattr("flumina.checkpoint.run_committer.prepare", counted)
    with pytest.raises(CheckpointError, match="CHECKPOINT_IN_USE"):
        run("fraud", tmp_path, ordered=True)
    assert len(prepared) == 1, "by the driver that was there last"
    assert_agrees("fraud", results[0])


RECORDED = """
import os

fsync = os.fsync

def settled(descriptor):
    fsync(descriptor)
    with open(os.environ["LOG"], "a") as log:
        print("settled", os.readlink(f"/proc/self/fd/{descriptor}"), file=log)

os.fsync = settled
"""

RECORDED_DRIVER = """
import os, sys
from pathlib import Path
from flumina.storage.directory import Directory
from tests.system import checkpoints as t

def vouched(self, name, data, write=Directory.write):
    with open(os.environ["LOG"], "a") as log:
        print("vouched", name, file=log)
    write(self, name, data)

Directory.write = vouched
t.run("fraud", Path(sys.argv[1]), ordered=sys.argv[2] == "True")
"""


@pytest.mark.parametrize("ordered", [False, True])
def test_outputs_are_on_the_disk_before_a_snapshot_vouches_for_them(tmp_path: Path, *, ordered: bool) -> None:
    """What all processes force to the disk and what the driver commits, in one log."""
    log, place, root = tmp_path / "log", tmp_path / "data", Path(__file__).parents[2]
    place.mkdir()
    (tmp_path / "sitecustomize.py").write_text(RECORDED)
    paths = os.pathsep.join(map(str, [tmp_path, root, root / "src"]))
    command = [sys.executable, "-c", RECORDED_DRIVER, str(place), str(ordered)]
    subprocess.run(command, env={**os.environ, "PYTHONPATH": paths, "LOG": str(log)}, timeout=500, check=True)
    lines = log.read_text().splitlines()
    taken = Checkpoints(place / "kept").all()
    staging = Path(str(taken[0].manifest.outputs.folder))
    for snapshot in taken:
        known = set(lines[: lines.index(f"vouched {snapshot.manifest.snapshot_id.manifest}")])
        files = [staging / file.path for file in snapshot.manifest.outputs.files]
        for file in files:
            wanted = [file, *(folder for folder in file.parents if folder.is_relative_to(place))]
            assert [path for path in wanted if f"settled {path}" not in known] == []
    assert len(taken) >= 4
    assert taken[-1].manifest.finished
    last = lines[lines.index(f"vouched {taken[-1].manifest.snapshot_id.manifest}") :]
    ready = f"settled {staging}/ready"
    committed = [f"{ready}/_SUCCESS", ready, *(f"{ready}/{name}" for name in Fraud.output), f"settled {place}/out"]
    end = last.index(f"vouched {taken[-1].manifest.snapshot_id.marker}")
    assert [line for line in [*committed, f"settled {place}"] if line not in last[:end]] == []


def test_plain_runs_do_not_wait_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", None)
    local.run(Fraud, fraud(), out=tmp_path / "out", ordered=True, progress=False)


def staged(folder: Path) -> list[Path]:
    return sorted((folder / "_out.flumina-x").parent.glob("_out.flumina-*/*/*.parquet"))


@pytest.mark.parametrize("damage", ["flip", "cut", "delete"])
def test_damaged_outputs_are_noticed(damage: str, tmp_path: Path) -> None:
    with pytest.raises(TaskLostError):
        run("page-views", tmp_path, events=None, when=crash(tmp_path))
    named = {
        Path(file.path).as_posix() for one in snapshots("page-views", tmp_path) for file in one.manifest.outputs.files
    }
    victim = next(path for path in staged(tmp_path) if "/".join(path.parts[-2:]) in named)
    whole = victim.read_bytes()
    if damage == "delete":
        victim.unlink()
    else:
        middle = len(whole) // 2
        victim.write_bytes(
            whole[:middle] if damage == "cut" else whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
        )
    with pytest.raises(CheckpointError, match=r"CHECKPOINT_(DAMAGED|MISSING_FILE)") as caught:
        run("page-views", tmp_path)
    assert victim.name in str(caught.value)
    victim.write_bytes(whole)
    assert_agrees("page-views", run("page-views", tmp_path))


def damage(victim: Path, how: str) -> bytes:
    """Spoil a file, so that whoever looks at its size alone sees a flipped bit never; gives what it was."""
    whole = victim.read_bytes()
    middle = len(whole) // 2
    flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
    victim.write_bytes(flipped if how == "flip" else whole[:-5])
    return whole


def dies_over_publishing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, moved: int, *, renames: bool, ordered: bool
) -> list[Path]:
    """A driver that dies before its files are visible, after it moved so many of them; where they lie now."""
    move_all = OutputDirectory._move_all

    def some(self: OutputDirectory, files: dict[str, str]) -> None:
        move_all(self, dict(list(files.items())[:moved]), self.ready)
        raise DeadError

    with monkeypatch.context() as patched:
        patched.setattr(OutputDirectory, "_rename_in" if renames else "_move_in", some)
        with pytest.raises(DeadError):
            run("page-views", folder, ordered=ordered)
    over = Checkpoints(folder / "kept").latest()
    assert over is not None
    assert over.manifest.finished
    assert not over.visible
    folder_of_all = Path(str(over.manifest.outputs.folder))
    named = {str(file.name): folder_of_all / file.path for file in over.manifest.files}
    place = Path(str(over.manifest.outputs.folder)) / "ready" if renames else folder / "out"
    lie = [place / name if (place / name).exists() else path for name, path in named.items()]
    assert len(set(lie) - set(named.values())) == moved
    return lie


def assert_page_views(result: RunResult, *, ordered: bool) -> None:
    assert_agrees("page-views", result)
    if ordered:
        for name, table in fl.spec(PageViews, page_views()).outputs.items():
            assert result.outputs[name].to_pylist() == table.to_pylist(), name


@pytest.mark.parametrize("how", ["flip", "cut"])
@pytest.mark.parametrize("ordered", [False, True], ids=["as it comes", "in order"])
@pytest.mark.parametrize(
    ("moved", "renames"), [(0, True), (1, True), (1, False)], ids=["none moved", "one moved", "one moved for good"]
)
def test_nothing_damaged_is_published(
    how: str, moved: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, ordered: bool, renames: bool
) -> None:
    """The driver died when all files had their names; those that it had moved are looked at as well."""
    if not renames:
        monkeypatch.setattr("flumina.storage.output_directory.can_rename", lambda _: False)
    lie = dies_over_publishing(tmp_path, monkeypatch, moved, renames=renames, ordered=ordered)
    for victim in {lie[0], lie[-1]}:
        whole = damage(victim, how)
        with pytest.raises(CheckpointError, match="CHECKPOINT_DAMAGED") as caught:
            run("page-views", tmp_path, ordered=ordered)
        assert caught.value.file == str(victim)
        assert not (tmp_path / "out" / "_SUCCESS").exists()
        victim.write_bytes(whole)
    result = run("page-views", tmp_path, ordered=ordered)
    assert result.stats.events == 0
    assert_page_views(result, ordered=ordered)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "out"]


@pytest.mark.parametrize("how", ["flip", "cut"])
@pytest.mark.parametrize("ordered", [False, True], ids=["as it comes", "in order"])
def test_what_is_damaged_before_the_same_driver_publishes(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, ordered: bool
) -> None:
    publish = RunCommitter.finish
    spoilt: list[tuple[Path, bytes]] = []

    def damaged(self: RunCommitter, *arguments: Any) -> Any:
        victim = staged(tmp_path)[0]
        spoilt.append((victim, damage(victim, how)))
        return publish(self, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(RunCommitter, "finish", damaged)
        with pytest.raises(CheckpointError, match="CHECKPOINT_DAMAGED") as caught:
            run("page-views", tmp_path, ordered=ordered)
    ((victim, whole),) = spoilt
    assert caught.value.file == str(victim)
    assert not (tmp_path / "out").exists()
    victim.write_bytes(whole)
    assert_page_views(run("page-views", tmp_path, ordered=ordered), ordered=ordered)


def files_of(snapshot: Snapshot) -> set[Path]:
    return {Path(str(snapshot.manifest.outputs.folder)) / file.path for file in snapshot.manifest.outputs.files}


@pytest.mark.parametrize("how", ["flip", "cut", "delete"])
@pytest.mark.parametrize("ordered", [False, True], ids=["as it comes", "in order"])
def test_damaged_outputs_lead_to_an_older_snapshot_on_request(how: str, tmp_path: Path, *, ordered: bool) -> None:
    with pytest.raises(TaskLostError):
        run("page-views", tmp_path, events=None, when=crash(tmp_path), ordered=ordered)
    first, second = snapshots("page-views", tmp_path)
    victim = min(files_of(second) - files_of(first))
    victim.unlink() if how == "delete" else damage(victim, how)
    with pytest.raises(CheckpointError, match=r"CHECKPOINT_(DAMAGED|MISSING_FILE)(.|\n)*allow_older=True") as caught:
        run("page-views", tmp_path, ordered=ordered)
    assert caught.value.file == str(victim)
    result = run("page-views", tmp_path, ordered=ordered, allow_older=True)
    assert_page_views(result, ordered=ordered)
    whole = fl.spec(PageViews, page_views()).events
    assert result.stats.events == whole - first.manifest.events, "what came after the first snapshot was done again"
    again = run("page-views", tmp_path, ordered=ordered)
    assert again.stats.events == 0
    assert_page_views(again, ordered=ordered)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "out"]


def test_an_older_snapshot_is_asked_for_and_none_is_whole(tmp_path: Path) -> None:
    with pytest.raises(TaskLostError):
        run("page-views", tmp_path, events=None, when=crash(tmp_path))
    first, _ = snapshots("page-views", tmp_path)
    victim = min(files_of(first))
    whole = damage(victim, "flip")
    for _ in range(2):
        with pytest.raises(CheckpointError, match="CHECKPOINT_DAMAGED") as caught:
            run("page-views", tmp_path, allow_older=True)
        assert caught.value.file == str(victim)
        assert caught.value.__notes__ == [f"none of the 2 snapshots in {tmp_path / 'kept'} is whole"]
        assert "allow_older=True" not in str(caught.value), "it was asked for"
    victim.write_bytes(whole)
    assert_agrees("page-views", run("page-views", tmp_path, allow_older=True))


def test_an_older_snapshot_is_asked_for_and_all_are_whole(tmp_path: Path) -> None:
    with pytest.raises(TaskLostError):
        run("page-views", tmp_path, events=None, when=crash(tmp_path))
    _, second = snapshots("page-views", tmp_path)
    result = run("page-views", tmp_path, allow_older=True)
    assert_agrees("page-views", result)
    assert result.stats.events == fl.spec(PageViews, page_views()).events - second.manifest.events


@pytest.mark.parametrize("ordered", [False, True], ids=["as it comes", "in order"])
@pytest.mark.parametrize(
    ("moved", "renames"),
    [(False, True), (True, True), (True, False)],
    ids=["none moved", "some moved", "some moved for good"],
)
def test_an_older_snapshot_than_the_one_that_was_to_be_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, moved: bool, ordered: bool, renames: bool
) -> None:
    """Files that it needs, and that were moved already, are taken back; the work after it is done again, once."""
    if not renames:
        monkeypatch.setattr("flumina.storage.output_directory.can_rename", lambda _: False)
    count = 0 if not moved else 1 if ordered else 3
    lie = dies_over_publishing(tmp_path, monkeypatch, count, renames=renames, ordered=ordered)
    damage(lie[-1], "flip")
    with pytest.raises(CheckpointError, match="CHECKPOINT_DAMAGED"):
        run("page-views", tmp_path, ordered=ordered)
    result = run("page-views", tmp_path, ordered=ordered, allow_older=True)
    assert 0 < result.stats.events < fl.spec(PageViews, page_views()).events
    assert_page_views(result, ordered=ordered)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "out"]


@pytest.mark.parametrize("older", [False, True])
def test_results_that_somebody_has_removed_are_not_published_again(tmp_path: Path, *, older: bool) -> None:
    run("fraud", tmp_path)
    (tmp_path / "out").rename(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match=r"CHECKPOINT_MISSING_FILE.*out/_SUCCESS") as caught:
        run("fraud", tmp_path, allow_older=older)
    assert caught.value.file == str(tmp_path / "out" / "_SUCCESS")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["elsewhere", "kept"]
    (tmp_path / "elsewhere").rename(tmp_path / "out")
    assert_agrees("fraud", run("fraud", tmp_path, allow_older=older))
