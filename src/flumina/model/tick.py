"""Declare tags whose events come by themselves: at times of a schedule, at the end of the input, when a key expires.

The place of a tick in O::

    (T, rank, 0)            of a tick without a key
    (T, rank, hash62(k))    of the tick of key k, so that every tick has a place of its own
    ranks                   ties="before": below all streams, so that windows are [start, end);
                            ties="after": above all streams, (start, end]; several in the order of the class, the ttl
                            last; AtEnd above everything
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

from flumina.model.duration import BadDurationError, Duration, GivenDuration, read_duration
from flumina.model.event import Event, _revive
from flumina.model.hashing import hash_key
from flumina.model.order import LAST, Point
from flumina.model.schedule import Calendar, Periodic, Schedule
from flumina.model.schema import type_name
from flumina.model.tag import Tag, user_line
from flumina.model.zone_rules import UnknownZoneError, ZoneRules, utc

if TYPE_CHECKING:
    from flumina.model.tag_set import Key

TTL_NAME = "ttl"
"""The name of the hidden tag and of the hidden field behind ``ttl=``."""

_CALENDAR = "1 day, 1 week, 1 month, 1 quarter, 1 year"
_SHORTEST = {"day": 1, "week": 7, "month": 28, "quarter": 90, "year": 365}
"""How many days the shortest of each calendar unit has: an offset is shorter."""


class Window(NamedTuple):
    """The time between a tick and the one before: ``[start, end)``, or ``(start, end]`` with ``ties="after"``."""

    start: int
    end: int
    zone: ZoneRules | None = None

    @property
    def start_time(self) -> datetime:
        """The start as an aware time, in the zone of the ticks or in UTC."""
        return _time(self.start, self.zone)

    @property
    def end_time(self) -> datetime:
        """The end as an aware time, in the zone of the ticks or in UTC."""
        return _time(self.end, self.zone)


def _time(ts: int, zone: ZoneRules | None) -> datetime:
    return utc(ts) if zone is None else zone.at(ts)


class Tick(Tag):
    """A tag whose events come by themselves; no stream is given for it."""

    ties: Literal["before", "after"] = "after"
    due: str | None = None

    def tick(self, ts: int, key: Key = None) -> Event:
        """Return the tick at a timestamp, of a key if the tag has one."""
        return _revive(self, (ts, self.name, seq_of(key), key))


def seq_of(key: Key) -> int:
    """Return the sequence number of a key's tick; 0 without a key."""
    return 0 if key is None else hash_key(key) >> 2


