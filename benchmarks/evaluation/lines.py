"""How many lines a program takes: those of the sequential program, and those that make it parallel.

Counted is code: no blank lines, comments or docstrings. ``depends``, ``fork`` and ``join`` make a program parallel;
everything else of its class is sequential, and so is what it uses of its own module and of others in ``flumina.apps``
(state, models, helpers), but no workload and no reader.
"""

from __future__ import annotations

import ast
import importlib
import io
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from flumina.apps.app import App
from flumina.apps.registry import APPS
from flumina.program.base import Program

PARALLEL = frozenset({"depends", "fork", "join"})

PAPER = {"outliers": (700, 50), "smart-home": (200, 60)}
"""Lines of the paper's own code, where it tells them: the sequential part, and fork, join and depends."""

_NO_CODE = frozenset(
    {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
)


@dataclass(frozen=True)
class Lines:
    """Lines of code of one program."""

    sequential: int
    parallel: int


class Source:
    """A module's text: which of its lines are code, and what it defines and imports."""

    def __init__(self, name: str) -> None:
        path = importlib.import_module(name).__file__
        assert path is not None
        text = Path(path).read_text(encoding="utf-8")
        self.name = name
        self.tree = ast.parse(text)
        tokens = [t for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type not in _NO_CODE]
        lines = {line for token in tokens for line in range(token.start[0], token.end[0] + 1)}
        self.code = lines - {line for node in _texts(self.tree) for line in _span(node)}
        self.defined: dict[str, ast.stmt] = {name: node for node in self.tree.body for name in _names(node)}
        self.imported = {
            alias.asname or alias.name: node.module
            for node in self.tree.body
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("flumina.apps.")
            for alias in node.names
        }

    def lines(self, node: ast.stmt) -> set[tuple[str, int]]:
        """The lines of code of one statement."""
        return {(self.name, line) for line in _span(node) if line in self.code}


_source = cache(Source)


def count(program: type[Program]) -> Lines:
    """The lines of a program class.

    >>> from flumina.apps import Fraud
    >>> count(Fraud).parallel
    1
    """
    source = _source(program.__module__)
    body = source.defined[program.__name__]
    assert isinstance(body, ast.ClassDef)
    parallel = {line for node in body.body if PARALLEL & set(_names(node)) for line in source.lines(node)}
    return Lines(len(_closure(source, program.__name__, set()) - parallel), len(parallel))


def _closure(source: Source, name: str, seen: set[tuple[str, str]]) -> set[tuple[str, int]]:
    """The lines of a definition and of all it uses."""
    while name in source.imported:
        source = _source(source.imported[name] or "")
    if name not in source.defined or (source.name, name) in seen:
        return set()
    seen.add((source.name, name))
    node = source.defined[name]
    used = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
    return source.lines(node).union(*(_closure(source, other, seen) for other in sorted(used)))


def table(apps: Iterable[App]) -> str:
    """The lines of all programs beside the paper's, in Markdown."""
    rows = ["| program | class | sequential | parallel | the paper's |", "|---|---|---|---|---|"]
    for app in apps:
        for program in filter(None, (app.program, app.by_hand)):
            lines = count(program)
            paper = " + ".join(map(str, PAPER.get(app.name, ())))
            rows.append(f"| {app.name} | {program.__name__} | {lines.sequential} | {lines.parallel} | {paper} |")
    return "\n".join(rows)


def _span(node: ast.stmt) -> range:
    first = min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", []))])
    return range(first, (node.end_lineno or first) + 1)


def _names(node: ast.stmt) -> list[str]:
    """What a statement gives names to."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]


def _texts(tree: ast.Module) -> Iterator[ast.stmt]:
    """Statements that are nothing but a text: docstrings, and texts below what they describe."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node


if __name__ == "__main__":
    print(table(APPS.values()))
