"""Check the ticks and the time to live of a program class, all mistakes in one pass."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from datetime import timedelta

import pyarrow as pa

from flumina.errors import Problem, location_of
from flumina.model.schema import type_name
from flumina.model.tag import Tag
from flumina.model.tick import TTL, TTL_NAME, AtEnd, Every, Expiry, Tick
from flumina.program.analysis.field_accesses import Access, accesses
from flumina.state.fields import ADD, READ, SET, Field, Max, Min, Replicated


def check_ticks(
    tags: Mapping[str, Tag], fields: Mapping[str, Field], *, one_key: bool, typed: bool
) -> Iterator[Problem]:
    """Find ticks whose key, state or due field does not fit the program."""
    types = {tag.key.type for tag in tags.values() if tag.key is not None and not isinstance(tag, Tick)}
    for tag in tags.values():
        if not isinstance(tag, Tick):
            continue
        if typed:
            message = f"{tag.name}: ticks need one state type, but the program has several"
            yield Problem("TICK_STATE", message, tag.where, "declare fields, or write one init, fork and join")
        if tag.key is not None and not one_key:
            hint = "write a fl.KeyedProgram, or leave out key= for one tick of the whole state"
            yield Problem("TICK_KEY", f"{tag.name}: only ticks of a KeyedProgram have keys", tag.where, hint)
        elif tag.key is not None and types and tag.key.type not in types:
            known = ", ".join(sorted(type_name(t) for t in types))
            message = (
                f"{tag.name}: expected a key of type {known}, as the other tags have, got {type_name(tag.key.type)}"
            )
            yield Problem("TICK_KEY", message, tag.where)
        if isinstance(tag, Every) and tag.due is not None:
            yield from _due(tag, fields, one_key=one_key)


def _due(tag: Every, fields: Mapping[str, Field], *, one_key: bool) -> Iterator[Problem]:
    assert tag.due is not None
    if one_key and tag.key is None:
        message = f"{tag.name}: due= names a field of one key, but the tick has no key"
        yield Problem("DUE_FIELD", message, tag.where, "add key=, or leave out due=")
        return
    field = fields.get(tag.due)
    holds = isinstance(field, Max | Min | Replicated) and (
        pa.types.is_integer(field.type) or pa.types.is_timestamp(field.type)
    )
    if not holds:
        found = f"there is no field {tag.due!r}" if field is None else f"{tag.due!r} is a {type(field).__name__}"
        message = f"{tag.name}: expected due= to name a Max, Min or Replicated of whole numbers or times, but {found}"
        yield Problem("DUE_FIELD", message, tag.where, f"for example: {tag.due} = fl.Max('long')")


def read_ttl(given: object, where: str) -> tuple[TTL | None, list[Problem]]:
    """Return the time to live that a class declares as ``ttl``, and what is wrong with it."""
    if isinstance(given, bool) or not isinstance(given, TTL | str | int | timedelta):
        hint = "for example: ttl = fl.TTL('7 days')"
        return None, [Problem("TICK_PERIOD", f"expected ttl as a duration or a fl.TTL, got {given!r}", where, hint)]
    ttl = given if isinstance(given, TTL) else TTL(given)
    if ttl is not given:
        ttl.where = where
    return ttl, [Problem(one[0], f"ttl: {one[1]}", ttl.where, *one[2:]) for one in ttl.mistakes]


def hidden_tag(ttl: TTL, tags: Mapping[str, Tag]) -> Expiry | None:
    """Return the tag of the ticks at which keys expire; None if no tag of the program has a key."""
    key = next((tag.key for tag in tags.values() if tag.key is not None and not isinstance(tag, Tick)), None)
    return None if key is None else ttl.tag(f"{key.name} {type_name(key.type)}")


def check_ttl(
    ttl: TTL, tag: Expiry | None, tags: Mapping[str, Tag], fields: Mapping[str, Field], *, one_key: bool
) -> Iterator[Problem]:
    """Find what is wrong with a time to live in a program with these tags and fields."""
    if not one_key:
        hint = "write a fl.KeyedProgram; a fl.Program drops entries of a PerKey at ticks of a fl.Every"
        yield Problem("TICK_KEY", "only keys of a KeyedProgram have a ttl", ttl.where, hint)
    elif not fields:
        message = "a ttl needs declared fields, but the state is the program's own"
        yield Problem("TICK_STATE", message, ttl.where, "declare fields such as fl.Sum, or expire keys with a fl.Every")
    elif tag is not None:
        yield from (Problem(mistake[0], f"ttl: {mistake[1]}", ttl.where, *mistake[2:]) for mistake in tag.mistakes)
    for touched in ttl.touched_by or ():
        if touched not in tags.values() or isinstance(touched, Tick):
            message = f"touched_by= names {touched!r}, which is no tag of this program with a stream"
            yield Problem("UNDECLARED_TAG", message, ttl.where)


def check_expiry(owner: type, tag: Expiry | None, fields: Mapping[str, Field]) -> Iterator[Problem]:
    """Find an ``on_expire`` that changes the state, or that is never called."""
    on_expire = inspect.getattr_static(owner, "on_expire", None)
    if not inspect.isfunction(on_expire):
        return
    if tag is None:
        message = "on_expire is never called, since the program has no ttl"
        yield Problem("NO_TTL", message, location_of(on_expire), "for example: ttl = fl.TTL('7 days')")
        return
    found, problems = accesses({on_expire: frozenset({TTL_NAME})}, owner, {TTL_NAME: tag}, fields)
    yield from problems
    for access in found:
        if access.tag == TTL_NAME and access.kind in (SET, ADD):
            what = f"changes the field {access.field!r}"
            if not access.followed:
                what = "gives the state to a function that is not followed, which may change it"
            hint = "it reads and emits; the key is set back to its initial state behind it"
            yield Problem("EXPIRE_SETS", f"on_expire {what}", access.where, hint)
            return


def touches(tags: Mapping[str, Tag], found: list[Access]) -> dict[str, list[str]]:
    """Return for each tick tag the fields that it touches, its due field included."""
    touched: dict[str, list[str]] = {}
    for name, tag in tags.items():
        if isinstance(tag, Tick):
            own = [access.field for access in found if access.tag == name]
            touched[name] = list(dict.fromkeys([*own, *([tag.due] if tag.due is not None and own else [])]))
    return touched


def read_accesses(tags: Mapping[str, Tag], found: list[Access]) -> list[Access]:
    """Return the reads of ticks: whether one does something shows in every field that it touches."""
    own_key = {access.tag: access.own_key for access in found}
    first = {(access.tag, access.field): access for access in reversed(found)}
    reads = []
    for name, fields in touches(tags, found).items():
        for field in fields:
            seen = first.get((name, field))
            where = tags[name].where if seen is None else seen.where
            own = own_key[name] if seen is None else seen.own_key
            reads.append(Access(name, field, READ, own, where, seen is None or seen.followed))
    return reads


def idle_ticks(tags: Mapping[str, Tag], found: list[Access]) -> Iterator[Problem]:
    """Find ticks that touch no field, so that they would never do anything."""
    for name, fields in touches(tags, found).items():
        if not fields:
            what = "at the end of the input" if isinstance(tags[name], AtEnd) else "of time"
            hint = "a tick does nothing where the fields that it touches are initial; let it read or set one in update"
            message = f"{name}: the tick {what} touches no field, so it never does anything"
            yield Problem("TICK_NEVER", message, tags[name].where, hint)
