import pytest

from flumina.apps.page_views import PageViews, PageViewsByHand
from flumina.tagsets import KeySet, TagSet
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
def test_batches(seed: int) -> None:
    assert_batches_agree(PageViews, random_columns(PageViews, seed, ["a", "b"]), seed)


def test_empty_batches() -> None:
    assert_empty_batches_do_nothing(PageViews, [PageViews.view, PageViews.change])


def test_information_goes_to_every_side_that_has_the_page_and_to_the_left_if_none_has() -> None:
    program = PageViewsByHand()
    left, right = TagSet({"view": KeySet.of("a", "b")}), TagSet({"view": KeySet.of("b"), "change": KeySet.of("c")})
    state = {page: page.upper() for page in "abcd"}
    assert program.fork(state, left, right) == ({"a": "A", "b": "B", "d": "D"}, {"b": "B", "c": "C"})
    assert program.join({"a": "new"}, {"a": "old", "b": "B"}) == {"a": "new", "b": "B"}
