"""Queues and components: what is released, and when."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flumina as fl
from flumina.model.order import END, START, Point
from flumina.model.tag_set import TagSet
from flumina.program.base import define
from flumina.runtime.mailbox import Component, Queue, before
from flumina.runtime.messages import EVERYTHING, PartId
from flumina.runtime.run import EMPTY, Run, merged
from flumina.runtime.topology import ComponentShape


class Two(fl.Program):
    """Two tags; what they do does not matter here."""

    a = fl.Tag()
    b = fl.Tag()
    depends = fl.depends((a, b))
    output = "n long"

    def init(self) -> int:
        return 0

    def update(self, state: int, event: fl.Event, emit: fl.Emit) -> int:
        return state

    def fork(self, state: int, left: fl.TagSet, right: fl.TagSet) -> tuple[int, int]:
        return state, 0

    def join(self, left: int, right: int) -> int:
        return left + right


TAGS = define(Two).tags
ONE, OTHER = ("one", 0), ("other", 0)


def run_of(*points: Point, tag: str = "a") -> Run:
    return Run(list(points), [TAGS[tag].event(ts=p.ts, stream="s", seq=p.seq) for p in points]) if points else EMPTY


def at(ts: int, seq: int = 0, rank: int = 0) -> Point:
    return Point(ts, rank, seq)


POINTS = st.lists(st.builds(at, st.integers(0, 5), st.integers(0, 2)), unique=True, max_size=12).map(sorted)


@given(POINTS, st.lists(st.integers(0, 12)), st.lists(st.builds(at, st.integers(-1, 6), st.integers(-1, 3))))
def test_a_queue_gives_out_what_lies_up_to_a_bound_once_and_in_order(
    points: list[Point], cuts: list[int], bounds: list[Point]
) -> None:
    queue = Queue()
    edges = [0, *sorted(min(cut, len(points)) for cut in cuts), len(points)]
    for start, stop in pairwise(edges):
        queue.put(run_of(*points[start:stop]), points[stop - 1] if stop else START)
    taken: list[Point] = []
    for number, bound in enumerate(bounds):
        taken += [point for point, _ in queue.take(bound)]
        assert taken == [point for point in points if point <= max(bounds[: number + 1])]
        assert queue.length == len(points) - len(taken)
        assert queue.first == (points[len(taken)] if queue.length else None)


def test_a_frontier_never_goes_back() -> None:
    queue = Queue()
    queue.put(EMPTY, at(5))
    queue.put(EMPTY, at(5))
    with pytest.raises(AssertionError, match="never goes back"):
        queue.put(EMPTY, at(4))


def test_runs_arrive_in_order() -> None:
    queue = Queue()
    queue.put(run_of(at(3)), at(3))
    queue.put(run_of(at(3, 1)), at(3, 1))
    queue.put(run_of(at(3, 1)), at(3, 1))  # independent events can be at one point
    queue.put(run_of(at(7)), at(7))
    with pytest.raises(AssertionError, match="arrive in order"):
        queue.put(run_of(at(5)), at(8))
    with pytest.raises(AssertionError, match="arrive in order"):
        queue.put(run_of(at(2)), at(8))


def test_before_is_the_last_point_before() -> None:
    assert before(at(3, 2)) == at(3, 1) < at(3, 2)
    assert at(2, 10**9) < before(at(3, 0)) < at(3, 0)
    assert before(END) < END


def component(*parts: PartId) -> Component:
    both = TagSet.all_of(TAGS.values())
    return Component(ComponentShape(tuple((part, both) for part in parts), frozenset({EVERYTHING})))


def test_a_component_waits_for_all_its_parts() -> None:
    made = component(ONE, OTHER)
    made.put(ONE, run_of(at(1), at(4)), at(9))
    assert made.take(END) == {}
    assert (made.frontier, made.first, made.settled) == (START, at(1), START)
    made.put(OTHER, run_of(at(2, rank=1), tag="b"), at(3, rank=1))
    assert (made.frontier, made.settled) == (at(3, rank=1), before(at(1)))
    runs = made.take(END)
    assert {part: list(run.points) for part, run in runs.items()} == {ONE: [at(1)], OTHER: [at(2, rank=1)]}
    assert (made.first, made.settled) == (at(4), at(3, rank=1))


def test_a_component_goes_no_further_than_the_bound() -> None:
    made = component(ONE)
    made.put(ONE, run_of(at(1), at(2), at(3)), at(9))
    assert made.take(before(at(1))) == {}
    assert list(made.take(at(2))[ONE].points) == [at(1), at(2)]
    assert made.settled == before(at(3))
    made.take(END)
    assert made.settled == at(9)


def test_a_component_takes_its_own_tags_and_every_frontier() -> None:
    made = Component(ComponentShape(((ONE, TagSet.all_of([TAGS["a"]])),), frozenset({EVERYTHING})))
    made.put(ONE, run_of(at(1), tag="b"), at(1))
    assert (made.first, made.frontier, made.settled) == (None, at(1), at(1))
    made.put(ONE, run_of(at(2), tag="a"), at(2))
    assert made.first == at(2)


@given(POINTS, POINTS, st.builds(at, st.integers(-1, 6), st.integers(-1, 3)))
def test_two_parts_are_released_up_to_the_same_point(one: list[Point], other: list[Point], bound: Point) -> None:
    other = [point._replace(rank=1) for point in other]
    made = component(ONE, OTHER)
    made.put(ONE, run_of(*one), at(9))
    made.put(OTHER, run_of(*other, tag="b"), at(9, rank=1))
    runs = made.take(bound)
    assert [point for point, _ in merged(runs.values())] == sorted(p for p in [*one, *other] if p <= bound)
    assert all(runs.values())
