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
