"""Locks on directories of staged files: held as long as the driver lives."""

import socket
from pathlib import Path

import pytest

from flumina.storage import lock
from tests.engine.writing import visible


def test_a_folder_that_is_removed_while_it_is_made_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another driver takes it for that of a killed run in the moment before it is locked."""
    folder = tmp_path / "_out.flumina-new"
    removed: list[Path] = []
    take = lock._take

    def taken(descriptor: int, *, wait: bool) -> bool:
        if len(removed) < 3:
            removed.append(folder)
            (folder / lock.LOCK).unlink()
            folder.rmdir()
        return take(descriptor, wait=wait)

    monkeypatch.setattr(lock, "_take", taken)
    lock.make_locked(str(folder), resumable=False)
    assert len(removed) == 3
    assert visible(tmp_path) == [folder.name, f"{folder.name}/{lock.LOCK}"]
    monkeypatch.undo()
    assert not lock.take_over(str(folder)), "this process holds it"
    lock.release(str(folder))  # as the system does for a process that was killed
    assert lock.take_over(str(folder))
    lock.remove_locked(str(folder))
    assert visible(tmp_path) == []


def test_a_directory_of_another_machine_is_not_taken_over(tmp_path: Path) -> None:
    (tmp_path / lock.LOCK).write_text("another-machine.example")
    assert lock.is_locked(str(tmp_path))
    assert not lock.take_over(str(tmp_path))
    (tmp_path / lock.LOCK).write_text(socket.gethostname())
    assert lock.take_over(str(tmp_path))
    lock.release(str(tmp_path))
