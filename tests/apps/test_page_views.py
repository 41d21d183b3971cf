from collections import Counter
from typing import Any

import pytest

import flumina as fl
from flumina.apps.page_views import PageViews, PageViewsByHand, Visits
from flumina.model.tag_set import KeySet, TagSet
from flumina.program.base import define
from tests.apps.agreement import (
    SEEDS,
    assert_batches_agree,
    assert_empty_batches_do_nothing,
    outputs,
    random_columns,
)


@pytest.mark.parametrize("seed", SEEDS)
def test_both_agree(seed: int) -> None:
    given = random_columns(PageViews, seed, ["a", "b", ""])
    assert outputs(PageViews, given) == outputs(PageViewsByHand, given)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_view_sees_the_last_change_of_its_page(seed: int) -> None:
    given = random_columns(PageViews, seed, ["a", "b"])
    changes = list(zip(given["change"]["ts"], given["change"]["page"], given["change"]["info"], strict=True))
    views = [row for row in outputs(PageViews, given)["output"] if row["event_stream"] == "view"]
    expected = [
        next((info for t, p, info in reversed(changes) if p == page and t <= ts), None)
        for ts, page in zip(given["view"]["ts"], given["view"]["page"], strict=True)
    ]
    assert [row["info"] for row in views] == expected


@pytest.mark.parametrize("seed", SEEDS)
def test_a_get_sees_what_a_view_sees_and_a_change_the_one_before(seed: int) -> None:
    given = random_columns(PageViews, seed, ["a", "b"])
    given["view"] = {**given["get"], "user": [1] * len(given["get"]["ts"])}
    rows = outputs(PageViews, given)["output"]
    seen = {kind: [row["info"] for row in rows if row["event_stream"] == kind] for kind in ("view", "get", "change")}
    assert seen["get"] == seen["view"]
    for page in "ab":
        infos = [i for i, p in zip(given["change"]["info"], given["change"]["page"], strict=True) if p == page]
        old = [row["info"] for row in rows if row["event_stream"] == "change" and row["page"] == page]
        assert old == [None, *infos][: len(infos)]
    assert all(row["user"] is None for row in rows if row["event_stream"] != "view")


def test_gets_depend_on_changes_only() -> None:
    depends = define(PageViews).depends
    assert depends("get", "a", "change", "a")
    assert not any(depends("get", "a", other, "a") for other in ("get", "view"))
    assert not depends("get", "a", "change", "b")


@pytest.mark.parametrize(("pages", "hot", "skew"), [(2, 2, 1.0), (1_000, 10, 0.9), (100, 1, 0.0)])
def test_hot_pages_have_their_share(pages: int, hot: int, skew: float) -> None:
    views = Visits(events=20_000, parts=1, pages=pages, hot=hot, skew=skew).streams()[0].parts()[0].column("page")
    counts = Counter(views.to_pylist())
    assert set(map(int, counts)) <= set(range(pages))
    share = sum(count for page, count in counts.items() if int(page) < hot) / 20_000
    assert abs(share - skew) < 0.02
    assert max(counts.values()) < 1.2 * 20_000 * max(skew / hot, 2 * (1 - skew) / max(pages - hot, 1))


def test_rates_of_the_paper() -> None:
    """On each part a get for 100 views and a change for 1,000."""
    views, gets, changes = (sum(p.num_rows for p in s.parts()) for s in Visits(events=30_000, parts=3).streams())
    assert (views, gets, changes) == (30_000, 100, 10)


@pytest.mark.parametrize("wrong", [{"hot": 3}, {"skew": 1.5}])
def test_bad_parameters(wrong: dict[str, Any]) -> None:
    with pytest.raises(fl.UsageError, match=next(iter(wrong))):
        Visits(**wrong)


@pytest.mark.parametrize("seed", SEEDS)
def test_batches(seed: int) -> None:
    assert_batches_agree(PageViews, random_columns(PageViews, seed, ["a", "b"]), seed)


def test_empty_batches() -> None:
    assert_empty_batches_do_nothing(PageViews, [PageViews.view, PageViews.get, PageViews.change])


def test_information_goes_to_every_side_that_has_the_page_and_to_the_left_if_none_has() -> None:
    program = PageViewsByHand()
    left, right = TagSet({"view": KeySet.of("a", "b")}), TagSet({"get": KeySet.of("b"), "change": KeySet.of("c")})
    state = {page: page.upper() for page in "abcd"}
    assert program.fork(state, left, right) == ({"a": "A", "b": "B", "d": "D"}, {"b": "B", "c": "C"})
    assert program.join({"a": "new"}, {"a": "old", "b": "B"}) == {"a": "new", "b": "B"}
