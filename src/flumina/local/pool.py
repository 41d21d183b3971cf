"""Keep a pool of processes for tasks, since starting Python takes long."""

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
"""Number of idle processes that are kept."""

_GRACE = 2.0
"""Seconds for a process to become idle after a run."""


class PoolProcess:
    """One process of the pool."""

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
        """Number of ready signals still to come: one after the start, and one after each task."""

    def give(self, arguments: bytes) -> None:
        """Send a task to the process; if it has died, the driver notices at the rendezvous."""
        assert self.process.stdin is not None
        self.owed += 1
        order = pickle.dumps((sys.path, str(Path.cwd()), arguments))
        with contextlib.suppress(OSError):
            process.write(self.process.stdin, order)  # type: ignore[arg-type]

    def waits_within(self, seconds: float) -> bool:
        """Wait for a limited time until the process is idle; return whether it is."""
        deadline = time.monotonic() + seconds
        while self.owed:
            readable, _, _ = select.select([self.ready], [], [], max(0.0, deadline - time.monotonic()))
            if not readable or os.read(self.ready, 1) != process.READY:
                return False
            self.owed -= 1
        return True

    def end(self) -> None:
        """Kill the process, and release its pipes."""
        self.process.kill()
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        self.process.wait()
        os.close(self.ready)


def _code() -> tuple[tuple[str, float], ...]:
    """Return the user's modules with their times: a process that has imported older ones must not be used."""
    found = []
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file and "site-packages" not in file and not file.startswith((sys.base_prefix, sys.prefix)):
            with contextlib.suppress(OSError):
                found.append((file, Path(file).stat().st_mtime))
    return tuple(sorted(found))


class Pool:
    """Pool of processes, each borrowed for one run at a time."""

    def __init__(self) -> None:
        self.idle: list[PoolProcess] = []
        self.lock = threading.Lock()

    @contextmanager
    def borrow(self, count: int) -> Iterator[list[PoolProcess]]:
        """Borrow ``count`` processes; a process that is not idle in time after the run is killed."""
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
        """Kill all idle processes."""
        with self.lock:
            while self.idle:
                self.idle.pop().end()


POOL = Pool()
atexit.register(POOL.close)
