"""Find the expressions of a method that events certainly reach, with their tags.

The set of tags is never too small: ``if`` and ``match`` on ``event.tag`` and early returns narrow it, everything else
leaves it as it is. An expression counts only where it is certain that *some* event gets there, whatever the class is
set up with: not behind ``if self.with_tips`` or ``hasattr(event, "tip")``, nor in ``try`` with a handler that would
catch a mistake in it, in ``with``, or in a function within the function. Conditions on events and states count as true
for some events and false for others.
"""

from __future__ import annotations

import ast
import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from flumina.errors import OutputError, UsageError
from flumina.model.tag import Tag
from flumina.program.analysis.function_source import (
    ROLES,
    FunctionSource,
    Scope,
    SourceMissingError,
    Tags,
    event_columns,
)
from flumina.state.fields import Field, PerKey, Replicated

_PURE = (abs, all, any, bool, dict, divmod, enumerate, float, frozenset, int, len, list, max, min, pow, range, reversed)
_MATH = (value for value in vars(math).values() if callable(value))
_KNOWN = frozenset(map(id, (*_PURE, round, set, sorted, str, sum, tuple, zip, *_MATH)))
"""Pure functions: the result depends on the arguments alone."""
_RAISED = (AttributeError, OutputError, UsageError)
"""Exceptions that the mistakes raise in a run."""
_LAZY = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_ROLES = frozenset({"self", "event", "emit"})
_INDIRECT = frozenset({"__dict__", "__setattr__", "__class__"})
_COMBINED = ast.Attribute | ast.Subscript | ast.Compare | ast.BinOp | ast.UnaryOp | ast.BoolOp | ast.IfExp | ast.Slice
_COMBINED |= ast.Tuple | ast.List | ast.Set | ast.JoinedStr | ast.FormattedValue | ast.NamedExpr
_FIXED = ast.Constant | ast.operator | ast.unaryop | ast.boolop | ast.cmpop | ast.expr_context


class Reached(NamedTuple):
    """An expression, the function that it stands in, and the tags of the events that may get to it."""

    node: ast.expr
    scope: Scope
    live: Tags


def reached(
    method: Callable[..., object],
    owner: type,
    tags: Mapping[str, Tag],
    fields: Mapping[str, Field],
    *,
    batches: bool,
) -> list[Reached]:
    """Find what events of these tags reach in a method, and in methods of the class that get them.

    The parameters of the method are ``ROLES``; with ``batches`` it gets a batch of one tag in place of an event.
    Functions without source, or that rebind self, event or emit, are left out.
    """
    found: list[Reached] = []
    stored = _stored_by_init(owner)
    if stored is not None and stored.isdisjoint(tags):
        walk = _Walk(owner, tags, fields, found, stored, _state_varies(owner, fields), batches)
        walk.function(method, frozenset(tags), ROLES)
    return found


