"""Hold the rules of a time zone, so that every process of a run converts times alike.

Machines differ in the version of their time zone data. The rules are read once, in the process that makes the program,
and travel with it::

    instant(wall)   the time in microseconds since 1970 (UTC) at which clocks in the zone show ``wall``
                    a wall time that clocks skip    the first instant behind the gap
                    a wall time that they show twice    the first of the two
"""

from __future__ import annotations

import importlib.resources
import io
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from zoneinfo import TZPATH, ZoneInfo

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_MARGIN = timedelta(days=800)
"""Times this close to the ends of Python's calendar have no ticks: the unit before or behind them would leave it."""

EARLIEST = (datetime(1, 1, 1, tzinfo=UTC) + _MARGIN - _EPOCH) // _MICROSECOND
LATEST = (datetime(9999, 12, 31, tzinfo=UTC) - _MARGIN - _EPOCH) // _MICROSECOND


class UnknownZoneError(Exception):
    """No time zone has this name."""


def _read(key: str) -> bytes:
    """Return the compiled rules of a zone, from the system or from the package ``tzdata``."""
    if not key or key.startswith(("/", ".")) or ".." in key:
        raise UnknownZoneError(key)
    for folder in TZPATH:
        file = Path(folder) / key
        if file.is_file():
            return file.read_bytes()
    try:
        return importlib.resources.files("tzdata").joinpath("zoneinfo", *key.split("/")).read_bytes()
    except (ModuleNotFoundError, OSError):
        raise UnknownZoneError(key) from None


class ZoneRules(tzinfo):
    """The rules of one time zone.

    >>> ZoneRules.named("Europe/Berlin").wall(0)
    datetime.datetime(1970, 1, 1, 1, 0)
    """

    def __init__(self, key: str, rules: bytes) -> None:
        self.key, self.rules = key, rules
        self.info = ZoneInfo.from_file(io.BytesIO(rules), key=key)  # can't be pickled, unlike the rules

    @staticmethod
    def named(key: str) -> ZoneRules:
        """Read the rules of a zone; UnknownZoneError if there is none of this name."""
        try:
            return ZoneRules(key, _read(key))
        except ValueError:
            raise UnknownZoneError(key) from None

    def __reduce__(self) -> tuple[object, ...]:
        return (ZoneRules, (self.key, self.rules))

    def __repr__(self) -> str:
        return self.key

    def utcoffset(self, dt: datetime | None) -> timedelta | None:
        """Return the difference to UTC."""
        return self.info.utcoffset(dt)

    def dst(self, dt: datetime | None) -> timedelta | None:
        """Return the daylight saving time."""
        return self.info.dst(dt)

    def tzname(self, dt: datetime | None) -> str | None:
        """Return the name of the time."""
        return self.info.tzname(dt)

    def fromutc(self, dt: datetime) -> datetime:
        """Return a time in UTC as a time in the zone."""
        return self.info.fromutc(dt.replace(tzinfo=self.info)).replace(tzinfo=self)

    def at(self, ts: int) -> datetime:
        """Return a time in the zone."""
        return (_EPOCH + ts * _MICROSECOND).astimezone(self)

    def wall(self, ts: int) -> datetime:
        """Return what clocks in the zone show, without a zone."""
        return self.at(ts).replace(tzinfo=None)

    def instant(self, wall: datetime) -> int:
        """Return the first time at which clocks show this, or skip it."""
        found = self._utc(wall, 0)
        if self.wall(found) == wall:
            return found
        # In a gap the offset before it leads behind the change, and the offset behind it leads before the change.
        low, high = self._utc(wall, 1), found
        offset = self.at(low).utcoffset()
        while high - low > 1:
            middle = (low + high) // 2
            if self.at(middle).utcoffset() == offset:
                low = middle
            else:
                high = middle
        return high

    def _utc(self, wall: datetime, fold: int) -> int:
        return (wall.replace(tzinfo=self, fold=fold) - _EPOCH) // _MICROSECOND


def utc(ts: int) -> datetime:
    """Return microseconds since 1970 as a time in UTC."""
    return _EPOCH + ts * _MICROSECOND
