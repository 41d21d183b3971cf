import pickle

import pytest

from flumina.apps import KeyCounter
from flumina.errors import UsageError
from flumina.model.tag_set import KeySet, TagSet
from flumina.plan import Itag, Plan, PlanWorker, StreamShape
from flumina.plan.tree import MAX_DEPTH, MAX_PARTS, merged, ranges, union
from tests.plan.support import Keyed

ALL = KeySet.everything()


def itag(stream: str, parts: set[int], **tags: KeySet) -> Itag:
    return Itag(stream, frozenset(parts), TagSet(tags))


@pytest.fixture
def plan() -> Plan:
    """The paper's figure: key 1 in a leaf, key 2 read above two leaves."""
    one, two = KeySet.of(1), KeySet.of(2)
    w4, w5 = (PlanWorker(f"w{n}", "States", (itag("i", {n - 4}, inc=two),), (), f"E{n - 2}") for n in (4, 5))
    w3 = PlanWorker("w3", "States", (itag("r", {0}, read=two),), (w4, w5), "E0")
    w2 = PlanWorker("w2", "States", (itag("i", {2}, inc=one), itag("r", {0}, read=one)), (), "E1")
    shapes = [StreamShape("r", 1, TagSet({"read": one | two})), StreamShape("i", 3, TagSet({"inc": one | two}))]
    return Plan.of(KeyCounter, shapes, PlanWorker("w1", "States", (), (w2, w3), "E0"))


def test_queries(plan: Plan) -> None:
    assert [worker.id for worker in plan.workers] == ["w1", "w2", "w3", "w4", "w5"]
    assert plan.parents == (None, 0, 0, 2, 2)
    assert [worker.id for worker in plan.leaves] == ["w2", "w4", "w5"]
    assert [worker.id for worker in plan.ancestors("w5")] == ["w3", "w1"]
    assert plan.ancestors("w1") == ()
    assert [worker.id for worker in plan.descendants("w3")] == ["w4", "w5"]
    assert plan.parent("w1") is None
    assert plan.parent("w4") is plan["w3"]
    assert (plan.depth, len(plan), plan.places) == (2, 5, ("E0", "E1", "E2", "E3"))
    assert plan["w3"].tags == TagSet({"read": KeySet.of(2)})
    assert plan["w3"].subtree_tags == TagSet({"read": KeySet.of(2), "inc": KeySet.of(2)})
    assert plan.stream("i").parts == 3


def test_deep_chains_have_parents_too() -> None:
    worker = PlanWorker("w0", "State")
    for number in range(1, MAX_DEPTH + 1):
        worker = PlanWorker(f"w{number}", "State", (), (PlanWorker(f"v{number}", "State"), worker))
    plan = Plan.of(Keyed, [StreamShape("s", 1, TagSet())], worker)
    assert plan.depth == MAX_DEPTH
    assert [above.id for above in plan.ancestors("w0")] == [f"w{n}" for n in range(1, MAX_DEPTH + 1)]
    assert pickle.loads(pickle.dumps(plan)) == plan  # noqa: S301
    with pytest.raises(UsageError, match="TOO_DEEP"):
        Plan.of(Keyed, [], PlanWorker("top", "State", (), (worker, PlanWorker("other", "State"))))


def test_plans_are_values(plan: Plan) -> None:
    again = pickle.loads(pickle.dumps(plan))  # noqa: S301
    assert again == plan
    assert hash(again) == hash(plan)
    assert again.root.subtree_tags == plan.root.subtree_tags
    assert plan.at({"w4": "E9"})["w4"].place == "E9"
    assert plan.at({}) == plan
    with pytest.raises(AttributeError):
        plan.root.kind = "Other"  # type: ignore[misc]


def test_unknown_names_are_named(plan: Plan) -> None:
    with pytest.raises(UsageError, match="no worker 'w9'"):
        plan["w9"]
    with pytest.raises(UsageError, match="no worker 'w9'"):
        plan.ancestors("w9")
    with pytest.raises(UsageError, match="no stream 'x'"):
        plan.stream("x")
    with pytest.raises(UsageError, match="0 parts"):
        StreamShape("s", 0, TagSet())
    with pytest.raises(UsageError, match="2 parts, got 1"):
        StreamShape("s", 2, TagSet(), (TagSet(),))


def test_merged_itags_are_a_normal_form() -> None:
    one, two = KeySet.of(1), KeySet.of(2)
    scattered = [itag("b", {1}, x=one), itag("a", {0, 1}, x=one), itag("b", {0}, x=one), itag("a", {1}, x=two)]
    expected = (itag("a", {0}, x=one), itag("a", {1}, x=one | two), itag("b", {0, 1}, x=one))
    assert merged(scattered) == merged(reversed(scattered)) == merged(expected) == expected


def test_union_is_what_or_says() -> None:
    low = KeySet.from_buckets(range(100))
    sets = [TagSet({"x": low - KeySet.of(7)}), TagSet({"x": KeySet.of(7, 8), "y": ALL}), TagSet({"x": KeySet.of(9)})]
    assert union(sets) == sets[0] | sets[1] | sets[2]
    assert union([]) == TagSet()


@pytest.mark.parametrize(("numbers", "text"), [([], ""), ([3], "3"), ([2, 0, 1, 5, 7, 8], "0-2, 5, 7-8")])
def test_ranges(numbers: list[int], text: str) -> None:
    assert ranges(numbers) == text


def test_streams_have_at_most_a_million_parts() -> None:
    with pytest.raises(UsageError, match="at most 1000000"):
        StreamShape("s", MAX_PARTS + 1, TagSet())
