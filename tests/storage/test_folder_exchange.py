"""Directories that are exchanged in one step."""

import ctypes
from pathlib import Path
from types import SimpleNamespace

import pytest

from flumina.storage.folder_exchange import exchange


def test_two_directories_change_places(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    if not exchange(str(tmp_path / "a"), str(tmp_path / "b")):
        pytest.skip("this file system can't exchange")
    assert (tmp_path / "a" / "b").exists()
    assert (tmp_path / "b" / "a").exists()
    with pytest.raises(FileNotFoundError):
        exchange(str(tmp_path / "a"), str(tmp_path / "c"))


def test_a_system_without_the_call_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: SimpleNamespace())
    assert not exchange(str(tmp_path / "a"), str(tmp_path / "b"))
