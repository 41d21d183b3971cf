import datetime as dt
import pickle
from collections.abc import Callable
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flumina.model.depends import RuleDependence, depends
from flumina.model.hashing import BUCKETS, bucket_of
from flumina.model.tag import Tag
from flumina.model.tag_set import NO_KEYS, UNKEYED, Key, KeySet, TagSet

NAMED: dict[str, list[Key]] = {
    "int": [0, 1, 2, -1, 7, 2**40],
    "str": ["", "a", "b", "ä", "a\0"],
    "bytes": [b"", b"a", b"\xff", b"b"],
}
BUCKETS_IN_USE = sorted({bucket_of(key) for keys in NAMED.values() for key in keys} | {0, 5, 17, BUCKETS - 1})


def unnamed(kind: str, bucket: int) -> Key:
    """A key of a bucket that no set names: what stands for all the others of that bucket."""
    make: dict[str, Callable[[int], Key]] = {
        "int": lambda i: 10_000 + i,
        "str": lambda i: f"other {i}",
        "bytes": lambda i: b"other %d" % i,
    }
    return next(make[kind](i) for i in range(10**6) if bucket_of(make[kind](i)) == bucket)


# Named keys, and one unnamed key of every bucket in use: sets that agree on these are the same set, for the sets that
# are made from named keys, these buckets, and everything.
ENUMERATED = {kind: [*keys, *(unnamed(kind, bucket) for bucket in BUCKETS_IN_USE)] for kind, keys in NAMED.items()}
OUTSIDE = {kind: unnamed(kind, next(b for b in range(BUCKETS) if b not in BUCKETS_IN_USE)) for kind in NAMED}
UNIVERSE = {kind: [*keys, OUTSIDE[kind]] for kind, keys in ENUMERATED.items()}


@st.composite
def key_sets(draw: st.DrawFn, kind: str) -> KeySet:
    """Any set that can be made from named keys and buckets (most often the buckets of named keys)."""
    keys = KeySet.of(*draw(st.lists(st.sampled_from(NAMED[kind]), max_size=4)))
    named_buckets = sorted({bucket_of(key) for key in NAMED[kind]})
    buckets = KeySet.from_buckets(draw(st.lists(st.sampled_from([*named_buckets, *BUCKETS_IN_USE]), max_size=5)))
    base = draw(st.sampled_from([keys, buckets, keys | buckets, buckets - keys, KeySet.everything() - keys]))
    return KeySet.everything() - base if draw(st.booleans()) else base


kinds = st.sampled_from(list(NAMED))
pairs = kinds.flatmap(lambda kind: st.tuples(st.just(kind), key_sets(kind), key_sets(kind)))
singles = kinds.flatmap(lambda kind: st.tuples(st.just(kind), key_sets(kind)))


def members(kind: str, keys: KeySet) -> set[Key]:
    return {key for key in UNIVERSE[kind] if key in keys}


