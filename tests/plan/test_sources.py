import math

import pytest

import flumina as fl
from flumina.apps import KeyCounter, PageViews, ValueBarrier
from flumina.errors import UsageError
from flumina.model.tag_set import KeySet, TagSet
from flumina.plan import Itag, StreamRates, bind
from flumina.plan.sources import Profile
from tests.program.tick_programs import Dense, Everything, Hourly

ALL = KeySet.everything()


def test_rates_are_spread_over_parts_and_hot_keys_to_the_parts_that_hold_them() -> None:
    rates: dict[fl.Tag | str, list[float] | float] = {"inc": [30, 10], KeyCounter.read: 4}
    source = StreamRates("s", rates, parts=2, hot={"inc": {1: 20}}, keys=[[1, 2], None])
    inputs = bind(KeyCounter, [source])
    assert [(load.part, load.tag, load.rate) for load in inputs.loads] == [
        (0, "inc", 30.0),
        (0, "read", 2.0),
        (1, "inc", 10.0),
        (1, "read", 2.0),
    ]
    both = Itag("s", frozenset({0, 1}), TagSet({"inc": KeySet.of(1)}))
    assert dict(inputs.rates_of(both, 0)) == {"inc": pytest.approx(15)}
    assert dict(inputs.rates_of(both, 1)) == {"inc": pytest.approx(5)}
    (shape,) = inputs.shapes
    assert shape.of_part(0) == TagSet({"inc": KeySet.of(1, 2), "read": KeySet.of(1, 2)})
    assert shape.of_part(1) == TagSet({"inc": ALL, "read": ALL})


def test_shares_of_any_division_of_keys_add_up_to_one() -> None:
    low = KeySet.from_buckets(range(1000))
    for profile in (
        Profile(ALL, {1: 0.5, 2: 0.1}),
        Profile(KeySet.of(*range(10)), {1: 0.5}),
        Profile(KeySet.of(1), {1: 1.0}),
        Profile(low - KeySet.of(3), {}),
    ):
        cells = [KeySet.of(1), KeySet.of(2, 3), low - KeySet.of(1, 2, 3), (ALL - low) - KeySet.of(1, 2, 3)]
        shares = [profile.share(cell & profile.keys) for cell in cells]
        assert math.fsum(shares) == pytest.approx(1.0)
        assert profile.share(profile.keys) == 1.0
    assert Profile(ALL, {1: 0.5}).share(KeySet.of(1)) == 0.5
    assert Profile(ALL, {1: 0.5}).share(ALL - KeySet.of(1)) == 0.5


@pytest.mark.parametrize(
    ("source", "condition"),
    [
        (StreamRates("", {"inc": 1}), "STREAM_NAME"),
        (StreamRates("s", {}), "STREAM_TAGS"),
        (StreamRates("s", {"write": 1}), "UNKNOWN_TAG"),
        (StreamRates("s", {"inc": -1}), "BAD_RATE"),
        (StreamRates("s", {"inc": math.nan}), "BAD_RATE"),
        (StreamRates("s", {"inc": math.inf}), "BAD_RATE"),
        (StreamRates("s", {"inc": True}), "BAD_RATE"),
        (StreamRates("s", {"inc": "many"}), "BAD_RATE"),
        (StreamRates("s", {"inc": [1, 2]}, parts=3), "BAD_RATE"),
        (StreamRates("s", {"inc": [1, -2]}, parts=2), "BAD_RATE"),
        (StreamRates("s", {"inc": 1}, parts=0), "STREAM_PARTS"),
        (StreamRates("s", {"inc": 1}, parts=True), "STREAM_PARTS"),
        (StreamRates("s", {"inc": 1}, parts=2, hosts=["a"]), "STREAM_HOSTS"),
        (StreamRates("s", {"inc": 1}, parts=2, keys=[[1]]), "STREAM_KEYS"),
        (StreamRates("s", {"inc": 1}, parts=2, keys=[[1], []]), "STREAM_KEYS"),
        (StreamRates("s", {"inc": 1}, hot={"inc": {1: 2}}), "HOT_KEYS"),
        (StreamRates("s", {"inc": 1}, hot={"inc": {1: 0.6, 2: 0.6}}), "HOT_KEYS"),
        (StreamRates("s", {"inc": 1}, hot={"inc": {1: -1}}), "BAD_RATE"),
        (StreamRates("s", {"inc": 1}, hot={"read": {1: 1}}), "HOT_KEYS"),
        (StreamRates("s", {"inc": 1}, keys=[[2]], hot={"inc": {1: 1}}), "HOT_KEYS"),
        (StreamRates("s", ["inc"], hot={"inc": {1: 1}}), "MISSING_RATE"),
    ],
)
def test_bad_sources_are_refused_by_name(source: StreamRates, condition: str) -> None:
    with pytest.raises(UsageError) as caught:
        bind(KeyCounter, [source])
    assert caught.value.condition == condition
    assert source.name == "" or "'s'" in caught.value.message