@dataclass
class _Walk:
    """A walk over one function, which starts another walk for each method that it calls."""

    owner: type
    tags: Mapping[str, Tag]
    fields: Mapping[str, Field]
    found: list[Reached]
    stored: frozenset[str]
    """Attributes that instances may override."""
    state_varies: bool
    """Whether a state depends on events only."""
    batches: bool
    walked: set[tuple[object, ...]] = field(default_factory=set)
    """Functions with their arguments: a method called twice alike is walked once."""
    scope: Scope = field(init=False)
    data: set[str] = field(default_factory=set)
    """Variables that only hold values from events and states."""
    guards: int = 0
    """How many conditions around this place may never hold."""
    lost: bool = False
    """Whether the rest of the function may be unreachable."""

    def function(self, function: Callable[..., object], live: Tags, roles: Iterable[str]) -> None:
        """Walk a function whose parameters are bound to these roles."""
        try:
            source = FunctionSource.of(function)
            names = dict(zip(roles, source.parameters, strict=False))
        except SourceMissingError:
            return
        rebound = source.bound.keys() & {name for role, name in names.items() if role in _ROLES}
        call = (source.function, live, *names.items())
        if source.wrapped or rebound or call in self.walked or source.function.__code__.co_flags & _LAZY:
            return
        self.walked.add(call)
        given = {name: role.partition(".")[2] for role, name in names.items() if role.startswith("event.")}
        columns = event_columns(source, names.get("event"), given)
        self.scope = Scope(source, self.owner, self.tags, self.fields, names, columns, replaces=False)
        self.learn_data()
        self.block(source.tree.body, live)

    # -- statements: each returns the tags for which the next statement can be reached ------------------------

    def block(self, body: Iterable[ast.stmt], live: Tags, *, certain: bool = True) -> Tags:
        with self.guarded(unless=certain):
            for statement in body:
                live = self.statement(statement, live)
        return live

    @contextmanager
    def guarded(self, *, unless: bool) -> Iterator[None]:
        self.guards += not unless
        yield
        self.guards -= not unless

    def statement(self, node: ast.stmt, live: Tags) -> Tags:
        handler = getattr(self, f"on_{type(node).__name__.lower()}", None)
        if handler is not None:
            after: Tags = handler(node, live)
            return after
        self.parts(node, live)
        return live

    def parts(self, node: ast.AST, live: Tags) -> None:
        for child in ast.iter_child_nodes(node):
            self.expression(child, live)

    def on_if(self, node: ast.If, live: Tags) -> Tags:
        yes, no, certain = self.condition(node.test, live)
        return self.block(node.body, yes, certain=certain) | self.block(node.orelse, no, certain=certain)

    def on_for(self, node: ast.For, live: Tags) -> Tags:
        self.expression(node.iter, live)
        self.expression(node.target, live)
        several = isinstance(node.iter, ast.Tuple | ast.List) and not all(
            isinstance(one, ast.Starred) for one in node.iter.elts
        )
        self.block(node.body, live, certain=several or self.is_data(node.iter))
        self.block(node.orelse, live, certain=False)
        return live

    on_asyncfor = on_for

    def on_while(self, node: ast.While, live: Tags) -> Tags:
        yes, _, certain = self.condition(node.test, live)
        self.block(node.body, yes, certain=certain)
        self.block(node.orelse, live, certain=False)
        return live

    def on_match(self, node: ast.Match, live: Tags) -> Tags:
        on_tag = self.scope.is_event_tag(node.subject)
        certain = on_tag or self.is_data(node.subject)
        self.expression(node.subject, live)
        after: Tags = frozenset()
        rest = live
        for case in node.cases:
            default = isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None
            matched = self.scope.pattern_tags(case.pattern) if on_tag else None
            certain = certain and (default or matched is not None or not on_tag)
            inside = rest if matched is None else rest & matched
            if case.guard is not None:
                with self.guarded(unless=certain):
                    inside, _, decided = self.condition(case.guard, inside)
                certain = certain and decided
            elif default:
                rest = frozenset()
            elif matched is not None:
                rest -= matched
            after |= self.block(case.body, inside, certain=certain)
        return after | rest

    def on_try(self, node: ast.Try, live: Tags) -> Tags:
        certain = not any(self.catches(handler) for handler in node.handlers)
        self.block([*node.body, *node.orelse], live, certain=certain)
        for handler in node.handlers:
            self.block(handler.body, live, certain=False)
        self.block(node.finalbody, live)
        return live

    on_trystar = on_try

    def catches(self, handler: ast.ExceptHandler) -> bool:
        """Return whether a handler may catch what a mistake raises."""
        kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        caught = [None if kind is None else self.scope.source.meaning(kind) for kind in kinds]
        return any(not isinstance(kind, type) or any(issubclass(r, kind) for r in _RAISED) for kind in caught)

    def on_with(self, node: ast.With, live: Tags) -> Tags:
        """Count nothing within: the context may swallow exceptions."""
        for item in node.items:
            self.expression(item.context_expr, live)
        self.block(node.body, live, certain=False)
        return live

    on_asyncwith = on_with

    def on_return(self, node: ast.stmt, live: Tags) -> Tags:
        """Count nothing after a return that only some events may reach."""
        self.parts(node, live)
        self.lost |= self.guards > 0
        return frozenset()

    on_raise = on_break = on_continue = on_return

    def on_assert(self, node: ast.Assert, live: Tags) -> Tags:
        """Narrow nothing: Python may run without assertions."""
        _, _, certain = self.condition(node.test, live)
        self.lost |= not certain
        return live

    def on_annassign(self, node: ast.AnnAssign, live: Tags) -> Tags:
        for part in (node.value, node.target):
            if part is not None:
                self.expression(part, live)
        return live

    def on_functiondef(self, node: ast.stmt, live: Tags) -> Tags:  # noqa: ARG002
        """Leave out nested functions: they may be called behind any condition, or never."""
        return live

    on_asyncfunctiondef = on_classdef = on_functiondef

    # -- conditions -------------------------------------------------------------------------------------------

    def condition(self, node: ast.expr, live: Tags) -> tuple[Tags, Tags, bool]:
        """Return the tags for which a condition can be true, and false; and whether events decide about it."""
        if isinstance(node, ast.BoolOp):
            every = isinstance(node.op, ast.And)
            yes, no = (live, frozenset[str]()) if every else (frozenset[str](), live)
            certain, guards = True, self.guards
            for value in node.values:
                true, false, decided = self.condition(value, yes if every else no)
                yes, no = (true, no | false) if every else (yes | true, false)
                self.guards += not decided
                certain = certain and decided
            self.guards = guards
            return yes, no, certain
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yes, no, certain = self.condition(node.operand, live)
            return no, yes, certain
        self.expression(node, live)
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and self.scope.is_event_tag(node.left):
            named = self.scope.compared_tags(node.ops[0], node.comparators[0])
            if named is not None:
                same = isinstance(node.ops[0], ast.Is | ast.Eq | ast.In)
                return (live & named, live - named, True) if same else (live - named, live & named, True)
        return live, live, self.is_data(node)

    def is_data(self, node: ast.expr) -> bool:
        """Return whether events and states decide about a value, rather than how the class is set up."""
        return self.origin(node) is True

    def origin(self, node: ast.AST) -> bool | None:
        """True if a value comes from events and states, False if it is fixed, None if it may be anything."""
        if isinstance(node, _FIXED):
            return False
        if isinstance(node, ast.Name):
            return self.origin_of_name(node.id)
        if isinstance(node, ast.Call):
            return self.origin_of_call(node)
        if isinstance(node, ast.Attribute) and self.scope.is_role(node.value, "self"):
            return False
        if isinstance(node, ast.Attribute | ast.Subscript) and self.scope.is_role(node.value, "event"):
            name = node.attr if isinstance(node, ast.Attribute) else getattr(node.slice, "value", None)
            return _is_column(name) or None
        if not isinstance(node, _COMBINED) or (isinstance(node, ast.IfExp) and not self.is_data(node.test)):
            return None
        return self.joint(ast.iter_child_nodes(node))

    def origin_of_name(self, name: str) -> bool | None:
        source, names = self.scope.source, self.scope.names
        if name in self.scope.columns:
            return _is_column(self.scope.columns[name]) or None
        if name == names.get("state") and name not in source.bound:
            return self.state_varies
        if name in self.data:
            return True
        return None if name in source.bound or source.is_local(name) else False

    def origin_of_call(self, node: ast.Call) -> bool | None:
        """Return the origin of a call's result: methods of data, and pure functions of Python."""
        arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
        if isinstance(node.func, ast.Attribute) and self.is_data(node.func.value):
            return self.joint([node.func.value, *arguments])
        function = self.scope.source.meaning(node.func)
        if self.batches and function is len and len(arguments) == 1 and self.scope.is_role(arguments[0], "event"):
            return True
        return self.joint(arguments) if id(function) in _KNOWN else None

    def joint(self, nodes: Iterable[ast.AST]) -> bool | None:
        found = {self.origin(node) for node in nodes}
        return None if None in found else True in found

    def learn_data(self) -> None:
        """Find the variables to which only data are ever assigned."""
        source = self.scope.source
        values: dict[str, list[ast.expr]] = {}
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr | ast.For):
                value = node.iter if isinstance(node, ast.For) else node.value
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in targets if value is not None else ():
                    for name in target.elts if isinstance(target, ast.Tuple) else [target]:
                        if isinstance(name, ast.Name) and value is not None:
                            values.setdefault(name.id, []).append(value)
        parameters = {node.arg for node in ast.walk(source.tree.args) if isinstance(node, ast.arg)}
        known = {n: v for n, v in values.items() if len(v) == source.bound[n] and n not in parameters}
        while more := {n for n, v in known.items() if all(map(self.is_data, v))} - self.data:
            self.data |= more

    # -- expressions ------------------------------------------------------------------------------------------

    def expression(self, node: ast.AST, live: Tags) -> None:
        """Note an expression and all that is in it."""
        if isinstance(node, ast.Lambda | ast.GeneratorExp):
            return  # it may never be called
        if isinstance(node, ast.BoolOp):
            self.condition(node, live)
            return
        if isinstance(node, ast.IfExp):
            yes, no, certain = self.condition(node.test, live)
            with self.guarded(unless=certain):
                self.expression(node.body, yes)
                self.expression(node.orelse, no)
            return
        if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp):
            self.comprehension(node, live)
            return
        if isinstance(node, ast.expr) and live and not self.guards and not self.lost:
            self.found.append(Reached(node, self.scope, live))
            if isinstance(node, ast.Call):
                self.follow(node, live)
        self.parts(node, live)

    def comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp, live: Tags) -> None:
        guards = self.guards
        for part in node.generators:
            self.expression(part.iter, live)
            self.guards += not self.is_data(part.iter)
            for test in part.ifs:
                self.guards += not self.condition(test, live)[2]
        for element in (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,):
            self.expression(element, live)
        self.guards = guards

    def follow(self, node: ast.Call, live: Tags) -> None:
        """Walk a method of the class that gets the event or emit."""
        try:
            helper = self.scope.helper(node)
        except SourceMissingError:
            return
        if helper is None or helper.name in self.stored:
            return
        roles = ["self", *(self.scope.role(helper.given.get(p)) or f"<{p}>" for p in helper.parameters[1:])]
        if not {"event", "emit"}.isdisjoint(roles) and len(set(roles)) == len(roles):
            walk = replace(self, data=set(), guards=0, lost=False)
            walk.function(helper.method, live, roles)


