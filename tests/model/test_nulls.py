from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flumina.model.nulls import as_declared, first_forbidden, forbidden, holds_not_null, nullable
from flumina.model.schema import Schema

DDL = "o struct<b:long NOT NULL,l:array<struct<c:string NOT NULL,d:long>>,m:map<string,struct<e:long NOT NULL>>>"
(TYPE,) = (field.type for field in Schema.parse(DDL).fields)


def told(value: Any) -> set[str]:
    """The same, one value after the other."""
    if value is None:
        return set()
    found = {"b"} if value["b"] is None else set()
    found |= {"l.element.c" for item in value["l"] or () if item is not None and item["c"] is None}
    return found | {"m.value.e" for _, item in value["m"] or () if item is not None and item["e"] is None}


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


number, letter = maybe(st.just(1)), maybe(st.just("x"))
item = maybe(st.fixed_dictionaries({"c": letter, "d": number}))
entry = st.tuples(st.just("k"), maybe(st.fixed_dictionaries({"e": number})))
value = maybe(
    st.fixed_dictionaries(
        {"b": number, "l": maybe(st.lists(item, max_size=3)), "m": maybe(st.lists(entry, max_size=3))}
    )
)


@given(st.lists(value, max_size=6), st.integers(0, 6), st.booleans())
def test_agrees_with_looking_at_each_value(values: list[Any], start: int, declared: bool) -> None:  # noqa: FBT001
    array = pa.array(values, TYPE if declared else nullable(TYPE)).slice(start)
    found = {(path, int(row)) for path, rows in forbidden(array, TYPE) for row in rows}
    wanted = {(path, row) for row, one in enumerate(values[start:]) for path in told(one)}
    assert found == wanted
    first = first_forbidden(array, TYPE)
    assert first == min(((row, path) for path, row in wanted), default=None)


@pytest.mark.parametrize(
    ("ddl", "yes"),
    [
        ("o long NOT NULL", False),  # that is of the column, not inside
        ("o struct<b:long>", False),
        ("o map<string,array<long>>", False),
        ("o struct<b:long NOT NULL>", True),
        ("o array<array<struct<b:long NOT NULL>>>", True),
        ("o map<string,struct<a:struct<b:long NOT NULL>>>", True),
    ],
)
def test_which_types_hold_it(ddl: str, *, yes: bool) -> None:
    (field,) = Schema.parse(ddl).fields
    assert holds_not_null(field.type) == yes
    assert not holds_not_null(nullable(field.type))
    assert yes or nullable(field.type) == field.type


@given(st.lists(value, max_size=6), st.integers(0, 6))
def test_a_column_without_them_is_given_its_declared_type(values: list[Any], start: int) -> None:
    """Nulls within a null stay: Arrow's own cast refuses them."""
    fine = [one for one in values if not told(one)]
    whole = pa.array(fine, nullable(TYPE))
    taken = pa.concat_arrays([whole, pa.nulls(1, nullable(TYPE))]).slice(start)
    made = as_declared(taken, TYPE)
    made.validate(full=True)
    assert made.type == TYPE
    assert made.to_pylist() == taken.to_pylist()
    assert pa.concat_arrays([made, made]).take(pa.array(range(len(made)), pa.int64())).to_pylist() == taken.to_pylist()


def test_a_column_that_has_its_declared_type_is_left_alone() -> None:
    array = pa.array([{"b": 1, "l": None, "m": None}], TYPE)
    assert as_declared(array, TYPE) is array
