import pyarrow as pa
import pytest

import flumina as fl
from flumina.apps import PageViews
from flumina.testing import assert_lawful, assert_same_outputs
from tests.check.broken import CountDuplicated


def test_lawful_programs_pass_and_others_raise_with_the_counterexample() -> None:
    assert_lawful(PageViews, examples=20)
    with pytest.raises(fl.LawError, match=r"join\(fork\(s, p1, p2\)\) = s"):
        assert_lawful(CountDuplicated, examples=50)


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


def test_as_many_lines_as_there_are_differences() -> None:
    with pytest.raises(AssertionError) as caught:
        assert_same_outputs(pa.table({"x": [1]}), pa.table({"x": [*range(1, 13), 1]}))
    assert str(caught.value).splitlines()[1:4] == ["  (x)", "  missing | surplus", "  (1,)    |"]
    assert str(caught.value).splitlines()[-1] == "  ... and 2 more"


def test_a_nan_among_the_keys_of_a_map_is_a_nan() -> None:
    kind = pa.map_(pa.float64(), pa.int64())
    one, other = (pa.table({"m": pa.array([[(float("nan"), 1)]], kind)}) for _ in range(2))
    assert_same_outputs(one, other)
