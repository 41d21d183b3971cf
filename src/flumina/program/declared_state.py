"""Derive fork and join from declared fields and the tags that observe them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations_with_replacement
from operator import is_

from flumina.errors import Problem
from flumina.model.depends import Dependence
from flumina.model.tag import Tag
from flumina.model.tag_set import TagSet
from flumina.model.tick import TTL_NAME
from flumina.program.analysis.field_accesses import Access, accesses
from flumina.program.analysis.function_source import Tags
from flumina.program.analysis.tick_declarations import idle_ticks, read_accesses, touches
from flumina.state.compare import identical
from flumina.state.fields import ADD, READ, SET, Field, Max, Min, Observes, PerKey, Sum, Value
from flumina.state.record import Record

_VERBS = {READ: "read", SET: "set", ADD: "added to"}


@dataclass(frozen=True)
class DeclaredState:
    """The state of a program with declared fields: ``init``, ``fork`` and ``join`` of Definition 2.1."""

    fields: Mapping[str, Field]
    observers: Mapping[str, tuple[tuple[str, bool], ...]]
    """For each field the tags that read or set it, and whether only at their own key."""
    adding: frozenset[str]
    touched: Mapping[str, Sequence[str]]
    """For each tick tag the fields that it touches."""

    @staticmethod
    def derive(
        owner: type,
        tags: Mapping[str, Tag],
        fields: Mapping[str, Field],
        depends: Dependence,
        updates: Mapping[Callable[..., object], Tags],
        *,
        one_key: bool,
        touching: Collection[str] = (),
    ) -> tuple[DeclaredState, list[Problem]]:
        """Derive accesses from the source of ``update`` or handlers, and check them against ``depends``.

        ``updates`` maps the methods to the tags of their events. In a program written for one key (``one_key``) the
        whole state belongs to the event's own key. ``touching`` are the tags that add to the hidden field of a ttl.
        """
        seen = {n: tag for n, tag in tags.items() if n != TTL_NAME and not (one_key and tag.key is None)}
        found, problems = accesses(updates, owner, seen, {n: f for n, f in fields.items() if n != TTL_NAME})
        found += _of_ttl(tags, fields, touching)
        # The state of a one-key program belongs to the key of the event, whatever its update does with it...
        safe = [replace(access, own_key=tags[access.tag].key is not None) for access in found] if one_key else found
        # ... and update_all gets all states, so an unkeyed tag counts as touching everything.
        everything = [
            Access(name, field, kind, own_key=False, where=tag.where, followed=False)
            for name, tag in tags.items()
            if name not in seen and name != TTL_NAME
            for field in fields
            if not fields[field].declared
            for kind in (READ, SET)
        ]
        reads = read_accesses(tags, found + everything)
        problems += idle_ticks(tags, found + everything)
        problems += _conflicts(tags, fields, safe + everything + read_accesses(tags, safe + everything), depends)
        found += everything + reads
        observers = {
            # A one-key fork gets tags without keys.
            name: tuple(
                dict.fromkeys(
                    (a.tag, a.own_key and not one_key) for a in found if a.field == name and a.kind in (READ, SET)
                )
            )
            for name in fields
        }
        observing = {tag for by in observers.values() for tag, _ in by}
        return DeclaredState(fields, observers, frozenset(tags) - observing, touches(tags, found)), problems

    def init(self) -> Record:
        """Return the state before the first event: every field at its identity."""
        made = Record(self._identities)
        for name, field in self._mutable:
            made.__dict__[name] = field.identity()
        return made

    @cached_property
    def _identities(self) -> dict[str, Value]:
        """The identities of immutable fields, shared by all new states: a program may have one for each key."""
        return {name: None if field.mutable else field.identity() for name, field in self.fields.items()}

    def is_initial(self, state: Record) -> bool:
        """Return whether a state is indistinguishable from a new one; called for every key, most of which are not."""
        if type(state) is not Record or len(state.__dict__) != len(self._checks):
            return identical(state, self.init())
        return all(is_identity(state.__dict__[name]) for name, is_identity in self._checks)

    @cached_property
    def _checks(self) -> list[tuple[str, Callable[[Value], bool]]]:
        return [(name, field.is_identity) for name, field in self.fields.items()]

    @property
    def untouched(self) -> Callable[[Record], bool] | None:
        """A test whether all fields of a state are the ones of :meth:`init`; None if fields can change in place."""
        return None if self._mutable else self._is_untouched

    def _is_untouched(self, state: Record) -> bool:
        fields, identities = state.__dict__, self._identities
        return len(fields) == len(identities) and all(map(is_, fields.values(), identities.values()))

    @cached_property
    def _mutable(self) -> list[tuple[str, Field]]:
        return [(name, field) for name, field in self.fields.items() if field.mutable]

    def fork(self, state: Record, left: TagSet, right: TagSet) -> tuple[Record, Record]:
        """Give each field to the sides that observe it."""
        halves = {
            name: field.fork(
                state.__dict__[name], _observes(self.observers[name], left), _observes(self.observers[name], right)
            )
            for name, field in self.fields.items()
        }
        return Record({n: a for n, (a, _) in halves.items()}), Record({n: b for n, (_, b) in halves.items()})

    def join(self, left: Record, right: Record) -> Record:
        """Join each field by its own algebra."""
        return Record({n: f.join(left.__dict__[n], right.__dict__[n]) for n, f in self.fields.items()})

    def narrow(self, state: Record, tags: TagSet, among: TagSet | None) -> Record:
        """Drop the keys that only other tags observe: see :attr:`Definition.narrow`."""
        return Record(
            {
                name: field.narrow(state.__dict__[name], _needed(self.observers[name], tags, among))
                for name, field in self.fields.items()
            }
        )


def _of_ttl(tags: Mapping[str, Tag], fields: Mapping[str, Field], touching: Collection[str]) -> list[Access]:
    """Return the accesses of a ttl: its ticks set every field, and the tags that touch a key add to the hidden one."""
    if TTL_NAME not in tags:
        return []
    where = tags[TTL_NAME].where
    sets = [Access(TTL_NAME, field, kind, own_key=False, where=where) for field in fields for kind in (READ, SET)]
    return sets + [Access(name, TTL_NAME, ADD, own_key=False, where=where) for name in touching]


def _needed(observers: Sequence[tuple[str, bool]], tags: TagSet, among: TagSet | None) -> Observes:
    mine = _observes(observers, tags)
    if among is None:
        return mine
    all_ = _observes(observers, among)
    return lambda key: mine(key) or not all_(key)


def _observes(observers: Sequence[tuple[str, bool]], side: TagSet) -> Observes:
    return lambda key: any(side.has(tag, key) if own_key else side.has_any(tag) for tag, own_key in observers)


def _conflicts(
    tags: Mapping[str, Tag], fields: Mapping[str, Field], found: Sequence[Access], depends: Dependence
) -> list[Problem]:
    """Return pairs of accesses to one field by tags that do not depend on each other, where they must."""
    problems: dict[tuple[str, ...], Problem] = {}
    for name, field in fields.items():
        mine = [access for access in found if access.field == name]
        for a, b in combinations_with_replacement(mine, 2):
            same_key = a.own_key and b.own_key
            if (a.kind, b.kind) not in field.conflicts or depends.covers(a.tag, b.tag, same_key=same_key):
                continue
            first, second = sorted((a, b), key=lambda access: (access.kind != SET, access.kind != READ))
            across = not same_key and tags[a.tag].key is not None and tags[b.tag].key is not None
            problems.setdefault((name, *sorted((a.tag, b.tag))), _conflict(field, first, second, across=across))
    return list(problems.values())


def _conflict(field: Field, a: Access, b: Access, *, across: bool) -> Problem:
    """Describe a conflict; ``across``: both tags have keys, and must depend on each other for all keys."""
    kind = type(field).__name__
    whom = f"itself ({a.tag})" if a.tag == b.tag else b.tag
    second = "" if (a.kind, a.where) == (b.kind, b.where) else f" and {_VERBS[b.kind]} by {b.tag} at {b.where}"
    keys = " for all keys" if across else ""
    hint = f"add ({a.tag}, {b.tag}) to depends{' under always=' if across else ''}"
    unfollowed = next((access for access in (a, b) if not access.followed), None)
    if unfollowed is not None:
        hint = (
            f"the whole state is given away for {unfollowed.tag} (to a function that is not followed, to super(), or "
            "to update_all), which counts as reading and setting every field: a method of the class is followed; or "
            f"say what is done with read_by=, added_by=, set_by= on the field; else {hint}"
        )
    elif isinstance(field, PerKey) and across:
        hint += f"; or write state.{field.name}[event.key] if only the event's own key is meant"
    value = field.inner if isinstance(field, PerKey) else field
    if isinstance(value, Max | Min) and a.kind == SET:
        entry = f"state.{field.name}" + ("[event.key]" if isinstance(field, PerKey) else "")
        hint += f"; or add with {entry} = fl.{'greatest' if isinstance(value, Max) else 'least'}({entry}, x)"
    if isinstance(field, Sum) and (a.kind, b.kind) == (READ, READ):
        hint += (
            "; a sum that independent events read must be Replicated; if it is only added to, in a function that is "
            "not followed, say so with added_by=, read_by=, set_by= on the field"
        )
    if a.kind == SET and b.kind == SET:
        hint += f"; if {a.tag} only reads or adds here, say so with read_by=, added_by=, set_by= on the field"
    return Problem(
        "UNSAFE_FIELD",
        f"{kind} field {field.name!r} is {_VERBS[a.kind]} by {a.tag} at {a.where}{second}, "
        f"but {a.tag} does not depend on {whom}{keys}",
        field.where,
        hint,
    )
