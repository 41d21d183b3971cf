"""Find state kept outside ``state``, and state that is lost, in the source of methods.

Everything that ``update`` remembers must be in ``state``. Values stored in ``self``, in a global or in an
enclosing function are neither forked nor joined, and every worker would have its own.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator, Mapping, MutableMapping, MutableSequence, MutableSet
from typing import Any

from flumina.errors import Problem
from flumina.program.analysis.function_source import MISSING, FunctionSource, SourceMissingError

_HINT = "keep it in the state; to remember results of a pure function, put functools.cache on that function"


_CONTAINERS = (MutableSequence, MutableMapping, MutableSet)
_MAKERS = frozenset({"list", "dict", "set", "bytearray", "deque", "defaultdict", "Counter", "OrderedDict"})
_SURELY = frozenset({"append", "appendleft", "extend", "insert", "setdefault", "popitem", "discard", "__setitem__"})
_CHANGES = _SURELY | {"add", "update", "pop", "popleft", "remove", "clear", "sort", "reverse", "__delitem__"}
"""Methods that change a container; the first ones certainly do where their result is discarded."""


def find_side_effects(
    role: str, method: Callable[..., Any], members: Mapping[str, Any] | None = None
) -> Iterator[Problem]:
    """Find stores outside the state, and a state that is rebound but never returned; none without source.

    ``members`` are the members of the class; methods that are called on ``self`` are checked, too.
    """
    yield from _hidden(role, method, members or {}, {method})


def _hidden(
    role: str, method: Callable[..., Any], members: Mapping[str, Any], seen: set[Callable[..., Any]]
) -> Iterator[Problem]:
    try:
        source = FunctionSource.of(method)
        scope = _Scope(source, members)
    except SourceMissingError:
        return
    tree, parameters = source.tree, source.parameters
    found = [*_stored(role, tree, scope), *_changed(role, tree, scope)]
    for message, node in found:
        yield Problem("HIDDEN_STATE", message, source.line(node), _HINT)
    if role in ("update", "update_batch") and len(parameters) > 1 and _rebinds_in_vain(tree, parameters[1]):
        message = f"{role} gives {parameters[1]} another value but never returns it"
        yield Problem("NO_RETURN", message, source.line(tree), f"end it with: return {parameters[1]}")
    for name in scope.called():
        helper = members.get(name)
        if inspect.isfunction(helper) and helper not in seen:
            seen.add(helper)
            yield from _hidden(f"{role} calls {name}, which", helper, members, seen)


def _stored(role: str, tree: ast.FunctionDef, scope: _Scope) -> Iterator[tuple[str, ast.expr]]:
    """Report assignments and deletions outside the state."""
    for target in _stores(tree):
        root = _root(target)
        if root == scope.me:
            yield f"{role} stores something in {ast.unparse(target)}", target
        elif root is not None and root not in scope.local and not isinstance(target, ast.Name):
            yield f"{role} changes {ast.unparse(target)}, which lives outside it", target
        elif isinstance(target, ast.Name) and root not in scope.local:
            yield f"{role} stores something in the outer variable {root}", target
        elif isinstance(target, ast.Subscript) and scope.is_outer_container(target.value):
            yield f"{role} changes {scope.shown(target.value)}, which lives outside it", target


def _changed(role: str, tree: ast.FunctionDef, scope: _Scope) -> Iterator[tuple[str, ast.expr]]:
    """Report calls and in-place operators that change containers outside the state."""
    thrown_away = {id(node.value) for node in _walk(tree) if isinstance(node, ast.Expr)}
    for node in _walk(tree):
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            if node.target.id in scope.local and scope.is_outer_container(node.target):
                yield f"{role} changes {scope.shown(node.target)}, which lives outside it", node.target
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGES:
            changed = node.func.value
            # A method of an immutable container returns a new one, which the result would use.
            surely = node.func.attr in _SURELY and id(node) in thrown_away
            unknown = surely and scope.is_unknown_attribute(changed)
            if unknown or scope.is_outer_container(changed):
                yield f"{role} changes {scope.shown(changed)}, which lives outside it", node
        elif isinstance(node, ast.Call) and node.args and ast.unparse(node.func) in _SETTERS:
            root = _root(node.args[0])
            if root is not None and (root == scope.me or root not in scope.local):
                yield f"{role} stores something in {ast.unparse(node.args[0])}", node


_SETTERS = frozenset({"setattr", "delattr", "object.__setattr__", "object.__delattr__"})


class _Scope:
    """The meaning of the names in a function."""

    def __init__(self, source: FunctionSource, members: Mapping[str, Any]) -> None:
        self.source, self.members = source, members
        tree, function = source.tree, source.function
        self.me = next(iter(source.parameters), "")
        self.local = _local_names(tree)
        bound = [n.id for n in _walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
        added = [n.target.id for n in _walk(tree) if isinstance(n, ast.AugAssign) and isinstance(n.target, ast.Name)]
        self.aliases = {
            node.targets[0].id: node.value
            for node in _walk(tree)
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and len(node.targets) == 1
            if bound.count(node.targets[0].id) == 1 + added.count(node.targets[0].id)
        }
        """Names bound once, and their values."""
        names = [*function.__code__.co_varnames[: function.__code__.co_argcount]]
        given = function.__defaults__ or ()
        self.defaults = dict(zip(names[len(names) - len(given) :], given, strict=True))
        made = members.get("__init__")
        self.made = _containers_of(made) if inspect.isfunction(made) else frozenset()

    def called(self) -> list[str]:
        """Return the names of methods that are called on the program itself."""
        calls = [node.func for node in _walk(self.source.tree) if isinstance(node, ast.Call)]
        return [f.attr for f in calls if isinstance(f, ast.Attribute) and self._is_me(f.value)]

    def shown(self, node: ast.expr) -> str:
        """Return the source of an expression, with aliases resolved."""
        return ast.unparse(self._meant(node))

    def is_outer_container(self, node: ast.expr) -> bool:
        """Return whether this is a list, dict or set that outlives the call."""
        node = self._meant(node)
        if isinstance(node, ast.Attribute) and self._is_me(node.value) and node.attr in self.made:
            return True
        return isinstance(self._value(node), _CONTAINERS)

    def is_unknown_attribute(self, node: ast.expr) -> bool:
        """Return whether this is an attribute of the program whose type only a run shows."""
        node = self._meant(node)
        inside = isinstance(node, ast.Attribute | ast.Subscript) and _root(node) == self.me
        return inside and self._value(node) is MISSING

    def _meant(self, node: ast.expr) -> ast.expr:
        seen = set[str]()
        while isinstance(node, ast.Name) and node.id in self.aliases and node.id not in seen:
            seen.add(node.id)
            node = self.aliases[node.id]
        return node

    def _is_me(self, node: ast.expr) -> bool:
        """Return whether this is the program itself, or its class."""
        node = self._meant(node)
        if isinstance(node, ast.Attribute):
            return node.attr == "__class__" and self._is_me(node.value)
        own = self.source.function.__qualname__.split(".")[-2:-1]
        outer = isinstance(node, ast.Name) and node.id not in self.local and [node.id] == own
        return outer or (not isinstance(node, ast.Subscript) and _root(node) == self.me)

    def _value(self, node: ast.expr) -> object:
        """Return the object behind an expression, as far as it is there before the program runs."""
        node = self._meant(node)
        if isinstance(node, ast.Name):
            if node.id in self.local:
                return self.defaults.get(node.id, MISSING)
            return self.source.outer(node.id)
        if isinstance(node, ast.Attribute) and self._is_me(node.value):
            return self.members.get(node.attr, MISSING)
        if isinstance(node, ast.Attribute):
            owner = self._value(node.value)
            return MISSING if owner is MISSING else inspect.getattr_static(owner, node.attr, MISSING)
        if isinstance(node, ast.Subscript) and self.is_outer_container(node.value):
            inner = self._value(node.value)
            values = inner.values() if isinstance(inner, Mapping) else inner if isinstance(inner, list) else ()
            return next(iter(values), MISSING)
        return MISSING


def _containers_of(init: Callable[..., Any]) -> frozenset[str]:
    """Return attributes that ``__init__`` makes as lists, dicts or sets."""
    try:
        source = FunctionSource.of(init)
    except SourceMissingError:
        return frozenset()
    made = set[str]()
    for node in ast.walk(source.module):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            value = node.value
            call = isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] in _MAKERS
            display = isinstance(value, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp)
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if call or display:
                made |= {t.attr for t in targets if isinstance(t, ast.Attribute)}
    return frozenset(made)


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes of a function, without nested functions and classes."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield from _walk(child)


def _stores(tree: ast.FunctionDef) -> Iterator[ast.Attribute | ast.Subscript | ast.Name]:
    for node in _walk(tree):
        if isinstance(node, ast.Attribute | ast.Subscript | ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            yield node


def _root(target: ast.expr) -> str | None:
    """Return the name that an expression begins with; that of ``type(self).last`` and ``vars(self)`` is ``self``."""
    while True:
        if isinstance(target, ast.Attribute | ast.Subscript):
            target = target.value
        elif isinstance(target, ast.Call) and ast.unparse(target.func) in ("type", "vars") and len(target.args) == 1:
            target = target.args[0]
        else:
            return target.id if isinstance(target, ast.Name) else None


def _local_names(tree: ast.FunctionDef) -> set[str]:
    """Parameters and variables of the function itself."""
    arguments = tree.args
    names = {a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    names |= {a.arg for a in (arguments.vararg, arguments.kwarg) if a is not None}
    outer: set[str] = set()
    for node in _walk(tree):
        if isinstance(node, ast.Global | ast.Nonlocal):
            outer.update(node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name is not None:
            names.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest is not None:
            names.add(node.rest)
    return names - outer


def _rebinds_in_vain(tree: ast.FunctionDef, state: str) -> bool:
    nodes = list(_walk(tree))
    rebinds = any(isinstance(n, ast.Name) and n.id == state and isinstance(n.ctx, ast.Store) for n in nodes)
    in_place = any(
        isinstance(n, ast.AugAssign) and isinstance(n.op, ast.BitOr) for n in nodes
    )  # |= changes a set or dict
    return rebinds and not in_place and not any(isinstance(n, ast.Return) and n.value is not None for n in nodes)
