import pickle
import random
from collections import Counter
from dataclasses import replace

import pytest

import flumina as fl
from flumina.errors import PlanError
from flumina.model.tag_set import KeySet, TagSet
from flumina.plan import Itag, Plan, PlanWorker, StreamShape, Violation, check_valid, validate
from flumina.plan.validity import RULES
from tests.plan.support import (
    PROGRAMS,
    Keyed,
    Verdict,
    brute_force,
    perturbed,
    random_streams,
    random_valid_plan,
)
from tests.program.tick_programs import Tumbling

ALL = KeySet.everything()


def said(violations: list[Violation]) -> Verdict:
    """Violations as the brute-force checker gives them."""
    found: Verdict = set()
    for violation in violations:
        workers = violation.workers[:1] if violation.rule in {"NO_FORK", "NO_JOIN"} else violation.workers
        found.add((violation.rule, *sorted(workers)))
    return found


def test_agrees_with_brute_force_on_perturbed_plans() -> None:
    rng = random.Random(20)
    definitions = [fl.define(program) for program in PROGRAMS]
    verdicts: Counter[bool] = Counter()
    rules: Counter[str] = Counter()
    count = 0
    while count < 10_000:
        definition = rng.choice(definitions)
        plan = random_valid_plan(definition, random_streams(definition, rng), rng)
        if count % 20 == 0:
            assert validate(plan, definition) == []
            assert brute_force(plan, definition) == set()
        for _ in range(10):
            changed = perturbed(plan, definition, rng)
            if rng.random() < 0.2:
                changed = perturbed(changed, definition, rng)
            expected = brute_force(changed, definition)
            found = said(validate(changed, definition))
            assert found == expected, changed
            verdicts[bool(found)] += 1
            rules.update(rule for rule, *_ in found)
            count += 1
    assert verdicts[True] > 2_500
    assert verdicts[False] > 2_500
    never_made_here = {"PROGRAM", "STREAMS", "TICK_KEYS", "TICK_STREAM"}
    assert set(RULES) - never_made_here == set(rules)
    assert min(rules.values()) > 20


def itag(stream: str, parts: set[int], **tags: KeySet) -> Itag:
    return Itag(stream, frozenset(parts), TagSet(tags))


def leaf(name: str, *itags: Itag) -> PlanWorker:
    return PlanWorker(name, "State", itags)


def keyed_plan(root: PlanWorker, parts: int = 2) -> Plan:
    return Plan.of(Keyed, [StreamShape("s", parts, fl.define(Keyed).everything)], root)


def test_a_plan_cut_by_part_is_valid_and_its_mirror_is_not() -> None:
    reads = itag("s", {0, 1}, read=ALL)
    halves = (leaf("w2", itag("s", {0}, inc=ALL)), leaf("w3", itag("s", {1}, inc=ALL)))
    assert validate(keyed_plan(PlanWorker("w1", "State", (reads,), halves)), Keyed) == []
    incs = itag("s", {0, 1}, inc=ALL)
    halves = (leaf("w2", itag("s", {0}, read=ALL)), leaf("w3", itag("s", {1}, read=ALL)))
    (violation,) = validate(keyed_plan(PlanWorker("w1", "State", (incs,), halves)), Keyed)
    assert violation.rule == "DEPENDENT"
    assert violation.workers == ("w2", "w3")
    assert violation.tags == TagSet({"read": ALL})


def test_unbounded_keys_are_told_apart_exactly() -> None:
    low = KeySet.from_buckets(range(2048))
    moved = next(key for key in range(100) if key in low)
    one, other = low - KeySet.of(moved), (ALL - low) | KeySet.of(moved)
    sides = (leaf("w2", itag("s", {0, 1}, inc=one, read=one)), leaf("w3", itag("s", {0, 1}, inc=other, read=other)))
    assert validate(keyed_plan(PlanWorker("w1", "State", (), sides)), Keyed) == []


def test_one_key_in_two_places_is_named() -> None:
    one, other = KeySet.of(1, 2), ALL - KeySet.of(1)
    sides = (leaf("w2", itag("s", {0, 1}, inc=one, read=one)), leaf("w3", itag("s", {0, 1}, inc=other, read=other)))
    problems = validate(keyed_plan(PlanWorker("w1", "State", (), sides)), Keyed)
    assert {p.rule for p in problems} == {"DEPENDENT", "HANDLED_TWICE"}
    for problem in problems:
        assert problem.workers == ("w2", "w3")
        assert problem.tags["read"] == KeySet.of(2)
        assert "2" in str(problem)


