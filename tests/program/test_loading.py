import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from flumina.apps import PageViews
from flumina.errors import UsageError
from flumina.program import pickling
from flumina.program.loading import load_object, load_program

JOB = """
import flumina as fl

class Ticks(fl.Program):
    tick = fl.Tag()
    depends = fl.depends((tick, tick))
    output = "n long"
    count = fl.Count()

    def update(self, state, event, emit):
        state.count += 1
        emit(state.count)

ready = Ticks()
number = 3
"""


def test_a_module_and_a_name() -> None:
    assert load_program("flumina.apps:PageViews") is PageViews


def test_a_file_and_a_name_class_or_instance(tmp_path: Path) -> None:
    path = tmp_path / "ticks_job.py"
    path.write_text(JOB)
    cls = load_program(f"{path}:Ticks")
    assert isinstance(cls, type)
    assert type(load_program(f"{path}:ready")).__name__ == "Ticks"


@pytest.mark.parametrize(
    ("name", "said"),
    [("number", "is no program but int"), ("Missing", "is not there")],
)
def test_something_else_is_refused_with_the_programs_there_are(tmp_path: Path, name: str, said: str) -> None:
    path = tmp_path / "ticks_job.py"
    path.write_text(JOB)
    with pytest.raises(UsageError, match=rf"{said}[\s\S]*Ticks"):
        load_program(f"{path}:{name}")


def test_a_module_that_fails_to_load_says_why(tmp_path: Path) -> None:
    path = tmp_path / "broken_job.py"
    path.write_text("import nowhere_to_be_found\n")
    with pytest.raises(UsageError, match="nowhere_to_be_found"):
        load_program(f"{path}:Program")


@pytest.mark.parametrize("code", ["0", "3", "'why'"])
def test_a_module_that_exits_is_broken(tmp_path: Path, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "exiting_job.py").write_text(f"import sys\nsys.exit({code})\n")
    monkeypatch.chdir(tmp_path)
    for place in ("exiting_job.py", "exiting_job.py", "exiting_job"):
        with pytest.raises(UsageError, match=r"\[BROKEN_MODULE\] exiting_job.* SystemExit: [\s\S]*__main__"):
            load_program(f"{place}:Program")


@pytest.mark.parametrize("other", ["flumina.py", "flumina/__init__.py"])
def test_a_file_that_hides_the_library_is_told(tmp_path: Path, other: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / other).parent.mkdir(exist_ok=True)
    (tmp_path / other).write_text(JOB)
    (tmp_path / "beside_it_job.py").write_text(JOB)
    monkeypatch.chdir(tmp_path)
    before = sys.path[:]
    for place in ("beside_it_job.py", "beside_it_job", *([other] if "/" not in other else [])):
        with pytest.raises(UsageError, match=rf"\[HIDDEN\] .*{other} hides the library[\s\S]*another name"):
            load_program(f"{place}:Ticks")
    assert sys.path == before
    assert sys.modules["flumina"].__file__ != str(tmp_path / other)


def test_a_file_that_fails_leaves_no_half_of_a_module(tmp_path: Path) -> None:
    path = tmp_path / "halfway_job.py"
    path.write_text("there = 1\n1 / 0\n")
    with pytest.raises(UsageError, match="ZeroDivisionError"):
        load_program(f"{path}:Program")
    assert "halfway_job" not in sys.modules
    path.write_text("raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        load_program(f"{path}:Program")


@pytest.mark.parametrize("text", ["", ":", "a:", ":b", "flumina.apps"])
def test_text_that_names_nothing(text: str) -> None:
    with pytest.raises(UsageError, match="names no program"):
        load_program(text)


def test_a_file_is_executed_once_so_that_its_classes_are_the_same(tmp_path: Path) -> None:
    path = tmp_path / "once_job.py"
    path.write_text(JOB)
    assert load_program(f"{path}:Ticks") is load_program(f"{path}:Ticks")
    path.write_text(JOB.replace("number = 3", "number = 4444"))
    assert load_object(f"{path}:number", "number", lambda found: isinstance(found, int)) == 4444, "it was changed"


def test_what_lies_beside_a_file_can_be_imported(tmp_path: Path) -> None:
    (tmp_path / "lies_beside.py").write_text("seven = 7\n")
    path = tmp_path / "asks_job.py"
    path.write_text("from lies_beside import seven\ndef streams(): return seven\n")
    assert load_object(f"{path}:streams", "function", inspect.isfunction)() == 7


def test_the_program_of_a_file_travels_to_processes_that_have_no_such_module(tmp_path: Path) -> None:
    path = tmp_path / "travelling_job.py"
    path.write_text(JOB)
    packed = tmp_path / "packed"
    packed.write_bytes(pickling.dumps(load_program(f"{path}:Ticks")))
    there = "import sys; from flumina.program import pickling; print(pickling.loads(open(sys.argv[1], 'rb').read()))"
    done = subprocess.run([sys.executable, "-c", there, packed], capture_output=True, text=True, check=False)
    assert "Ticks" in done.stdout, done.stderr


def test_other_things_are_refused_with_those_there_are(tmp_path: Path) -> None:
    path = tmp_path / "other_job.py"
    path.write_text("def streams(): ...\nnumber = 3\n")
    with pytest.raises(UsageError, match=r"\[NO_FUNCTION\] number in .* is no function but int[\s\S]*: streams"):
        load_object(f"{path}:number", "function", inspect.isfunction)
    with pytest.raises(UsageError, match=r"\[FUNCTION_NAME\] 'streams' names no function[\s\S]*module:function"):
        load_object("streams", "function", inspect.isfunction)
