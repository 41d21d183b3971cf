from pathlib import Path

import pytest

from benchmarks.evaluation.lines import PAPER, Lines, count, table
from flumina.apps.registry import APPS

MODULE = '''"""A module."""

import flumina as fl
from flumina.apps.fraud import MODULO

UNUSED = 1
USED = (
    2,  # counts
    3,
)


def helper(x):
    """Text."""
    # a comment
    return x + USED[0] + MODULO


class Some(fl.Program):
    """A program
    over lines."""

    a = fl.Tag("v long NOT NULL")
    b = fl.Tag()
    """A text below."""
    depends = fl.depends(
        (b, b),
        (b, a),
    )
    output = "n long"

    def init(self):
        return 0

    def update(self, state, event, emit):
        if event.tag is self.a:
            return helper(state)

        emit(state)
        return 0

    def fork(self, state, left, right):
        """Text."""
        return (0, state) if right.has(self.b) else (state, 0)

    def join(self, left, right):
        return left + right
'''


def test_code_is_counted_once_and_by_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "counted.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    import counted  # type: ignore[import-not-found]  # noqa: PLC0415

    # class, a, b, output; init 2; update 5; helper 2; USED 4; and MODULO in another module
    assert count(counted.Some) == Lines(sequential=4 + 2 + 5 + 2 + 4 + 1, parallel=4 + 2 + 2)


def test_making_programs_parallel_takes_few_lines() -> None:
    for app in APPS.values():
        lines = count(app.program)
        assert lines.parallel <= 7 < lines.sequential
        if app.name in PAPER:
            assert (lines.sequential, lines.parallel) < PAPER[app.name]
            assert lines.parallel < PAPER[app.name][1]


def test_the_guide_has_the_numbers_of_today() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guide" / "apps.md").read_text(encoding="utf-8").splitlines()
    shown = [line for line in guide if line.startswith(("| outliers | Outliers", "| smart-home | SmartHome"))]
    assert len(shown) == 3
    assert set(shown) <= set(table(APPS.values()).splitlines())


def test_the_table_has_the_papers_numbers() -> None:
    lines = table(APPS.values()).splitlines()
    assert lines[0].startswith("| program")
    assert any(line.startswith("| outliers") and line.endswith("| 700 + 50 |") for line in lines)
    assert sum(line.endswith("| 200 + 60 |") for line in lines) == 2
