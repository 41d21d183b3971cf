"""Represent one event as the user's ``update`` sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from flumina.model.order import Point

if TYPE_CHECKING:
    from datetime import datetime

    from flumina.model.tag import Tag
    from flumina.model.tick import Window

FIXED_FIELDS = ("ts", "stream", "seq", "key")
"""Attributes of every event; the columns of its tag follow."""


class Event(tuple[Any, ...]):
    """One event: ``tag``, ``key`` (None if unkeyed), ``stream``, ``ts``, ``seq``, and its tag's columns by name.

    ``event.page`` and ``event["page"]`` are the same; the second also reaches columns whose names are Python words.
    Compare tags with ``is``: ``if event.tag is self.view``. A column called ``time`` or ``window`` takes the place of
    the attribute.
    """

    __slots__ = ()

    tag: ClassVar[Tag]
    ts: int
    stream: str
    seq: int
    key: Any
    window: Window
    """The time between a tick and the one before; only events of :class:`~flumina.Every` have it."""
    _make: ClassVar[Any]

    @property
    def time(self) -> datetime:
        """``ts`` as an aware time: in the zone of a tick that has one, else in UTC."""
        return self.tag.time_of(self.ts)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 -- a column can hold anything
        raise AttributeError(
            f"event of tag {self.tag.name!r} has no column {name!r}; it has {[f.name for f in self.tag.schema]}"
        )

    def __getitem__(self, item: Any) -> Any:  # noqa: ANN401
        """Return a column by name; tuple indexing stays as it is."""
        if not isinstance(item, str):
            return tuple.__getitem__(self, item)
        if self.tag.key is not None and item == self.tag.key.name:
            return self.key
        if item in self.tag.columns.names:
            return tuple.__getitem__(self, len(FIXED_FIELDS) + self.tag.columns.names.index(item))
        return getattr(self, item)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Event) and self.tag.name == other.tag.name and tuple.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((self.tag.name, tuple(self)))

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the tag and the values: the class is made anew from its tag."""
        return (_revive, (self.tag, tuple(self)))

    def __repr__(self) -> str:
        values = {f.name: self[f.name] for f in self.tag.schema}
        columns = ", ".join(f"{name}={value!r}" for name, value in values.items())
        where = f" {self.stream}#{self.seq}" if self.stream else ""
        return f"{self.tag.name}({columns})@{self.ts}{where}"


def _revive(tag: Tag, values: tuple[object, ...]) -> Event:
    event: Event = tag.event_class._make(values)
    return event


def point(event: Event, rank: int) -> Point:
    """Return the event's place in O, its stream having this rank."""
    return Point(event.ts, rank, event.seq)
