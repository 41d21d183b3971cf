"""Which tags read, set or add to which fields of declared state, read off the source of ``update``.

The analysis errs on one side only: what it can't follow counts as reading *and* setting, so that a missing
dependence is never overlooked. A field's ``read_by=``, ``added_by=`` and ``set_by=`` overrule it.

It follows ``if``/``match`` on ``event.tag`` (``is``, ``==``, ``in``, ``and``, ``or``, ``not``), early returns, and
methods of the program that are given the state. Within a :class:`~flumina.fields.PerKey` field, ``state.f[event.key]``
touches the event's own key; everything else touches all keys.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flumina.errors import Problem, location
from flumina.events import Tag
from flumina.fields import ADD, READ, SET, Field, Max, Min, PerKey, Set, Sum

_PURE_READERS = frozenset(
    {"len", "sorted", "sum", "min", "max", "list", "tuple", "set", "frozenset", "bool", "any", "all"}
)
_READING_METHODS = frozenset(
    {"get", "items", "keys", "values", "copy", "isdisjoint", "issubset", "issuperset", "union"}
)
_ROLES = ("self", "state", "event", "emit")


@dataclass(frozen=True, slots=True)
class Access:
    """One way in which a tag touches a field; ``own_key``: only the entry of the event's own key."""

    tag: str
    field: str
    kind: str
    own_key: bool
    where: str


class SourceMissingError(Exception):
    """The source of a function can't be read, so nothing is known about it."""


def accesses(
    update: Callable[..., object], owner: type, tags: Mapping[str, Tag], fields: Mapping[str, Field]
) -> tuple[list[Access], list[Problem]]:
    """All accesses of ``update``, with the explicit declarations of fields in place of what was found for them."""
    problems: list[Problem] = []
    found: list[Access] = []
    try:
        reader = _Reader(owner, tags, fields)
        reader.function(update, live=frozenset(tags))
        found, problems = reader.found, list(dict.fromkeys(reader.problems))
    except SourceMissingError as missing:
        if any(not f.declared for f in fields.values()):
            hint = "put the class in a file, or give every field read_by=, added_by= and set_by="
            problems.append(Problem("NO_SOURCE", f"the source of update can't be read: {missing}", str(missing), hint))
    kept = [access for access in found if not fields[access.field].declared]
    for name, declared_field in fields.items():
        own_key = isinstance(declared_field, PerKey)
        for kind, by in declared_field.declared.items():
            kept += [Access(t.name, name, kind, own_key and t.key is not None, declared_field.where) for t in by]
    return list(dict.fromkeys(kept)), problems


