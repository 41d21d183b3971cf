"""Runs: as lists and as columns they mean the same."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flumina.apps import KeyCounter
from flumina.apps.fraud import Fraud
from flumina.model.batch import Batch
from flumina.model.emit import Emit, rows
from flumina.model.event import Event
from flumina.model.order import END, START, Point
from flumina.model.tag_set import TagSet
from flumina.program.base import define
from flumina.runtime.run import EMPTY, Run, merged
from tests.runtime.support import in_columns

DEFINITION = define(Fraud)
KIND = DEFINITION.kinds[DEFINITION.initial]
TAGS = DEFINITION.tags
NAMES = ("one", "two", "three")


@st.composite
def listed(draw: st.DrawFn, at_least: int = 0, ranks: Sequence[int] = (0, 1, 2)) -> Run:
    """A run of transactions and rules of some streams, as a list."""
    points = draw(
        st.lists(
            st.builds(Point, st.integers(0, 6), st.sampled_from(ranks), st.integers(0, 3)),
            min_size=at_least,
            max_size=12,
            unique=True,
        )
    )
    events = []
    for point in sorted(points):
        tag, column = draw(st.sampled_from([("transaction", "v"), ("rule", "r")]))
        value = draw(st.integers(0, 2))
        events.append(TAGS[tag].event(ts=point.ts, stream=NAMES[point.rank], seq=point.seq, **{column: value}))
    return Run(sorted(points), events)


BOUNDS = st.builds(Point, st.integers(-1, 7), st.integers(0, 2), st.integers(-1, 4)) | st.sampled_from([START, END])


def same(one: Run, other: Run) -> bool:
    return list(one) == list(other) and len(one) == len(other) and bool(one) == bool(other)


@given(listed(), BOUNDS)
def test_cut(run: Run, bound: Point) -> None:
    for form in (run, in_columns(run, NAMES)):
        head, rest = form.split(bound)
        assert [*head, *rest] == list(run)
        assert list(head) == [(point, event) for point, event in run if point <= bound]


@given(listed(at_least=1))
def test_first_and_last(run: Run) -> None:
    columns = in_columns(run, NAMES)
    assert (columns.first, columns.last) == (run.first, run.last) == (run.points[0], run.points[-1])


@given(st.lists(listed(), max_size=4), st.lists(st.booleans(), min_size=4, max_size=4))
def test_merged_is_all_in_order_whatever_the_form(runs: list[Run], forms: list[bool]) -> None:
    seen: set[Point] = set()
    apart = []
    for run in runs:  # points are unique across runs, so that there is one right order
        kept = [(point, event) for point, event in run if point not in seen]
        seen |= {point for point, _ in kept}
        apart.append(Run([point for point, _ in kept], [event for _, event in kept]))
    mixed = [in_columns(run, NAMES) if columns else run for run, columns in zip(apart, forms, strict=False)]
    wanted = sorted((pair for run in apart for pair in run), key=lambda pair: pair[0])
    assert list(merged(mixed)) == wanted
    assert list(merged(apart)) == wanted


@pytest.mark.parametrize("names", [("transaction",), ("rule",), ("transaction", "rule"), ()])
@given(run=listed())
def test_only(names: tuple[str, ...], run: Run) -> None:
    tags = TagSet.all_of(TAGS[name] for name in names)
    wanted = [(point, event) for point, event in run if event.tag.name in names]
    assert list(run.only(tags)) == wanted
    assert same(in_columns(run, NAMES).only(tags), run.only(tags))


@pytest.mark.parametrize("names", [("transaction",), ("rule",), ("transaction", "rule"), ()])
@given(run=listed())
def test_count(names: tuple[str, ...], run: Run) -> None:
    tags = TagSet.all_of(TAGS[name] for name in names)
    assert run.count(tags) == in_columns(run, NAMES).count(tags) == len(run.only(tags))


@given(listed())
def test_fold(run: Run) -> None:
    """``update_batch`` on columns and ``update`` on lists: the same state, the same outputs by the same events."""
    results = []
    for form in (run, in_columns(run, NAMES)):
        emit = Emit(DEFINITION.outputs)
        state = form.fold(KIND, DEFINITION.init(), emit)
        results.append((state, sorted(map(repr, rows(emit.drain())))))
    assert results[0] == results[1]


def test_nothing() -> None:
    assert not EMPTY
    assert merged([]) is merged([EMPTY, EMPTY]) is EMPTY
    assert EMPTY.split(END) == (EMPTY, EMPTY)


def test_a_whole_run_is_kept_as_it_is() -> None:
    events: list[Event] = [TAGS["rule"].event(ts=ts, stream="one", r=1) for ts in range(3)]
    for run in (Run([Point(ts, 0, 0) for ts in range(3)], events), Run(batch=Batch.of_events(events, NAMES))):
        assert run.split(END)[0] is run.split(run.last)[0] is run
        assert run.split(START)[1] is run
        assert run.only(TagSet.all_of(TAGS.values())) is run
        assert merged([EMPTY, run]) is run


@given(
    st.lists(st.tuples(st.sampled_from(["inc", "read"]), st.integers(0, 4)), max_size=12), st.sets(st.integers(0, 6))
)
def test_divert(what: list[tuple[str, int]], keys: set[int]) -> None:
    tags = define(KeyCounter).tags
    events = [tags[tag].event(ts=ts, stream="one", k=key) for ts, (tag, key) in enumerate(what)]
    run = Run([Point(ts, 0, 0) for ts in range(len(events))], events)
    for form in (run, in_columns(run, NAMES)):
        rest, diverted = form.divert(sorted(keys))
        assert list(rest) == [(point, event) for point, event in run if event.key not in keys]
        wanted = {key: [pair for pair in run if pair[1].key == key] for key in keys}
        assert {key: list(of_key) for key, of_key in diverted.items()} == {
            k: pairs for k, pairs in wanted.items() if pairs
        }


class Asked(Collection[Any]):
    """Keys that can be asked for, but not listed."""

    def __init__(self, keys: Collection[Any]) -> None:
        self.keys = keys

    def __contains__(self, key: object) -> bool:
        return key in self.keys

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[Any]:
        raise AssertionError("many keys are listed for few events")


@pytest.mark.parametrize("columns", [False, True], ids=["lists", "columns"])
def test_of_many_keys_only_those_of_the_events_are_looked_for(columns: bool) -> None:  # noqa: FBT001
    tags = define(KeyCounter).tags
    events = [tags["inc" if ts % 3 else "read"].event(ts=ts, stream="one", k=ts % 4) for ts in range(12)]
    run = Run([Point(ts, 0, 0) for ts in range(12)], events)
    form = in_columns(run, NAMES) if columns else run
    keys = {1, 3, *range(10, 1_000)}
    for piece in (form, form.split(Point(6, 0, 0))[0], form.split(Point(6, 0, 0))[1]):
        rest, diverted = piece.divert(Asked(keys))
        assert list(rest) == [(point, event) for point, event in piece if event.key not in keys]
        assert {key: list(of_key) for key, of_key in diverted.items()} == {
            key: [(point, event) for point, event in piece if event.key == key] for key in (1, 3)
        }
    assert form.divert(Asked(range(100, 200)))[0] is form
