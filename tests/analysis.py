"""Programs made from text, whose source can be found: for what is read off user code."""

from __future__ import annotations

import ast
import inspect
import linecache
import sys
import textwrap
from collections.abc import Mapping
from itertools import count
from random import Random
from typing import Any

import flumina as fl
from flumina.model.batch import Batch
from flumina.model.emit import Emit
from flumina.model.schema import type_name
from flumina.program.definition import Definition

_number = count()

HEADER = """
import contextlib, functools, math
import flumina as fl
FLAG = False
LIMIT = 3
"""

HEAD = """
class P({base}):
    sale = fl.Tag("amount long, shop string", key="user long")
    refund = fl.Tag("amount long, cost long", key="user long")
    tick = fl.Tag()
    depends = fl.depends((sale, refund), (refund, refund), always=[(tick, tick), (tick, sale), (tick, refund)])
    output = {output!r}
    total = fl.Sum(added_by=[sale, refund, tick], read_by=[], set_by=[])
"""


def compiled(text: str, namespace: dict[str, Any] | None = None) -> dict[str, Any]:
    """Run a text as a module of its own, and return its names."""
    name = f"<case {next(_number)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    names = {"__name__": "case"} if namespace is None else namespace
    exec(compile(text, name, "exec"), names)  # noqa: S102 -- our own text
    return names


def program(
    body: str,
    *,
    output: str | dict[str, str] = "a long, b long",
    more: str = "",
    method: str = "update",
    base: str = "",
) -> type[fl.Program]:
    """A program with sales, refunds and ticks, and this ``update``; ``more`` stands in its class, too."""
    head = HEAD.format(base=base or "fl.Program", output=output)
    given = "batch" if method == "update_batch" else "event"
    update = f"def {method}(self, state, {given}, emit):\n" + textwrap.indent(textwrap.dedent(body).strip(), "    ")
    if method != "update":
        update += "\ndef update(self, state, event, emit): ...\n"
    text = HEADER + head + textwrap.indent(f"{update}\n{textwrap.dedent(more)}", "    ")
    made: type[fl.Program] = compiled(text)["P"]
    return made


def mistakes(body: str, **options: Any) -> list[str]:
    """What is told about a program: condition and the marked text of each mistake; nothing if there is none."""
    try:
        program(body, **options)
    except fl.DefinitionError as error:
        return [f"{problem.condition} {marked(problem.excerpt or '')}" for problem in error.problems]
    return []


def marked(excerpt: str) -> str:
    """What the carets of an excerpt stand below."""
    line, _, carets = excerpt.partition("\n")
    return line[carets.find("^") : len(carets)]


def uses(cls: type, method: str, of: str) -> list[ast.Attribute]:
    """All ``event.column`` (or ``emit.name``) in a method of a class, by position in the class's own text."""
    tree = ast.parse(source(cls)).body[0]
    assert isinstance(tree, ast.ClassDef)
    bodies = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == method]
    return [
        node
        for body in bodies
        for node in ast.walk(body)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == of
    ]


def source(cls: type) -> str:
    return textwrap.dedent(inspect.getsource(cls))


def rewritten(cls: type, texts: Mapping[ast.expr, str]) -> dict[str, Any]:
    """Run the text of a class with others in place of some expressions, in a copy of its module."""
    lines = [line.encode() for line in source(cls).splitlines(keepends=True)]
    for node in sorted(texts, key=lambda node: (node.lineno, node.col_offset), reverse=True):
        assert node.lineno == node.end_lineno, "an expression on one line"
        line = lines[node.lineno - 1]
        lines[node.lineno - 1] = line[: node.col_offset] + texts[node].encode() + line[node.end_col_offset :]
    return compiled(b"".join(lines).decode(), dict(vars(sys.modules[cls.__module__])))


def random_events(definition: Definition, random: Random, number: int) -> list[fl.Event]:
    """Events of all tags with few different values, so that equal ones meet."""
    made = []
    for ts in range(number):
        tag = random.choice(list(definition.tags.values()))
        columns = {f.name: _value(type_name(f.type), random) for f in tag.schema}
        made.append(tag.event(ts=ts, stream="s", seq=ts, **columns))
    return made


def _value(kind: str, random: Random) -> object:
    number = random.choice([1, 2, 3, 7, 100, 1000, 3600])
    if kind in ("long", "int"):
        return number
    if kind == "string":
        return random.choice("abc")
    if kind in ("double", "float"):
        return float(number)
    if kind == "boolean":
        return random.random() < 0.5
    return [] if kind.startswith("array") else {} if kind.startswith("map") else None


def run(cls: type[fl.Program], seed: int = 0, number: int = 200) -> None:
    """Give a program random events, one by one and in batches, and throw everything away."""
    definition = fl.define(cls)
    random = Random(seed)
    kind, emit = definition.kinds[definition.initial], Emit(definition.outputs)
    state = definition.init()
    for event in random_events(definition, random, number):
        emit.event = event
        result = kind.update(state, event, emit)
        state = state if result is None else result
    if kind.update_batch is None:
        return
    emit.event = None
    for tag in definition.tags.values():
        some = [event for event in random_events(definition, random, number) if event.tag is tag]
        emit.batch = Batch.of_events(some)
        result = kind.update_batch(state, emit.batch, emit)
        state = state if result is None else result