class Every(Tick):
    """A tag whose events come at each multiple of a period, for the whole state or for each key on its own.

    A tick does nothing where the fields that it touches are initial.

    ``period``  such as ``"1 h"`` or a timedelta; a number, where timestamps are whole numbers; with ``zone=`` one day,
                week (from Monday), month, quarter or year
    ``key``     the key column, as that of a :class:`~flumina.Tag`: every key has ticks of its own
    ``keys``    the only keys there can be
    ``offset``  how long after each multiple; with ``zone=`` by the clock on the wall
    ``zone``    a time zone such as ``"Europe/Berlin"``; a local time that does not exist is the first instant after the
                gap, one that exists twice the first of both
    ``ties``    "before": the tick comes before events with its timestamp, and windows are [start, end); "after":
                behind them
    ``due``     the field that holds the time from which on ticks do something

    >>> Every("1 h", key="house int").schedule.after(0)
    3600000000
    """

    def __init__(
        self,
        period: GivenDuration,
        *,
        key: str | None = None,
        keys: Iterable[Key] | None = None,
        offset: GivenDuration = 0,
        zone: str | None = None,
        ties: Literal["before", "after"] = "before",
        due: str | None = None,
    ) -> None:
        super().__init__("", key=key, keys=keys)
        self.where = user_line()
        self.ties, self.due = ties, due
        self.zone: ZoneRules | None = None
        self.schedule: Schedule = Periodic(1)
        self.timed = True
        self.described = str(period)
        if ties not in ("before", "after"):
            self.mistakes.append(("TICK_TIES", f'expected ties="before" or ties="after", got {ties!r}'))
        if due is not None and not isinstance(due, str):
            self.mistakes.append(("DUE_FIELD", f"expected due= as the name of a field, got {due!r}"))
            self.due = None
        self._schedule(period, offset, zone)

    def _schedule(self, period: GivenDuration, offset: GivenDuration, zone: str | None) -> None:
        length = self._read(period, "the period")
        shift = self._read(offset, "offset=")
        if zone is not None:
            try:
                self.zone = ZoneRules.named(zone) if isinstance(zone, str) else None
            except UnknownZoneError:
                self.zone = None
            if self.zone is None:
                hint = "zones are named as in the IANA database: 'Europe/Berlin', 'Asia/Kolkata', 'UTC'"
                self.mistakes.append(("TICK_ZONE", f"expected a time zone, got zone={zone!r}", hint))
        if length is None or shift is None:
            return
        self.timed = length.timed
        if shift.length and shift.timed != length.timed:
            message = f"expected the period and offset= both as times or both as numbers, got {period!r} and {offset!r}"
            self.mistakes.append(("TICK_UNIT", message))
        elif zone is not None:
            self._calendar(length, shift)
        elif length.months:
            hint = f"add zone=, such as zone='UTC'; with a zone a period is one of {_CALENDAR}"
            self.mistakes.append(("TICK_PERIOD", f"months, quarters and years need a zone, got {period!r}", hint))
        elif self._positive(length, "the period"):
            if not 0 <= shift.length < length.length or shift.months:
                message = f"expected an offset from 0 to less than the period {period!r}, got offset={offset!r}"
                self.mistakes.append(("TICK_PERIOD", message))
            else:
                self.schedule = Periodic(length.length, shift.length)

    def _calendar(self, length: Duration, shift: Duration) -> None:
        if not length.timed:
            hint = "leave out zone=: whole-number timestamps have no calendar"
            self.mistakes.append(("TICK_ZONE", f"a zone needs a period of the calendar, got {length.text}", hint))
        elif length.unit is None:
            hint = f"with a zone a period is one of {_CALENDAR}; every other length has no zone"
            self.mistakes.append(("TICK_PERIOD", f"expected one calendar unit with zone=, got {length.text!r}", hint))
        elif shift.months or not 0 <= shift.length < _SHORTEST[length.unit] * 86_400_000_000:
            message = f"expected an offset from 0 to less than the period {length.text!r}, got {shift.text!r}"
            self.mistakes.append(("TICK_PERIOD", message))
        elif self.zone is not None:
            self.schedule = Calendar(length.unit, self.zone, timedelta(microseconds=shift.length))

    def _positive(self, length: Duration, what: str) -> bool:
        if length.length > 0:
            return True
        unit = "1 us" if length.timed else "1"
        self.mistakes.append(("TICK_PERIOD", f"expected {what} of at least {unit}, got {length.text!r}"))
        return False

    def _read(self, given: object, what: str) -> Duration | None:
        try:
            return read_duration(given)
        except BadDurationError as error:
            self.mistakes.append(("TICK_PERIOD", f"{what}: {error}"))
            return None

    @property
    def per_second(self) -> float:
        """How many ticks come in a second of the data; a whole-number timestamp counts as a second."""
        first = self.schedule.after(0)
        second = None if first is None else self.schedule.after(first)
        if first is None or second is None:
            return 0.0
        return (1_000_000 if self.timed else 1) / (second - first)

    def time_of(self, ts: int) -> datetime:
        """Return a timestamp as a time in the zone of the ticks, UTC without one."""
        return _time(ts, self.zone)

    def window_of(self, ts: int) -> Window:
        """Return the window that a tick ends."""
        start = self.schedule.before(ts)
        return Window(ts if start is None else start, ts, self.zone)

    def closing(self, last: int) -> int | None:
        """Return the first tick that comes behind all events up to a timestamp."""
        return self.schedule.after(last if self.ties == "before" else last - 1)

    @cached_property
    def event_class(self) -> type[Event]:
        """The tuple class of this tag's events; they have a ``window``."""
        plain = super().event_class
        return type(self.name, (plain,), {"__slots__": (), "window": property(lambda event: self.window_of(event.ts))})

    def __repr__(self) -> str:
        key = "" if self.key is None else f", key={f'{self.key.name} {type_name(self.key.type)}'!r}"
        return f"<Every {self.name}: {self.described!r}{key}>"


