import importlib
import json
import os
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from flumina import errors
from flumina.__main__ import main as entry_point
from flumina.cli import main as cli
from flumina.cli.main import in_options, main, parser
from tests.cli.jobs import ORDERS

ROOT = Path(__file__).parents[2]


def test_a_lawful_program_exits_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "flumina.apps:ValueBarrier", "--examples", "20"]) == 0
    assert "ValueBarrier: all laws hold" in capsys.readouterr().out


def test_check_leaves_nothing_where_one_is(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    environment.pop("HYPOTHESIS_STORAGE_DIRECTORY", None)
    command = [sys.executable, "-m", "flumina", "check", "flumina.apps:PageViews", "--examples", "60", "--law", "C1"]
    subprocess.run(command, cwd=tmp_path / "here", env=environment, check=True, capture_output=True, timeout=500)
    assert list((tmp_path / "here").iterdir()) == []
    assert (tmp_path / "cache" / "flumina" / "hypothesis").is_dir()


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


COMMANDS = [
    [],
    ["run"],
    ["demo"],
    ["check"],
    ["plan"],
    ["sim"],
    ["checkpoint"],
    ["checkpoint", "ls"],
    ["checkpoint", "show"],
    ["checkpoint", "verify"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_help_with_examples(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*command, "--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert "example" in shown
    assert f"  flumina {' '.join(command)}".rstrip() in shown or f"example: flumina {' '.join(command)}" in shown


def test_examples_can_be_meant(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    count = 0
    for command in COMMANDS:
        with pytest.raises(SystemExit):
            main([*command, "--help"])
        lines = capsys.readouterr().out.partition("example")[2].splitlines()
        examples = [line.split("flumina ", 1)[1] for line in lines if line.lstrip(" s:").startswith("flumina ")]
        for example in (line for line in examples if "COMMAND" not in line):
            assert callable(parser().parse_args(shlex.split(example)).run), example
            count += 1
    assert count > 20


def test_checks_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", f"{ROOT}/tests/check/broken.py:CountDuplicated", "--examples", "50", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert not found["ok"]
    assert found["broken"]
    broken = [verification for verification in found["results"] if verification["counterexample"]]
    assert [verification["law"] for verification in broken] == found["broken"]
    assert main(["check", "flumina.apps:ValueBarrier", "--examples", "5", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ok"]


EXIT_CODES = [
    (errors.UsageError("A", "b"), 2),
    (errors.InputError("A", "b", stream="s"), 2),
    (errors.OutputError("OUT_EXISTS", "b"), 2),
    (errors.CheckpointError("A", "b"), 2),
    (errors.OutputError("OUTPUT_TYPE", "b"), 1),
    (errors.UserCodeError("f", ValueError("x"), where="y"), 1),
    (errors.TaskLostError(0, pid=1, host="h"), 1),
    (errors.ClusterError("A", "b"), 1),
    (KeyboardInterrupt(), 130),
]


@pytest.mark.parametrize(("error", "code"), EXIT_CODES, ids=[f"{type(e).__name__} {c}" for e, c in EXIT_CODES])
def test_exit_codes_of_errors(
    error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(cli, "check", fail)
    assert main(["check", "flumina.apps:PageViews"]) == code
    shown = capsys.readouterr().err
    assert shown.startswith("flumina: ")
    assert "Traceback" not in shown


def test_every_error_has_an_exit_code() -> None:
    """A new kind of error is sorted into one of the two on purpose."""
    calls = {"UsageError", "DefinitionError", "SchemaError", "InputError", "OrderError", "OutputError"}
    calls |= {"CheckpointError", "PlanError"}
    failures = {kind.__name__ for kind in cli._FAILED}
    kinds = {kind.__name__ for kind in errors.FluminaError.__subclasses__() if kind.__module__ == "flumina.errors"}
    assert kinds == calls | failures


def test_what_is_known_of_the_event_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        error = errors.OutputError("OUTPUT", "has no column x")
        error.add_note("while processing view(user=3)@7")
        raise error

    monkeypatch.setattr(cli, "check", fail)
    assert main(["check", "flumina.apps:PageViews"]) == 1
    assert capsys.readouterr().err == "flumina: [OUTPUT] has no column x\n  while processing view(user=3)@7\n"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (errors.UsageError("A", "give plan= or workers=, not both"), "[A] give --plan or --workers, not both"),
        (errors.UsageError("A", "checkpoint= needs out=: rows"), "[A] --checkpoint needs --out: rows"),
        (errors.UsageError("A", "x", hint="give workers=2 or fewer"), "[A] x\n  hint: give --workers 2 or fewer"),
        (errors.OutputError("A", "x", hint="pass overwrite=True"), "[A] x\n  hint: pass --overwrite"),
        (errors.InputError("A", "f(out=3)", stream="s"), "[A] stream 's': f(out=3)"),
        (errors.InputError("A", "f(out=3)", stream="s", hint="out="), "[A] stream 's': f(out=3)\n  hint: --out"),
        (errors.CheckpointError("A", "x", hint="allow_code_change=True"), "[A] x\n  hint: --allow-code-change"),
    ],
)
def test_errors_speak_of_options_and_leave_data_alone(error: errors.FluminaError, said: str) -> None:
    assert in_options(error) == said


def test_python_m_flumina_is_the_same_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "flumina", "check", "flumina.apps:KeyCounter", "--examples", "5"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        timeout=500,
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


PRINTS = "import sys\nprint('at import')" + ORDERS.replace(
    "emit):\n", "emit):\n        print('in update', flush=True)\n"
).replace("ts = list", "print('in streams'); ts = list")


def test_what_a_program_prints_is_not_in_the_json(tmp_path: Path) -> None:
    job = tmp_path / "printing_job.py"
    job.write_text(PRINTS)
    options = ("--streams", f"{job}:streams", "--workers", "2", "--optimizer", "greedy", "--verify")
    shown = _flumina("run", f"{job}:Orders", *options, "--json")
    assert shown.returncode == 0, shown.stderr
    found = json.loads(shown.stdout)
    assert found["verified"] is True
    assert len(found["plan"]["workers"]) == 3
    assert shown.stderr.count(b"in update") == 2 * 102, "of the workers, and of the sequential program"
    assert b"at import" in shown.stderr
    assert b"in streams" in shown.stderr
    checked = _flumina("check", f"{job}:Orders", "--examples", "3", "--json")
    assert json.loads(checked.stdout)["ok"] is True, checked.stderr
    assert b"in update" in checked.stderr
    assert b"in update" in _flumina("check", f"{job}:Orders", "--examples", "3").stdout, "elsewhere it may print"


def test_a_program_that_exits_does_not_end_the_command_as_if_all_were_well(tmp_path: Path) -> None:
    job = tmp_path / "leaving_job.py"
    job.write_text("import sys\nsys.exit(0)\n")
    shown = _flumina("run", f"{job}:Any", "--input", "a=b")
    assert shown.returncode == 2
    assert b"[BROKEN_MODULE]" in shown.stderr
    job.write_text(PRINTS.replace("print('in update', flush=True)", "sys.exit(0)"))
    options = ("--streams", f"{job}:streams", "--workers", "2", "--optimizer", "greedy")
    shown = _flumina("run", f"{job}:Orders", *options)
    assert shown.returncode == 1
    assert b"[USER_CODE] Orders.update raised SystemExit: 0 on " in shown.stderr
    assert b"leaving_job.py:14" in shown.stderr


def test_who_interrupts_while_modules_are_imported_sees_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupting:
        @staticmethod
        def find_spec(name: str, *_: object) -> None:
            if name == "flumina.cli.main":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "flumina.cli.main")
    monkeypatch.setattr(sys, "meta_path", [Interrupting, *sys.meta_path])
    assert entry_point() == 130
    assert capsys.readouterr().err == "flumina: interrupted\n"


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    package = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"flumina {package['version']}\n"
    module, _, function = package["scripts"]["flumina"].partition(":")
    assert getattr(importlib.import_module(module), function) is entry_point


def test_what_a_terminal_would_obey_is_escaped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        error = errors.UserCodeError("join", ValueError("nope\n\x1b[31mred"), where="job.py:3")
        error.add_note("in worker \x07")
        raise error

    monkeypatch.setattr(cli, "check", fail)
    assert main(["check", "flumina.apps:PageViews"]) == 1
    shown = capsys.readouterr().err
    assert shown == (
        "flumina: [USER_CODE] join raised ValueError: nope\n\\x1b[31mred\n  at: job.py:3\n  in worker \\x07\n"
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
