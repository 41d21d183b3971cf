import pyarrow as pa
import pytest

from flumina.state.multiset import difference
from flumina.testing import assert_same_outputs


def test_outputs_are_compared_as_multisets_in_both_directions() -> None:
    a = pa.table({"x": [1, 2, 2], "y": [["p"], ["q"], ["q"]]})
    assert_same_outputs(a, a.take([2, 0, 1]))
    assert difference(a, pa.table({"x": [1, 2], "y": [["p"], ["q"]]})) == ([], [(2, ("q",))])
    assert difference(pa.table({"x": [1], "y": [["p"]]}), a.slice(0, 2)) == ([(2, ("q",))], [])
    for less, more in ((a.slice(1), a), (a, a.slice(1))):
        with pytest.raises(AssertionError, match=r"missing|surplus"):
            assert_same_outputs(less, more)


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


def test_maps_are_compared_whatever_they_hold() -> None:
    nan = float("nan")
    kind = pa.map_(pa.string(), pa.list_(pa.struct([("x", pa.float64()), ("deep", pa.map_(pa.int64(), pa.float64()))])))

    def maps(*values: float) -> pa.Table:
        return pa.table({"m": pa.array([{"a": [{"x": v, "deep": [(1, v), (2, nan)]}]} for v in values], kind)})

    assert_same_outputs(maps(1.0, nan, 2.0), maps(2.0, 1.0, nan))
    missing, surplus = difference(maps(1.0, nan), maps(1.0, 3.0))
    assert "3.0" in repr(missing)
    assert "('x', nan)" in repr(surplus)
    near = maps(0.1 + 0.2, nan)
    assert len(difference(near, maps(nan, 0.3))[0]) == 1
    assert_same_outputs(near, maps(nan, 0.3), tolerance=1e-9)
    assert len(difference(near, maps(nan, 0.4), tolerance=1e-9)[0]) == 1
    assert len(difference(near, maps(nan, nan), tolerance=1e-9)[0]) == 1


def test_a_mismatch_is_in_the_order_of_events() -> None:
    columns = ["value", "event_ts", "event_stream"]
    wanted = [(5, 9, "a"), (5, 10, "b"), (6, 10, "a"), (1, 100, "a")]
    got = [(7, 9, "a"), (0, 10, "b"), (9, 10, "a"), (2, 100, "a")]
    missing, surplus = difference(*(pa.table(list(zip(*rows, strict=True)), columns) for rows in (got, wanted)))
    events = [(9, "a"), (10, "a"), (10, "b"), (100, "a")]
    assert [row[1:] for row in missing] == events
    assert [row[1:] for row in surplus] == events
    nulls = pa.table({"event_ts": [3, None, 1]})
    assert difference(nulls.slice(0, 0), nulls)[0] == [(None,), (1,), (3,)]
