"""Load user functions as syntax trees, and resolve the names in them.

All analyses of user code use :class:`FunctionSource`: accesses to fields
(:mod:`flumina.program.analysis.field_accesses`), side effects (:mod:`flumina.program.analysis.side_effects`),
constants worth trying (:mod:`flumina.check.constants`) and the code that a checkpoint belongs to
(:mod:`flumina.checkpoint.fingerprint`).
"""

from __future__ import annotations

import ast
import builtins
import inspect
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from types import FunctionType, ModuleType
from typing import Any, Literal, NamedTuple
from weakref import WeakKeyDictionary

from flumina.errors import location, location_of
from flumina.formatting import width
from flumina.model.tag import Tag
from flumina.state.fields import READ, SET, Field, PerKey

ROLES = ("self", "state", "event", "emit")
"""Roles of the parameters of ``update``."""

Tags = frozenset[str]

Use = Literal["kept", "copied", "read"]
"""Uses of a value: a reference to it escapes, references to its contents escape, or none does."""


class SourceMissingError(Exception):
    """The source of a function can't be read, so nothing is known about it."""


MISSING: Any = object()
"""Marks a name without a value."""


class _Text(NamedTuple):
    """The text of a function: its statements, its lines, and the number of the line before them."""

    module: ast.Module
    lines: tuple[str, ...]
    offset: int
    indent: int
    """Offset of the tree's columns against the file's."""


_texts: WeakKeyDictionary[FunctionType, _Text] = WeakKeyDictionary()
"""Each function is read once, for all analyses."""


@dataclass(frozen=True)
class FunctionSource:
    """The source of one user function; analyses share its tree and never change it."""

    function: FunctionType
    """The function that stands in the file: below bound methods and wrappers."""
    text: _Text
    wrapped: bool
    """Whether a wrapper surrounds the function, so that it may not do what its source says."""

    @staticmethod
    def of(function: Callable[..., object]) -> FunctionSource:
        """Read a function's own file; SourceMissingError if that is not possible."""
        plain = written(function)
        if plain is None:
            raise SourceMissingError(f"{function!r} is not written in Python")
        if plain not in _texts:
            try:
                lines, first = inspect.getsourcelines(plain)
                tree, indent = _parsed("".join(lines))
                _texts[plain] = _Text(tree, tuple(lines), first - 1, indent)
            except (OSError, TypeError, SyntaxError, ValueError):
                raise SourceMissingError(location_of(plain)) from None
        return FunctionSource(plain, _texts[plain], wrapped=not is_plain(getattr(function, "__func__", function)))

    @property
    def module(self) -> ast.Module:
        """The statements in which the function stands: its definition, or the one that holds a lambda."""
        return self.text.module

    @cached_property
    def tree(self) -> ast.FunctionDef:
        """The definition of the function; SourceMissingError if it is a lambda or a coroutine."""
        tree = self.module.body[0]
        if not isinstance(tree, ast.FunctionDef):
            raise SourceMissingError(f"{location_of(self.function)} is not a plain function")
        return tree

    @cached_property
    def bound(self) -> Counter[str]:
        """How many places in the function's body give a name a new meaning."""
        return Counter(_bindings(self.tree))

    @property
    def parameters(self) -> list[str]:
        """The parameters that can be given by position."""
        return [a.arg for a in (*self.tree.args.posonlyargs, *self.tree.args.args)]

    def line(self, node: ast.AST) -> str:
        """Return ``file:line`` of a node."""
        return location(self.function.__code__.co_filename, getattr(node, "lineno", 1) + self.text.offset)

    def excerpt(self, node: ast.expr) -> str:
        """Return the line of an expression's last name, or its first line, with carets below."""
        name = node.attr if isinstance(node, ast.Attribute) else None
        number, end = (node.end_lineno or 1, node.end_col_offset or 0) if name else (node.lineno, 0)
        line = self.text.lines[number - 1].rstrip("\n")
        shift = self.text.indent
        raw = line.encode()
        if name is not None:
            start, stop = shift + end - len(name.encode()), shift + end
        else:
            start = shift + node.col_offset
            stop = shift + (node.end_col_offset or 0) if node.end_lineno == number else len(raw)
        before, decorated = raw[:start].decode(errors="replace"), raw[start:stop].decode(errors="replace")
        space = "".join(c if c == "\t" else " " * width(c) for c in before)
        cut = len(line) - len(line.lstrip())
        return f"{line[cut:]}\n{space[cut:]}{'^' * max(width(decorated), 1)}"

    def is_local(self, name: str) -> bool:
        """Return whether a name is a variable of this very function."""
        code = self.function.__code__
        return name in code.co_varnames or name in code.co_cellvars

    def outer(self, name: str) -> Any:  # noqa: ANN401 -- users' values
        """Return the value of a name from an enclosing function or the module."""
        if name in self.function.__code__.co_freevars:
            return enclosed(self.function).get(name, MISSING)
        return self.function.__globals__.get(name, MISSING)

    def meaning(self, node: ast.expr) -> object:
        """Return the object of a global name or ``module.name``; None if uncertain."""
        if isinstance(node, ast.Attribute):
            module = self.meaning(node.value)
            return vars(module).get(node.attr) if isinstance(module, ModuleType) else None
        if not isinstance(node, ast.Name) or node.id in self.bound or self.is_local(node.id):
            return None
        value = self.outer(node.id)
        enclosing = node.id in self.function.__code__.co_freevars
        return value if value is not MISSING else None if enclosing else getattr(builtins, node.id, None)


