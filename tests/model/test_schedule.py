"""The times of ticks, from any timestamp on."""

from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from flumina.model.schedule import Calendar, Periodic, Schedule
from flumina.model.zone_rules import ZoneRules

ZONES = ("Europe/Berlin", "Australia/Lord_Howe", "Asia/Kolkata", "Pacific/Apia", "America/Sao_Paulo", "UTC")
UNITS = ("day", "week", "month", "quarter", "year")


def consistent(schedule: Schedule, ts: int) -> None:
    after = schedule.after(ts)
    assert after is not None
    before = schedule.before(after)
    assert before is not None
    assert before <= ts < after
    assert schedule.after(before) == after
    following = schedule.after(after)
    assert following is not None
    assert schedule.before(following) == after


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("unit", UNITS)
def test_calendars_from_any_time_on(zone: str, unit: str) -> None:
    random = Random(f"{zone} {unit}")
    schedule = Calendar(unit, ZoneRules.named(zone), timedelta(hours=random.choice((0, 2, 23))))
    for _ in range(60):
        consistent(schedule, random.randint(-(10**16), 4 * 10**15))


def test_periods_from_any_time_on() -> None:
    random = Random(1)
    for _ in range(300):
        period = random.randint(1, 50)
        schedule = Periodic(period, random.randrange(period))
        ts = random.randint(-200, 200)
        consistent(schedule, ts)
        expected = next(t for t in range(ts + 1, ts + 60) if (t - schedule.offset) % period == 0)
        assert schedule.after(ts) == expected


def test_a_week_begins_on_monday_and_a_skipped_day_has_no_tick() -> None:
    berlin = Calendar("week", ZoneRules.named("Europe/Berlin"))
    tick = berlin.after(0)
    assert tick is not None
    assert berlin.zone.at(tick).strftime("%A %H:%M") == "Monday 00:00"
    apia = Calendar("day", ZoneRules.named("Pacific/Apia"))
    ts = int(datetime(2011, 12, 29, 12, tzinfo=UTC).timestamp()) * 1_000_000
    days = []
    for _ in range(3):
        ts = apia.after(ts) or 0
        days.append(apia.zone.at(ts).day)
    assert days == [31, 1, 2]


def test_the_ends_of_time() -> None:
    assert Periodic(10).after(2**63 - 1) is None
    assert Periodic(10).before(-(2**63)) is None
    year = Calendar("year", ZoneRules.named("Europe/Berlin"))
    assert year.after(-(2**63)) is not None
    assert year.after(2**63 - 1) is None
    assert year.before(-(2**63)) is None
