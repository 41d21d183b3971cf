import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flumina.cli import main

ROOT = Path(__file__).parent.parent


def test_a_lawful_program_exits_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "flumina.apps:ValueBarrier", "--examples", "20"]) == 0
    assert "ValueBarrier: all laws hold" in capsys.readouterr().out


def test_a_broken_program_exits_with_1_and_shows_the_counterexample(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", f"{ROOT}/tests/check/broken.py:CountDuplicated", "--examples", "50", "--law", "C2"]) == 1
    shown = capsys.readouterr().out
    assert "join(fork(s, p1, p2)) = s" in shown
    assert "≠" in shown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["check", "nowhere:Program"], "no module 'nowhere'"),
        (["check", "flumina.apps"], "names no program"),
        (["check", "flumina.apps:Nothing"], "PageViews"),
        (["check", "missing.py:Program"], "no file"),
        (["check", "flumina.apps:PageViews", "--law", "C7"], "no law C7"),
        (["check", "flumina.apps:PageViews", "--examples", "0"], "at least 1"),
    ],
)
def test_a_call_that_cannot_be_meant_exits_with_2(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert said in capsys.readouterr().err


def test_a_class_with_mistakes_is_reported_and_not_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.py"
    path.write_text("import flumina as fl\nclass Job(fl.Program):\n    a = fl.Tag('x lng')\n")
    assert main(["check", f"{path}:Job"]) == 2
    shown = capsys.readouterr().err
    assert "BAD_SCHEMA" in shown
    assert "job.py:3" in shown
    assert "NO_UPDATE" in shown


def test_the_demo_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo"]) == 0
    assert "2010 events in, 2010 rows out" in capsys.readouterr().out


def test_python_m_flumina_is_the_same_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "flumina", "check", "flumina.apps:KeyCounter", "--examples", "5"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "all laws hold" in done.stdout


def _flumina(*arguments: str, stdout: Any = subprocess.PIPE, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "flumina", *arguments],
        stdout=stdout,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment},
        check=False,
    )


PLAN = ("plan", "flumina.apps:ValueBarrier", "--streams", "values:value@5,barriers:barrier@1")


def test_what_a_terminal_cannot_write_is_replaced() -> None:
    shown = _flumina(*PLAN, PYTHONIOENCODING="ascii")
    assert shown.returncode == 0, shown.stderr
    assert b"value ? values" in shown.stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device")
def test_output_that_cannot_be_written_is_one_line() -> None:
    with Path("/dev/full").open("wb") as full:
        shown = _flumina(*PLAN, stdout=full)
    assert shown.returncode == 2
    assert len(shown.stderr.splitlines()) == 1
    assert b"the output can't be written" in shown.stderr


def test_a_file_that_cannot_be_written_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*PLAN, "--out", str(tmp_path)]) == 2
    assert "can't be written" in capsys.readouterr().err