def _parsed(text: str) -> tuple[ast.Module, int]:
    """Parse the text of a function, which may be indented; and by how much it was."""
    try:
        return ast.parse(textwrap.dedent(text)), len(text) - len(text.lstrip(" \t"))
    except IndentationError:  # a line of a multi-line string is indented less than the function
        tree = ast.increment_lineno(ast.parse(f"if True:\n{text}"), -1)
        return ast.Module(tree.body[0].body, []), 0  # type: ignore[attr-defined]


def written(function: Callable[..., object]) -> FunctionType | None:
    """Return the function that a user wrote, below bound methods and wrappers; None if it is not a Python function."""
    try:
        below = inspect.unwrap(getattr(function, "__func__", function))
    except ValueError:  # it wraps itself
        return None
    below = getattr(below, "__func__", below)
    return below if isinstance(below, FunctionType) else None


def enclosed(function: FunctionType) -> dict[str, Any]:
    """Return the values that a function uses from the functions around it, as far as they are there already."""
    values = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # not assigned yet, such as the class whose body holds the function
            values[name] = cell.cell_contents
    return values


def is_plain(function: Callable[..., object] | None) -> bool:
    """Return whether a function is what its source says, without wrappers."""
    return inspect.isfunction(function) and not hasattr(function, "__wrapped__")


_NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler, ast.MatchAs, ast.MatchStar)


def _bindings(tree: ast.FunctionDef) -> Iterator[str]:
    """Yield every name bound within a function, nested functions included, without its parameters."""
    own = {id(node) for node in ast.walk(tree.args)}
    for node in ast.walk(tree):
        if node is tree or id(node) in own:
            continue
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, _NAMED) and node.name is not None:
            yield node.name
        elif isinstance(node, ast.MatchMapping) and node.rest is not None:
            yield node.rest
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).partition(".")[0]


class FieldRef(NamedTuple):
    """``state.f`` or ``state.f[...]``: the field, the event's column that is the key, whose value stands there."""

    field: str
    key_column: str | None
    value: Field
    inside: bool
    """Whether it is a part of the field's value, such as an entry of a list, rather than a value of its own."""

    def kinds(self, use: Use) -> tuple[str, ...]:
        """Return the accesses of a load: a mutable value that stays referenced can be changed later."""
        mutable = self.value.holds_mutable if self.inside or use == "copied" else self.value.mutable
        return (READ, SET) if mutable and use != "read" else (READ,)


