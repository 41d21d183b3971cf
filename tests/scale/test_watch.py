"""What hangs is told with all its stacks, and nothing of it is left."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.scale import tree
from tests.scale import watch as watching
from tests.scale.cases import Case
from tests.scale.watch import FAILED, HUNG, OK, WRONG, HungError, Watch, watch

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="there is no /proc")

HANGS = """
import os, pathlib, subprocess, sys, threading
def waits_in_a_thread():
    threading.Event().wait()
def waits_in_a_child():
    threading.Event().wait()
threading.Thread(target=waits_in_a_thread, daemon=True).start()
reading, writing = os.pipe()
if os.fork() == 0:
    os.write(writing, b".")
    waits_in_a_child()
other = "import os, time\\ndef elsewhere():\\n    os.write(%d, b'.')\\n    time.sleep(1000)\\nelsewhere()" % writing
subprocess.Popen([sys.executable, "-c", other], pass_fds=[writing])
assert os.read(reading, 1) and os.read(reading, 1)
pathlib.Path("phase").write_text("run")
{then}
"""


def watched(folder: Path, script: str, **limits: float) -> Watch:
    (folder / "script.py").write_text(script)
    return Watch(folder, limits.get("run_limit", 60.0), idle_seconds=limits.get("idle_seconds", 60.0))


def command(folder: Path) -> list[str]:
    return [sys.executable, str(folder / "script.py")]


def test_what_stands_still_is_hung_with_the_stacks_of_all_threads_of_all_processes(tmp_path: Path) -> None:
    seen = watched(tmp_path, HANGS.format(then="threading.Event().wait()"), idle_seconds=2.0)
    with pytest.raises(HungError, match=r"stands still: .* of processor time"):
        seen.step(command(tmp_path))
    for name in ("waits_in_a_thread", "waits_in_a_child", "elsewhere"):
        assert f"in {name}" in seen.stacks
    assert gone(tmp_path)


def test_what_is_busy_for_too_long_is_hung_too(tmp_path: Path) -> None:
    seen = watched(tmp_path, HANGS.format(then="def spins():\n    while True: pass\nspins()"), run_limit=2.0)
    with pytest.raises(HungError, match=r"limit of 2 s reached: .* in the phase 'run'"):
        seen.step(command(tmp_path))
    assert "in spins" in seen.stacks
    assert gone(tmp_path)


def test_processes_that_outlive_a_case_are_told_and_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "LEFT_SECONDS", 0.5)
    seen = watched(tmp_path, HANGS.format(then="os._exit(0)"))
    assert seen.step(command(tmp_path)) == 0
    assert len(seen.left) == 2
    assert all(tree.look(pid) is None for pid in seen.left)
    assert gone(tmp_path)


def test_the_peak_of_each_role_is_measured_even_if_it_is_over(tmp_path: Path) -> None:
    task = "import time; x = bytearray(300 << 20); del x; time.sleep(2)  # flumina.local.process"
    script = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {task!r}], check=True)"
    seen = watched(tmp_path, script)
    assert seen.step(command(tmp_path)) == 0
    assert seen.peaks[tree.TASK] > 300 << 20
    assert seen.peaks[tree.DRIVER] < 200 << 20


def gone(folder: Path) -> bool:
    """Whether no process has its stacks to write into this folder."""
    wanted = f"FLUMINA_SCALE_STACKS={folder / 'stacks'}".encode()
    for process in tree.everything():
        try:
            found = (tree.PROC / str(process.pid) / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if wanted in found and process.pid != os.getpid():
            return False
    return True


SMALL = Case("memory", "local", "memory", "value-barrier", 20_000)


def test_a_case_in_a_process_of_its_own(tmp_path: Path) -> None:
    verdict = watch(SMALL, tmp_path / "work", tmp_path / "out", patience=3.0)
    assert (verdict.status, verdict.detail) == (OK, "")
    assert {"seconds", "rows/s", "driver bytes", "task bytes", "outputs"} <= set(verdict.figures)
    assert not (tmp_path / "work").exists()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("result", "status", "detail"),
    [
        ({"wrong": ["a row is missing"], "seconds": 1.0, "driver": 1}, WRONG, "a row is missing"),
        ({"error": "InputError: x", "traceback": "..."}, FAILED, "InputError: x"),
    ],
)
def test_what_is_wrong_is_kept(
    result: dict[str, object], status: str, detail: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def step(seen: Watch, command: list[str]) -> int:
        (seen.folder / "result.json").write_text(json.dumps(result))
        return 0

    monkeypatch.setattr(Watch, "step", step)
    verdict = watch(SMALL, tmp_path / "work", tmp_path / "out")
    assert (verdict.status, verdict.detail) == (status, detail)
    kept = tmp_path / "out" / SMALL.name.replace("/", "_")
    assert json.loads((kept / "verdict.json").read_text())["status"] == status
    assert json.loads((kept / "result.json").read_text()) == result


def test_the_stacks_of_a_hung_case_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def step(seen: Watch, command: list[str]) -> int:
        seen.stacks = "in frames.py"
        raise HungError("stands still")

    monkeypatch.setattr(Watch, "step", step)
    assert watch(SMALL, tmp_path / "work", tmp_path / "out").status == HUNG
    assert (tmp_path / "out" / SMALL.name.replace("/", "_") / "stacks.txt").read_text() == "in frames.py"


def test_a_process_that_dies_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Watch, "step", lambda seen, command: -9)
    verdict = watch(SMALL, tmp_path / "work", tmp_path / "out")
    assert (verdict.status, verdict.detail) == (FAILED, "exit code -9 in 'make'")
