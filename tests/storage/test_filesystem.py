"""File systems: what they can do, and their errors."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyarrow import fs

from flumina.errors import OutputError, UsageError
from flumina.storage.filesystem import can_rename, get, list_directory, local_path, put, resolve, storage_errors, sync


def test_directories_inside_other_file_systems_are_synced_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(
        os, "fsync", lambda descriptor: synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
    )
    (tmp_path / "a").mkdir()
    sync(fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()), "a")
    sync(fs._MockFileSystem(), "a")
    assert synced == [str(tmp_path / "a")]


def test_what_a_file_system_can_do(tmp_path: Path) -> None:
    store = fs.PyFileSystem(fs.FSSpecHandler(SimpleNamespace(protocol="store")))
    inside = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    assert [can_rename(one) for one in (fs.LocalFileSystem(), inside, store)] == [True, True, False]
    assert [local_path(one, "a") for one in (inside, store)] == [str(tmp_path / "a"), None]


def test_files_are_read_as_they_were_written(tmp_path: Path) -> None:
    local = fs.LocalFileSystem()
    put(local, str(tmp_path / "a"), b"1")
    assert (get(local, str(tmp_path / "a")), get(local, str(tmp_path / "b"))) == (b"1", None)
    assert [info.base_name for info in list_directory(local, str(tmp_path))] == ["a"]
    assert list_directory(local, str(tmp_path / "b")) == []


def test_paths_and_uris(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolve("a")[1] == resolve(f"file://{tmp_path}/a")[1] == str(tmp_path / "a")
    for wrong in ("", "nosuchscheme://x"):
        with pytest.raises(UsageError, match="SINK"):
            resolve(wrong, option="sink")


def test_errors_have_the_path_and_a_hint(tmp_path: Path) -> None:
    with (
        pytest.raises(OutputError, match=r"OUT_FAILED.*can't write a/b.*no room") as caught,
        storage_errors("write", "a/b"),
    ):
        raise OSError(28, "no room")
    assert "make room" in str(caught.value.hint)