class TestKeySet:
    @given(pairs)
    def test_operations_are_those_on_sets(self, drawn: tuple[str, KeySet, KeySet]) -> None:
        kind, a, b = drawn
        left, right = members(kind, a), members(kind, b)
        assert members(kind, a | b) == left | right
        assert members(kind, a & b) == left & right
        assert members(kind, a - b) == left - right
        assert a.overlaps(b) == bool(left & right) == (not (a & b).is_empty())
        assert b.overlaps(a) == a.overlaps(b)

    @given(singles)
    def test_emptiness_is_exact(self, drawn: tuple[str, KeySet]) -> None:
        kind, keys = drawn
        assert keys.is_empty() == (not members(kind, keys))
        assert (keys - keys).is_empty()
        assert not (KeySet.everything() - KeySet.of(*UNIVERSE[kind])).is_empty()

    @given(pairs)
    def test_equal_sets_have_one_form(self, drawn: tuple[str, KeySet, KeySet]) -> None:
        kind, a, b = drawn
        assert (a == b) == (members(kind, a) == members(kind, b))
        for left, right in (
            (a | b, b | a),
            (a & b, b & a),
            ((a - b) | (a & b), a),
            (a - (a - b), a & b),
            (KeySet.everything() - (KeySet.everything() - a), a),
            (KeySet.everything() - (a | b), (KeySet.everything() - a) & (KeySet.everything() - b)),
        ):
            assert left == right
            assert hash(left) == hash(right)

    @given(singles)
    def test_finite_sets_list_their_keys(self, drawn: tuple[str, KeySet]) -> None:
        kind, keys = drawn
        assert keys.is_finite == (not keys.buckets)
        if keys.is_finite:
            assert keys.keys() == members(kind, keys)

    def test_infinite_sets_do_not(self) -> None:
        with pytest.raises(AssertionError):
            KeySet.everything().keys()

    def test_the_absent_key_is_in_no_bucket(self) -> None:
        assert None in UNKEYED
        assert None not in KeySet.everything()
        assert UNKEYED - KeySet.everything() == UNKEYED
        assert (UNKEYED - UNKEYED).is_empty()
        assert UNKEYED & UNKEYED == UNKEYED == UNKEYED | NO_KEYS
        assert KeySet.from_buckets([0]) | UNKEYED == UNKEYED | KeySet.from_buckets([0])
        assert not UNKEYED.overlaps(KeySet.everything())

    def test_text(self) -> None:
        assert str(KeySet()) == "nothing"
        assert str(KeySet.of("b", "a")) == "'a', 'b'"
        assert str(KeySet.everything() - KeySet.of(1)) == "* - 1"
        inside = next(key for key in range(10**6) if bucket_of(key) == 3)
        outside = next(key for key in range(10**6) if bucket_of(key) == 4)
        some = KeySet.from_buckets([3, 5]) - KeySet.of(inside) | KeySet.of(outside)
        assert str(some) == f"2/4096 buckets + {outside} - {inside}"


ARROW = {
    "int": [pa.int64()],
    "str": [pa.string(), pa.large_string()],
    "bytes": [pa.binary(), pa.large_binary()],
}


class TestMask:
    @given(singles, st.data())
    def test_is_membership_of_every_entry(self, drawn: tuple[str, KeySet], data: st.DataObject) -> None:
        kind, keys = drawn
        values = data.draw(st.lists(st.sampled_from(UNIVERSE[kind]), max_size=20))
        start = data.draw(st.integers(0, len(values)))
        expected = [value in keys for value in values]
        for type_ in ARROW[kind]:
            array = pa.array(values, type_)
            chunked = pa.chunked_array([array[:start], array[start:]], type_)
            for column in (array, chunked, array.dictionary_encode(), chunked.dictionary_encode()):
                assert keys.mask(column).tolist() == expected
                assert keys.mask(column.slice(start)).tolist() == expected[start:]

    def test_narrow_ints_and_keys_that_they_cannot_hold(self) -> None:
        column = pa.array([1, -1, 2**31 - 1], pa.int32())
        assert KeySet.of(1, 2**31, -(2**31) - 1).mask(column).tolist() == [True, False, False]
        rest = KeySet.everything() - KeySet.of(-1, 2**40)
        assert rest.mask(column).tolist() == [True, False, True]

    def test_keys_of_another_type_are_not_in_the_column(self) -> None:
        assert KeySet.of("a", b"a", 1, None).mask(pa.array(["a", "b"])).tolist() == [True, False]
        assert KeySet.of("a", 1).mask(pa.array([b"a"])).tolist() == [False]
        assert KeySet.of("1", b"1").mask(pa.array([1])).tolist() == [False]

    def test_no_rows(self) -> None:
        assert KeySet.of(1).mask(pa.array([], pa.int64())).tolist() == []
        assert KeySet.from_buckets([1]).mask(pa.chunked_array([], pa.string())).tolist() == []


class Tags:
    view = Tag(key="page string")
    change = Tag(key="page string")
    user = Tag(key="id long")
    tick = Tag()
    tock = Tag()


ALL_TAGS = (Tags.view, Tags.change, Tags.user, Tags.tick, Tags.tock)
KIND = {"view": "str", "change": "str", "user": "int"}
ATOMS = [
    *((tag, key) for tag, kind in KIND.items() for key in UNIVERSE[kind]),
    ("tick", None),
    ("tock", None),
]


@st.composite
def tag_sets(draw: st.DrawFn) -> TagSet:
    keyed = {tag: draw(key_sets(kind)) for tag, kind in KIND.items() if draw(st.booleans())}
    unkeyed = {tag: UNKEYED for tag in ("tick", "tock") if draw(st.booleans())}
    return TagSet(keyed | unkeyed)