@dataclass
class _Reader:
    """Walks one function, keeping the set of tags for which a statement can be reached."""

    owner: type
    tags: Mapping[str, Tag]
    fields: Mapping[str, Field]
    found: list[Access] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    visiting: set[str] = field(default_factory=set)
    # The names by which the current function knows the program, the state and the event.
    me: str = "self"
    state: str = "state"
    event: str = "event"
    emit: str = "emit"
    tag_names: set[str] = field(default_factory=set)
    file: str = "?"
    offset: int = 0

    def function(self, function: Callable[..., object], live: frozenset[str], args: Sequence[str] = ()) -> None:
        """Walk a function; ``args`` names what each parameter is bound to (by default self, state, event, emit)."""
        code = inspect.unwrap(function).__code__
        try:
            lines, first = inspect.getsourcelines(function)
            tree = ast.parse(textwrap.dedent("".join(lines))).body[0]
        except (OSError, TypeError, SyntaxError):
            raise SourceMissingError(location(code.co_filename, code.co_firstlineno)) from None
        if not isinstance(tree, ast.FunctionDef):
            raise SourceMissingError(f"{location(code.co_filename, code.co_firstlineno)} is no plain function")
        names = [a.arg for a in (*tree.args.posonlyargs, *tree.args.args)]
        roles = dict(zip(args or _ROLES, names, strict=False))
        saved = (self.me, self.state, self.event, self.emit, self.tag_names, self.file, self.offset)
        self.me, self.state, self.event, self.emit = (roles.get(r, f"<no {r}>") for r in _ROLES)
        self.tag_names, self.file, self.offset = set(), code.co_filename, first - 1
        self.block(tree.body, live)
        self.me, self.state, self.event, self.emit, self.tag_names, self.file, self.offset = saved

    # -- statements: each returns the tags for which the next statement can be reached ------------------------

    def block(self, body: Iterable[ast.stmt], live: frozenset[str]) -> frozenset[str]:
        for statement in body:
            live = self.statement(statement, live)
        return live

    def statement(self, node: ast.stmt, live: frozenset[str]) -> frozenset[str]:
        handler = getattr(self, f"on_{type(node).__name__.lower()}", None)
        if handler is not None:
            after: frozenset[str] = handler(node, live)
            return after
        inner = live
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt):
                inner |= self.statement(child, live | inner)
            elif isinstance(child, (ast.expr, ast.withitem, ast.excepthandler, ast.match_case)):
                inner |= self.expression_or_block(child, live | inner)
        return inner

    def expression_or_block(self, node: ast.AST, live: frozenset[str]) -> frozenset[str]:
        if isinstance(node, ast.ExceptHandler | ast.match_case):
            return self.block(node.body, live)
        if isinstance(node, ast.withitem):
            self.expression(node.context_expr, live)
            return live
        self.expression(node, live)
        return live

    def on_if(self, node: ast.If, live: frozenset[str]) -> frozenset[str]:
        yes, no = self.condition(node.test, live)
        return self.block(node.body, yes) | self.block(node.orelse, no)

    def on_match(self, node: ast.Match, live: frozenset[str]) -> frozenset[str]:
        self.expression(node.subject, live)
        on_tag = self.is_event_tag(node.subject)
        after: frozenset[str] = frozenset()
        rest = live
        for case in node.cases:
            matched = self.pattern_tags(case.pattern) if on_tag else None
            inside = rest if matched is None else rest & matched
            if case.guard is not None:
                inside, _ = self.condition(case.guard, inside)
            elif matched is not None:
                rest -= matched
            elif isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None:
                rest = frozenset()
            after |= self.block(case.body, inside)
        return after | rest

    def pattern_tags(self, pattern: ast.pattern) -> frozenset[str] | None:
        """The tags a pattern on ``event.tag`` matches; None if it may match any."""
        if isinstance(pattern, ast.MatchOr):
            parts = [self.pattern_tags(p) for p in pattern.patterns]
            return None if None in parts else frozenset().union(*(p for p in parts if p is not None))
        if isinstance(pattern, ast.MatchValue):
            named = self.named_tag(pattern.value)
            return None if named is None else frozenset({named})
        return None

    def on_return(self, node: ast.Return, live: frozenset[str]) -> frozenset[str]:
        if node.value is not None and not self.is_state(node.value):
            self.expression(node.value, live)
        return frozenset()

    def on_raise(self, node: ast.Raise, live: frozenset[str]) -> frozenset[str]:
        for part in (node.exc, node.cause):
            if part is not None:
                self.expression(part, live)
        return frozenset()

    def on_assign(self, node: ast.Assign, live: frozenset[str]) -> frozenset[str]:
        target = node.targets[0]
        if len(node.targets) == 1 and isinstance(target, ast.Name) and self.is_event_tag(node.value):
            self.tag_names.add(target.id)
            return live
        if len(node.targets) == 1 and self.adds_extreme(target, node.value, live):
            return live
        self.expression(node.value, live)
        for each in node.targets:
            self.store(each, live)
        return live

    def on_annassign(self, node: ast.AnnAssign, live: frozenset[str]) -> frozenset[str]:
        if node.value is not None:
            self.expression(node.value, live)
            self.store(node.target, live)
        return live

    def on_augassign(self, node: ast.AugAssign, live: frozenset[str]) -> frozenset[str]:
        self.expression(node.value, live)
        place = self.place(node.target)
        if place is None:
            self.expression(node.target, live)
            return live
        name, own_key, inner = place
        adds = (isinstance(inner, Sum) and isinstance(node.op, (ast.Add, ast.Sub))) or (
            isinstance(inner, Set) and isinstance(node.op, ast.BitOr)
        )
        self.subscript(node.target, live)
        self.note(live, name, (ADD,) if adds else (READ, SET), node, own_key=own_key)
        return live

    def on_delete(self, node: ast.Delete, live: frozenset[str]) -> frozenset[str]:
        for target in node.targets:
            self.store(target, live)
        return live

    # -- conditions -------------------------------------------------------------------------------------------

    def condition(self, node: ast.expr, live: frozenset[str]) -> tuple[frozenset[str], frozenset[str]]:
        """The tags for which a condition can be true, and those for which it can be false."""
        if isinstance(node, ast.BoolOp):
            yes, no = (live, frozenset()) if isinstance(node.op, ast.And) else (frozenset(), live)
            for value in node.values:
                if isinstance(node.op, ast.And):
                    yes, false = self.condition(value, yes)
                    no |= false
                else:
                    true, no = self.condition(value, no)
                    yes |= true
            return yes, no
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yes, no = self.condition(node.operand, live)
            return no, yes
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and self.is_event_tag(node.left):
            named = self.compared_tags(node.comparators[0])
            if named is not None:
                if isinstance(node.ops[0], (ast.Is, ast.Eq, ast.In)):
                    return live & named, live - named
                return live - named, live & named
        self.expression(node, live)
        return live, live

    def compared_tags(self, node: ast.expr) -> frozenset[str] | None:
        parts = node.elts if isinstance(node, (ast.Tuple, ast.List, ast.Set)) else [node]
        names = [self.named_tag(part) for part in parts]
        return None if None in names else frozenset(name for name in names if name is not None)

    def is_event_tag(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Name):
            return node.id in self.tag_names
        return isinstance(node, ast.Attribute) and node.attr == "tag" and self.is_name(node.value, self.event)

    def named_tag(self, node: ast.expr) -> str | None:
        """The tag meant by ``self.view`` or ``Program.view``."""
        if not (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)):
            return None
        known = {self.me, "cls", *(c.__name__ for c in self.owner.__mro__)}
        return node.attr if node.attr in self.tags and node.value.id in known else None

    # -- expressions ------------------------------------------------------------------------------------------

    def expression(self, node: ast.AST, live: frozenset[str]) -> None:
        """Note every access within an expression."""
        if isinstance(node, ast.expr) and self.field_of(node) is not None:
            self.load(node, live)
        elif self.is_state(node):
            self.escape(node, live)
        elif isinstance(node, ast.IfExp):
            yes, no = self.condition(node.test, live)
            self.expression(node.body, yes)
            self.expression(node.orelse, no)
        elif isinstance(node, ast.BoolOp):
            self.condition(node, live)
        elif isinstance(node, ast.Call):
            self.call(node, live)
        elif isinstance(node, ast.Compare):
            for part in (node.left, *node.comparators):
                self.reading(part, live)
        elif isinstance(node, ast.comprehension):
            self.reading(node.iter, live)
            for test in node.ifs:
                self.expression(test, live)
        else:
            for child in ast.iter_child_nodes(node):
                self.expression(child, live)

    def on_for(self, node: ast.For, live: frozenset[str]) -> frozenset[str]:
        self.reading(node.iter, live)
        return live | self.block(node.body, live) | self.block(node.orelse, live)

    def call(self, node: ast.Call, live: frozenset[str]) -> None:
        """Calls that only read their arguments, that add to a set, and methods of the program."""
        arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
        if isinstance(node.func, ast.Attribute):
            place = self.place(node.func.value)
            if place is not None:
                self.method(node, place, live)
                for argument in arguments:
                    self.reading(argument, live)
                return
            if self.is_name(node.func.value, self.me) and any(self.is_state(a) for a in arguments):
                self.own_method(node, live)
                return
        reader = isinstance(node.func, ast.Name) and node.func.id in _PURE_READERS
        emits = isinstance(node.func, (ast.Name, ast.Attribute)) and not self.is_state(node.func)
        self.expression(node.func, live)
        for argument in arguments:
            inner = argument.value if isinstance(argument, ast.Starred) else argument
            if reader or (emits and self.is_emit(node.func)):
                self.reading(inner, live)
            else:
                self.expression(inner, live)

    def is_emit(self, node: ast.expr) -> bool:
        """``emit(...)``, ``emit.flagged(...)``: outputs are copied on emission, so an argument is only read."""
        while isinstance(node, ast.Attribute):
            node = node.value
        return self.is_name(node, self.emit)

    def method(self, node: ast.Call, place: tuple[str, str | None, Field], live: frozenset[str]) -> None:
        """A method called on a field's value, such as ``state.seen.add(x)``."""
        name, own_key, inner = place
        assert isinstance(node.func, ast.Attribute)
        self.subscript(node.func.value, live)
        if isinstance(inner, Set) and node.func.attr in ("add", "update"):
            self.note(live, name, (ADD,), node, own_key=own_key)
        elif node.func.attr in _READING_METHODS:
            self.note(live, name, (READ,), node, own_key=own_key)
        else:
            self.note(live, name, (READ, SET) if inner.mutable else (READ,), node, own_key=own_key)

    def own_method(self, node: ast.Call, live: frozenset[str]) -> None:
        """``self.helper(state, event, ...)``: walk the helper with its parameters bound."""
        assert isinstance(node.func, ast.Attribute)
        method = inspect.getattr_static(self.owner, node.func.attr, None)
        plain = (
            inspect.isfunction(method) and not node.keywords and not any(isinstance(a, ast.Starred) for a in node.args)
        )
        if not plain or node.func.attr in self.visiting:
            self.escape(node, live)
            return
        roles = ["self"]
        for argument in node.args:
            if self.is_state(argument):
                roles.append("state")
            elif self.is_name(argument, self.event):
                roles.append("event")
            elif self.is_name(argument, self.emit):
                roles.append("emit")
            else:
                roles.append(f"<{len(roles)}>")
                self.expression(argument, live)
        self.visiting.add(node.func.attr)
        self.function(method, live, roles)
        self.visiting.discard(node.func.attr)

    def reading(self, node: ast.expr, live: frozenset[str]) -> None:
        """An expression in a place that reads a value and can't change it through the reference."""
        place = self.place(node)
        if place is None:
            self.expression(node, live)
            return
        self.subscript(node, live)
        self.note(live, place[0], (READ,), node, own_key=place[1])

    def load(self, node: ast.expr, live: frozenset[str]) -> None:
        """A field's value in any other place: it may be kept and changed later if it is mutable."""
        place = self.place(node)
        assert place is not None
        name, own_key, inner = place
        self.subscript(node, live)
        self.note(live, name, (READ, SET) if inner.mutable else (READ,), node, own_key=own_key)

    def store(self, target: ast.expr, live: frozenset[str]) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            for part in target.elts:
                self.store(part, live)
            return
        place = self.place(target)
        if place is not None:
            self.subscript(target, live)
            self.note(live, place[0], (SET,), target, own_key=place[1])
        elif isinstance(target, ast.Name):
            if target.id in (self.state, self.event, self.me):
                self.escape(target, live)  # the name means something else from here on
        else:
            self.expression(target, live)

    def adds_extreme(self, target: ast.expr, value: ast.expr, live: frozenset[str]) -> bool:
        """``state.f = greatest(state.f, x)``: adding to a Max (and ``least`` to a Min)."""
        place = self.place(target)
        if place is None or not isinstance(value, ast.Call):
            return False
        name, own_key, inner = place
        function = value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")
        wanted = {"greatest": Max, "max": Max, "least": Min, "min": Min}.get(function)
        same = [argument for argument in value.args if ast.dump(argument) == ast.dump(_as_load(target))]
        if wanted is None or not isinstance(inner, wanted) or len(same) != 1 or value.keywords:
            return False
        self.subscript(target, live)
        for argument in value.args:
            if argument is not same[0]:
                self.expression(argument, live)
        self.note(live, name, (ADD,), target, own_key=own_key)
        return True

    # -- places -----------------------------------------------------------------------------------------------

    def is_name(self, node: ast.AST, name: str) -> bool:
        return isinstance(node, ast.Name) and node.id == name

    def is_state(self, node: ast.AST) -> bool:
        return self.is_name(node, self.state)

    def field_of(self, node: ast.expr) -> ast.Attribute | None:
        """``state.f`` or ``state.f[...]`` with a declared field f."""
        base = node.value if isinstance(node, ast.Subscript) else node
        if isinstance(base, ast.Attribute) and self.is_state(base.value):
            if base.attr in self.fields:
                return base
            self.problems.append(
                Problem(
                    "UNKNOWN_FIELD",
                    f"update uses state.{base.attr}, which is no declared field ({', '.join(self.fields)})",
                    self.line(base),
                )
            )
        return None

    def place(self, node: ast.expr) -> tuple[str, str | None, Field] | None:
        """(field, the key column if ``event.column`` is the subscript, the field whose value stands there)."""
        base = self.field_of(node)
        if base is None:
            return None
        whole = self.fields[base.attr]
        if not isinstance(node, ast.Subscript):
            return base.attr, None, whole
        if not isinstance(whole, PerKey):
            return base.attr, None, whole
        return base.attr, self.event_column(node.slice), whole.inner

    def event_column(self, node: ast.expr) -> str | None:
        """The column if the expression is ``event.column``."""
        return node.attr if isinstance(node, ast.Attribute) and self.is_name(node.value, self.event) else None

    def subscript(self, node: ast.expr, live: frozenset[str]) -> None:
        if isinstance(node, ast.Subscript):
            self.expression(node.slice, live)

    def escape(self, node: ast.AST, live: frozenset[str]) -> None:
        """The whole state goes where it can't be followed: it counts as read and set."""
        for name in self.fields:
            self.note(live, name, (READ, SET), node, own_key=None)

    def note(
        self, live: frozenset[str], name: str, kinds: Iterable[str], node: ast.AST, *, own_key: str | None
    ) -> None:
        where = self.line(node)
        for tag in sorted(live):
            key = self.tags[tag].key
            own = key is not None and own_key in ("key", key.name)
            self.found += [Access(tag, name, kind, own, where) for kind in kinds]

    def line(self, node: ast.AST) -> str:
        return location(self.file, getattr(node, "lineno", 0) + self.offset)


def _as_load(node: ast.expr) -> ast.expr:
    """The same place, as it reads when loaded."""
    loaded: Any = ast.parse(ast.unparse(node), mode="eval").body
    assert isinstance(loaded, ast.expr)
    return loaded
