"""Random input: events of several parts share points wherever they are independent, and nowhere else."""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest

from flumina.apps import KeyCounter, PageViews, ValueBarrier
from flumina.model.event import Event
from flumina.model.order import Point
from flumina.model.tag_set import KeySet, TagSet
from flumina.program.base import AnyProgram, define
from flumina.runtime.messages import PartId
from flumina.sim.inputs import random_input
from flumina.sim.programs import random_keyed_program, random_program
from tests.sim.plans import shape


def only(event: Event) -> TagSet:
    return TagSet([(event.tag.name, KeySet.of(event.key))])


@pytest.mark.parametrize("program", [KeyCounter, PageViews, ValueBarrier, *range(6)], ids=str)
def test_what_shares_a_point_is_independent_and_of_several_parts(program: AnyProgram | int) -> None:
    if isinstance(program, int):
        random_ = Random(program)
        program = (random_program if random_.random() < 0.5 else random_keyed_program)(random_)
    definition = define(program)
    names = list(definition.tags)
    shapes = [shape(program, "one", 3, *names[:1]), shape(program, "rest", 2, *names[1:])]
    tied = apart = 0
    for seed in range(40):
        made = random_input(Random(seed), definition, shapes, 30)
        assert sum(map(len, made.values())) == 30
        at: dict[Point, list[tuple[PartId, Event]]] = {}
        for part, entries in made.items():
            points = [point for point, _ in entries]
            assert points == sorted(set(points)), "the events of a part are in O"
            for point, event in entries:
                assert (point.ts, point.seq) == (event.ts, event.seq)
                at.setdefault(point, []).append((part, event))
        for together in at.values():
            for (_, a), (_, b) in combinations(together, 2):
                assert not definition.depends.between(only(a), only(b)), f"{a} and {b} have no order"
        tied += len(at) < 30
        apart += len(at) == 30
    assert apart > 0
    loose = any(
        not definition.depends.between(TagSet.all_of([tag]), TagSet.all_of([tag])) for tag in definition.tags.values()
    )
    assert tied > 0 or not loose


def test_timestamps_repeat_within_a_part() -> None:
    made = random_input(Random(3), define(ValueBarrier), [shape(ValueBarrier, "all", 1, "value", "barrier")], 60)
    times = [point.ts for point, _ in made["all", 0]]
    assert len(set(times)) < 50


def test_time_jumps_now_and_then_and_in_some_inputs_never() -> None:
    shapes = [shape(ValueBarrier, "all", 1, "value", "barrier")]
    spans = []
    for seed in range(40):
        times = [point.ts for point, _ in random_input(Random(seed), define(ValueBarrier), shapes, 60)["all", 0]]
        assert times == sorted(times)
        assert len(set(times)) < 60, "and still many are equal"
        spans.append(times[-1])
    assert sum(span < 120 for span in spans) > 10
    assert sum(span > 1_000_000 for span in spans) > 10


def test_programs_for_one_key_have_rare_keys_beside_frequent_ones() -> None:
    shapes = [shape(PageViews, "all", 2, "view", "change")]
    keys = [
        e.key
        for seed in range(20)
        for es in random_input(Random(seed), define(PageViews), shapes, 60).values()
        for _, e in es
    ]
    assert set(keys) == set("abcdefghi")
    assert keys.count("a") > 1.5 * keys.count("g")


def test_named_keys_occur() -> None:
    shapes = [shape(KeyCounter, "all", 1, "inc", "read")]
    made = random_input(Random(1), define(KeyCounter), shapes, 200, {"inc": [77]})
    assert {event.tag.name for _, event in made["all", 0] if event.key == 77} == {"inc"}
