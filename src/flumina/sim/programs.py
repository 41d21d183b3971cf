"""Random consistent programs, so that more is tried than our own examples.

A random program has a few tags (keyed or not) and a few declared fields; each tag reads, sets or adds to some of them.
Its dependence is what these accesses need (:attr:`flumina.state.fields.Field.conflicts`), and now and then more, so it
keeps all laws by construction. Some are written for one key and lifted; many of them have a tag or two that see all
keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations_with_replacement
from random import Random
from typing import Any

from flumina.model.depends import Declaration, TagPair, depends
from flumina.model.emit import Emit
from flumina.model.event import Event
from flumina.model.tag import Tag
from flumina.program.base import Program
from flumina.program.keyed import KeyedProgram
from flumina.state.fields import ADD, READ, SET, Count, Field, Max, Min, PerKey, Replicated, Set, Sum, greatest, least
from flumina.state.keyed_map import KeyedMap
from flumina.state.record import Record

Actions = Mapping[str, list[tuple[str, str]]]
"""For each tag what it does: (read, set or add; field)."""

_KINDS = (Sum, Count, Max, Min, Set, Replicated)


def random_program(random: Random) -> type[Program]:
    """A program that keeps all laws."""
    tags = {f"t{n}": _tag(keyed=random.random() < 0.7) for n in range(random.randint(2, 5))}
    kinds = _kinds(random)
    per_key = {name for name in kinds if random.random() < 0.7}
    actions = _actions(random, tags, kinds, one_key=False)
    fields = {name: _field(name, kind, tags, actions, per_key=name in per_key) for name, kind in kinds.items()}
    pairs, always = _needed(tags, fields, actions, one_key=False)
    pairs += _more(random, tags)
    body = _body(tags, fields, actions, depends(*pairs, always=always))
    return type("RandomProgram", (Program,), body)


def random_keyed_program(random: Random) -> type[KeyedProgram]:
    """A program for one key that keeps all laws; in two of five of them a tag or two without a key see all keys."""
    tags = {f"t{n}": _tag(keyed=True) for n in range(random.randint(2, 4))}
    for name in random.choices(((), ("all",), ("all", "every")), (6, 3, 1))[0]:
        tags[name] = _tag(keyed=False)
    kinds = _kinds(random)
    actions = _actions(random, tags, kinds, one_key=True)
    fields = {name: _field(name, kind, tags, actions, per_key=False) for name, kind in kinds.items()}
    pairs, always = _needed(tags, fields, actions, one_key=True)
    pairs += _more(random, tags)
    body = _body(tags, fields, actions, depends(*pairs, always=always))
    return type("RandomKeyedProgram", (KeyedProgram,), {**body, "update_all": _update_all_of(actions, fields)})


def _tag(*, keyed: bool) -> Tag:
    return Tag("v long NOT NULL", key="k long") if keyed else Tag("v long NOT NULL")


def _kinds(random: Random) -> dict[str, Any]:
    return {f"f{n}": random.choice(_KINDS) for n in range(random.randint(1, 4))}


def _actions(random: Random, tags: Mapping[str, Tag], kinds: Mapping[str, Any], *, one_key: bool) -> Actions:
    actions: dict[str, list[tuple[str, str]]] = {name: [] for name in tags}
    for field, kind in kinds.items():
        for name in [name for name in tags if random.random() < 0.45]:
            # Adding to all keys would show which of them exist.
            adds = kind is not Replicated and not (one_key and tags[name].key is None)
            actions[name].append((random.choice([READ, SET, ADD, ADD, ADD] if adds else [READ, SET]), field))
        # Something is always seen: without a reader nothing can go wrong.
        if all((READ, field) not in does for does in actions.values()):
            actions[random.choice(list(tags))].append((READ, field))
    return actions


def _more(random: Random, tags: Mapping[str, Tag]) -> list[TagPair]:
    """Pairs that depend on each other though they need not."""
    return [pair for pair in combinations_with_replacement(tags.values(), 2) if random.random() < 0.1]


def _body(tags: Mapping[str, Tag], fields: Mapping[str, Field], actions: Actions, pairs: Declaration) -> dict[str, Any]:
    return {
        **tags,
        **fields,
        "depends": pairs,
        "output": "field string, value string",
        "update": _update_of(actions, fields),
        "actions": actions,
        "__doc__": "A random program.",
    }


def _field(name: str, kind: Any, tags: Mapping[str, Tag], actions: Actions, *, per_key: bool) -> Field:  # noqa: ANN401
    by = {k: [tags[t] for t, does in actions.items() if (k, name) in does] for k in (READ, ADD, SET)}
    accesses = {f"{word}_by": by[k] for k, word in ((READ, "read"), (ADD, "added"), (SET, "set"))}
    if kind is Replicated:
        del accesses["added_by"]
    inner = kind() if kind is Count else kind("long")
    if per_key:
        return PerKey(inner, **accesses)
    return kind(**accesses) if kind is Count else kind("long", **accesses)


def _needed(
    tags: Mapping[str, Tag], fields: Mapping[str, Field], actions: Actions, *, one_key: bool
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
                by_key = keyed and (one_key or isinstance(field, PerKey))
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
                emit(name, _shown(cells[at]))
            elif kind == SET:
                cells[at] = event.v if isinstance(field, Replicated) and event.v % 3 else field.identity()
            elif isinstance(field, Sum):
                cells[at] += 1 if isinstance(field, Count) else event.v
            elif isinstance(field, Set):
                cells[at].add(event.v)
            else:
                cells[at] = (greatest if isinstance(field, Max) else least)(cells[at], event.v)

    return update


def _update_all_of(actions: Actions, fields: Mapping[str, Field]) -> Any:  # noqa: ANN401
    def update_all(self: Program, states: KeyedMap, event: Event, emit: Emit) -> None:  # noqa: ARG001
        for kind, name in actions[event.tag.name]:
            field = fields[name]
            for key, state in states.items():
                cells: Any = vars(state)
                if field.is_identity(cells[name]):  # whether a key is there at all may depend on other fields
                    continue
                if kind == SET:
                    cells[name] = field.identity()
                else:
                    emit(name, f"{key}: {_shown(cells[name])}")

    return update_all


def _shown(value: object) -> str:
    return repr(sorted(value) if isinstance(value, set) else value)