def test_handled_twice_along_a_chain_is_a_violation() -> None:
    sides = (leaf("w2", itag("s", {0}, inc=ALL)), leaf("w3", itag("s", {1}, inc=ALL)))
    root = PlanWorker("w1", "State", (itag("s", {0, 1}, read=ALL), itag("s", {0}, inc=KeySet.of(4))), sides)
    (problem,) = validate(keyed_plan(root), Keyed)
    assert (problem.rule, problem.workers, problem.tags) == (
        "HANDLED_TWICE",
        ("w1", "w2"),
        TagSet({"inc": KeySet.of(4)}),
    )


def test_the_same_events_twice_in_one_worker_are_named() -> None:
    named = itag("s", {1}, inc=KeySet.of(4, 5), read=KeySet.of(4))
    plan = keyed_plan(leaf("w1", itag("s", {0, 1}, inc=ALL), itag("s", {0, 1}, read=ALL), named))
    (problem,) = validate(plan, Keyed)
    assert (problem.rule, problem.workers) == ("HANDLED_TWICE", ("w1",))
    assert problem.tags == TagSet({"inc": KeySet.of(4, 5), "read": KeySet.of(4)})
    assert problem.message == "w1 has inc(4, 5), read(4) on s[1] in more than one of its itags"


def test_an_itag_written_twice_is_named_with_all_its_parts() -> None:
    both = itag("s", {0, 1}, inc=ALL, read=ALL)
    (problem,) = validate(keyed_plan(leaf("w1", both, both)), Keyed)
    assert problem.message == "w1 has inc(*), read(*) on s[0-1] in more than one of its itags"


def test_itags_that_share_streams_and_parts_but_no_keys_are_valid() -> None:
    low = KeySet.from_buckets(range(2048))
    pieces = (low - KeySet.of(1), (ALL - low) - KeySet.of(1), KeySet.of(1))
    itags = (itag("s", {0, 1}, inc=keys, read=keys) for keys in pieces)
    assert validate(keyed_plan(leaf("w1", *itags)), Keyed) == []


def test_one_worker_with_thousands_of_itags_is_looked_at_in_one_pass() -> None:
    count = 5_000
    named = [itag("s", {0, 1}, inc=KeySet.of(key), read=KeySet.of(key)) for key in range(count)]
    rest = ALL - KeySet.of(*range(count))
    plan = keyed_plan(leaf("w1", *named, itag("s", {0, 1}, inc=rest, read=rest)))
    assert validate(plan, Keyed) == []


def test_a_plan_for_another_program_or_other_streams_is_refused() -> None:
    plan = keyed_plan(leaf("w1", itag("s", {0, 1}, inc=ALL, read=ALL)))

    class Other(Keyed):
        extra = fl.Tag()
        depends = fl.depends()

    assert {p.rule for p in validate(plan, Other)} == {"PROGRAM"}
    assert validate(plan, Keyed, plan.streams) == []
    other = StreamShape("t", 1, plan.streams[0].tags)
    assert [p.rule for p in validate(plan, Keyed, [other])] == ["STREAMS", "STREAMS"]
    assert [p.rule for p in validate(plan, Keyed, [replace(plan.streams[0], parts=3)])] == ["STREAMS"]
    fewer = replace(plan.streams[0], tags=TagSet({"inc": ALL}))
    assert [p.rule for p in validate(plan, Keyed, [fewer])] == ["STREAMS"]


def test_check_valid_lists_every_violation_and_travels() -> None:
    plan = keyed_plan(PlanWorker("w1", "Other", (), (leaf("w2"), leaf("w2", itag("s", {0, 9}, inc=ALL)))))
    with pytest.raises(PlanError) as caught:
        check_valid(plan, Keyed)
    error = caught.value
    assert error.condition == "INVALID_PLAN"
    rules = [violation.rule for violation in error.violations if isinstance(violation, Violation)]
    expected = {"ROOT_KIND", "UNKNOWN_KIND", "EMPTY_LEAF", "DUPLICATE_ID", "UNKNOWN_PART", "NOT_HANDLED"}
    assert set(rules) == expected
    assert all(f"{number}. [{rule}]" in str(error) for number, rule in enumerate(rules, 1))
    assert str(pickle.loads(pickle.dumps(error))) == str(error)  # noqa: S301
    check_valid(keyed_plan(leaf("w1", itag("s", {0, 1}, inc=ALL, read=ALL))), Keyed)