def _stored_by_init(owner: type) -> frozenset[str] | None:
    """Return the attributes that ``__init__`` may give to objects; None if unknown."""
    found = set[str]()
    for base in owner.__mro__:
        init = vars(base).get("__init__", object.__init__)
        if init is object.__init__:
            continue
        try:
            nodes = list(ast.walk(FunctionSource.of(init).module))
        except SourceMissingError:
            return None
        found |= {node.attr for node in nodes if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load)}
        indirect = {node.id for node in nodes if isinstance(node, ast.Name)} & {"setattr", "vars"}
        if indirect or any(isinstance(node, ast.Attribute) and node.attr in _INDIRECT for node in nodes):
            return None
    return frozenset(found)


def _state_varies(owner: type, fields: Mapping[str, Field]) -> bool:
    """Return whether a new state is the same however the class is set up, so that only events make a difference."""
    if fields:
        kinds = [one.inner if isinstance(one, PerKey) else one for one in fields.values()]
        return all(one.initial is None for one in kinds if isinstance(one, Replicated))
    init = inspect.getattr_static(owner, "init", None)
    if not inspect.isfunction(init):
        return False
    try:
        source = FunctionSource.of(init)
        me = source.parameters[:1]
    except SourceMissingError:
        return False
    return not any(isinstance(node, ast.Name) and node.id in me for node in ast.walk(source.module))


def _is_column(name: object) -> bool:
    """Return whether a name in an event is that of a value that differs between events of one tag."""
    return isinstance(name, str) and not name.startswith("_") and name not in ("tag", "stream")