class AtEnd(Tick):
    """A tag with one event behind all others, for the whole state or for each key on its own.

    It comes when a run has no more input, and when a query is stopped with ``drain=True``.

    ``key``   the key column, as that of a :class:`~flumina.Tag`: every key has an event of its own
    ``keys``  the only keys there can be
    """

    def __init__(self, *, key: str | None = None, keys: Iterable[Key] | None = None) -> None:
        super().__init__("", key=key, keys=keys)
        self.where = user_line()

    def __repr__(self) -> str:
        return f"<AtEnd {self.name}>"


class TTL:
    """How long the state of a key lives after the last event that touched it, in event time.

    A key goes back to its initial state at the first tick of ``every`` at or after its last touch plus ``ttl``.

    ``ttl``         such as ``"7 days"`` or a timedelta; a number, where timestamps are whole numbers
    ``every``       how often keys are looked at; an eighth of ``ttl`` by default
    ``touched_by``  the tags whose events prolong the life of a key; by default the tags that change a field
    """

    def __init__(
        self, ttl: GivenDuration, *, every: GivenDuration | None = None, touched_by: Iterable[Tag] | None = None
    ) -> None:
        self.where = user_line()
        self.mistakes: list[tuple[str, ...]] = []
        self.touched_by = None if touched_by is None else tuple(touched_by)
        self.length, self.timed, self.every = 1, True, every
        self.described = str(ttl)
        self._check(ttl)

    def _check(self, ttl: GivenDuration) -> None:
        try:
            read = read_duration(ttl)
        except BadDurationError as error:
            self.mistakes.append(("TICK_PERIOD", f"the ttl: {error}"))
            return
        self.timed = read.timed
        if read.months or read.length < 1:
            self.mistakes.append(("TICK_PERIOD", f"expected a ttl of a fixed length above 0, got {ttl!r}"))
            return
        self.length = read.length
        if self.every is None:
            eighth = max(1, read.length // 8)
            self.every = timedelta(microseconds=eighth) if read.timed else eighth

    def tag(self, key: str) -> Expiry:
        """Return the hidden tag of a program whose key column this is."""
        made = Expiry(self, key)
        made.name, made.where = TTL_NAME, self.where
        return made


class Expiry(Every):
    """The hidden ticks at which keys expire."""

    def __init__(self, ttl: TTL, key: str) -> None:
        super().__init__(1 if ttl.every is None else ttl.every, key=key, due=TTL_NAME)
        self.length = ttl.length
        self.described = f"{ttl.described}, looked at every {self.described}"
        if not self.mistakes and not ttl.mistakes and self.timed != ttl.timed:
            message = f"expected ttl and every= both as times or both as numbers, got {self.described}"
            self.mistakes.append(("TICK_UNIT", message))

    def until(self, ts: int) -> int:
        """Return the tick at which a key expires that was touched at a timestamp."""
        tick = self.schedule.after(ts + self.length - 1)
        return LAST if tick is None else tick


def tick_ranks(tags: Mapping[str, Tag], streams: int) -> dict[str, int]:
    """Return the rank of each tick tag of a program with so many streams."""
    ticks = [tag for tag in tags.values() if isinstance(tag, Tick)]
    ticks.sort(key=lambda tag: (isinstance(tag, AtEnd), isinstance(tag, Expiry)))
    first = [tag for tag in ticks if tag.ties == "before"]
    rest = [tag for tag in ticks if tag.ties != "before"]
    ranks = {tag.name: number - len(first) for number, tag in enumerate(first)}
    return ranks | {tag.name: streams + number for number, tag in enumerate(rest)}


class Horizon(NamedTuple):
    """How far the input has been seen; ``closed`` if there is no more, so that the first tick behind it comes too."""

    ts: int
    closed: bool = False

    def last(self, tag: Every) -> int:
        """Return the timestamp up to which the ticks of a tag come."""
        if not self.closed:
            return self.ts
        closing = tag.closing(self.ts)
        return self.ts if closing is None else max(self.ts, closing)


NOWHERE = Horizon(-(2**63))
"""The horizon before the first event."""


def end_of(tags: Iterable[Tag], last: int) -> int:
    """Return the timestamp of AtEnd: that of the last event or tick."""
    return max([last, *(Horizon(last, closed=True).last(tag) for tag in tags if isinstance(tag, Every))])


def passed_up_to(rank: int, point: Point) -> int:
    """Return the timestamp up to which ticks of a rank lie at or before a point."""
    return point.ts if Point(point.ts, rank, LAST) <= point else point.ts - 1
