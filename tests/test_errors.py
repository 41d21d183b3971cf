import pickle
from pathlib import Path

import pytest

from flumina import errors
from flumina.errors import (
    DefinitionError,
    FluminaError,
    InputError,
    LawError,
    OrderError,
    OutOfMemoryError,
    OutputError,
    Problem,
    SchemaError,
    TaskSilentError,
    UsageError,
    UserCodeError,
    location,
)


def test_condition_message_and_hint() -> None:
    error = UsageError("NO_STREAMS", "no streams", hint="pass one")
    assert (error.condition, error.message, error.hint) == ("NO_STREAMS", "no streams", "pass one")
    assert str(error) == "[NO_STREAMS] no streams\n  hint: pass one"
    assert str(UsageError("X", "y")) == "[X] y"


def test_input_error_says_where() -> None:
    error = InputError("NULL_KEY", "the key is null", stream="clicks", part=2, row=7, column="page", hint="drop it")
    assert (error.stream, error.part, error.row, error.column) == ("clicks", 2, 7, "page")
    assert str(error) == "[NULL_KEY] stream 'clicks', part 2, row 7, column 'page': the key is null\n  hint: drop it"
    assert "part" not in str(InputError("X", "y", stream="s"))


def test_user_code_error_says_what_where_and_on_which_event() -> None:
    error = UserCodeError("P.update", ZeroDivisionError("division by zero"), where="a.py:3", event="view()@1")
    assert error.function == "P.update"
    assert error.where == "a.py:3"
    assert str(error) == ("[USER_CODE] P.update raised ZeroDivisionError: division by zero on view()@1\n  at: a.py:3")


def test_definition_error_lists_every_problem() -> None:
    problems = [Problem("NO_FORK", "there is no fork", "a.py:1", "write one"), Problem("NO_JOIN", "no join", "a.py:2")]
    error = DefinitionError("P", problems)
    assert error.problems == tuple(problems)
    assert str(error).splitlines() == [
        "[DEFINITION] program P has 2 mistakes:",
        "  1. a.py:1: [NO_FORK] there is no fork",
        "      hint: write one",
        "  2. a.py:2: [NO_JOIN] no join",
    ]
    assert "has 1 mistake:" in str(DefinitionError("P", problems[:1]))


@pytest.mark.parametrize(
    "error",
    [
        UsageError("A", "b", hint="c"),
        SchemaError("A", "b"),
        OrderError("A", "b"),
        OutputError("A", "b"),
        LawError("A", "b"),
        InputError("A", "b", stream="s", part=1, row=2, column="c"),
        UserCodeError("f", ValueError("x"), where="a.py:1", event="e"),
        OutOfMemoryError("f, at a.py:1", event="e", task=1, memory=2, state=3),
        TaskSilentError(1, pid=2, host="h", seconds=3.0, timeout=2.0),
        DefinitionError("P", [Problem("A", "b", "c:1")]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_cross_process_boundaries_whole(error: FluminaError) -> None:
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 -- our own bytes
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    documented = {line.split("── ")[1].split()[0] for line in (errors.__doc__ or "").splitlines() if "── " in line}
    assert documented == {cls.__name__ for cls in subclasses(FluminaError) if cls.__module__ == errors.__name__}


def subclasses(cls: type) -> set[type]:
    """All classes below one."""
    direct: set[type] = set(cls.__subclasses__())
    return direct.union(*map(subclasses, direct))


class TestLocation:
    def test_below_the_working_directory(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        assert location(str(tmp_path / "jobs" / "a.py"), 3) == "jobs/a.py:3"

    def test_elsewhere(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "here").mkdir()
        monkeypatch.chdir(tmp_path / "here")
        assert location(str(tmp_path / "a.py"), 3) == f"{tmp_path / 'a.py'}:3"
