from pathlib import Path

import pytest

from flumina.apps import PageViews
from flumina.errors import UsageError
from flumina.loading import load_program

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


@pytest.mark.parametrize("text", ["", ":", "a:", ":b", "flumina.apps"])
def test_text_that_names_nothing(text: str) -> None:
    with pytest.raises(UsageError, match="names no program"):
        load_program(text)