class Helper(NamedTuple):
    """A call of a program's method: its parameters, and their arguments."""

    name: str
    method: FunctionType
    parameters: list[str]
    given: dict[str, ast.expr]


@dataclass(frozen=True)
class Scope:
    """The function being walked, and by which names it knows the program, the state, the event and emit."""

    source: FunctionSource
    owner: type
    tags: Mapping[str, Tag]
    fields: Mapping[str, Field]
    names: Mapping[str, str]
    """Role to parameter."""
    columns: Mapping[str, str]
    """Local names bound only to one attribute of the event: ``tag = event.tag``."""
    replaces: bool
    """Whether what the function returns becomes the state."""

    @property
    def is_clear(self) -> bool:
        """Whether the names of the roles mean the same everywhere in the function, and nothing wraps it."""
        known = [self.names[role] for role in ROLES if role in self.names]
        return not self.source.wrapped and "state" in self.names and not self.source.bound.keys() & set(known)

    def is_role(self, node: ast.AST, role: str) -> bool:
        """Return whether an expression is the name of the program, the state, the event or emit."""
        return isinstance(node, ast.Name) and node.id == self.names.get(role)

    def role(self, node: ast.expr | None) -> str | None:
        """Return the role of an argument: the state, the event, a column of the event, or emit; else None."""
        if node is None:
            return None
        column = self.event_column(node)
        if column is not None:
            return f"event.{column}"
        return next((role for role in ROLES if self.is_role(node, role)), None)

    def place(self, node: ast.AST) -> FieldRef | None:
        """Return the place of ``state.f`` or ``state.f[...]`` with a declared field f; else None."""
        base = node.value if isinstance(node, ast.Subscript) else node
        if not (isinstance(base, ast.Attribute) and self.is_role(base.value, "state")) or base.attr not in self.fields:
            return None
        whole = self.fields[base.attr]
        if not isinstance(node, ast.Subscript):
            return FieldRef(base.attr, None, whole, inside=False)
        if isinstance(whole, PerKey):
            return FieldRef(base.attr, self.event_column(node.slice), whole.inner, inside=False)
        return FieldRef(base.attr, None, whole, inside=True)

    def unknown_field(self, node: ast.AST) -> str | None:
        """Return the name in ``state.name`` if no such field is declared."""
        unknown = isinstance(node, ast.Attribute) and self.is_role(node.value, "state") and node.attr not in self.fields
        return node.attr if unknown and isinstance(node, ast.Attribute) else None

    def event_column(self, node: ast.expr) -> str | None:
        """Return the column in ``event.column``, or in a name for it."""
        if isinstance(node, ast.NamedExpr):
            node = node.value
        if isinstance(node, ast.Name):
            return self.columns.get(node.id)
        return node.attr if isinstance(node, ast.Attribute) and self.is_role(node.value, "event") else None

    def is_event_tag(self, node: ast.expr) -> bool:
        """Return whether an expression is ``event.tag``, or a name for it."""
        return self.event_column(node) == "tag"

    def is_emit(self, node: ast.expr) -> bool:
        """Return whether an expression is ``emit`` or an output such as ``emit.flagged``."""
        return self.is_role(node.value if isinstance(node, ast.Attribute) else node, "emit")

    def helper(self, node: ast.Call) -> Helper | None:
        """Return the method if a call is ``self.method(...)`` with arguments that can be matched; else None."""
        if not (isinstance(node.func, ast.Attribute) and self.is_role(node.func.value, "self")):
            return None
        method = inspect.getattr_static(self.owner, node.func.attr, None)
        starred = any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords)
        if not isinstance(method, FunctionType) or starred:
            return None
        parameters = FunctionSource.of(method).parameters
        given = dict(zip(parameters[1:], node.args, strict=False)) | {str(k.arg): k.value for k in node.keywords}
        fits = given.keys() <= set(parameters) and len(given) == len(node.args) + len(node.keywords)
        return Helper(node.func.attr, method, parameters, given) if fits else None

    def named_tag(self, node: ast.expr) -> str | None:
        """Return the tag meant by ``self.view`` or ``Program.view``."""
        if not (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)) or node.attr not in self.tags:
            return None
        if self.is_role(node.value, "self"):
            return node.attr
        named = [c for c in self.owner.__mro__ if c.__name__ == node.value.id]
        certain = len(named) == 1 and getattr(named[0], node.attr, None) is self.tags[node.attr]
        return node.attr if certain and not self.source.is_local(node.value.id) else None

    def unknown_tag(self, node: ast.expr) -> str | None:
        """Return the name in ``self.name`` if neither the class nor its instances have a tag there."""
        if not (isinstance(node, ast.Attribute) and self.is_role(node.value, "self")):
            return None
        member = inspect.getattr_static(self.owner, node.attr, None)
        dynamic = self.owner.__init__ is not object.__init__ or hasattr(self.owner, "__getattr__")  # type: ignore[misc]
        return node.attr if isinstance(member, Field) or (member is None and not dynamic) else None

    def compared_tags(self, operator: ast.cmpop, node: ast.expr) -> Tags | None:
        """Return the tags in ``event.tag is self.view`` or ``event.tag in (...)``; None if unknown."""
        parts = compared(operator, node)
        known = [] if parts is None else [part for part in parts if self.unknown_tag(part) is None]
        names = [None] if parts is None else [self.named_tag(part) for part in known]
        return None if None in names else frozenset(name for name in names if name is not None)

    def pattern_tags(self, pattern: ast.pattern) -> Tags | None:
        """Return the tags a pattern on ``event.tag`` matches; None if it may match any."""
        if isinstance(pattern, ast.MatchOr):
            parts = [self.pattern_tags(p) for p in pattern.patterns]
            return None if None in parts else frozenset().union(*(p for p in parts if p is not None))
        if isinstance(pattern, ast.MatchValue):
            if self.unknown_tag(pattern.value) is not None:
                return frozenset()
            named = self.named_tag(pattern.value)
            return None if named is None else frozenset({named})
        return None


