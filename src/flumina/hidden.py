"""State that hides where fork and join can't see it, and state that is lost: found in the source of methods.

Everything that ``update`` remembers must be in ``state``. What it stores in ``self``, in a global or in an enclosing
function is neither forked nor joined, and every worker would have its own.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

from flumina.errors import Problem, location

_HINT = "keep it in the state; to remember results of a pure function, put functools.cache on that function"


def hidden_state(role: str, method: Callable[..., Any]) -> Iterator[Problem]:
    """Stores outside the state, and a state that is rebound but never returned; nothing if there is no source."""
    try:
        lines, first = inspect.getsourcelines(method)
        tree = ast.parse(textwrap.dedent("".join(lines))).body[0]
    except (OSError, TypeError, SyntaxError):
        return
    if not isinstance(tree, ast.FunctionDef):
        return
    file = inspect.unwrap(method).__code__.co_filename
    parameters = [a.arg for a in (*tree.args.posonlyargs, *tree.args.args)]
    local = _local_names(tree)
    for target, node in _stores(tree):
        root = _root(target)
        where = location(file, node.lineno + first - 1)
        if root == parameters[0]:
            yield Problem("HIDDEN_STATE", f"{role} stores something in {ast.unparse(target)}", where, _HINT)
        elif root is not None and root not in local and not isinstance(target, ast.Name):
            yield Problem("HIDDEN_STATE", f"{role} changes {ast.unparse(target)}, which lives outside it", where, _HINT)
        elif isinstance(target, ast.Name) and root not in local:
            yield Problem("HIDDEN_STATE", f"{role} stores something in the outer variable {root}", where, _HINT)
    if role in ("update", "update_batch") and len(parameters) > 1 and _rebinds_in_vain(tree, parameters[1]):
        where = location(file, tree.lineno + first - 1)
        hint = f"end it with: return {parameters[1]}"
        yield Problem("NO_RETURN", f"{role} gives {parameters[1]} another value but never returns it", where, hint)


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """Everything in a function but not in functions and classes defined within it."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield from _walk(child)


def _stores(tree: ast.FunctionDef) -> Iterator[tuple[ast.expr, ast.expr]]:
    for node in _walk(tree):
        if isinstance(node, ast.Attribute | ast.Subscript | ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            yield node, node


def _root(target: ast.expr) -> str | None:
    while isinstance(target, ast.Attribute | ast.Subscript):
        target = target.value
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
