"""Looks at all processes of a case: which there are, their memory, their processor time, their stacks."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

PROC = Path("/proc")
DRIVER, TASK, JVM, OTHER = "driver", "task", "jvm", "other"

MARK = "FLUMINA_SCALE_CASE"
"""The environment variable that all processes of a case inherit, so that those without parents are found, too."""

_TICK = os.sysconf("SC_CLK_TCK")
_DUMP_SECONDS = 5.0


@dataclass(frozen=True)
class Process:
    """One process; its start tells it from a later one with the same number."""

    pid: int
    start: int
    parent: int
    role: str
    cpu: float

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it is still there."""
        now = look(self.pid)
        if now is not None and now.start == self.start:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


def look(pid: int) -> Process | None:
    """Return what is known of a process; None if it has ended."""
    try:
        fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
        command = (PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return None
    if fields[0] == "Z":
        return None
    program = command.partition(" ")[0].rpartition("/")[2]
    role = OTHER
    if "flumina.local.process" in command or "pyspark.daemon" in command:
        role = TASK
    elif program == "java":
        role = JVM
    cpu = (int(fields[11]) + int(fields[12])) / _TICK
    return Process(pid, int(fields[19]), int(fields[1]), role, cpu)


def everything() -> Iterator[Process]:
    """Yield all processes of this machine."""
    for folder in PROC.iterdir():
        if folder.name.isdigit() and (found := look(int(folder.name))) is not None:
            yield found


def marked(mark: str) -> list[Process]:
    """List the processes that have inherited this mark."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for process in everything():
        with contextlib.suppress(OSError):
            if wanted in (PROC / str(process.pid) / "environ").read_bytes().split(b"\0"):
                found.append(process)
    return found


@dataclass
class Tree:
    """The processes that come from one, watched by looking again and again."""

    root: int
    peaks: dict[str, int] = field(default_factory=dict)
    """For each role the largest resident memory that one process of it has had, in bytes."""
    cpu: dict[tuple[int, int], float] = field(default_factory=dict)
    """For each process that was ever seen, the seconds of processor time that it has used."""

    def look(self) -> list[Process]:
        """Look at all processes of the tree, and note their memory and time."""
        by_parent: dict[int, list[Process]] = {}
        for process in everything():
            by_parent.setdefault(process.parent, []).append(process)
        root = look(self.root)
        found = [] if root is None else [Process(root.pid, root.start, root.parent, DRIVER, root.cpu)]
        for process in found:  # grows while it is walked
            found += by_parent.get(process.pid, [])
        for process in found:
            self.cpu[process.pid, process.start] = process.cpu
            self.peaks[process.role] = max(self.peaks.get(process.role, 0), peak_memory(process.pid))
        return found

    @property
    def used(self) -> float:
        """Seconds of processor time that all processes have used together."""
        return sum(self.cpu.values())


def peak_memory(pid: int) -> int:
    """Return the largest resident memory that a process has had, in bytes; 0 if it has ended."""
    try:
        for line in (PROC / str(pid) / "status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def dump_stacks(processes: list[Process], folder: Path, log: Path) -> str:
    """Have all processes write the stacks of their threads, and return them as one text.

    Python processes write into ``folder`` (see ``hooks/sitecustomize.py``), a JVM to its standard output, ``log``.
    """
    before = log.stat().st_size if log.exists() else 0
    sizes = {process.pid: _size(folder / f"{process.pid}.txt") for process in processes}
    asked = [process for process in processes if process.role == JVM or sizes[process.pid] is not None]
    for process in asked:
        process.signal(signal.SIGQUIT if process.role == JVM else signal.SIGUSR1)
    deadline = time.monotonic() + _DUMP_SECONDS
    while time.monotonic() < deadline and any(
        _size(folder / f"{process.pid}.txt") == sizes[process.pid] for process in asked if process.role != JVM
    ):
        time.sleep(0.1)
    time.sleep(1.0)  # a dump is written line by line
    texts = []
    for process in sorted(processes, key=lambda process: (process.role == JVM, process.pid)):
        path = folder / f"{process.pid}.txt"
        if process.role == JVM:
            text = log.read_bytes()[before:].decode(errors="replace") if log.exists() else ""
        else:
            text = path.read_text(errors="replace") if path.exists() else ""
        texts.append(f"==== {process.role}, process {process.pid} ====\n{text or '(no stacks)'}\n")
    return "\n".join(texts)


def _size(path: Path) -> int | None:
    return path.stat().st_size if path.exists() else None


def end(mark: str, within: float = 10.0) -> list[int]:
    """Kill all processes that have inherited this mark, by their numbers; return those that there were."""
    killed: dict[int, None] = {}
    deadline = time.monotonic() + within
    while (left := marked(mark)) and time.monotonic() < deadline:
        for process in left:
            process.signal(signal.SIGKILL)
            killed[process.pid] = None
        time.sleep(0.1)
    return list(killed)
