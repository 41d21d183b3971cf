"""Runs one case in a process of its own, measures it, and ends it when it hangs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.scale import tree
from tests.scale.cases import Case

ROOT = Path(__file__).parents[2]
HOOKS = Path(__file__).parent / "hooks"

OK, WRONG, FAILED, HUNG = "ok", "wrong", "failed", "hung"

LOOK_EVERY = 0.2
IDLE_SECONDS = 60.0
"""A run that uses hardly any processor time for so long is hung: everything that takes time here computes."""
IDLE_SHARE = 0.1
"""What hardly any is: this share of one core, which an idle JVM and two tasks that wait for each other stay below."""

LEFT_SECONDS = 10.0
"""How long processes may outlive their case."""

LIMITS = {"make": 600.0, "start": 120.0, "judge": 600.0, "end": 60.0}
"""Seconds for each phase but the run itself, whose limit the case has."""


@dataclass(frozen=True)
class Verdict:
    """What became of a case."""

    case: Case
    status: str
    detail: str = ""
    figures: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {"name": self.case.name, "case": self.case.to_json(), "status": self.status, "detail": self.detail} | {
            "figures": self.figures
        }


class HungError(Exception):
    """A phase has reached its limit, or nothing moves any more."""


@dataclass
class Watch:
    """One process of a case, from start to end, and everything that it starts."""

    folder: Path
    run_limit: float
    patience: float = 1.0
    idle_seconds: float = IDLE_SECONDS
    peaks: dict[str, int] = field(default_factory=dict)
    stacks: str = ""
    left: list[int] = field(default_factory=list)
    """Processes that have outlived the case."""

    def step(self, command: list[str]) -> int:
        """Run a command, and return its exit code; raise HungError if it hangs, with ``stacks`` set."""
        mark, dumps, log = uuid.uuid4().hex, self.folder / "stacks", self.folder / "log.txt"
        dumps.mkdir(exist_ok=True)
        paths = [str(HOOKS), str(ROOT), str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {
            **os.environ,
            tree.MARK: mark,
            "FLUMINA_SCALE_STACKS": str(dumps),
            "PYTHONPATH": os.pathsep.join(paths),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        with log.open("ab") as output:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, cwd=self.folder
            )
        try:
            return self._watched(process, tree.Tree(process.pid), dumps, log)
        finally:
            if process.poll() is not None and not self.stacks:
                self.left = _left_behind(mark)
            tree.end(mark)
            process.wait()

    def _watched(self, process: subprocess.Popen[bytes], seen: tree.Tree, dumps: Path, log: Path) -> int:
        phase, began = self._phase(), time.monotonic()
        window = self.idle_seconds * self.patience
        used = deque([(began, 0.0)])
        while process.poll() is None:
            time.sleep(LOOK_EVERY)
            now = time.monotonic()
            if self._phase() != phase:
                phase, began = self._phase(), now
                used.clear()
                if phase == "judge":  # what judging takes is not the run's; the driver has noted its own peak
                    self.peaks = dict(seen.peaks)
            living = seen.look()
            used.append((now, seen.used))
            while len(used) > 2 and used[1][0] <= now - window:
                used.popleft()
            seconds, spent = now - used[0][0], seen.used - used[0][1]
            limit = LIMITS.get(phase, self.run_limit) * self.patience
            told = f"{spent:.1f} s of processor time in the last {seconds:.0f} s, in the phase {phase!r}"
            if phase == "run" and seconds >= window and spent < IDLE_SHARE * seconds:
                self._hung(living, dumps, log, f"stands still: {told}")
            if now - began > limit:
                self._hung(living, dumps, log, f"limit of {limit:.0f} s reached: {told}")
            if phase not in {"judge", "end"}:
                self.peaks = dict(seen.peaks)
        return process.returncode

    def _hung(self, living: list[tree.Process], dumps: Path, log: Path, why: str) -> None:
        self.stacks = f"{why}\n\n{tree.dump_stacks(living, dumps, log)}"
        raise HungError(why)

    def _phase(self) -> str:
        path = self.folder / "phase"
        return path.read_text() if path.exists() else "start"


def _left_behind(mark: str) -> list[int]:
    deadline = time.monotonic() + LEFT_SECONDS
    while (left := tree.marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return [process.pid for process in left]


def watch(case: Case, work: Path, out: Path, patience: float = 1.0, idle_seconds: float = IDLE_SECONDS) -> Verdict:
    """Run a case in the folder ``work``, which is removed; stacks and logs of one that is not ok go to ``out``."""
    work.mkdir(parents=True)
    seen = Watch(work, case.limit, patience, idle_seconds)
    try:
        verdict = _verdict(case, work, seen)
        if verdict.status != OK:
            _keep(verdict, work, out, seen.stacks)
        return verdict
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _verdict(case: Case, work: Path, seen: Watch) -> Verdict:
    (work / "case.json").write_text(json.dumps(case.to_json()))
    began = time.monotonic()
    try:
        for step in ("make", "run"):
            code = seen.step([sys.executable, "-X", "faulthandler", "-m", "tests.scale.one", step, str(work)])
            if code:
                return Verdict(case, FAILED, f"exit code {code} in {step!r}", _figures(case, seen, {}, began))
            if seen.left:
                return Verdict(case, FAILED, f"processes {seen.left} are left", _figures(case, seen, {}, began))
    except HungError as hung:
        return Verdict(case, HUNG, str(hung), _figures(case, seen, {}, began))
    result = json.loads((work / "result.json").read_text())
    figures = _figures(case, seen, result, began)
    if "error" in result:
        return Verdict(case, FAILED, result["error"], figures)
    return Verdict(case, WRONG if result["wrong"] else OK, "; ".join(result["wrong"]), figures)


def _figures(case: Case, seen: Watch, result: dict[str, Any], began: float) -> dict[str, Any]:
    known = {key: value for key, value in result.items() if key not in {"wrong", "error", "traceback"}}
    figures = {
        **{f"{role} bytes": peak for role, peak in seen.peaks.items()},
        "total seconds": time.monotonic() - began,
    }
    figures |= known
    if "driver" in figures:
        figures["driver bytes"] = figures.pop("driver")
    if "seconds" in figures:
        figures["rows/s"] = round(case.rows / figures["seconds"])
    return {key: round(value, 2) if isinstance(value, float) else value for key, value in figures.items()}


def _keep(verdict: Verdict, work: Path, out: Path, stacks: str) -> None:
    folder = out / verdict.case.name.replace("/", "_")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "verdict.json").write_text(json.dumps(verdict.to_json(), indent=1))
    for name in ("log.txt", "result.json"):
        if (work / name).exists():
            shutil.copy(work / name, folder / name)
    if stacks:
        (folder / "stacks.txt").write_text(stacks)
