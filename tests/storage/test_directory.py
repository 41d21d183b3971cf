"""Directories and the files in them: whole or not at all, and on the disk before they are seen."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pyarrow import fs

import flumina as fl
from flumina.storage.directory import Directory, target_of
from tests.storage.crashing import PowerFailure, Steps, counted_calls, disk, power_of


@pytest.fixture
def folder(tmp_path: Path) -> Directory:
    made = Directory.of(tmp_path / "folder", "checkpoint")
    made.create()
    return made


def test_a_file_is_written_once(folder: Directory) -> None:
    assert folder.write_once("a", b"1")
    assert not folder.write_once("a", b"2")
    assert folder.read("a") == b"1"
    folder.write("a", b"34")
    assert folder.read("a") == b"34"
    assert folder.names() == ["a"]
    assert folder.read("b") is None


def test_what_a_crash_left_half_written_goes(folder: Directory) -> None:
    for name in (".a.json.0123456789abcdef.tmp", ".env", ".git", ".b.123"):
        Path(folder.at(name)).touch()
    folder.create()
    assert len(folder.names()) == 4
    folder.remove_temporary_files()
    assert folder.names() == [".b.123", ".env", ".git"], "what is not ours stays"


def test_a_file_in_place_of_a_folder_is_named(folder: Directory) -> None:
    folder.write("a", b"1")
    with pytest.raises(fl.UsageError, match="is a file, where a folder is needed"):
        folder.below("a").create()


@pytest.mark.parametrize(
    ("other", "meets"), [("folder", True), ("folder/in", True), ("", True), ("folder2", False), ("link/in", True)]
)
def test_folders_that_lie_in_each_other(folder: Directory, tmp_path: Path, other: str, meets: bool) -> None:  # noqa: FBT001
    (tmp_path / "link").symlink_to(folder.path)
    one = Directory.of(tmp_path / other, "sink")
    assert (one.overlaps(folder), folder.overlaps(one)) == (meets, meets)


def test_stores_that_cannot_rename_are_refused() -> None:
    with pytest.raises(fl.UsageError, match="NO_RENAME"):
        Directory.of("mock:///x", "checkpoint").exclusive("checkpoint")
    with pytest.raises(fl.UsageError, match="PATH"):
        Directory.of(3, "checkpoint")  # type: ignore[arg-type]


def test_a_folder_is_on_the_disk_before_it_is_seen(folder: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert folder.move_in(str(staged), "batch=0")
    assert sorted(synced[:-1]) == [(name, False) for name in ("below", "one", "staged", "two")]
    assert synced[-1] == (Path(folder.path).name, True)


def seen(path: Path) -> dict[str, bytes]:
    """All files that are not temporary, with what is in them."""
    files = (file for file in path.rglob("*") if file.is_file())
    return {
        file.relative_to(path).as_posix(): file.read_bytes()
        for file in files
        if not any(map(target_of, file.relative_to(path).parts))
    }


def stage(path: Path) -> None:
    (path / "staged" / "below").mkdir(parents=True)
    (path / "staged" / "below" / "a").write_bytes(b"new")
    (path / "staged" / "b").write_bytes(b"new")


OPERATIONS: dict[str, tuple[Callable[[Path], object], Callable[[Directory], object], dict[str, bytes]]] = {
    "write": (lambda _: None, lambda d: d.write("a", b"new"), {"a": b"new"}),
    "write again": (lambda p: (p / "a").write_bytes(b"old"), lambda d: d.write("a", b"new"), {"a": b"new"}),
    "write once": (lambda _: None, lambda d: d.write_once("a", b"new"), {"a": b"new"}),
    "once again": (lambda p: (p / "a").write_bytes(b"old"), lambda d: d.write_once("a", b"new"), {"a": b"old"}),
    "move in": (stage, lambda d: d.move_in(d.at("staged"), "out"), {"out/below/a": b"new", "out/b": b"new"}),
    "discard": (stage, lambda d: d.discard("staged"), {}),
}


@pytest.mark.parametrize("what", OPERATIONS)
def test_every_operation_is_killed_at_every_step(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is seen is what was there before or what is there afterwards; the rest goes with the temporary files."""
    prepare, operate, after = OPERATIONS[what]
    under_test: list[Steps] = []
    outcomes = []
    for steps in range(100):
        path = tmp_path / str(steps)
        path.mkdir()
        prepare(path)
        before = seen(path)
        filesystem, killed = disk(steps), False
        directory = Directory(filesystem, str(path))
        with counted_calls(monkeypatch, under_test, str(path)), power_of(filesystem, under_test):
            try:
                operate(directory)
            except PowerFailure:
                killed = True
        assert seen(path) in (before, after), steps
        outcomes.append(seen(path) == after)
        replace(directory, filesystem=fs.LocalFileSystem()).remove_temporary_files()
        assert not [name for name in directory.names() if target_of(name)]
        if not killed:
            break
    else:
        pytest.fail("it never came to its end")
    assert outcomes[-1]
    assert outcomes == sorted(outcomes), "what is there stays"
    assert len(outcomes) > 4


def test_where_nothing_can_be_renamed_a_file_is_put_under_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flumina.storage.directory.can_rename", lambda _: False)
    filesystem = disk(100, puts_at_once=True)
    monkeypatch.setattr(filesystem, "move", None)
    directory = Directory(filesystem, str(tmp_path))
    directory.write("a", b"1")
    assert (directory.names(), directory.read("a"), directory.size("a")) == (["a"], b"1", 1)
    assert (directory.size("b"), directory.read("b")) == (None, None)


@pytest.mark.parametrize("once", [False, True])
def test_a_file_is_on_the_disk_before_its_name_and_its_name_before_the_call_returns(
    folder: Directory, monkeypatch: pytest.MonkeyPatch, *, once: bool
) -> None:
    synced: list[tuple[str, list[str]]] = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        synced.append((Path(f"/proc/self/fd/{descriptor}").readlink().name, folder.names()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    if once:
        folder.write_once("a", b"1")
    else:
        folder.write("a", b"1")
    (temporary, before), last = synced
    assert (target_of(temporary), before) == ("a", [temporary])
    assert last == (Path(folder.path).name, ["a"])
