import copy
import math
import pickle
from decimal import Decimal
from itertools import permutations, product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flumina.model.tag import Tag, user_line
from flumina.state.compare import same
from flumina.state.fields import (
    ADD,
    READ,
    SET,
    Count,
    Field,
    Max,
    Min,
    PerKey,
    Replicated,
    Set,
    Sum,
    Tuple,
    greatest,
    least,
)
from flumina.state.keyed_map import KeyedMap

Value = Any
few = settings(max_examples=40)  # for each of many fields
ints = st.integers(-5, 5)
lists = st.lists(ints, max_size=2)
maybe = st.none() | ints


def key_map(field: PerKey, values: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    return st.dictionaries(st.sampled_from("abc"), values).map(lambda entries: KeyedMap(field.inner, entries))


PER_SUM, PER_SET, PER_INFO = PerKey(Count()), PerKey(Set()), PerKey(Replicated("long"))
PER_TUPLE = PerKey(Tuple(Sum(), Max()))
FIELDS: list[tuple[str, Field, st.SearchStrategy[Value]]] = [
    ("Sum", Sum("long"), ints),
    ("Sum of decimals", Sum("decimal(10,2)"), ints.map(Decimal)),
    ("Count", Count(), ints),
    ("Max", Max("long"), maybe),
    ("Max of doubles", Max("double"), st.none() | st.sampled_from([-1.0, 0.5, math.inf, math.nan])),
    ("Min of doubles", Min("double"), st.none() | st.sampled_from([-1.0, 0.5, math.inf, math.nan])),
    ("Max of lists", Max("array<long>"), st.none() | lists),
    ("Min", Min("long"), maybe),
    ("Set", Set("long"), st.sets(ints)),
    ("Replicated", Replicated("long"), maybe),
    ("Replicated from 3", Replicated("long", 3), ints),
    ("Replicated NaN", Replicated("double", math.nan), st.sampled_from([1.0, math.nan])),
    ("Replicated lists", Replicated("array<array<long>>", [[1]]), st.lists(lists, max_size=2)),
    ("PerKey sum", PER_SUM, key_map(PER_SUM, ints)),
    ("PerKey set", PER_SET, key_map(PER_SET, st.sets(ints))),
    ("PerKey info", PER_INFO, key_map(PER_INFO, maybe)),
    ("PerKey tuple", PER_TUPLE, key_map(PER_TUPLE, st.tuples(ints, maybe))),
    ("Tuple", Tuple(Sum(), Max(), Set()), st.tuples(ints, maybe, st.sets(ints))),
]
every = pytest.mark.parametrize(("field", "values"), [f[1:] for f in FIELDS], ids=[f[0] for f in FIELDS])
# Sides hold different values of a Replicated field only where one of them holds the initial one, so its join is an
# algebra on those pairs alone.
algebras = pytest.mark.parametrize(
    ("field", "values"),
    [f[1:] for f in FIELDS if "Replicated" not in f[0] and "info" not in f[0]],
    ids=[f[0] for f in FIELDS if "Replicated" not in f[0] and "info" not in f[0]],
)


def join(field: Field, left: Value, right: Value) -> Value:
    """A join that leaves its arguments alone; the real one may consume them."""
    return field.join(copy.deepcopy(left), copy.deepcopy(right))


def always(_: object) -> bool:
    return True


def never(_: object) -> bool:
    return False


@every
@few
@given(data=st.data())
def test_identity(field: Field, values: st.SearchStrategy[Value], data: st.DataObject) -> None:
    value = data.draw(values)
    assert same(join(field, field.identity(), value), value)
    assert same(join(field, value, field.identity()), value)
    assert field.is_identity(field.identity())
    assert field.is_identity(value) == same(value, field.identity())


@algebras
@few
@given(data=st.data())
def test_join_is_associative_and_commutative(
    field: Field, values: st.SearchStrategy[Value], data: st.DataObject
) -> None:
    a, b, c = (data.draw(values) for _ in range(3))
    assert same(join(field, a, b), join(field, b, a))
    assert same(join(field, join(field, a, b), c), join(field, a, join(field, b, c)))


@every
@few
@given(data=st.data())
def test_join_undoes_fork_and_halves_share_nothing(
    field: Field, values: st.SearchStrategy[Value], data: st.DataObject
) -> None:
    before = data.draw(values)
    for left, right in product((always, never), repeat=2):
        halves = field.fork(copy.deepcopy(before), left, right)
        assert not parts(halves[0]) & parts(halves[1])
        assert same(join(field, *halves), before)
        observers = [half for half, observes in zip(halves, (left, right), strict=True) if observes(None)]
        if len(observers) == 1:
            assert same(observers[0], before), "the only side that observes the value has all of it"


@every
def test_every_identity_is_fresh(field: Field, values: st.SearchStrategy[Value]) -> None:
    one, other = field.identity(), field.identity()
    assert not parts(one) & parts(other)


def parts(value: Value) -> set[int]:
    """The mutable objects that a value is made of."""
    found = {id(value)} if isinstance(value, list | set | dict) else set()
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return found.union(*(parts(one) for one in inner)) if inner else found


@every
@few
@given(data=st.data())
def test_copies_share_nothing_and_are_equal(
    field: Field, values: st.SearchStrategy[Value], data: st.DataObject
) -> None:
    value = data.draw(values)
    again = field.copy(value)
    assert same(again, value)
    assert not parts(again) & parts(value)


def test_mutable_is_what_can_be_changed_through_a_reference() -> None:
    cases: list[tuple[Field, bool, bool]] = [
        (Sum(), False, False),
        (Max(), False, False),
        (Max("array<long>"), True, False),
        (Set(), True, False),
        (Replicated("string"), False, False),
        (Replicated("array<long>"), True, False),
        (Replicated("map<string,long>"), True, False),
        (Replicated("map<string,array<long>>"), True, True),
        (Replicated("struct<a:long>"), True, False),
        (Replicated("array<struct<a:long>>"), True, True),
        (Tuple(Sum(), Max()), False, False),
        (Tuple(Sum(), Set()), True, True),
        (PerKey(Count()), True, False),
        (PerKey(Set()), True, True),
    ]
    for field, mutable, holds_mutable in cases:
        assert (field.mutable, field.holds_mutable) == (mutable, holds_mutable), field


class TestPerKey:
    def test_each_key_goes_where_it_is_observed(self) -> None:
        field = PerKey(Replicated("long"))
        value = KeyedMap(field.inner, dict.fromkeys("abcd", 1))
        left, right = field.fork(value, lambda key: key in ("a", "b"), lambda key: key in ("b", "c"))
        assert dict(left) == {"a": 1, "b": 1, "d": 1}
        assert dict(right) == {"b": 1, "c": 1}

    def test_join_of_the_smaller_into_the_larger_keeps_sides(self) -> None:
        field = PerKey(Replicated("long"))
        for big in (0, 1):
            sides = [KeyedMap(field.inner, {"a": i}) for i in (1, 2)]
            sides[big].update({"b": 5, "c": 6})
            assert dict(field.join(*sides)) == {"a": 1, "b": 5, "c": 6}


class TestSides:
    """What each half of a fork is given, where the value matters and not only its sum."""

    def test_a_sum_goes_to_one_side(self) -> None:
        assert Sum().fork(5, never, always) == (0, 5)
        assert Sum().fork(5, always, never) == Sum().fork(5, never, never) == Sum().fork(5, always, always) == (5, 0)

    @pytest.mark.parametrize(("field", "value"), [(Max(), 5), (Replicated("long"), 5), (Set(), {5})])
    def test_others_to_every_side_that_observes(self, field: Field, value: Value) -> None:
        nothing = field.identity()
        assert field.fork(copy.copy(value), always, always) == (value, value)
        assert field.fork(copy.copy(value), never, always) == (nothing, value)
        assert field.fork(copy.copy(value), always, never) == (value, nothing)
        assert field.fork(copy.copy(value), never, never) == (value, nothing)


def test_conflicts() -> None:
    for field in (Sum(), Count(), Max(), Min(), Set(), Tuple(Max())):
        for pair in ((READ, SET), (SET, SET), (READ, ADD), (SET, ADD)):
            assert pair in field.conflicts
            assert pair[::-1] in field.conflicts
        assert (ADD, ADD) not in field.conflicts
    assert (READ, READ) in Sum().conflicts & Count().conflicts & Tuple(Max(), Sum()).conflicts & PerKey(
        Count()
    ).conflicts
    assert (READ, READ) not in Max().conflicts | Set().conflicts | Replicated("long").conflicts
    assert Replicated("long").conflicts == {(READ, SET), (SET, READ), (SET, SET)}


class TestGreatestAndLeast:
    @given(st.lists(maybe))
    def test_ignore_none(self, values: list[int | None]) -> None:
        present = [v for v in values if v is not None]
        assert greatest(*values) == max(present, default=None)
        assert least(*values) == min(present, default=None)

    @given(st.permutations([None, 1.0, math.nan, -math.inf, math.inf]))
    def test_nan_is_the_largest_whatever_the_order(self, values: list[float | None]) -> None:
        top, bottom = greatest(*values), least(*values)
        assert top is not None
        assert math.isnan(top)
        assert bottom == -math.inf
        assert least(math.nan, *[v for v in values if v == 1.0]) == 1.0


class Tags:
    view = Tag()


@pytest.mark.parametrize(
    ("field", "conditions"),
    [
        (Sum("string"), ["BAD_SCHEMA"]),
        (Sum("lng"), ["BAD_SCHEMA"]),
        (Sum(""), ["BAD_SCHEMA"]),
        (Max("long, b long"), ["BAD_SCHEMA"]),
        (Replicated("strin"), ["BAD_SCHEMA"]),
        (Replicated("long", added_by=[Tags.view]), ["REPLICATED_ADD"]),
        (PerKey(Replicated("long"), added_by=[Tags.view]), ["REPLICATED_ADD"]),
        (Tuple(Sum(), Replicated("long"), added_by=[Tags.view]), ["REPLICATED_ADD"]),
        (PerKey(PerKey(Sum())), ["BAD_FIELD"]),
        (Replicated("long", []), ["BAD_FIELD"]),
        (PerKey("long"), ["BAD_FIELD"]),  # type: ignore[arg-type]
        (Tuple("long", Sum("x")), ["BAD_FIELD", "BAD_SCHEMA"]),  # type: ignore[arg-type]
        (PerKey(Sum(read_by=[Tags.view])), ["BAD_FIELD"]),
        (PerKey(Tuple(Sum("x"), Max("y"))), ["BAD_SCHEMA", "BAD_SCHEMA"]),
        (PerKey(Tuple(Sum(), Max()), added_by=[Tags.view]), []),
    ],
)
def test_mistakes_are_kept_for_the_class(field: Field, conditions: list[str]) -> None:
    assert [condition for condition, _ in field.mistakes] == conditions


def test_where_it_was_made() -> None:
    for field in (Sum(), Count(), Max(), Set(), Replicated("long"), Tuple(Sum()), PerKey(Sum())):
        assert field.where.partition(":")[0] == user_line(0).partition(":")[0], field
    field, here = PerKey(Count()), user_line(0)
    assert field.where == here


def test_equal_values_that_look_different_are_chosen_whatever_their_order() -> None:
    several: list[list[Any]] = [[0.0, -0.0], [Decimal("1.0"), Decimal("1.00")], [1, 1.0, True]]
    for values in several:
        assert len({repr(greatest(*order)) for order in permutations(values)}) == 1
        assert len({repr(least(*order)) for order in permutations(values)}) == 1


def test_a_sum_of_nothing_that_has_digits_is_not_dropped() -> None:
    totals = PerKey(Sum("decimal(18,2)"))
    value = totals.identity()
    value["a"] += Decimal("0.00")
    left, right = totals.fork(value, lambda _: True, lambda _: False)
    assert str(totals.join(left, right)["a"]) == "0.00"
    assert "b" not in value


def test_nan_is_in_a_set_once() -> None:
    field = Set("double")
    value = field.identity()
    value.add(float("nan"))
    value.update([float("nan"), 1.0])
    assert len(value) == 2
    copies = [
        pickle.loads(pickle.dumps(side))  # noqa: S301 -- our own
        for side in field.fork(value, lambda _: True, lambda _: True)
    ]
    joined = field.join(*copies)
    assert len(joined) == 2
    assert math.nan in joined  # noqa: PLW0177 -- it is what a FloatSet can
    joined |= {float("nan")}
    assert len(joined.union([float("nan")], {2.0})) == 3
    joined.remove(float("nan"))
    joined.discard(float("nan"))
    assert joined == {1.0}


def test_it_does_not_matter_which_zero_a_set_saw_first() -> None:
    field = Set("double")
    for zeros in ([0.0, -0.0], [-0.0, 0.0]):
        value = field.identity()
        for zero in zeros:
            value.add(zero)
        assert repr(value) == "{0.0}"
