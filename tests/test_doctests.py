"""Every example in a docstring, and every Python block in the documentation, is executed.

What stands in a ``text`` block right after a Python block is what that prints; ``...`` stands for anything.
"""

import contextlib
import doctest
import importlib
import io
import pkgutil
import re
import shlex
import sys
from pathlib import Path
from types import ModuleType

import cloudpickle
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import flumina
from flumina.cli import main as cli

ROOT = Path(__file__).parents[1]
MODULES = ["flumina", *(m.name for m in pkgutil.walk_packages(flumina.__path__, "flumina."))]
DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "docs/**/*.md")
    for path in ROOT.glob(pattern)
)
_BLOCK = re.compile(
    r"^(?P<indent> *)```python\n(?P<code>.*?)^(?P=indent)```$"
    r"(?:\n+(?P=indent)```text\n(?P<prints>.*?)^(?P=indent)```$)?",
    re.MULTILINE | re.DOTALL,
)
_SHELL = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name: str) -> None:
    module = importlib.import_module(name)
    result = doctest.testmod(module, optionflags=doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL)
    assert result.failed == 0


def test_there_are_examples() -> None:
    finder = doctest.DocTestFinder()
    found = [t for name in MODULES for t in finder.find(importlib.import_module(name)) if t.examples]
    assert len(found) >= 15


def run(document: Path, module: ModuleType) -> int:
    """Execute the Python blocks of a document from top to bottom, as one program; how many there were.

    What a block prints is compared with the text after it, if there is one.
    The module stands in ``sys.modules`` and the lines are those of the document, so that a class can be pickled and
    its source be found.
    """
    text = document.read_text(encoding="utf-8")
    blocks = list(_BLOCK.finditer(text))
    for block in blocks:
        first = text[: block.start("code")].count("\n")
        code = re.sub(rf"^{block['indent']}", "", block["code"], flags=re.MULTILINE)
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile("\n" * first + code, str(document), "exec"), vars(module))  # noqa: S102 -- our own text
        if block["prints"] is not None:
            wanted = re.sub(rf"^{block['indent']}", "", block["prints"], flags=re.MULTILINE)
            got = re.sub(r" +$", "", printed.getvalue(), flags=re.MULTILINE)
            same = doctest.OutputChecker().check_output(wanted, got, doctest.ELLIPSIS)
            assert same, f"{document}:{first}: the block prints\n{got}"
    return len(blocks)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_documents(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = ModuleType("document")
    module.__file__ = str(ROOT / name)
    monkeypatch.setitem(sys.modules, "document", module)
    cloudpickle.register_pickle_by_value(module)  # as for a script: workers have no module of this name
    monkeypatch.chdir(tmp_path)
    run(ROOT / name, module)


def commands(document: Path) -> list[str]:
    """The calls of ``flumina`` in the shell blocks of a document."""
    lines = [line for block in _SHELL.findall(document.read_text(encoding="utf-8")) for line in block.splitlines()]
    return [line for line in lines if line.startswith("flumina ")]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_commands_are_understood(name: str) -> None:
    for line in commands(ROOT / name):
        assert cli.parser().parse_args(shlex.split(line, comments=True)[1:]), line


def test_a_command_that_does_not_exist_is_found(tmp_path: Path) -> None:
    document = tmp_path / "a.md"
    document.write_text("```sh\nmake run\nflumina check a:B --speed 3  # fast\n```\n")
    (line,) = commands(document)
    with pytest.raises(SystemExit):
        cli.parser().parse_args(shlex.split(line, comments=True)[1:])


def test_what_is_printed_is_compared(tmp_path: Path) -> None:
    document = tmp_path / "a.md"
    module = ModuleType("document")
    document.write_text("```python\nprint('a 1 b')\n```\n\n```text\na ... b\n```\n")
    assert run(document, module) == 1
    document.write_text("```python\nprint('a 1 c')\n```\n\n```text\na ... b\n```\n")
    with pytest.raises(AssertionError, match="a 1 c"):
        run(document, module)


COMMANDS = "docs/guide/command-line.md"
_FILE = re.compile(r"^`(?P<name>\w+\.py)`:\n\n```python\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)


def test_command_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Every command of the guide, from top to bottom in one folder, with the exit code that it says."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    text = (ROOT / COMMANDS).read_text(encoding="utf-8")
    for file in _FILE.finditer(text):
        Path(file["name"]).write_text(file["code"], encoding="utf-8")
    plugs = [f"{1377986400 + n} {20 + n}.5 1 {n % 3} 0 {n % 2}" for n in range(60)]
    Path("plugs.txt").write_text("\n".join([*plugs, "what?"]) + "\n")
    pq.write_table(pa.table({"at": [3, 1, 2], "amount": [1, 2, 3]}), "orders.parquet")
    pq.write_table(pa.table({"at": [9]}), "closes.parquet")
    lines = [line for block in _SHELL.findall(text) for line in block.splitlines()]
    for line in lines:
        command, _, said = line.partition("  # exits with ")
        program, *arguments = shlex.split(command)
        assert program == "flumina"
        code = cli.main(arguments)
        assert code == int(said[:1] or 0), f"{line}\n{capsys.readouterr().err}"
    assert len(lines) > 10


def test_blocks_are_executed_and_may_fail(tmp_path: Path) -> None:
    document = tmp_path / "a.md"
    document.write_text("# A\n```python\nx = 1\n```\n1. text\n   ```python\n   y = x + 1\n   ```\n```sh\nfalse\n```\n")
    module = ModuleType("document")
    assert run(document, module) == 2
    assert vars(module)["y"] == 2
    document.write_text("```python\n\n1 / 0\n```\n")
    with pytest.raises(ZeroDivisionError) as caught:
        run(document, module)
    assert caught.traceback[-1].lineno == 2
