"""Publishing that is killed at every file operation: old results or new ones, and nothing left behind."""

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyarrow import fs

from flumina.errors import OutputError
from flumina.storage import lock
from flumina.storage import output_directory as module
from flumina.storage.folder_exchange import exchange
from flumina.storage.output_directory import OutputDirectory
from flumina.storage.recovery import recover
from tests.engine.writing import visible
from tests.storage.crashing import PowerFailure, Steps, counted_calls, disk

OLD, NEW, NEXT = "old", "new", "next"
FILES = {"a/part-0": b"one", "b/part-0": b"two" * 1000}


@pytest.fixture(autouse=True)
def steps_of_the_system(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Locks are made and removed with calls of the system, which count as steps of the disk under test."""

    def exchanged(first: str, second: str) -> bool:
        if UNDER_TEST:
            UNDER_TEST[-1].ask()
        return exchange(first, second)

    monkeypatch.setattr(module, "exchange", exchanged)
    with counted_calls(monkeypatch, UNDER_TEST, "flumina-"):
        yield
    UNDER_TEST.clear()
    die()


UNDER_TEST: list[Steps] = []


def die() -> None:
    """Let go of all locks, as the system does for a process that was killed."""
    for folder in list(lock._HELD):
        lock.release(folder)


def place(out: Path, run: str, filesystem: fs.FileSystem, *, moves: bool, durable: bool = False) -> OutputDirectory:
    made = OutputDirectory.of(out, run, filesystem=filesystem, overwrite=True, durable=durable)
    return replace(made, renames=False, staging=f"{out}/_flumina-{run}") if moves else made


def publish(location: OutputDirectory) -> None:
    """A whole run: repair, prepare, write, publish."""
    recover(location)
    location.prepare()
    files: dict[str, str] = {}
    for name, data in FILES.items():
        staged = f"{location.task_directory(len(files), 'a')}/x"
        Path(staged).write_bytes(data)
        files[f"{name}-{location.run}.parquet"] = staged
    location.commit(files)


def committed(out: Path) -> str | None:
    """The run whose results are at the path, whole and alone; None if they are not whole."""
    found = {
        path.relative_to(out).as_posix(): path.read_bytes()
        for path in out.rglob("*")
        if path.is_file() and not path.relative_to(out).as_posix().startswith("_flumina-")
    }
    for run in (OLD, NEW, NEXT):
        wanted = {f"{name}-{run}.parquet": data for name, data in FILES.items()}
        if found == {**wanted, "_SUCCESS": f"{run}\n".encode()}:
            return run
    return None


def killed_after(steps: int, out: Path, watch: Callable[[], None] = lambda: None, **how: bool) -> bool:
    """A run that is killed after so many steps; whether it was."""
    filesystem = disk(steps, watch)
    UNDER_TEST.append(filesystem)
    try:
        publish(place(out, NEW, filesystem, **how))
    except PowerFailure:
        return True
    else:
        return False
    finally:
        UNDER_TEST.clear()
        die()


HOW = ["exchange", "rename", "move"]


@pytest.mark.parametrize("how", HOW)
def test_overwriting_is_killed_at_every_step(tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old or new results lie at the path at every moment, or do so after the next start; and nothing else is left."""
    if how == "rename":
        monkeypatch.setattr(module, "exchange", lambda *_: False)
    moves = how == "move"
    steps, found = 0, set()
    while True:
        folder = tmp_path / str(steps)
        out = folder / "out"
        publish(place(out, OLD, fs.LocalFileSystem(), moves=moves))
        killed = killed_after(steps, out, moves=moves)
        if how == "exchange":
            assert committed(out) in (OLD, NEW), steps
        recover(place(out, NEXT, fs.LocalFileSystem(), moves=moves))
        now = committed(out)
        assert now in (OLD, NEW), (steps, visible(folder))
        found.add(now)
        assert [path for path in visible(folder) if "flumina-" in path] == [], steps
        publish(place(out, NEXT, fs.LocalFileSystem(), moves=moves))
        assert committed(out) == NEXT
        if not killed:
            break
        steps += 1
    assert steps > 20
    assert found == {OLD, NEW}


@pytest.mark.parametrize("how", HOW[1:])
def test_the_repair_is_killed_at_every_step_too(tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "exchange", lambda *_: False)
    moves = how == "move"
    repaired = 0
    for steps in range(100):
        out = tmp_path / str(steps) / "out"
        publish(place(out, OLD, fs.LocalFileSystem(), moves=moves))
        if not killed_after(steps, out, moves=moves):
            break
        if committed(out) is not None:
            continue
        repaired += 1
        for again in range(100):
            filesystem = disk(again)
            UNDER_TEST.append(filesystem)
            try:
                recover(place(out, NEXT, filesystem, moves=moves))
            except PowerFailure:
                die()
            else:
                break
            finally:
                UNDER_TEST.clear()
        assert committed(out) == NEW
        assert [path for path in visible(out.parent) if "flumina-" in path] == [], steps
    else:
        pytest.fail("a run never came to its end")
    assert repaired


@pytest.mark.parametrize("between", [False, True], ids=["at once", "after another run"])
@pytest.mark.parametrize("how", HOW)
def test_a_run_with_snapshots_goes_on_after_every_step(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch, *, between: bool
) -> None:
    """Its files are needed again: another run does not remove them."""
    if how != "exchange":
        monkeypatch.setattr(module, "exchange", lambda *_: False)
    moves = how == "move"
    for steps in range(100):
        out = tmp_path / str(steps) / "out"
        publish(place(out, OLD, fs.LocalFileSystem(), moves=moves))
        own = place(out, NEW, fs.LocalFileSystem(), moves=moves, durable=True)
        recover(own)
        own.prepare()
        staged = {f"{name}-{NEW}.parquet": f"{own.staging}/{n}" for n, name in enumerate(FILES)}
        for path, data in zip(staged.values(), FILES.values(), strict=True):
            Path(path).write_bytes(data)
        die()
        filesystem = disk(steps)
        UNDER_TEST.append(filesystem)
        try:
            replace(own, filesystem=filesystem).commit(staged)
            killed = False
        except PowerFailure:
            killed = True
        UNDER_TEST.clear()
        die()
        if between:
            recover(place(out, NEXT, fs.LocalFileSystem(), moves=moves))
            assert committed(out) in (OLD, NEW), steps
        if not own.is_committed:
            own.commit(staged)
        own.discard()
        assert committed(out) == NEW
        assert [path for path in visible(out.parent) if "flumina-" in path] == [], steps
        if not killed:
            return
    pytest.fail("a run never came to its end")


@pytest.mark.parametrize("moves", [False, True], ids=["rename", "move"])
def test_a_first_commit_goes_on_after_every_step(tmp_path: Path, *, moves: bool) -> None:
    """Nothing may be overwritten, and what the killed driver has left is no result of another run."""
    for steps in range(100):
        out = tmp_path / str(steps) / "out"
        own = replace(place(out, NEW, fs.LocalFileSystem(), moves=moves, durable=True), overwrite=False)
        own.prepare()
        staged = {f"{name}-{NEW}.parquet": f"{own.staging}/{n}" for n, name in enumerate(FILES)}
        for path, data in zip(staged.values(), FILES.values(), strict=True):
            Path(path).write_bytes(data)
        filesystem = disk(steps)
        UNDER_TEST.append(filesystem)
        try:
            replace(own, filesystem=filesystem).commit(staged)
            killed = False
        except PowerFailure:
            killed = True
        UNDER_TEST.clear()
        if not own.is_committed:
            own.commit(staged)
        own.discard()
        die()
        assert committed(out) == NEW, steps
        assert [path for path in visible(out.parent) if "flumina-" in path] == [], steps
        if not killed:
            return
    pytest.fail("a run never came to its end")


def test_a_reader_never_sees_half(tmp_path: Path) -> None:
    out = tmp_path / "out"
    publish(place(out, OLD, fs.LocalFileSystem(), moves=False))
    seen: list[str | None] = []
    assert not killed_after(1000, out, lambda: seen.append(committed(out)), moves=False)
    assert set(seen) == {OLD, NEW}
    assert OLD not in seen[seen.index(NEW) :], "new ones stay"


DRIVER = """
import sys
from flumina.storage.output_directory import OutputDirectory
location = OutputDirectory.of(sys.argv[1], "alive", overwrite=True, durable=sys.argv[2] == "True")
location.prepare()
open(location.task_directory(0, "a") + "/x", "w").close()
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("durable", [False, True])
def test_only_what_a_killed_driver_has_left_is_removed(tmp_path: Path, *, durable: bool) -> None:
    command = [sys.executable, "-c", DRIVER, str(tmp_path / "out"), str(durable)]
    staged = tmp_path / "_out.flumina-alive" / "00000-a" / "x"
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == b"ready\n"
        recover(OutputDirectory.of(tmp_path / "out", NEXT))
        assert staged.exists(), "its driver is at work"
        driver.kill()
    recover(OutputDirectory.of(tmp_path / "out", NEXT))
    assert staged.exists() == durable, "snapshots may vouch for it"
    assert durable or visible(tmp_path) == []


def test_folders_of_other_machines_and_other_paths_are_left_alone(tmp_path: Path) -> None:
    for name in ("_out.flumina-other", "_out.flumina-x.flumina-y", "_output.flumina-z"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "driver.lock").write_text("another-machine.example")
        (tmp_path / name / "x").touch()
    (tmp_path / "_out.flumina-x.flumina-y" / "driver.lock").write_text(socket.gethostname())
    before = visible(tmp_path)
    recover(OutputDirectory.of(tmp_path / "out", NEXT))
    assert visible(tmp_path) == before


def test_results_that_a_version_without_locks_has_left_are_repaired(tmp_path: Path) -> None:
    out = tmp_path / "out"
    publish(place(out, OLD, fs.LocalFileSystem(), moves=False))
    staging = tmp_path / "_out.flumina-killed"
    staging.mkdir()
    out.rename(staging / "replaced")
    recover(OutputDirectory.of(out, NEXT))
    assert committed(out) == OLD, "new ones are not there"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_what_is_needed_for_the_repair_is_not_discarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that fails twice: neither the new results come to their place nor the old ones back."""
    monkeypatch.setattr(module, "exchange", lambda *_: False)
    out = tmp_path / "out"
    publish(place(out, OLD, fs.LocalFileSystem(), moves=False))

    class Broken(fs.LocalFileSystem):  # type: ignore[misc]  # pyarrow has no types
        def move(self, src: str, dest: str) -> None:
            if dest == str(out):
                raise OSError(5, "Input/output error")
            super().move(src, dest)

    location = place(out, NEW, Broken(), moves=False)
    with pytest.raises(OutputError, match="Input/output error"):
        publish(location)
    assert not out.exists()
    location.discard()  # as the driver does after a failure
    recover(place(out, NEXT, fs.LocalFileSystem(), moves=False))
    assert committed(out) == NEW
