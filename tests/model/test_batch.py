import random
from collections.abc import Callable, Sequence
from datetime import date
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flumina as fl
from flumina import local
from flumina.apps import Fraud, ValueBarrier
from flumina.errors import UsageError
from flumina.model.batch import Batch, as_list, repeat
from flumina.model.event import Event
from flumina.model.order import Point
from flumina.model.tag import Tag
from flumina.model.tag_set import KeySet, TagSet
from flumina.program.base import define

STREAMS = ("views", "ticks")


class Tags:
    view = Tag("user long NOT NULL, price double, note string, day date", key="page string")
    change = Tag("info string", key="page string")
    tick = Tag()
    tock = Tag()


@st.composite
def events(draw: st.DrawFn, *tags: Tag) -> Event:
    tag = draw(st.sampled_from(tags or (Tags.view, Tags.change, Tags.tick, Tags.tock)))
    columns: dict[str, Any] = {
        "ts": draw(st.integers(0, 5)),
        "stream": draw(st.sampled_from(STREAMS)),
        "seq": draw(st.integers(0, 9)),
    }
    if tag.key is not None:
        columns["page"] = draw(st.sampled_from(["", "a", "b"]))
    if tag is Tags.view:
        columns |= {"user": draw(st.integers(-9, 9)), "price": draw(st.none() | st.floats(0, 9))}
        columns |= {"note": draw(st.none() | st.text(max_size=3)), "day": draw(st.none() | st.just(date(2020, 1, 2)))}
    elif tag is Tags.change:
        columns["info"] = draw(st.none() | st.just("x"))
    event: Event = tag.event(**columns)
    return event


lists = st.lists(events(), min_size=1, max_size=12)
one_tag = st.sampled_from([Tags.view, Tags.tick]).flatmap(lambda tag: st.lists(events(tag), min_size=1, max_size=12))


def batch_of(model: Sequence[Event]) -> Batch:
    return Batch.of_events(model, STREAMS)


def key(event: Event) -> Point:
    return Point(event.ts, STREAMS.index(event.stream), event.seq)