def atoms(tags: TagSet) -> set[tuple[str, Key]]:
    return {(tag, key) for tag, key in ATOMS if tags.has(tag, key)}


class TestTagSet:
    @given(tag_sets(), tag_sets())
    def test_operations_are_those_on_sets(self, a: TagSet, b: TagSet) -> None:
        left, right = atoms(a), atoms(b)
        assert atoms(a | b) == left | right
        assert atoms(a & b) == left & right
        assert atoms(a - b) == left - right
        assert (a <= b) == (left <= right)
        assert a.is_empty() == (not left)
        assert (a == b) == (left == right)
        assert (a - b) | (a & b) == a
        assert hash((a - b) | (a & b)) == hash(a)

    @given(tag_sets())
    def test_looking_into_it(self, tags: TagSet) -> None:
        inside = atoms(tags)
        assert set(tags.tags) == {tag for tag, _ in inside} == {tag for tag, _ in tags}
        for tag in ALL_TAGS:
            assert tags.has_any(tag) == tags.has_any(tag.name) == any(name == tag.name for name, _ in inside)
        assert tags.has(Tags.tick) == (("tick", None) in inside)
        assert pickle.loads(pickle.dumps(tags)) == tags  # noqa: S301 -- our own bytes

    @given(tag_sets(), st.sampled_from(UNIVERSE["str"]))
    def test_at_one_key(self, tags: TagSet, key: Key) -> None:
        """What a program written for one key is told: the tags that have the key, and those that have none."""
        tags -= TagSet.all_of([Tags.user])  # a keyed program has one type of keys
        expected = {name for name, k in atoms(tags) if k == key or k is None}
        assert tags.at(key) == TagSet(dict.fromkeys(expected, UNKEYED))

    def test_a_keyed_tag_without_a_key_is_never_in_it(self) -> None:
        assert not TagSet.all_of(ALL_TAGS).has(Tags.view)

    def test_everything(self) -> None:
        assert atoms(TagSet.all_of(ALL_TAGS)) == set(ATOMS)
        finite = Tag(key="k long", keys=[1, 2])
        assert TagSet.all_of([finite])["?"] == KeySet.of(1, 2)

    def test_a_tag_that_is_given_twice_counts_with_all_its_keys(self) -> None:
        twice = TagSet([("view", KeySet.of("a")), ("tick", UNKEYED), ("view", KeySet.of("b")), ("user", NO_KEYS)])
        assert twice == TagSet({"tick": UNKEYED, "view": KeySet.of("a", "b")})
        assert twice.tags == ("tick", "view")

    def test_text(self) -> None:
        assert str(TagSet({"view": KeySet.of("a"), "tick": UNKEYED})) == "tick, view('a')"
        assert str(TagSet()) == "nothing"


RELATION = RuleDependence.bind(
    depends(
        (Tags.change, Tags.change),
        (Tags.change, Tags.view),
        (Tags.tick, Tags.user),
        always=[(Tags.user, Tags.view)],
    )
)


@given(tag_sets(), tag_sets())
def test_independence_is_exact(a: TagSet, b: TagSet) -> None:
    expected = any(RELATION(t, k, u, m) for t, k in atoms(a) for u, m in atoms(b))
    assert RELATION.between(a, b) == RELATION.between(b, a) == expected


@pytest.mark.parametrize(
    "key", [dt.date(2020, 1, 1), (1, "a"), 1.5, float("nan"), float("inf"), 1j, Decimal("0.5"), frozenset()]
)
def test_what_no_key_column_can_hold_is_in_no_set(key: object) -> None:
    sets = (KeySet.everything(), KeySet.of(1, "a"), KeySet.everything() - KeySet.of(1))
    assert not any(key in keys for keys in sets)
    assert not TagSet({"view": KeySet.everything()}).has("view", key)


@pytest.mark.parametrize("key", [1.0, True, np.int64(1), np.bool_(True), Decimal(1)])  # noqa: FBT003
def test_what_equals_a_key_is_where_that_is(key: object) -> None:
    """A dict takes them for one."""
    bucket = KeySet.from_buckets([bucket_of(1)])
    for keys in (KeySet.everything(), KeySet.of(1), KeySet.everything() - KeySet.of(1), bucket, KeySet.of(2)):
        assert (key in keys) == (1 in keys)
