import random
from collections import Counter
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import flumina as fl
from flumina.apps import KeyCounter, PageViews, ValueBarrier
from flumina.errors import UsageError
from flumina.plan import HeavyHitters, bind, estimate, make_plan


@given(st.lists(st.lists(st.integers(0, 12), max_size=40), max_size=8), st.integers(1, 6))
@example([[0, 1, 1], [0, 0]], 1)
@settings(max_examples=200, deadline=None)
def test_counts_are_within_the_bound_whatever_the_order(columns: list[list[int]], counters: int) -> None:
    summary = HeavyHitters(counters)
    for column in columns:
        summary.add(pa.array(column, pa.int64()))
    truth = Counter(key for column in columns for key in column)
    total = sum(truth.values())
    assert summary.seen == total
    assert len(summary.counts) <= counters
    for key, count in truth.items():
        given_count = summary.counts.get(key, 0)
        assert count - total / (counters + 1) <= given_count <= count
    for key, count in truth.items():
        if count >= 0.3 * total and count > total / (counters + 1):
            assert key in summary.heavy(0.3)


def test_heavy_hitters_of_a_skewed_column() -> None:
    keys = np.random.default_rng(1).zipf(1.5, 200_000).clip(0, 10**9)
    summary = HeavyHitters(256)
    for piece in np.array_split(keys, 7):
        summary.add(pa.array(piece))
    truth = Counter(keys.tolist())
    expected = [key for key, count in truth.most_common() if count >= 0.02 * len(keys)]
    assert list(summary.heavy(0.02))[: len(expected)] == expected


def test_rates_of_tags_are_exact_and_hot_keys_are_found() -> None:
    rng = random.Random(0)
    pages = ["home" if rng.random() < 0.5 else f"page{rng.randint(0, 10**6)}" for _ in range(4000)]
    table = pa.table({"ts": range(4000), "page": pages, "user": range(4000)})
    views = fl.Stream("views", PageViews.view, [table.slice(0, 3000), table.slice(3000)])
    changes = fl.Stream("changes", PageViews.change, {"ts": [0, 3999], "page": ["home", "about"], "info": ["x", "y"]})
    sources = estimate(PageViews, [views, changes])
    assert sources[0].tags == {"view": pytest.approx([3000 / 3999, 1000 / 3999])}
    assert set(sources[0].hot["view"]) == {"home"}
    assert sources[0].hot["view"]["home"] * 3999 == pytest.approx(pages.count("home"), abs=10)
    assert set(sources[1].hot["change"]) == {"home", "about"}
    assert bind(PageViews, sources).shapes[0].parts == 2
    few = estimate(PageViews, [views, changes], rows=500)
    assert few[0].hot["view"]["home"] * 3999 == pytest.approx(2000, rel=0.15)
    assert len(make_plan(PageViews, sources, workers=2)) >= 1


def test_several_tags_on_one_stream_and_real_timestamps() -> None:
    start = datetime(2024, 1, 1, tzinfo=UTC)
    rows = [{"ts": start + timedelta(seconds=n), "what": "r" if n % 10 == 0 else "i", "k": n % 5} for n in range(101)]
    stream = fl.Stream("s", {"i": KeyCounter.inc, "r": KeyCounter.read}, rows, tag_column="what")
    (source,) = estimate(KeyCounter, [stream])
    assert source.tags == {"inc": [pytest.approx(0.9)], "read": [pytest.approx(0.11)]}
    (slow,) = estimate(KeyCounter, [stream], seconds=10)
    assert slow.tags == {"inc": [pytest.approx(9.0)], "read": [pytest.approx(1.1)]}


def test_empty_data_has_no_rate_but_no_error() -> None:
    empty = fl.Stream("b", ValueBarrier.barrier, {"ts": pa.array([], pa.int64())})
    (source,) = estimate(ValueBarrier, [empty])
    assert source.tags == {"barrier": [0.0]}


def test_bad_requests() -> None:
    stream = fl.Stream("b", ValueBarrier.barrier, {"ts": [1]})
    with pytest.raises(UsageError, match="NO_STREAMS"):
        estimate(ValueBarrier, [])
    with pytest.raises(UsageError, match="UNKNOWN_TAG"):
        estimate(PageViews, [stream])
    with pytest.raises(UsageError, match="HOT_SHARE"):
        estimate(ValueBarrier, [stream], hot=0)
    with pytest.raises(UsageError, match="SECONDS"):
        estimate(ValueBarrier, [stream], seconds=-1)
    with pytest.raises(UsageError, match="COUNTERS"):
        HeavyHitters(0)