class TestModel:
    """A batch behaves like the list of its events."""

    @given(lists | one_tag)
    def test_iteration(self, model: list[Event]) -> None:
        batch = batch_of(model)
        assert list(batch) == model
        assert len(batch) == len(model)
        assert [event.tag for event in batch] == [event.tag for event in model]
        assert [batch.point(i) for i in range(len(batch))] == [key(event) for event in model]

    @given(lists | one_tag, st.data())
    def test_slice(self, model: list[Event], data: st.DataObject) -> None:
        start, stop, middle = data.draw(st.tuples(*[st.integers(-15, 15)] * 3))
        part = batch_of(model).slice(start, stop)
        assert list(part) == model[start:stop]
        assert list(part.slice(middle, stop)) == model[start:stop][middle:stop]

    @given(lists | one_tag, st.data())
    def test_take(self, model: list[Event], data: st.DataObject) -> None:
        indices = data.draw(st.lists(st.integers(0, len(model) - 1), max_size=12))
        taken = batch_of(model).take(np.array(indices, np.int64))
        assert list(taken) == [model[i] for i in indices]
        assert list(taken.slice(1, len(indices))) == [model[i] for i in indices[1:]]

    @given(lists | one_tag, st.sets(st.sampled_from(["", "a", "b"])), st.booleans(), st.booleans())
    def test_count(self, model: list[Event], pages: set[str], whole: bool, ticks: bool) -> None:  # noqa: FBT001
        change = Tags.change.universe if whole else KeySet.of("b")
        tags = TagSet({"view": KeySet.of(*pages), "change": change} | ({"tick": Tags.tick.universe} if ticks else {}))
        assert batch_of(model).count(tags) == sum(tags.has(event.tag, event.key) for event in model)

    @given(lists | one_tag)
    def test_runs(self, model: list[Event]) -> None:
        runs = list(batch_of(model).runs())
        assert [event for run in runs for event in run] == model
        assert all(len(run) and len(run.tags) == 1 for run in runs)
        assert all(a.tag is not b.tag for a, b in pairwise(runs))

    @given(st.lists(lists | one_tag, min_size=1, max_size=4))
    def test_merge(self, models: list[list[Event]]) -> None:
        merged = Batch.merge([batch_of(model) for model in models])
        everything = [event for model in models for event in model]
        assert [key(event) for event in merged] == sorted(map(key, everything))
        assert sorted(map(repr, merged)) == sorted(map(repr, everything))
        assert [merged.point(i) for i in range(len(merged))] == [key(event) for event in merged]

    @given(lists, st.data())
    def test_one_after_the_other(self, model: list[Event], data: st.DataObject) -> None:
        """Slices of takes of merges: every step is right on what the steps before made."""
        batch, expected = batch_of(model), list(model)
        for _ in range(3):
            cut = data.draw(st.integers(0, len(expected)))
            batch, expected = batch.slice(cut // 2, len(expected)), expected[cut // 2 :]
            order = data.draw(st.permutations(range(len(expected))))
            batch, expected = batch.take(np.array(order, np.int64)), [expected[i] for i in order]
            assert list(batch) == expected
            assert [event for run in batch.runs() for event in run] == expected


def test_merge_keeps_the_place_of_equal_points() -> None:
    first = [Tags.change.event(ts=1, stream="views", page="a", info=str(i)) for i in range(3)]
    second = [Tags.change.event(ts=1, stream="views", page="a", info=str(i)) for i in range(3, 6)]
    merged = Batch.merge([batch_of(first), batch_of(second)])
    assert [event.info for event in merged] == list("012345")


def test_empty() -> None:
    for tag in (Tags.view, Tags.tick):
        batch = Batch.empty(tag)
        assert (len(batch), list(batch), list(batch.runs()), batch.tag) == (0, [], [], tag)
    with pytest.raises(UsageError, match="EMPTY_BATCH"):
        Batch.of_events([])


def test_rows_without_columns() -> None:
    batch = batch_of([Tags.tick.event(ts=t, stream="ticks", seq=t) for t in range(5)])
    assert batch.tables[0].num_columns == 0
    assert [event.ts for event in batch.slice(1, 4)] == [1, 2, 3]
    assert [event.ts for event in batch.take(np.array([4, 0]))] == [4, 0]
    assert [event.ts for event in Batch.merge([batch.slice(3, 5), batch.slice(0, 3)])] == [0, 1, 2, 3, 4]


def addresses(batch: Batch) -> list[list[int | None]]:
    return [[None if b is None else b.address for b in c.buffers()] for c in batch.tables[0].columns]


def views(count: int) -> Batch:
    rng = random.Random(1)
    table = pa.record_batch(
        [
            pa.array([rng.choice("abc") for _ in range(count)]),
            pa.array(range(count)),
            pa.array([float(i) for i in range(count)]),
            pa.array(["x"] * count),
            pa.array([date(2020, 1, 1)] * count),
        ],
        schema=Tags.view.schema,
    )
    return Batch.one_tag(Tags.view, table, np.arange(count), 0, np.arange(count), STREAMS)


class TestNoCopies:
    def test_slice(self) -> None:
        batch = views(100)
        part = batch.slice(10, 20).slice(2, 5)
        assert addresses(part) == addresses(batch)
        assert part.tables[0].column(0).offset == 12
        for name in ("ts", "rank", "seq"):
            assert np.shares_memory(getattr(part, name), getattr(batch, name))

    def test_slice_of_several_tags(self) -> None:
        batch = batch_of([Tags.change.event(stream="views", page="a", info="x"), Tags.tick.event(stream="ticks")])
        part = batch.slice(1, 2)
        assert part.tables == batch.tables
        assert addresses(part) == addresses(batch)
        assert part.row_of is not None
        assert batch.row_of is not None
        assert np.shares_memory(part.row_of, batch.row_of)

    @pytest.mark.parametrize("column", ["user", "price"])
    def test_numbers_as_numpy(self, column: str) -> None:
        batch = views(100)
        values = batch.slice(10, 20)[column]
        assert values.tolist() == list(range(10, 20))
        data = batch.arrow(column).buffers()[1]
        assert values.__array_interface__["data"][0] == data.address + 10 * 8
        assert not values.flags.writeable

    def test_arrow_and_keys(self) -> None:
        batch = views(100)
        assert batch.arrow("note").buffers()[2].address == batch.tables[0].column(3).buffers()[2].address
        assert batch.keys.buffers()[2].address == batch.tables[0].column(0).buffers()[2].address

    def test_taking_consecutive_rows(self) -> None:
        batch = views(100)
        assert addresses(batch.take(np.arange(5, 50))) == addresses(batch)
        assert addresses(batch.take(np.array([5, 7]))) != addresses(batch)

    def test_rank_of_one_stream(self) -> None:
        assert views(100).rank.strides == (0,)


class TestColumns:
    def test_numpy(self) -> None:
        batch = views(3)
        assert batch["note"].tolist() == ["x", "x", "x"]
        assert batch["user"].dtype == np.int64

    def test_nulls_have_no_place_in_numpy(self) -> None:
        batch = batch_of([Tags.view.event(stream="views", page="a", user=1, price=None, note=None, day=None)])
        assert batch["note"].tolist() == [None]
        with pytest.raises(UsageError, match=r"NULLS.*'price' of tag 'view' has 1 nulls") as caught:
            batch["price"]
        assert "NOT NULL" in str(caught.value.hint)
        assert batch.arrow("price").to_pylist() == [None]

    @pytest.mark.parametrize(
        ("use", "condition"),
        [
            (lambda: views(1)["nope"], "NO_COLUMN"),
            (lambda: views(1).arrow("nope"), "NO_COLUMN"),
            (lambda: Batch.empty(Tags.tick).keys, "NO_KEY"),
            (lambda: batch_of([Tags.tick.event(stream="ticks"), Tags.tock.event(stream="ticks")]).tag, "MIXED_BATCH"),
            (lambda: batch_of([Tags.tick.event(stream="ticks"), Tags.tock.event(stream="ticks")])["x"], "MIXED_BATCH"),
        ],
    )
    def test_mistakes(self, use: Callable[[], object], condition: str) -> None:
        with pytest.raises(UsageError) as caught:
            use()
        assert caught.value.condition == condition


def test_as_list_gives_plain_python_values() -> None:
    for array in (pa.array([1, 2]), pa.array([1.5]), pa.array(["a", None]), pa.array([1, None]), pa.array([True])):
        listed = as_list(array)
        assert listed == array.to_pylist()
        assert all(type(value) in (int, float, str, bool, type(None)) for value in listed)


def test_repeat() -> None:
    assert repeat("x", 3, "string").equals(pa.array(["x"] * 3))
    assert repeat(None, 2, "long").equals(pa.array([None, None], pa.int64()))
    assert len(repeat(1, 0, "int")) == 0


@pytest.mark.parametrize("count", [0, 1, 2, 5, 100])
@pytest.mark.parametrize("bits", [8, 40, 61, 63])
def test_total_is_exact(count: int, bits: int) -> None:
    numbers = np.random.default_rng(bits).integers(-(1 << bits), (1 << bits) - 1, count, endpoint=True)
    values = numbers.astype(np.int64)
    assert fl.total(values) == sum(values.tolist())
    starts = np.array([0, count // 2]) if count > 1 else np.array([0])[:count]
    groups = [values[: count // 2], values[count // 2 :]] if count > 1 else [values][:count]
    assert fl.total(values, starts) == [sum(group.tolist()) for group in groups]
    with pytest.raises(fl.UsageError, match="whole numbers"):
        fl.total(values.astype(float))


@pytest.mark.parametrize("program", [ValueBarrier, Fraud])
def test_sums_of_programs_are_exact_in_batches_too(program: type[fl.Program]) -> None:
    often, rare = list(define(program).tags.values())[:2]
    values = {"ts": [1, 2], "v": [(1 << 63) - 1] * 2}
    streams = [fl.Stream("often", often, values), fl.Stream("rare", rare, {"ts": [3], "r": [0]})]
    with pytest.raises(fl.OutputError, match="expected long, got 18446744073709551614"):
        fl.spec(program, streams)
    with pytest.raises(fl.OutputError, match="expected long, got 18446744073709551614"):
        local.run(program, streams, workers=1, progress=False)


def test_times_that_python_does_not_have_are_named() -> None:
    class Logged(fl.Program):
        entry = fl.Tag("at timestamp")
        depends = fl.depends((entry, entry))
        output = "at timestamp"
        count = fl.Count()

        def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
            emit(event.at)

    table = pa.table({"ts": [1, 2, 3], "at": pa.array([0, None, 1 << 58], pa.timestamp("us", "UTC"))})
    with pytest.raises(fl.InputError, match=r"VALUE_RANGE.*stream 'log', column 'at': the event at 3 has a value"):
        fl.spec(Logged, [fl.Stream("log", Logged.entry, table)])
