"""Tags whose events come by themselves."""

import pickle

import pytest

from flumina.model.order import Point
from flumina.model.tag import Tag
from flumina.model.tick import TTL, AtEnd, Every, Horizon, end_of, passed_up_to, seq_of, tick_ranks


def named(**tags: Tag) -> dict[str, Tag]:
    for name, tag in tags.items():
        tag.name = name
    return tags


def conditions(tag: Every) -> list[str]:
    return [mistake[0] for mistake in tag.mistakes]


def test_a_tick_has_its_window() -> None:
    hour = Every("1 h", offset="10 min")
    tick = hour.tick(3_600_000_000 + 600_000_000)
    assert (tick.window.start, tick.window.end) == (600_000_000, 4_200_000_000)
    assert tick.window.start_time.isoformat() == "1970-01-01T00:10:00+00:00"
    assert tick.time == tick.window.end_time
    assert pickle.loads(pickle.dumps(tick)).window == tick.window  # noqa: S301 -- our own


def test_time_is_in_the_zone_of_the_tick() -> None:
    day = Every("1 day", zone="Europe/Berlin")
    ts = day.schedule.after(0) or 0
    assert day.tick(ts).time.isoformat() == "1970-01-02T00:00:00+01:00"


def test_columns_called_time_and_window_win() -> None:
    tag = Tag("time long, window string")
    event = tag.event(ts=5, time=7, window="w")
    found: tuple[object, object] = event.time, event.window
    assert found == (7, "w")


def test_only_ticks_have_a_window() -> None:
    with pytest.raises(AttributeError, match="has no column 'window'"):
        _ = Tag("v long").event(ts=1, v=2).window


def test_ranks() -> None:
    tags = named(e=AtEnd(), a=Every(5), v=Tag(), b=Every(5, ties="after"), ttl=TTL(9, every=3).tag("k int"), c=Every(2))
    assert tick_ranks(tags, 2) == {"a": -3, "c": -2, "ttl": -1, "b": 2, "e": 3}


def test_the_horizon() -> None:
    before, after = Every(10), Every(10, ties="after")
    assert Horizon(20).last(before) == 20
    assert Horizon(20, closed=True).last(before) == 30
    assert Horizon(20, closed=True).last(after) == 20
    assert Horizon(21, closed=True).last(after) == 30
    assert end_of([before, after, AtEnd()], 21) == 30


def test_how_far_ticks_have_come_at_a_point() -> None:
    assert passed_up_to(-1, Point(7, 0, 3)) == 7
    assert passed_up_to(1, Point(7, 0, 3)) == 6


def test_ticks_of_keys_have_their_own_places() -> None:
    assert seq_of(None) == 0
    assert len({seq_of(key) for key in range(1000)}) == 1000
    assert all(0 <= seq_of(key) < 2**62 for key in range(1000))


def test_until_is_a_tick() -> None:
    tag = TTL(100, every=10).tag("k int")
    assert [tag.until(ts) for ts in (0, 1, 10)] == [100, 110, 110]
    assert TTL("8 h").tag("k int").schedule.after(0) == 3_600_000_000


@pytest.mark.parametrize(
    ("tag", "condition"),
    [
        (Every(0), "TICK_PERIOD"),
        (Every(-3), "TICK_PERIOD"),
        (Every(1.5), "TICK_PERIOD"),  # type: ignore[arg-type]
        (Every("0.1 us"), "TICK_PERIOD"),
        (Every("1 month"), "TICK_PERIOD"),
        (Every("5 days", zone="UTC"), "TICK_PERIOD"),
        (Every("1 h", zone="UTC"), "TICK_PERIOD"),
        (Every("1 h", offset="1 h"), "TICK_PERIOD"),
        (Every("1 day", zone="UTC", offset="25 h"), "TICK_PERIOD"),
        (Every("1 day", zone="Mars/Base"), "TICK_ZONE"),
        (Every(5, zone="UTC"), "TICK_ZONE"),
        (Every(5, offset="1 s"), "TICK_UNIT"),
        (Every(5, ties="during"), "TICK_TIES"),  # type: ignore[arg-type]
        (TTL(10, every="1 s").tag("k int"), "TICK_UNIT"),
    ],
)
def test_mistakes(tag: Every, condition: str) -> None:
    assert conditions(tag) == [condition]


def test_a_ttl_has_a_fixed_length() -> None:
    assert [mistake[0] for mistake in TTL("1 month").mistakes] == ["TICK_PERIOD"]
    assert [mistake[0] for mistake in TTL(0).mistakes] == ["TICK_PERIOD"]
    assert [mistake[0] for mistake in TTL("soon").mistakes] == ["TICK_PERIOD"]
