import pyarrow as pa
import pytest

import flumina as fl
from flumina.apps import PageViews
from flumina.testing import assert_lawful, assert_same_outputs, difference
from tests.check.broken import CountDuplicated


def test_lawful_programs_pass_and_others_raise_with_the_counterexample() -> None:
    assert_lawful(PageViews, examples=20)
    with pytest.raises(fl.LawError, match=r"join\(fork\(s, p1, p2\)\) = s"):
        assert_lawful(CountDuplicated, examples=50)


def test_outputs_are_compared_as_multisets_in_both_directions() -> None:
    a = pa.table({"x": [1, 2, 2], "y": [["p"], ["q"], ["q"]]})
    assert_same_outputs(a, a.take([2, 0, 1]))
    assert difference(a, pa.table({"x": [1, 2], "y": [["p"], ["q"]]})) == ([], [(2, ("q",))])
    assert difference(pa.table({"x": [1], "y": [["p"]]}), a.slice(0, 2)) == ([(2, ("q",))], [])
    for less, more in ((a.slice(1), a), (a, a.slice(1))):
        with pytest.raises(AssertionError, match=r"missing|surplus"):
            assert_same_outputs(less, more)


def test_a_mismatch_shows_missing_and_surplus_side_by_side() -> None:
    with pytest.raises(AssertionError, match=r"1 rows missing, 2 surplus") as caught:
        assert_same_outputs({"o": pa.table({"x": [1, 5, 6]})}, {"o": pa.table({"x": [1, 2]})})
    assert "(2,)" in str(caught.value)
    assert "(5,)" in str(caught.value)


def test_different_outputs_or_columns_are_told() -> None:
    with pytest.raises(AssertionError, match="different outputs"):
        assert_same_outputs({"a": pa.table({"x": [1]})}, {"b": pa.table({"x": [1]})})
    with pytest.raises(AssertionError, match="different columns"):
        assert_same_outputs(pa.table({"x": [1]}), pa.table({"y": [1]}))


def test_rows_are_counted_even_if_all_columns_can_be_sorted() -> None:
    a = pa.table({"event_ts": [3, 1, 1], "x": ["b", "a", "a"]})
    assert_same_outputs(a, a.take([1, 0, 2]))
    assert difference(a, pa.table({"event_ts": [3, 3, 1], "x": ["b", "b", "a"]})) == ([(3, "b")], [(1, "a")])
    assert difference(a, pa.table({"event_ts": [1, 1, 3], "x": ["a", "b", "a"]})) == (
        [(1, "b"), (3, "a")],
        [(1, "a"), (3, "b")],
    ), "equal columns, but other rows"


def test_a_nan_is_a_nan_and_null_is_none() -> None:
    nan = float("nan")
    a = pa.table({"x": [1, 2], "y": [nan, None]})
    assert_same_outputs(a, a.take([1, 0]))
    assert difference(a, pa.table({"x": [1, 2], "y": [None, nan]})) != ([], [])
    with pytest.raises(AssertionError, match=r"\(1, nan\)"):
        assert_same_outputs(a, a.slice(1))


def test_floats_may_differ_within_a_tolerance_and_no_more() -> None:
    a = pa.table({"k": ["p", "p", "q"], "x": [0.1 + 0.2, 7.0, 1.0]})
    b = pa.table({"k": ["q", "p", "p"], "x": [1.0, 7.0, 0.3]})
    assert difference(a, b) == ([("p", 0.3)], [("p", 0.1 + 0.2)])
    assert_same_outputs(a, b, tolerance=1e-9)
    c = pa.table({"k": ["q", "p", "p"], "x": [1.0, 7.1, 0.3]})
    assert difference(a, c, tolerance=1e-9) == ([("p", 7.1)], [("p", 7.0)])
    assert difference(a, c.slice(1), tolerance=1e-9) == ([("p", 7.1)], [("p", 7.0), ("q", 1.0)])
    other_key = pa.table({"k": ["q", "q", "p"], "x": [1.0, 7.0, 0.3]})
    assert difference(a, other_key, tolerance=1e-9) == ([("q", 7.0)], [("p", 7.0)])


def test_as_many_lines_as_there_are_differences() -> None:
    with pytest.raises(AssertionError) as caught:
        assert_same_outputs(pa.table({"x": [1]}), pa.table({"x": [*range(1, 13), 1]}))
    assert str(caught.value).splitlines()[1:4] == ["  (x)", "  missing | surplus", "  (1,)    |"]
    assert str(caught.value).splitlines()[-1] == "  ... and 2 more"
