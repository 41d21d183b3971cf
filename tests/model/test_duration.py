"""Durations as users write them."""

from datetime import timedelta

import pytest

from flumina.errors import UsageError
from flumina.model.duration import BadDurationError, duration, read_duration


def test_texts_timedeltas_and_numbers() -> None:
    assert duration("1 h") == duration("60min") == duration(timedelta(hours=1)) == 3_600_000_000
    assert duration("1.5 s") == 1_500_000
    assert duration("2 days 3 h") == 51 * 3_600_000_000
    assert duration(7) == 7


def test_calendar_units_are_known() -> None:
    units = {text: read_duration(text).unit for text in ("1 day", "1 week", "1 month", "1 quarter", "1 year", "5 days")}
    assert units == {
        "1 day": "day",
        "1 week": "week",
        "1 month": "month",
        "1 quarter": "quarter",
        "1 year": "year",
        "5 days": None,
    }
    assert read_duration("1 quarter").months == 3


@pytest.mark.parametrize("given", ["", "h", "3", "1 parsec", "1 h and more", "0.1 us", "0.5 month", 1.5, None, True])
def test_what_is_no_duration(given: object) -> None:
    with pytest.raises(BadDurationError, match="expected"):
        read_duration(given)
    with pytest.raises(UsageError, match="DURATION"):
        duration(given)  # type: ignore[arg-type]


def test_months_have_no_fixed_length() -> None:
    with pytest.raises(UsageError, match="fixed length"):
        duration("1 month")
