"""Local times that exist, that do not, and that exist twice."""

import pickle
from datetime import UTC, datetime

import pytest

from flumina.model.zone_rules import UnknownZoneError, ZoneRules, utc


def micros(*when: int) -> int:
    return int(datetime(*when, tzinfo=UTC).timestamp()) * 1_000_000  # type: ignore[misc, arg-type]


@pytest.mark.parametrize(
    ("zone", "wall", "expected"),
    [
        ("Europe/Berlin", (2024, 1, 1, 0, 0), (2023, 12, 31, 23, 0)),
        ("Europe/Berlin", (2024, 3, 31, 2, 30), (2024, 3, 31, 1, 0)),  # skipped: the first instant after the gap
        ("Europe/Berlin", (2024, 10, 27, 2, 30), (2024, 10, 27, 0, 30)),  # twice: the first
        ("Australia/Lord_Howe", (2024, 10, 6, 2, 15), (2024, 10, 5, 15, 30)),  # half an hour is skipped
        ("Asia/Kolkata", (2024, 1, 1, 0, 0), (2023, 12, 31, 18, 30)),
        ("America/Sao_Paulo", (2018, 11, 4, 0, 0), (2018, 11, 4, 3, 0)),  # midnight is skipped
        ("Pacific/Apia", (2011, 12, 30, 0, 0), (2011, 12, 30, 10, 0)),  # the whole day is skipped
    ],
)
def test_instants(zone: str, wall: tuple[int, ...], expected: tuple[int, ...]) -> None:
    local = datetime(*wall)  # type: ignore[arg-type] # noqa: DTZ001 -- by the clock on the wall
    assert ZoneRules.named(zone).instant(local) == micros(*expected)


def test_rules_travel() -> None:
    rules = ZoneRules.named("Europe/Berlin")
    again = pickle.loads(pickle.dumps(rules))  # noqa: S301 -- our own
    assert again.rules == rules.rules
    assert again.at(0) == rules.at(0) == utc(0)
    there = pickle.loads(pickle.dumps(rules.at(0)))  # noqa: S301 -- our own
    assert there.isoformat() == "1970-01-01T01:00:00+01:00"


@pytest.mark.parametrize("key", ["Nowhere/Land", "", "../etc/passwd", "/etc/localtime"])
def test_unknown_zones(key: str) -> None:
    with pytest.raises(UnknownZoneError):
        ZoneRules.named(key)
