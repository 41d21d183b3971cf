"""Random consistent programs, so that more is tried than our own examples.

A random program has a few tags (keyed or not) and a few declared fields; each tag reads, sets or adds to some of them.
Its dependence is what those accesses need (:attr:`flumina.fields.Field.conflicts`), and now and then more, so it keeps
all laws by construction.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations_with_replacement
from random import Random
from typing import Any

from flumina.depends import TagPair, depends
from flumina.emit import Emit
from flumina.events import Event, Tag
from flumina.fields import ADD, READ, SET, Count, Field, Max, Min, PerKey, Replicated, Set, Sum, greatest, least
from flumina.program import Program
from flumina.state import Record

Actions = Mapping[str, list[tuple[str, str]]]
"""For each tag what it does: (read, set or add; field)."""

_KINDS = (Sum, Count, Max, Min, Set, Replicated)


def random_program(random: Random) -> type[Program]:
    """A program that keeps all laws."""
    tags = {
        f"t{n}": Tag("v long NOT NULL", key="k long") if random.random() < 0.7 else Tag("v long NOT NULL")
        for n in range(random.randint(2, 5))
    }
    kinds = {f"f{n}": random.choice(_KINDS) for n in range(random.randint(1, 4))}
    per_key = {name for name in kinds if random.random() < 0.7}
    actions: dict[str, list[tuple[str, str]]] = {name: [] for name in tags}
    for field, kind in kinds.items():
        adds = [READ, SET] if kind is Replicated else [READ, SET, ADD, ADD, ADD]
        others = [name for name in tags if random.random() < 0.45]
        for name in others:
            actions[name].append((random.choice(adds), field))
        # Something is always seen: without a reader nothing can go wrong.
        if all((READ, field) not in does for does in actions.values()):
            actions[random.choice(list(tags))].append((READ, field))
    fields = {name: _field(name, kind, per_key, tags, actions) for name, kind in kinds.items()}
    pairs, always = _needed(tags, fields, actions)
    for pair in combinations_with_replacement(tags.values(), 2):
        if random.random() < 0.1:
            pairs.append(pair)
    body: dict[str, Any] = {
        **tags,
        **fields,
        "depends": depends(*pairs, always=always),
        "output": "field string, value string",
        "update": _update_of(actions, fields),
        "actions": actions,
        "__doc__": "A random program.",
    }
    return type("RandomProgram", (Program,), body)


def _field(name: str, kind: Any, per_key: set[str], tags: Mapping[str, Tag], actions: Actions) -> Field:  # noqa: ANN401
    by = {k: [tags[t] for t, does in actions.items() if (k, name) in does] for k in (READ, ADD, SET)}
    accesses = {f"{word}_by": by[k] for k, word in ((READ, "read"), (ADD, "added"), (SET, "set"))}
    if kind is Replicated:
        del accesses["added_by"]
    inner = kind() if kind is Count else kind("long")
    if name in per_key:
        return PerKey(inner, **accesses)
    return kind(**accesses) if kind is Count else kind("long", **accesses)


def _needed(
    tags: Mapping[str, Tag], fields: Mapping[str, Field], actions: Actions
) -> tuple[list[TagPair], list[TagPair]]:
    """The pairs of tags that must depend on each other: by key, and always."""
    pairs: list[TagPair] = []
    always: list[TagPair] = []
    for (one, does), (other, do) in combinations_with_replacement(actions.items(), 2):
        for kind, name in does:
            for other_kind, other_name in do:
                field = fields[name]
                if name != other_name or (kind, other_kind) not in field.conflicts:
                    continue
                keyed = tags[one].key is not None and tags[other].key is not None
                by_key = isinstance(field, PerKey) and keyed
                (pairs if by_key else always).append((tags[one], tags[other]))
    return pairs, always


def _update_of(actions: Actions, fields: Mapping[str, Field]) -> Any:  # noqa: ANN401
    def update(self: Program, state: Record, event: Event, emit: Emit) -> None:  # noqa: ARG001
        for kind, name in actions[event.tag.name]:
            field = fields[name]
            cells: Any = vars(state)
            at: Any = name
            if isinstance(field, PerKey):
                cells, at, field = cells[name], event.key if event.key is not None else 0, field.inner
            if kind == READ:
                value = cells[at]
                emit(name, repr(sorted(value) if isinstance(value, set) else value))
            elif kind == SET:
                cells[at] = event.v if isinstance(field, Replicated) and event.v % 3 else field.identity()
            elif isinstance(field, Sum):
                cells[at] += 1 if isinstance(field, Count) else event.v
            elif isinstance(field, Set):
                cells[at].add(event.v)
            else:
                cells[at] = (greatest if isinstance(field, Max) else least)(cells[at], event.v)

    return update
