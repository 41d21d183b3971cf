"""Read durations: texts, timedeltas, and numbers for timestamps that are whole numbers."""

from __future__ import annotations

import re
from datetime import timedelta
from fractions import Fraction
from typing import NamedTuple

from flumina.errors import UsageError

_UNITS = {
    "microsecond": ("us", "microsecond", "microseconds"),
    "millisecond": ("ms", "millisecond", "milliseconds"),
    "second": ("s", "sec", "second", "seconds"),
    "minute": ("min", "minute", "minutes"),
    "hour": ("h", "hour", "hours"),
    "day": ("d", "day", "days"),
    "week": ("week", "weeks"),
    "month": ("month", "months"),
    "quarter": ("quarter", "quarters"),
    "year": ("year", "years"),
}
_UNIT_OF = {word: unit for unit, words in _UNITS.items() for word in words}

_MICROSECONDS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_MONTHS = {"month": 1, "quarter": 3, "year": 12}

_PIECE = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*([a-zA-Z]+)\s*")

FORMS = "'30 min', '1 h 30 min', '7 days'"
"""Durations as an error message shows them."""

GivenDuration = str | timedelta | int
"""How users write a duration; a number counts units of timestamps that are whole numbers."""


class Duration(NamedTuple):
    """A length of time: microseconds, or units of whole-number timestamps; months have no fixed length.

    ``timed`` is whether it was given as a time rather than as a number. ``unit`` is the calendar unit of one day, week,
    month, quarter or year, and None for every other length.
    """

    length: int
    months: int
    timed: bool
    unit: str | None
    text: str


class BadDurationError(Exception):
    """A duration can't be read; the text says what was expected."""


def read_duration(given: object) -> Duration:
    """Return a duration that a user has written; BadDurationError says why it can't be read."""
    if isinstance(given, timedelta):
        length = given // timedelta(microseconds=1)
        units = [unit for unit in ("day", "week") if length == _MICROSECONDS[unit]]
        return Duration(length, 0, timed=True, unit=units[0] if units else None, text=str(given))
    if isinstance(given, str):
        return _read_text(given)
    if isinstance(given, bool) or not isinstance(given, int):
        raise BadDurationError(f"expected a duration such as {FORMS}, a timedelta or a whole number, got {given!r}")
    return Duration(given, 0, timed=False, unit=None, text=str(given))


def _read_text(text: str) -> Duration:
    place, length, months, found = 0, Fraction(0), Fraction(0), list[tuple[Fraction, str]]()
    while place < len(text):
        piece = _PIECE.match(text, place)
        unit = None if piece is None else _UNIT_OF.get(piece[2].lower())
        if piece is None or unit is None:
            known = ", ".join(words[0] for words in _UNITS.values())
            raise BadDurationError(f"expected a duration such as {FORMS} (units: {known}), got {text!r}")
        number = Fraction(piece[1])
        found.append((number, unit))
        length += number * _MICROSECONDS.get(unit, 0)
        months += number * _MONTHS.get(unit, 0)
        place = piece.end()
    if not found:
        raise BadDurationError(f"expected a duration such as {FORMS}, got {text!r}")
    if length.denominator != 1:
        raise BadDurationError(f"expected whole microseconds, got {text!r}")
    if months.denominator != 1:
        raise BadDurationError(f"expected whole months, got {text!r}")
    unit = found[0][1] if len(found) == 1 and found[0][0] == 1 else None
    calendar = unit if unit in ("day", "week", *_MONTHS) else None
    return Duration(int(length), int(months), timed=True, unit=calendar, text=text)


def duration(given: GivenDuration) -> int:
    """Return a duration in the unit of ``event.ts``: microseconds, or as it is if it is a number.

    >>> duration("30 min"), duration("1 h 30 min"), duration(5)
    (1800000000, 5400000000, 5)
    """
    try:
        read = read_duration(given)
    except BadDurationError as error:
        raise UsageError("DURATION", str(error)) from None
    if read.months:
        hint = "give days; fl.Every has months in a zone"
        raise UsageError("DURATION", f"expected a duration of a fixed length, got {given!r}", hint=hint)
    return read.length
