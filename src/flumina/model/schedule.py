"""Say when ticks come: every so many units, or at the beginning of each day, week, month, quarter or year in a zone.

::

    after(ts)     the first tick behind a timestamp, None if there is none
    before(ts)    the last tick before a timestamp, None if there is none

Both are computed from the timestamp: nothing counts from the first tick.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from flumina.model.zone_rules import EARLIEST, LATEST, ZoneRules

_LEAST, _MOST = -(2**63), 2**63 - 1


class Schedule(Protocol):
    """The times of ticks, strictly increasing."""

    def after(self, ts: int) -> int | None:
        """Return the first tick behind a timestamp; None if there is none."""

    def before(self, ts: int) -> int | None:
        """Return the last tick before a timestamp; None if there is none."""


@dataclass(frozen=True, slots=True)
class Periodic(Schedule):
    """Multiples of a period, plus an offset.

    >>> Periodic(10, 3).after(13), Periodic(10, 3).before(13), Periodic(10).after(-1)
    (23, 3, 0)
    """

    period: int
    offset: int = 0

    def after(self, ts: int) -> int | None:
        tick = ((ts - self.offset) // self.period + 1) * self.period + self.offset
        return tick if tick <= _MOST else None

    def before(self, ts: int) -> int | None:
        tick = (ts - self.offset - 1) // self.period * self.period + self.offset
        return tick if tick >= _LEAST else None


_MONTHS = {"month": 1, "quarter": 3, "year": 12}
_ORDINAL_1970 = datetime(1970, 1, 1).toordinal()  # noqa: DTZ001 -- a day of the calendar, in no zone


@dataclass(frozen=True, slots=True)
class Calendar(Schedule):
    """The beginning of each calendar unit in a zone, plus an offset by the clock on the wall."""

    unit: str
    zone: ZoneRules = field(repr=False)
    offset: timedelta = timedelta()

    def after(self, ts: int) -> int | None:
        if ts >= LATEST:
            return None
        number = self._number(max(ts, EARLIEST)) - 1
        while (tick := self._tick(number)) <= ts:  # at most three: a unit can be without an instant of its own
            number += 1
        return tick

    def before(self, ts: int) -> int | None:
        if ts <= EARLIEST:
            return None
        number = self._number(min(ts, LATEST)) + 1
        while (tick := self._tick(number)) >= ts:
            number -= 1
        return tick

    def _number(self, ts: int) -> int:
        """Return the number of the unit in which a time lies."""
        day = self.zone.wall(ts) - self.offset
        if self.unit in _MONTHS:
            return (12 * day.year + day.month - 1) // _MONTHS[self.unit]
        days = day.toordinal() - _ORDINAL_1970
        return days if self.unit == "day" else (days + 3) // 7  # 1970 began on a Thursday

    def _tick(self, number: int) -> int:
        """Return the time at which a unit begins."""
        if self.unit in _MONTHS:
            months = number * _MONTHS[self.unit]
            begin = datetime(months // 12, months % 12 + 1, 1)  # noqa: DTZ001 -- by the clock on the wall
        else:
            days = number if self.unit == "day" else 7 * number - 3
            begin = datetime.fromordinal(_ORDINAL_1970 + days)
        return self.zone.instant(begin + self.offset)