def did_you_mean(name: str, known: Iterable[str], form: str = "{}") -> str | None:
    """Return a hint with the name spelled most like ``name``, if any; ``form`` is how to write it.

    >>> did_you_mean("amunt", ["user", "amount"], "event.{}")
    'did you mean event.amount?'
    """
    close = get_close_matches(name, list(known), n=1)
    return f"did you mean {form.format(close[0])}?" if close else None


def compared(operator: ast.cmpop, node: ast.expr) -> list[ast.expr] | None:
    """Return the values of a comparison by ``is``, ``==`` or ``in (...)``; None if unknown."""
    if isinstance(operator, ast.In | ast.NotIn):
        return node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else None
    return [node] if isinstance(operator, ast.Is | ast.IsNot | ast.Eq | ast.NotEq) else None


def event_columns(source: FunctionSource, event: str | None, given: Mapping[str, str]) -> dict[str, str]:
    """Return the names that are bound once, to ``event.column``, with that column."""
    columns = {name: column for name, column in given.items() if name not in source.bound}
    parameters = {node.arg for node in ast.walk(source.tree.args) if isinstance(node, ast.arg)}
    for node in ast.walk(source.tree):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        value = node.value if isinstance(node, ast.Assign | ast.NamedExpr | ast.AnnAssign) else None
        if not (isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name) and value.value.id == event):
            continue
        for target in targets:
            if (
                isinstance(target, ast.Name)
                and source.bound[target.id] == 1
                and target.id not in parameters
                and source.is_local(target.id)
            ):
                columns[target.id] = value.attr
    return columns
