"""A disk whose power fails after some steps: before every operation, and in the middle of those that take several."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import pytest
from pyarrow import fs

from flumina.storage import lock

FIRST = (lock.LOCK, lock.RESUMABLE, "commit.json")
"""Files that are listed first: the worst order for a driver that deletes files one by one."""


class PowerFailure(BaseException):
    """Nothing is done after it."""


class Steps(fs.LocalFileSystem):  # type: ignore[misc]  # pyarrow has no types
    """A disk that asks before each operation that changes something."""

    ask: Callable[[], None]
    puts_at_once = False
    """Whether a file that is written appears whole, as in an object store."""

    def get_file_info(self, what: Any) -> Any:
        found = super().get_file_info(what)
        if isinstance(what, fs.FileSelector):
            found.sort(key=lambda info: info.base_name not in FIRST)
        return found

    def create_dir(self, path: str, *, recursive: bool = True) -> None:
        self.ask()
        super().create_dir(path, recursive=recursive)

    def move(self, src: str, dest: str) -> None:
        self.ask()
        super().move(src, dest)

    def delete_file(self, path: str) -> None:
        self.ask()
        super().delete_file(path)

    def delete_dir(self, path: str) -> None:
        for file in sorted(Path(path).rglob("*")):
            if file.is_file():
                self.ask()
                file.unlink()
        self.ask()
        super().delete_dir(path)

    def open_output_stream(self, path: str, *given: Any, **options: Any) -> Any:
        self.ask()
        if not self.puts_at_once:
            super().open_output_stream(path).close()  # killed before anything was written
            self.ask()
        return _Half(super().open_output_stream(path, *given, **options), self)


class _Half:
    """A file that is written in two halves, between which the power may fail."""

    def __init__(self, stream: Any, disk: Steps) -> None:
        self._stream, self._disk = stream, disk

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, data: bytes) -> None:
        half = 0 if self._disk.puts_at_once else len(data) // 2
        if half:
            self._stream.write(data[:half])
            self._stream.flush()
            self._disk.ask()
        self._stream.write(data[half:])

    def close(self) -> None:
        self._stream.close()


def disk(steps: int, watch: Callable[[], None] = lambda: None, *, puts_at_once: bool = False) -> Steps:
    """A disk whose power fails after so many steps; ``watch`` is called before each of them."""
    left = steps

    def ask() -> None:
        nonlocal left
        watch()
        left -= 1
        if left < 0:
            raise PowerFailure

    made = Steps()
    made.ask, made.puts_at_once = ask, puts_at_once
    return made


SYSTEM = ("mkdir", "open", "unlink", "rmdir", "link", "fsync")


@contextmanager
def counted_calls(monkeypatch: pytest.MonkeyPatch, under_test: list[Steps], where: str) -> Iterator[None]:
    """Count calls of the system on paths that contain ``where``, or on descriptors, as steps of the disk under test."""

    def counted(name: str) -> Callable[..., Any]:
        original = getattr(os, name)

        def call(*given: Any, **options: Any) -> Any:
            if under_test and (name == "fsync" or where in str(given[0])):
                under_test[-1].ask()
            return original(*given, **options)

        return call

    with monkeypatch.context() as patched:
        for name in SYSTEM:
            patched.setattr(os, name, counted(name))
        yield


@contextmanager
def power_of(disk: Steps, under_test: list[Steps]) -> Iterator[None]:
    """Have calls of the system count as steps of this disk."""
    under_test.append(disk)
    try:
        yield
    finally:
        under_test.remove(disk)
