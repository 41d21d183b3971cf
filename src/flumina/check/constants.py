"""Collect the constants in a program's code: values at which it may branch.

They stand in ``update`` itself, or behind a name in it (a global, an attribute of the class or of the instance, a
member of a module), or in what it calls, as far as that is the user's own code.
"""

from __future__ import annotations

import ast
import inspect
import operator
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from types import FunctionType, MethodType, ModuleType
from typing import Any

from flumina.program.analysis.function_source import MISSING, FunctionSource, SourceMissingError, written
from flumina.program.definition import Definition
from flumina.program.handlers import Dispatch

_MANY = 64
"""Largest number of values taken from one collection or for one type."""

_DEEP = 4
"""Depth up to which calls are followed."""

_FOLDED = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}


def constants(definition: Definition) -> dict[type, list[Any]]:
    """Return for each type the constants that the methods of a program name, and the whole numbers next to them."""
    found: dict[type, dict[Any, None]] = {int: {}, float: {}, str: {}, bytes: {}}
    seen: set[object] = set()
    for function in _functions(definition):
        for value in _named_by(function, seen, _DEEP):
            if type(value) in found:
                values = (value - 1, value, value + 1) if type(value) is int else (value,)
                found[type(value)].update(dict.fromkeys(values))
    return {kind: list(values)[:_MANY] for kind, values in found.items()}


def _functions(definition: Definition) -> list[Callable[..., Any]]:
    source = definition if definition.lifted is None else definition.lifted.one
    updates: list[Callable[..., Any]] = [kind.update for kind in source.kinds.values()]
    if definition.lifted is not None and definition.lifted.update_all is not None:
        updates.append(definition.lifted.update_all)
    return [f for update in updates for f in (update.functions.values() if isinstance(update, Dispatch) else [update])]


def _named_by(function: Callable[..., Any], seen: set[object], depth: int) -> Iterator[object]:
    """Yield constants of a function and of the names in it; ``seen`` are the functions visited."""
    plain = written(function)
    if plain is None or plain in seen:
        return
    seen.add(plain)
    try:
        source = FunctionSource.of(plain)
    except SourceMissingError:
        return
    tree, owner = source.module, getattr(function, "__self__", MISSING)
    texts = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings are not values
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant | ast.BinOp | ast.UnaryOp):
            if id(node) not in texts:
                yield _folded(node)
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            value = _resolved(node, source, owner)
            if isinstance(value, list | tuple | set | frozenset | dict):
                yield from _members(value)
            elif isinstance(value, FunctionType | MethodType) and depth and _is_users(value):
                yield from _named_by(value, seen, depth - 1)
            else:
                yield value


def _folded(node: ast.expr) -> object:
    """Return the value of a constant, or of a sum, difference or product of some: ``-5``, ``60 * 60``."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _folded(node.operand)
        return -value if isinstance(value, int | float) else MISSING
    if isinstance(node, ast.BinOp) and type(node.op) in _FOLDED:
        left, right = _folded(node.left), _folded(node.right)
        if isinstance(left, int | float) and isinstance(right, int | float):
            return _FOLDED[type(node.op)](left, right)
    return MISSING


def _resolved(node: ast.expr, source: FunctionSource, program: object) -> object:
    """Return the object behind ``name`` or ``name.attribute...``, without running any code of it.

    ``program`` is the object that the function is bound to: the value of its first parameter.
    """
    if isinstance(node, ast.Name):
        code = source.function.__code__
        if code.co_argcount and node.id == code.co_varnames[0]:
            return program
        return MISSING if source.is_local(node.id) else source.outer(node.id)
    if not isinstance(node, ast.Attribute):
        return MISSING
    owner = _resolved(node.value, source, program)
    if owner is MISSING:
        return MISSING
    found = inspect.getattr_static(owner, node.attr, MISSING)
    if isinstance(found, staticmethod):
        return found.__func__
    if isinstance(found, classmethod):
        return MethodType(found.__func__, owner if isinstance(owner, type) else type(owner))
    if isinstance(found, property):
        found = found.fget
    bound = isinstance(found, FunctionType) and not isinstance(owner, type | ModuleType)
    return MethodType(found, owner) if bound else found


def _members(values: Iterable[Any]) -> Iterator[object]:
    for value in islice(values, _MANY):
        yield value
        if isinstance(values, dict):
            yield values[value]


def _is_users(function: FunctionType | MethodType) -> bool:
    """Return whether a function is neither Python's nor a library's."""
    module = function.__module__ or ""
    top = module.partition(".")[0]
    library = top in sys.stdlib_module_names or (top == "flumina" and not module.startswith("flumina.apps"))
    return not library and "site-packages" not in function.__code__.co_filename
