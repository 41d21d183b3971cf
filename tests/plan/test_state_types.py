import random

import flumina as fl
from flumina.model.tag_set import KeySet, TagSet
from flumina.plan import Itag, Plan, PlanWorker, StreamShape, validate
from flumina.plan.state_types import assign_state_types
from tests.plan.support import Keyed, Typed, random_streams, random_valid_plan

ALL = KeySet.everything()


def bare(*itags: Itag, children: tuple[PlanWorker, ...] = ()) -> PlanWorker:
    return PlanWorker("", "", itags, children)


def itag(parts: set[int], **tags: KeySet) -> Itag:
    return Itag("s", frozenset(parts), TagSet(tags))


def typed_plan(root: PlanWorker, parts: int) -> Plan:
    return Plan.of(Typed, [StreamShape("s", parts, fl.define(Typed).everything)], root)


def test_sides_are_swapped_where_only_that_fits() -> None:
    one, rest = KeySet.of(1), ALL - KeySet.of(1)
    counting, reading = bare(itag({0, 1}, inc=one)), bare(itag({0, 1}, read=rest, inc=rest))
    # Whole divides into (Reader, Counter), never into (Counter, Reader).
    found = assign_state_types(bare(itag({0, 1}, read=one), children=(counting, reading)), fl.define(Typed))
    assert [(w.id, w.kind) for w in found.walk()] == [("w1", "Whole"), ("w2", "Reader"), ("w3", "Counter")]
    assert validate(typed_plan(found, 2), Typed) == []


def test_what_no_fork_fits_becomes_one_worker() -> None:
    one, rest = KeySet.of(1), ALL - KeySet.of(1)
    sides = tuple(bare(itag({0}, read=keys, inc=keys)) for keys in (one, rest))
    found = assign_state_types(
        bare(children=sides), fl.define(Typed)
    )  # Whole -> (Reader, Counter) only, and both sides read
    assert [(worker.id, worker.kind) for worker in found.walk()] == [("w1", "Whole")]
    assert validate(typed_plan(found, 1), Typed) == []


def test_as_many_leaves_as_possible_are_kept() -> None:
    incs = tuple(bare(itag({part}, inc=ALL)) for part in range(4))
    pair = (bare(children=incs[:2]), bare(children=incs[2:]))
    found = assign_state_types(bare(itag({0, 1, 2, 3}, read=ALL), children=pair), fl.define(Typed))
    assert [w.kind for w in found.walk()] == ["Whole", "Reader", "Reader", "Reader", "Counter", "Counter", "Counter"]
    assert validate(typed_plan(found, 4), Typed) == []


def test_random_typed_plans_are_valid() -> None:
    rng = random.Random(8)
    definition = fl.define(Typed)
    sizes = set()
    for _ in range(100):
        plan = random_valid_plan(definition, random_streams(definition, rng), rng)
        assert validate(plan, definition) == []
        sizes.add(len(plan))
    assert max(sizes) >= 5


def test_time_grows_with_the_tree_not_with_orders_of_forks() -> None:
    leaves = [bare(itag({part}, inc=ALL)) for part in range(2048)]
    while len(leaves) > 1:
        leaves = [bare(children=(leaves[i], leaves[i + 1])) for i in range(0, len(leaves), 2)]
    assert len(list(assign_state_types(leaves[0], fl.define(Typed)).walk())) == 4095
    assert assign_state_types(leaves[0], fl.define(Keyed)).kind == "State"
