"""Give ticks their meaning: a tick does nothing to a state in which the fields that it touches are initial.

::

    fires(t, s, T)    some field that t touches is not at its identity; and, with due=, s.due is not None and <= T
    update(s, tick)   the user's update if the tick fires, else nothing
    ttl               events of touched_by add until(ts) to the hidden field; at the first tick of the hidden tag from
                      there on the key is given to on_expire, if a declared field is off its identity, and set back

This is part of ``update``, so that the oracle, the law checker and all engines share it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from flumina.model.tick import TTL_NAME, Expiry, Tick
from flumina.state.compare import identical
from flumina.state.fields import Field

if TYPE_CHECKING:
    from flumina.model.batch import Batch
    from flumina.model.emit import Emit
    from flumina.model.event import Event

ALWAYS_DUE = -(2**63)
"""The due time of a tick without ``due=`` that has something to do."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class TickRule:
    """Decides whether a tick does something: by the fields that it touches, None for a whole state."""

    tag: Tick
    fields: Mapping[str, Field] | None
    init: Callable[[], Any]

    def due(self, state: Any) -> int | None:  # noqa: ANN401 -- whatever the program's state is
        """Return the timestamp from which on a tick does something to a state; None if it never does."""
        if self.fields is None:
            return None if identical(state, self.init()) else ALWAYS_DUE
        values = state.__dict__
        if all(field.is_identity(values[name]) for name, field in self.fields.items()):
            return None
        return ALWAYS_DUE if self.tag.due is None else due_timestamp(values[self.tag.due])


def due_timestamp(value: datetime | int | None) -> int | None:
    """Return the value of a due field as a timestamp."""
    if value is None or isinstance(value, int):
        return value
    aware = value.replace(tzinfo=UTC) if value.tzinfo is None else value
    return (aware - _EPOCH) // timedelta(microseconds=1)


@dataclass(frozen=True)
class Ticking:
    """The ticks of a program: their rules, and for a ttl the tags that touch a key and ``on_expire``."""

    rules: Mapping[str, TickRule]
    expiry: Expiry | None = None
    touching: frozenset[str] = frozenset()
    on_expire: Callable[[Any, Event, Emit], object] | None = None

    def update(self, users: Callable[..., Any]) -> Callable[[Any, Event, Emit], Any]:
        """Return ``update`` with ticks that fire or do nothing, and with the touches of a ttl."""
        rules, expiry, touching = self.rules, self.expiry, self.touching

        def update(state: Any, event: Event, emit: Emit) -> Any:  # noqa: ANN401 -- whatever the state is
            rule = rules.get(event.tag.name)
            if rule is not None:
                due = rule.due(state)
                if due is None or due > event.ts:
                    return None
                if rule.tag is expiry:
                    return self._expired(rule, state, event, emit)
            before = state.__dict__[TTL_NAME] if expiry is not None else None
            result = users(state, event, emit)
            if expiry is not None:
                _touch(state if result is None else result, before, event, touching, expiry)
            return result

        return update

    def update_batch(self, users: Callable[..., Any]) -> Callable[[Any, Batch, Emit], Any]:
        """Return ``update_batch`` with the touches of a ttl; ticks never come in batches."""
        expiry, touching = self.expiry, self.touching
        if expiry is None:
            return users

        def update_batch(state: Any, batch: Batch, emit: Emit) -> Any:  # noqa: ANN401
            before = state.__dict__[TTL_NAME]
            result = users(state, batch, emit)
            if len(batch):
                last = batch.tag.make_event((int(batch.ts[-1]), "", 0, None, *[None] * len(batch.tag.columns)))
                _touch(state if result is None else result, before, last, touching, expiry)
            return result

        return update_batch

    def _expired(self, rule: TickRule, state: Any, event: Event, emit: Emit) -> Any:  # noqa: ANN401
        """Hand an expired key to ``on_expire``, and return its initial state."""
        assert rule.fields is not None, "a ttl has declared fields"
        others = (name for name in rule.fields if name != TTL_NAME)
        off = any(not rule.fields[name].is_identity(state.__dict__[name]) for name in others)
        if off and self.on_expire is not None:
            self.on_expire(state, event, emit)
        return rule.init()


def _touch(state: Any, before: int | None, event: Event, touching: frozenset[str], expiry: Expiry) -> None:  # noqa: ANN401
    """Prolong the life of a key; a state that ``update`` has made anew goes on with that of the old one."""
    fields = state.__dict__
    known = fields.setdefault(TTL_NAME, before)
    if event.tag.name in touching:
        until = expiry.until(event.ts)
        if known is None or known < until:
            fields[TTL_NAME] = until