def test_tags_that_the_program_does_not_have_are_named() -> None:
    shape = StreamShape("s", 1, TagSet({"inc": ALL, "read": ALL, "write": ALL}))
    plan = Plan.of(Keyed, [shape], leaf("w1", itag("s", {0}, inc=ALL, read=ALL, write=ALL)))
    (problem,) = validate(plan, Keyed)
    assert problem.rule == "UNKNOWN_TAG"
    assert "'write'" in problem.message


def ticking_plan(root: PlanWorker) -> Plan:
    loads = StreamShape("loads", 2, TagSet({"load": ALL}))
    return Plan.of(Tumbling, [loads, StreamShape("hour", 1, TagSet({"hour": ALL}), ticks=True)], root)


def keys_of_two_houses(own: KeySet) -> Plan:
    """Loads of house 1 by part, those of the others in one leaf; the inner worker above has the ticks ``own``."""
    one, rest = KeySet.of(1), ALL - KeySet.of(1)
    halves = tuple(PlanWorker(f"w{n + 3}", "States", (itag("loads", {n}, load=one),)) for n in (0, 1))
    inner = PlanWorker("w2", "States", (itag("hour", {0}, hour=own),), halves)
    below = (itag("loads", {0, 1}, load=rest), itag("hour", {0}, hour=ALL - own))
    return ticking_plan(PlanWorker("w1", "States", (), (inner, PlanWorker("w5", "States", below))))


def test_ticks_of_named_keys_may_be_at_an_inner_worker_and_no_others() -> None:
    assert validate(keys_of_two_houses(KeySet.of(1)), Tumbling) == []
    low = KeySet.from_buckets(range(2048)) | KeySet.of(1)
    problems = validate(keys_of_two_houses(low), Tumbling)
    assert [p.workers for p in problems if p.rule == "TICK_KEYS"] == [("w2",)]


def test_every_tick_has_a_worker() -> None:
    loads = itag("loads", {0, 1}, load=ALL)
    assert validate(ticking_plan(leaf_of(loads, itag("hour", {0}, hour=ALL))), Tumbling) == []
    some = validate(ticking_plan(leaf_of(loads, itag("hour", {0}, hour=ALL - KeySet.of(3)))), Tumbling)
    assert [(p.rule, p.tags) for p in some] == [("NOT_HANDLED", TagSet({"hour": KeySet.of(3)}))]
    without = Plan.of(Tumbling, [StreamShape("loads", 2, TagSet({"load": ALL}))], leaf_of(loads))
    assert [(p.rule, p.tags) for p in validate(without, Tumbling)] == [("NOT_HANDLED", TagSet({"hour": ALL}))]


def test_ticks_are_on_virtual_streams_and_nothing_else_is() -> None:
    given = itag("loads", {0, 1}, load=ALL), itag("hour", {0}, hour=ALL)
    for changed in (
        StreamShape("hour", 1, TagSet({"hour": ALL})),
        StreamShape("hour", 1, TagSet({"hour": ALL, "load": ALL}), ticks=True),
        StreamShape("hour", 2, TagSet({"hour": ALL}), ticks=True),
    ):
        plan = Plan.of(Tumbling, [StreamShape("loads", 2, TagSet({"load": ALL})), changed], leaf_of(*given))
        assert "TICK_STREAM" in {p.rule for p in validate(plan, Tumbling)}, changed
    virtual = StreamShape("loads", 1, TagSet({"load": ALL}), ticks=True)
    plan = replace(plan, streams=(virtual, StreamShape("hour", 1, TagSet({"hour": ALL}), ticks=True)))
    assert "TICK_STREAM" in {p.rule for p in validate(plan, Tumbling)}


def leaf_of(*itags: Itag) -> PlanWorker:
    return PlanWorker("w1", "States", itags)
