from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flumina.errors import UsageError
from flumina.model.depends import Atom, Dependence, FunctionDependence, Rule, RuleDependence, depends
from flumina.model.tag import Tag
from flumina.model.tag_set import UNKEYED, Key, KeySet, TagSet


class Tags:
    inc = Tag(key="k long", keys=[1, 2, 3])
    read = Tag(key="k long", keys=[1, 2, 3])
    reset = Tag()


DECLARED = depends(
    (Tags.read, Tags.read), (Tags.read, Tags.inc), (Tags.inc, Tags.reset), always=[(Tags.reset, Tags.reset)]
)
ATOMS = [(tag.name, key) for tag in (Tags.inc, Tags.read, Tags.reset) for key in sorted(tag.universe.keys(), key=repr)]


def by_hand(a: Atom, b: Atom) -> bool:
    """The same relation as a function."""
    names = {a.tag.name, b.tag.name}
    if names in ({"read"}, {"read", "inc"}):
        return a.key == b.key
    return names in ({"reset"}, {"reset", "inc"})


RULES = RuleDependence.bind(DECLARED)
FUNCTION = FunctionDependence(by_hand, [Tags.inc, Tags.read, Tags.reset])
both = pytest.mark.parametrize("relation", [RULES, FUNCTION], ids=["rules", "function"])


def test_rules_are_symmetric_and_by_key_where_both_have_one() -> None:
    assert RULES.rules == {
        ("read", "read"): Rule.SAME_KEY,
        ("read", "inc"): Rule.SAME_KEY,
        ("inc", "read"): Rule.SAME_KEY,
        ("reset", "inc"): Rule.ALWAYS,
        ("inc", "reset"): Rule.ALWAYS,
        ("reset", "reset"): Rule.ALWAYS,
    }


def test_always_wins_over_same_key() -> None:
    rules = RuleDependence.bind(depends((Tags.inc, Tags.read), always=[(Tags.read, Tags.inc)])).rules
    assert rules == {("read", "inc"): Rule.ALWAYS, ("inc", "read"): Rule.ALWAYS}


@both
@pytest.mark.parametrize(("a", "b"), list(product(ATOMS, ATOMS)))
def test_events(relation: Dependence, a: tuple[str, Key], b: tuple[str, Key]) -> None:
    tags = {tag.name: tag for tag in (Tags.inc, Tags.read, Tags.reset)}
    assert relation(*a, *b) == by_hand(Atom(tags[a[0]], a[1]), Atom(tags[b[0]], b[1]))


sets = st.lists(st.sampled_from(ATOMS)).map(
    lambda atoms: TagSet((name, UNKEYED if key is None else KeySet.of(key)) for name, key in atoms)
)


@given(sets, sets)
def test_between_sets(a: TagSet, b: TagSet) -> None:
    expected = any(RULES(*x, *y) for x in ATOMS if a.has(*x) for y in ATOMS if b.has(*y))
    assert RULES.between(a, b) == FUNCTION.between(a, b) == expected


@both
def test_partners(relation: Dependence) -> None:
    for (tag, key), other in product(ATOMS, ("inc", "read", "reset")):
        among = [k for name, k in ATOMS if name == other]
        assert set(relation.partners(tag, key, other, among)) == {k for k in among if relation(tag, key, other, k)}
    assert set(relation.partners("read", 1, "inc", [2, 3])) == set()


@both
@pytest.mark.parametrize("same_key", [False, True])
def test_covers(relation: Dependence, *, same_key: bool) -> None:
    for tag, other in product(("inc", "read", "reset"), repeat=2):
        pairs = [(a, b) for (t, a), (u, b) in product(ATOMS, ATOMS) if (t, u) == (tag, other)]
        if same_key and ("reset" in (tag, other)) and tag != other:
            continue  # an unkeyed event has no key that could be the same
        expected = all(relation(tag, a, other, b) for a, b in pairs if a == b or not same_key)
        assert relation.covers(tag, other, same_key=same_key) == expected


def test_a_function_that_is_not_symmetric_is_safe_and_told_on() -> None:
    lopsided = FunctionDependence(lambda a, b: a.tag is Tags.reset and b.tag is Tags.inc, [Tags.inc, Tags.reset])
    assert lopsided("inc", 1, "reset", None)
    assert lopsided("reset", None, "inc", 1)
    assert sorted(lopsided.asymmetric()) == [(("reset", None), ("inc", key)) for key in (1, 2, 3)]
    assert FUNCTION.asymmetric() == []


@pytest.mark.parametrize("pair", [Tags.inc, (Tags.inc,), (Tags.inc, "read"), [Tags.inc, Tags.read]])
def test_only_pairs_of_tags(pair: object) -> None:
    with pytest.raises(UsageError, match=r"DEPENDS_PAIR.*test_depends\.py:\d+"):
        depends(pair)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="DEPENDS_PAIR"):
        depends(always=[pair])  # type: ignore[list-item]


@both
def test_of_two_tags_the_one_whose_events_are_in_a_sequence_synchronizes(relation: Dependence) -> None:
    assert relation.synchronizing([Tags.inc, Tags.read, Tags.reset]) == TagSet.all_of([Tags.read, Tags.reset])


class Kinds:
    work = Tag(key="k long")
    alone = Tag()
    barrier = Tag()
    other = Tag()


@pytest.mark.parametrize(
    ("pairs", "wanted"),
    [
        ([], []),
        ([(Kinds.alone, Kinds.alone)], []),
        ([(Kinds.work, Kinds.work), (Kinds.barrier, Kinds.barrier), (Kinds.work, Kinds.barrier)], [Kinds.barrier]),
        ([(Kinds.barrier, Kinds.other)], [Kinds.barrier, Kinds.other]),
        (
            [(Kinds.barrier, Kinds.barrier), (Kinds.other, Kinds.other), (Kinds.barrier, Kinds.other)],
            [Kinds.barrier, Kinds.other],
        ),
        (
            [
                (Kinds.barrier, Kinds.barrier),
                (Kinds.other, Kinds.other),
                (Kinds.barrier, Kinds.alone),
                (Kinds.other, Kinds.alone),
            ],
            [Kinds.barrier, Kinds.other],
        ),
    ],
    ids=["nothing", "itself alone", "a sequence for each key", "neither", "both", "below two"],
)
def test_which_events_synchronize(pairs: list[tuple[Tag, Tag]], wanted: list[Tag]) -> None:
    tags = [Kinds.work, Kinds.alone, Kinds.barrier, Kinds.other]
    assert RuleDependence.bind(depends(*pairs)).synchronizing(tags) == TagSet.all_of(wanted)


def test_some_keys_of_a_tag_may_synchronize() -> None:
    relation = FunctionDependence(lambda a, b: 1 in (a.key, b.key), [Tags.inc])
    assert relation.synchronizing([Tags.inc]) == TagSet({"inc": KeySet.of(1)})
    all_in_a_sequence = FunctionDependence(lambda a, b: True, [Tags.inc])
    assert all_in_a_sequence.synchronizing([Tags.inc]) == TagSet()
