import copy
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flumina.model.key_order import in_order
from flumina.state.fields import Count, Field, Set
from flumina.state.keyed_map import KeyedMap, ValueSet, merge

entries = st.dictionaries(st.sampled_from("abcd"), st.integers(-2, 2))


def model(given_entries: dict[str, Any]) -> dict[str, Any]:
    """The entries that count, in the order of their keys."""
    return {key: value for key, value in sorted(given_entries.items()) if value not in (0, set())}


@given(entries)
def test_entries_equal_to_the_identity_can_not_be_seen(given_entries: dict[str, int]) -> None:
    """A fork drops them, so a program that could see them would see how it was divided."""
    counts, plain = KeyedMap(Count(), given_entries), model(given_entries)
    assert list(counts) == list(plain)
    assert len(counts) == len(plain)
    assert bool(counts) == bool(plain)
    assert (list(counts.keys()), list(counts.values()), list(counts.items())) == (
        list(plain.keys()),
        list(plain.values()),
        list(plain.items()),
    )
    assert dict(counts) == {**counts} == plain
    assert repr(counts) == repr(plain)
    for key in "abcd":
        assert (key in counts) == (key in plain)
        assert counts.get(key) == plain.get(key)
        assert counts.get(key, 7) == plain.get(key, 7)
        assert counts[key] == plain.get(key, 0)
        assert copy.copy(counts).pop(key, 9) == plain.get(key, 9)
    assert counts == KeyedMap(Count(), plain)
    assert not counts != KeyedMap(Count(), plain)  # noqa: SIM202 -- another method


def test_methods_that_change_it() -> None:
    counts = KeyedMap(Count(), {"a": 0, "b": 2, "c": 0})
    assert counts.setdefault("a", 5) == 5
    assert counts.setdefault("b", 5) == 2
    assert counts.popitem() == ("b", 2)
    assert counts.popitem() == ("a", 5)
    with pytest.raises(KeyError):
        counts.popitem()
    with pytest.raises(KeyError):
        counts.pop("c")
    counts["d"] += 1
    assert dict(counts) == {"d": 1}
    del counts["d"]
    assert not counts


def test_a_missing_mutable_value_is_kept_and_a_missing_number_is_not() -> None:
    sets, counts = KeyedMap(Set()), KeyedMap(Count())
    sets["a"].add(1)
    assert sets["b"] == set()
    assert dict(sets) == {"a": {1}}
    assert counts["a"] == 0
    assert dict.__len__(counts) == 0


def test_may_be_changed_while_iterating() -> None:
    counts = KeyedMap(Count(), {"a": 1, "b": 2})
    for key in counts:
        counts[key] = 0
        counts[f"{key} again"] = 1
    for key, value in counts.items():
        counts[key] -= value
    assert not counts


def test_is_compared_with_its_own_kind() -> None:
    assert KeyedMap(Count(), {"a": 1}) != {"a": 1}
    with pytest.raises(TypeError, match="unhashable"):
        hash(KeyedMap(Count()))


@pytest.mark.parametrize(("field", "value"), [(Count(), 3), (Set(), {1})])
def test_copies_and_pickles(field: Field, value: object) -> None:
    first = KeyedMap(field, {"a": value, "b": field.identity()})
    for again in (copy.deepcopy(first), pickle.loads(pickle.dumps(first))):  # noqa: S301 -- our own bytes
        assert type(again) is KeyedMap
        assert again == first
        assert again["a"] is not value or isinstance(value, int)
        assert again["zz"] == field.identity()


@given(entries, entries)
def test_merge(left: dict[str, int], right: dict[str, int]) -> None:
    merged = merge(KeyedMap(Count(), left), KeyedMap(Count(), right), lambda a, b: a * 10 + b)
    expected = {
        key: left[key] * 10 + right[key] if key in left and key in right else left.get(key, right.get(key))
        for key in {**left, **right}
    }
    assert dict(merged) == model(expected)


def test_sets_are_iterated_over_in_the_order_of_their_values() -> None:
    values = ValueSet(["z", "b", "a"])
    assert list(values) == ["a", "b", "z"]
    assert values == {"a", "b", "z"}
    values |= {"c"}
    assert isinstance(values, ValueSet)
    assert (values.pop(), next(iter(values)), repr(values)) == ("a", "b", "{'b', 'c', 'z'}")
    assert pickle.loads(pickle.dumps(values)) == values  # noqa: S301
    with pytest.raises(KeyError):
        ValueSet().pop()


def test_values_that_can_not_be_compared_have_an_order_too() -> None:
    assert in_order([b"x", 2, "a", 1]) == [b"x", 1, 2, "a"]


def test_backwards() -> None:
    counts = KeyedMap(Count(), {"b": 1, "z": 0, "a": 2})
    assert list(reversed(counts)) == ["b", "a"]


@given(st.lists(st.one_of(st.frozensets(st.integers(0, 3)), st.floats(), st.tuples(st.integers(0, 2), st.none()))))
def test_values_without_an_order_of_their_own_have_one(values: list[Any]) -> None:
    for one, other in ((values, values[::-1]), (values, sorted(values, key=repr))):
        assert [repr(sorted(v) if isinstance(v, frozenset) else abs(v) if v == 0 else v) for v in in_order(one)] == [
            repr(sorted(v) if isinstance(v, frozenset) else abs(v) if v == 0 else v) for v in in_order(other)
        ]
