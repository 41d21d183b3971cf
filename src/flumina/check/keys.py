"""Choose the keys of a scenario: three at a time, so that events meet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from flumina.check.values import KEYS, fitting
from flumina.model.tag import Tag
from flumina.model.tag_set import Key
from flumina.program.definition import Definition

AT_ONCE = 3
"""Keys in one scenario."""

_MOST = 12
"""Choices of keys for one program."""

Pool = Mapping[pa.DataType, Sequence[Key]]
"""For each type of keys, the keys of one scenario."""


def pools(definition: Definition, constants: Mapping[type, Sequence[Any]]) -> Sequence[Pool]:
    """Return the choices of keys to try, the usual one first.

    Keys that ``update`` names are tried beside usual ones. Two or more ``examples`` of a key column replace
    them; a single one is added, as keys must be able to differ.
    """
    choices = {type_: _choices(type_, definition, constants) for type_ in KEYS}
    most = max(map(len, choices.values()))
    return [{type_: some[n % len(some)] for type_, some in choices.items()} for n in range(min(most, _MOST))]


def _choices(
    type_: pa.DataType, definition: Definition, constants: Mapping[type, Sequence[Any]]
) -> Sequence[Sequence[Key]]:
    tags = [tag for tag in definition.tags.values() if tag.key is not None and tag.key.type == type_]
    if not tags:
        return [KEYS[type_]]
    columns = {tag.key.name for tag in tags if tag.key is not None}
    given = list(dict.fromkeys(key for column in columns for key in definition.examples.get(column, ())))
    usual: Sequence[Key] = given if len(given) > 1 else KEYS[type_]
    finite = [tag.finite_keys for tag in tags]
    special = [
        key
        for key in dict.fromkeys((*given, *fitting(type_, constants)))
        if key not in usual[:AT_ONCE] and any(keys is None or key in keys for keys in finite)
    ]
    pairs = zip(special, [*special[1:], usual[0]], strict=False)  # the last one beside a usual key
    return [usual[:AT_ONCE], *([one, other, usual[1 if other == usual[0] else 0]] for one, other in pairs)]


def keys_of(tag: Tag, pool: Pool) -> tuple[Key, ...]:
    """Return the keys of a tag's events; None for an unkeyed tag."""
    if tag.key is None:
        return (None,)
    chosen = pool[tag.key.type]
    if not tag.finite_keys:
        return tuple(chosen)
    first = [key for key in chosen if key in tag.finite_keys]
    return tuple([*first, *sorted(tag.finite_keys - set(first), key=repr)][:AT_ONCE])
