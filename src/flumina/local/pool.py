"""Processes that wait for tasks: starting Python takes longer than many a run."""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flumina.local import process

_IDLE = 8
"""How many processes are kept when nothing runs."""

_GRACE = 2.0
"""Seconds that a process has to come back from a run that is over."""


class PoolProcess:
    """One process."""

    def __init__(self) -> None:
        ready, of_child = os.pipe()
        package = str(Path(process.__file__).parents[2])
        paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
        self.process = subprocess.Popen(
            [sys.executable, "-c", f"from flumina.local.process import main; main({of_child})"],
            stdin=subprocess.PIPE,
            pass_fds=(of_child,),
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )
        os.close(of_child)
        self.ready = ready
        self.code = _code()
        self.owed = 1
        """How often it has yet to say that it waits for a task: once when it has started, and after each one."""

    def give(self, arguments: bytes) -> None:
        """Have it run a task; if it has died meanwhile, the rendezvous will miss it."""
        assert self.process.stdin is not None
        self.owed += 1
        order = pickle.dumps((sys.path, str(Path.cwd()), arguments))
        with contextlib.suppress(OSError):
            process.write(self.process.stdin, order)  # type: ignore[arg-type]

    def waits_within(self, seconds: float) -> bool:
        """Whether it has started up, or come back from what it was given before."""
        deadline = time.monotonic() + seconds
        while self.owed:
            readable, _, _ = select.select([self.ready], [], [], max(0.0, deadline - time.monotonic()))
            if not readable or os.read(self.ready, 1) != process.READY:
                return False
            self.owed -= 1
        return True

    def end(self) -> None:
        """End it now, and leave nothing of it behind."""
        self.process.kill()
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        self.process.wait()
        os.close(self.ready)


def _code() -> tuple[tuple[str, float], ...]:
    """The user's modules as they are now: a process that has imported older ones must not be used."""
    found = []
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file and "site-packages" not in file and not file.startswith((sys.base_prefix, sys.prefix)):
            with contextlib.suppress(OSError):
                found.append((file, Path(file).stat().st_mtime))
    return tuple(sorted(found))


class Pool:
    """Processes by number, borrowed for one run at a time."""

    def __init__(self) -> None:
        self.idle: list[PoolProcess] = []
        self.lock = threading.Lock()

    @contextmanager
    def borrow(self, count: int) -> Iterator[list[PoolProcess]]:
        """So many processes; those that do not come back in time after the run are ended."""
        with self.lock:
            code = _code()
            known = dict(code)
            for worker in self.idle[:]:
                stale = any(known.get(file, at) != at for file, at in worker.code)
                if stale or worker.process.poll() is not None:
                    self.idle.remove(worker)
                    worker.end()
            mine = [self.idle.pop() for _ in range(min(count, len(self.idle)))]
        mine += [PoolProcess() for _ in range(count - len(mine))]
        try:
            yield mine
        finally:
            deadline = time.monotonic() + _GRACE
            for worker in mine:
                back = worker.waits_within(deadline - time.monotonic())
                with self.lock:
                    if back and len(self.idle) < _IDLE:
                        self.idle.append(worker)
                        continue
                worker.end()

    def close(self) -> None:
        """End all processes that wait."""
        with self.lock:
            while self.idle:
                self.idle.pop().end()


POOL = Pool()
atexit.register(POOL.close)
