"""Derive from ``update`` which tags read, set or add to which fields.

The analysis is conservative: what it can't follow counts as reading *and* setting, so that a missing dependence is
never overlooked. A field's ``read_by=``, ``added_by=`` and ``set_by=`` overrule it.

It follows ``if``/``match`` on ``event.tag`` (``is``, ``==``, ``in``, ``and``, ``or``, ``not``), early returns, and
methods of the program that get the state. Within a :class:`~flumina.state.fields.PerKey` field,
``state.f[event.key]`` touches the event's own key; everything else touches all keys.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from flumina.errors import Problem
from flumina.model.tag import Tag
from flumina.program.analysis.function_source import (
    ROLES,
    FieldRef,
    FunctionSource,
    Scope,
    SourceMissingError,
    Tags,
    Use,
    compared,
    did_you_mean,
    event_columns,
)
from flumina.state.fields import ADD, READ, SET, Field, Max, Min, PerKey, Set, Sum, greatest, least
from flumina.state.record import reset

_LOOKERS = frozenset({len, bool, any, all, str, repr, isinstance, print})
"""Functions whose result has no reference into their argument."""
_COPIERS = frozenset({sorted, sum, min, max, list, tuple, set, frozenset, dict, enumerate, zip, reversed})
"""Functions whose result may refer to the contents of their argument, but not to the argument."""
_FRAME_READERS = frozenset({eval, exec, locals, vars})
"""Functions that reach variables without naming them."""
_READING_METHODS = frozenset(
    {"get", "items", "keys", "values", "copy", "isdisjoint", "issubset", "issuperset", "union", "intersection"}
)


@dataclass(frozen=True, slots=True)
class Access:
    """One way in which a tag touches a field; ``own_key``: only the entry of the event's own key.

    ``followed`` is False where it is assumed, because the whole state goes to code that is not analyzed.
    """

    tag: str
    field: str
    kind: str
    own_key: bool
    where: str
    followed: bool = True


def accesses(
    updates: Mapping[Callable[..., object], Tags], owner: type, tags: Mapping[str, Tag], fields: Mapping[str, Field]
) -> tuple[list[Access], list[Problem]]:
    """Return all accesses of methods, given with their tags; declarations of a field replace the derived ones."""
    problems: list[Problem] = []
    found: list[Access] = []
    try:
        reader = _Reader(owner, tags, fields)
        for update, of in updates.items():
            reader.function(update, of & tags.keys(), ROLES, replaces=True)
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
    """A walk over functions with the set of tags for which a statement is reachable."""

    owner: type
    tags: Mapping[str, Tag]
    fields: Mapping[str, Field]
    found: list[Access] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    visiting: set[Callable[..., object]] = field(default_factory=set)
    scope: Scope = field(init=False)

    def function(
        self, function: Callable[..., object], live: Tags, roles: Iterable[str], *, replaces: bool = False
    ) -> None:
        """Walk a function whose parameters are bound to these roles (a name of ``ROLES``, ``event.column``, ...)."""
        source = FunctionSource.of(function)
        names = dict(zip(roles, source.parameters, strict=False))
        given = {name: role.partition(".")[2] for role, name in names.items() if role.startswith("event.")}
        columns = event_columns(source, names.get("event"), given)
        outer = getattr(self, "scope", None)
        self.scope = Scope(source, self.owner, self.tags, self.fields, names, columns, replaces)
        if not self.scope.is_clear:
            self.escape(source.tree, live)
        else:
            self.block(source.tree.body, live)
        if outer is not None:
            self.scope = outer

    # -- statements: each returns the tags for which the next statement can be reached ------------------------

    def block(self, body: Iterable[ast.stmt], live: Tags) -> Tags:
        for statement in body:
            live = self.statement(statement, live)
        return live

    def statement(self, node: ast.stmt, live: Tags) -> Tags:
        handler = getattr(self, f"on_{type(node).__name__.lower()}", None)
        if handler is not None:
            after: Tags = handler(node, live)
            return after
        # Loops, try, with, nested classes: anything in them may happen, and what follows may be reached.
        for child in ast.iter_child_nodes(node):
            self.part(child, live)
        return live

    def part(self, node: ast.AST, live: Tags) -> None:
        """Walk a part of a statement that has no rule of its own."""
        if isinstance(node, ast.stmt):
            self.statement(node, live)
        elif isinstance(node, ast.ExceptHandler):
            for child in ast.iter_child_nodes(node):
                self.part(child, live)
        elif isinstance(node, ast.withitem):
            self.expression(node.context_expr, live)
            if node.optional_vars is not None:
                self.store(node.optional_vars, live)
        else:
            self.expression(node, live)

    def on_if(self, node: ast.If, live: Tags) -> Tags:
        yes, no = self.condition(node.test, live)
        return self.block(node.body, yes) | self.block(node.orelse, no)

    def on_for(self, node: ast.For, live: Tags) -> Tags:
        self.load(node.iter, live, "copied")
        self.store(node.target, live)
        self.block(node.body, live)
        self.block(node.orelse, live)
        return live

    def on_while(self, node: ast.While, live: Tags) -> Tags:
        yes, _ = self.condition(node.test, live)
        self.block(node.body, yes)
        self.block(node.orelse, live)
        return live

    def on_match(self, node: ast.Match, live: Tags) -> Tags:
        self.expression(node.subject, live)
        on_tag = self.scope.is_event_tag(node.subject)
        after: Tags = frozenset()
        rest = live
        for case in node.cases:
            self.expression(case.pattern, rest)
            if on_tag:
                self.report_unknown(p.value for p in ast.walk(case.pattern) if isinstance(p, ast.MatchValue))
            matched = self.scope.pattern_tags(case.pattern) if on_tag else None
            inside = rest if matched is None else rest & matched
            if case.guard is not None:
                inside, _ = self.condition(case.guard, inside)
            elif matched is not None:
                rest -= matched
            elif isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None:
                rest = frozenset()
            after |= self.block(case.body, inside)
        return after | rest

    def on_return(self, node: ast.Return, live: Tags) -> Tags:
        value = node.value
        if value is None or (isinstance(value, ast.Constant) and value.value is None):
            return frozenset()
        if self.scope.replaces and self.scope.is_role(value, "state"):
            return frozenset()
        if self.scope.replaces and isinstance(value, ast.Call) and self.own_method(value, live, replaces=True):
            return frozenset()
        self.expression(value, live)
        if self.scope.replaces and not (isinstance(value, ast.Call) and self.scope.is_emit(value.func)):
            self.escape(value, live)  # another state takes the place of this one
        return frozenset()

    def on_raise(self, node: ast.Raise, live: Tags) -> Tags:
        for part in (node.exc, node.cause):
            if part is not None:
                self.expression(part, live)
        return frozenset()

    def on_functiondef(self, node: ast.FunctionDef | ast.AsyncFunctionDef, live: Tags) -> Tags:
        """Walk a nested function, which may be called at any later place."""
        outer, self.scope = self.scope, replace(self.scope, replaces=False)
        for child in ast.iter_child_nodes(node):
            self.part(child, live)
        self.scope = outer
        return live

    on_asyncfunctiondef = on_functiondef

    def on_assign(self, node: ast.Assign, live: Tags) -> Tags:
        if len(node.targets) == 1 and self.adds_extreme(node.targets[0], node.value, live):
            return live
        self.expression(node.value, live)
        for each in node.targets:
            self.store(each, live)
        return live

    def on_annassign(self, node: ast.AnnAssign, live: Tags) -> Tags:
        if node.value is not None:
            self.expression(node.value, live)
            self.store(node.target, live)
        return live

    def on_augassign(self, node: ast.AugAssign, live: Tags) -> Tags:
        place = self.scope.place(node.target)
        if place is None:
            self.expression(node.value, live)
            self.expression(node.target, live)
            return live
        adds = not place.inside and (
            (isinstance(place.value, Sum) and isinstance(node.op, ast.Add | ast.Sub))
            or (isinstance(place.value, Set) and isinstance(node.op, ast.BitOr))
        )
        self.load(node.value, live, "copied")
        self.subscript(node.target, live)
        self.note(live, place, (ADD,) if adds else (READ, SET), node)
        return live

    def on_delete(self, node: ast.Delete, live: Tags) -> Tags:
        for target in node.targets:
            self.store(target, live)
        return live

    # -- conditions -------------------------------------------------------------------------------------------

    def condition(self, node: ast.expr, live: Tags, use: Use = "read") -> tuple[Tags, Tags]:
        """Return the tags for which a condition can be true, and the tags for which it can be false."""
        if isinstance(node, ast.BoolOp):
            yes, no = (live, frozenset()) if isinstance(node.op, ast.And) else (frozenset(), live)
            for value in node.values:
                if isinstance(node.op, ast.And):
                    yes, false = self.condition(value, yes, use)
                    no |= false
                else:
                    true, no = self.condition(value, no, use)
                    yes |= true
            return yes, no
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yes, no = self.condition(node.operand, live)
            return no, yes
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and self.scope.is_event_tag(node.left):
            self.report_unknown(compared(node.ops[0], node.comparators[0]) or ())
            named = self.scope.compared_tags(node.ops[0], node.comparators[0])
            if named is not None:
                self.expression(node.left, live)
                same = isinstance(node.ops[0], ast.Is | ast.Eq | ast.In)
                return (live & named, live - named) if same else (live - named, live & named)
        self.load(node, live, use)
        return live, live

    def report_unknown(self, nodes: Iterable[ast.expr]) -> None:
        """Report unknown tags: their code would count for all tags, or for none."""
        for node in nodes:
            unknown = self.scope.unknown_tag(node)
            if unknown is not None:
                message = f"event.tag is compared with self.{unknown}, which is not a tag ({', '.join(self.tags)})"
                self.report("UNKNOWN_TAG", message, node, did_you_mean(unknown, self.tags, "self.{}"))

    def report(self, condition: str, message: str, node: ast.AST, hint: str | None) -> None:
        source = self.scope.source
        assert isinstance(node, ast.Attribute)
        self.problems.append(Problem(condition, message, source.line(node), hint, source.excerpt(node)))

    # -- expressions ------------------------------------------------------------------------------------------

    def expression(self, node: ast.AST, live: Tags) -> None:
        """Note every access within an expression whose value may stay referenced."""
        if self.touches_state(node, live):
            return
        if isinstance(node, ast.IfExp):
            yes, no = self.condition(node.test, live)
            self.expression(node.body, yes)
            self.expression(node.orelse, no)
        elif isinstance(node, ast.BoolOp):
            self.condition(node, live, "kept")
        elif isinstance(node, ast.Call):
            self.call(node, live)
        elif isinstance(node, ast.Compare | ast.FormattedValue):
            for child in ast.iter_child_nodes(node):
                self.load(child, live, "read")
        elif isinstance(node, ast.BinOp | ast.comprehension):
            for child in ast.iter_child_nodes(node):
                self.load(child, live, "copied")
            if isinstance(node, ast.comprehension):
                self.store(node.target, live)
        else:
            for child in ast.iter_child_nodes(node):
                self.expression(child, live)

    def touches_state(self, node: ast.AST, live: Tags) -> bool:
        """Note the access of an expression that is a place in the state, or the state itself."""
        unknown = self.scope.unknown_field(node)
        if unknown is not None:
            message = f"update uses state.{unknown}, which is not a declared field ({', '.join(self.fields)})"
            self.report("UNKNOWN_FIELD", message, node, did_you_mean(unknown, self.fields, "state.{}"))
        elif self.scope.place(node) is not None:
            self.load(node, live)
        elif self.scope.is_role(node, "state"):
            self.escape(node, live)
        else:
            return False
        return True

    def load(self, node: ast.AST, live: Tags, use: Use = "kept") -> None:
        """Note the accesses of an expression whose value is used as ``use`` says."""
        place = self.scope.place(node)
        if place is None:
            self.expression(node, live)
            return
        self.subscript(node, live)
        self.note(live, place, place.kinds(use), node)

    def call(self, node: ast.Call, live: Tags) -> None:
        """Walk a call: functions that only read, additions to a set, and methods of the program."""
        place = self.scope.place(node.func.value) if isinstance(node.func, ast.Attribute) else None
        if place is not None:
            self.method(node, place, live)
            return
        if self.own_method(node, live):
            return
        function = self.scope.source.meaning(node.func)
        if function is reset and len(node.args) == 1 and self.scope.is_role(node.args[0], "state"):
            for name, whole in self.fields.items():
                self.note(live, FieldRef(name, None, whole, inside=False), (SET,), node)
            return
        builtin = function if inspect.isbuiltin(function) or isinstance(function, type) else None
        if builtin in _FRAME_READERS:
            self.escape(node, live)
        use: Use = "kept"
        if self.scope.is_emit(node.func) or builtin in _LOOKERS:  # outputs are copied on emission
            use = "read"
        elif builtin in _COPIERS and not (builtin in (min, max) and len(node.args) > 1):  # min(a, b) returns one
            use = "copied"
        self.expression(node.func, live)
        for argument in _arguments(node):
            self.load(argument, live, use)

    def method(self, node: ast.Call, place: FieldRef, live: Tags) -> None:
        """Walk a method call on a field's value, such as ``state.seen.add(x)``."""
        assert isinstance(node.func, ast.Attribute)
        name = node.func.attr
        to_set = isinstance(place.value, Set) and not place.inside
        for argument in _arguments(node):
            self.load(argument, live, "copied" if to_set else "kept")
        self.subscript(node.func.value, live)
        if to_set and name in ("add", "update"):
            self.note(live, place, (ADD,), node)
        elif name in _READING_METHODS:
            self.note(live, place, place.kinds("copied"), node)
        else:
            self.note(live, place, place.kinds("kept"), node)

    def own_method(self, node: ast.Call, live: Tags, *, replaces: bool = False) -> bool:
        """Walk the helper of ``self.helper(state, event, ...)``; return False if it is not one."""
        if not (isinstance(node.func, ast.Attribute) and self.scope.is_role(node.func.value, "self")):
            return False
        if not any(self.scope.is_role(argument, "state") for argument in _arguments(node)):
            return False
        helper = self.scope.helper(node)
        if helper is None or helper.method in self.visiting:
            self.escape(node, live)
            return True
        _, method, parameters, given = helper
        if sum(self.scope.is_role(argument, "state") for argument in given.values()) > 1:
            self.escape(node, live)
            return True
        roles = ["self", *(self.scope.role(given.get(p)) or f"<{p}>" for p in parameters[1:])]
        for argument in given.values():
            if self.scope.role(argument) is None:
                self.expression(argument, live)
        self.visiting.add(method)
        self.function(method, live, roles, replaces=replaces)
        self.visiting.discard(method)
        return True

    def store(self, target: ast.expr, live: Tags) -> None:
        place = self.scope.place(target)
        if place is not None:
            self.subscript(target, live)
            self.note(live, place, (SET,), target)
        elif isinstance(target, ast.Tuple | ast.List):
            for part in target.elts:
                self.store(part, live)
        elif isinstance(target, ast.Starred):
            self.store(target.value, live)
        elif not isinstance(target, ast.Name):
            self.expression(target, live)

    def adds_extreme(self, target: ast.expr, value: ast.expr, live: Tags) -> bool:
        """Recognize ``state.f = greatest(state.f, x)`` as adding to a Max (``least`` to a Min)."""
        place = self.scope.place(target)
        if place is None or place.inside or not isinstance(value, ast.Call) or value.keywords:
            return False
        function = self.scope.source.meaning(value.func)
        same = [argument for argument in value.args if ast.unparse(argument) == ast.unparse(target)]
        adds = (isinstance(place.value, Max) and function is greatest) or (
            isinstance(place.value, Min) and function is least
        )
        if not adds or len(same) != 1:
            return False
        self.subscript(target, live)
        for argument in value.args:
            if argument is not same[0]:
                self.expression(argument, live)
        self.note(live, place, (ADD,), target)
        return True

    # -- places -----------------------------------------------------------------------------------------------

    def subscript(self, node: ast.AST, live: Tags) -> None:
        if isinstance(node, ast.Subscript):
            self.expression(node.slice, live)

    def escape(self, node: ast.AST, live: Tags) -> None:
        """Count the whole state as read and set: it goes where it can't be followed."""
        for name, whole in self.fields.items():
            self.note(live, FieldRef(name, None, whole, inside=False), (READ, SET), node, followed=False)

    def note(self, live: Tags, place: FieldRef, kinds: Iterable[str], node: ast.AST, *, followed: bool = True) -> None:
        where = self.scope.source.line(node)
        for tag in sorted(live):
            key = self.tags[tag].key
            own = key is not None and place.key_column in ("key", key.name)
            self.found += [Access(tag, place.field, kind, own, where, followed) for kind in kinds]


def _arguments(node: ast.Call) -> list[ast.expr]:
    given = [argument.value if isinstance(argument, ast.Starred) else argument for argument in node.args]
    return [*given, *(keyword.value for keyword in node.keywords)]
