"""Numbers and texts that stand in a program's own code: the values at which it is likely to change its mind."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from typing import Any

from flumina.definition import Definition


def constants(definition: Definition) -> dict[type, list[Any]]:
    """For each type the constants in the methods of a program, and the whole numbers next to them."""
    found: dict[type, dict[Any, None]] = {int: {}, float: {}, str: {}, bytes: {}}
    for function in _functions(definition):
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        except (OSError, TypeError, SyntaxError):
            continue
        texts = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings say nothing
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and id(node) not in texts and type(node.value) in found:
                values = (node.value - 1, node.value, node.value + 1) if type(node.value) is int else (node.value,)
                found[type(node.value)].update(dict.fromkeys(values))
    return {kind: list(values) for kind, values in found.items()}


def _functions(definition: Definition) -> list[Callable[..., Any]]:
    source = definition if definition.lifted is None else definition.lifted.one
    functions: list[Callable[..., Any]] = [kind.update for kind in source.kinds.values()]
    if definition.lifted is not None and definition.lifted.update_all is not None:
        functions.append(definition.lifted.update_all)
    return functions
