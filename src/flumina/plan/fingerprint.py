"""Identify the program of a plan (or a snapshot) by a short text."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import combinations_with_replacement

from flumina.model.depends import FunctionDependence
from flumina.model.schema import type_name
from flumina.model.tag_set import TagSet
from flumina.program.definition import Definition


def fingerprint(definition: Definition) -> str:
    """Return a text that is equal for programs with equal tags, dependence and state types."""
    return hashlib.sha256("\n".join(_lines(definition)).encode()).hexdigest()[:16]


def _lines(definition: Definition) -> Iterator[str]:
    """Yield everything that plan validity depends on, in a fixed order."""
    for name, tag in sorted(definition.tags.items()):
        key = "" if tag.key is None else type_name(tag.key.type)
        keys = None if tag.finite_keys is None else sorted(map(repr, tag.finite_keys))
        yield f"tag {name} {key} {keys}"
    depends = definition.depends
    if isinstance(depends, FunctionDependence):
        yield from sorted(f"depends {pair}" for pair, yes in depends.table.items() if yes)
    else:
        for a, b in combinations_with_replacement(sorted(definition.tags), 2):
            always = depends.covers(a, b, same_key=False)
            yield f"depends {a} {b} {always} {depends.covers(a, b, same_key=True)}"
    yield f"initial {definition.initial}"
    for name, kind in sorted(definition.kinds.items()):
        yield f"kind {name} {_text(kind.predicate)}"
    yield from sorted(f"fork {fork.source} {fork.left} {fork.right}" for fork in definition.forks)
    yield from sorted(f"join {join.left} {join.right} {join.target}" for join in definition.joins)


def _text(tags: TagSet) -> str:
    return "; ".join(f"{name} {keys.buckets:x} {sorted(map(repr, keys.flips))}" for name, keys in tags)