def test_no_streams_and_two_of_the_same_name() -> None:
    with pytest.raises(UsageError, match="NO_STREAMS"):
        bind(KeyCounter, [])
    with pytest.raises(UsageError, match="DUPLICATE_STREAM"):
        bind(KeyCounter, [StreamRates("s", {"inc": 1}), StreamRates("s", {"read": 1})])
    with pytest.raises(UsageError, match="HOT_KEYS"):
        bind(ValueBarrier, [StreamRates("s", {"value": 1}, hot={"value": {1: 1}})])


def test_missing_rates_are_all_named() -> None:
    inputs = bind(PageViews, [StreamRates("v", "view"), StreamRates("c", PageViews.change)])
    with pytest.raises(UsageError, match="'view' on stream 'v', 'change' on stream 'c'"):
        inputs.require_rates("greedy")


def test_ten_thousand_streams_are_planned_like_ten_thousand_parts() -> None:
    sources = [StreamRates(f"v{number}", {"value": 1.0}) for number in range(10_000)]
    inputs = bind(ValueBarrier, sources)
    assert len(inputs.shapes) == 10_000


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (StreamRates("v", "value", parts=1_000_001), "at most 1000000"),
        (StreamRates("v", [["value"]]), "expected a tag, got"),  # type: ignore[list-item]
        (StreamRates("v", 5), "tags= is 5"),  # type: ignore[arg-type]
        (StreamRates("v", ["value", "value"]), "given twice"),
    ],
)
def test_tags_and_parts_that_cannot_be_meant(source: StreamRates, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        bind(ValueBarrier, [source])


def test_ticks_have_streams_of_their_own_behind_all_others() -> None:
    inputs = bind(Everything, [StreamRates("adds", {"add": 50}, parts=3, distinct={"add": 1000})])
    assert [(shape.name, shape.parts, shape.ticks) for shape in inputs.shapes] == [
        ("adds", 3, False),
        ("own", 1, True),
        ("whole", 1, True),
        ("last", 1, True),
        ("ttl", 1, True),
    ]
    rates = {load.tag: load.rate for load in inputs.loads if load.stream in inputs.ticks}
    assert rates == {"own": pytest.approx(1000 / 6), "whole": 1 / 12, "last": 0.0, "ttl": pytest.approx(1000 / 5)}


def test_ticks_of_named_keys_count_these_keys_and_times_count_in_seconds() -> None:
    class Two(Hourly):
        hour = fl.Every("1 min", key="house int", keys=[1, 2])
        depends = fl.depends((hour, hour), (hour, Hourly.load))

    *_, load = bind(Two, [StreamRates("loads", {"load": 5})]).loads
    assert load.tag == "hour"
    assert load.rate == pytest.approx(2 / 60)


def test_no_stream_is_given_for_a_tick_nor_has_its_name() -> None:
    with pytest.raises(UsageError, match=r"TICK_STREAM.*'day' is a tick"):
        bind(Dense, [StreamRates("s", {"sale": 1, "day": 1})])
    with pytest.raises(UsageError, match=r"TICK_STREAM.*stream 'day' has the name"):
        bind(Dense, [StreamRates("day", {"sale": 1})])
