import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import flumina as fl
from flumina.apps import KeyCounter, PageViews, ValueBarrier
from flumina.errors import InputError, UsageError
from flumina.model.batch import Batch
from flumina.model.tag_set import KeySet, TagSet
from flumina.plan import Itag, Plan, PlanWorker, Router, StreamRates, StreamShape, make_plan
from flumina.plan.routing import NOBODY, route
from flumina.program.base import define
from tests.plan.support import Keyed, random_streams, random_valid_plan

ALL = KeySet.everything()


def batch(tag: fl.Tag, keys: list[Any]) -> Batch:
    return Batch.of_events([tag.event(ts=n, seq=n, stream="s", k=key) for n, key in enumerate(keys)])


def owner(plan: Plan, tag: str, key: object, stream: str, part: int) -> list[str]:
    """Every worker that claims an event, by looking at all."""
    return [
        worker.id
        for worker in plan.workers
        for itag in worker.itags
        if itag.stream == stream and part in itag.parts and itag.tags.has(tag, key)
    ]


def test_every_event_finds_its_only_worker_alone_and_in_columns() -> None:
    rng = random.Random(3)
    definition = fl.define(Keyed)
    for _ in range(60):
        plan = random_valid_plan(definition, random_streams(definition, rng), rng)
        router = Router(plan, definition)
        for shape in plan.streams:
            for part, tag in [(p, t) for p in range(shape.parts) for t in shape.of_part(p).tags]:
                held = shape.of_part(part)[tag]
                keys = [key for key in [1, 2, *(rng.randint(-(2**40), 2**40) for _ in range(60))] if key in held]
                if not keys:
                    continue
                rng.shuffle(keys)
                events = batch(definition.tags[tag], keys)
                found = router.numbers(shape.name, part, events)
                numbers = [found] * len(keys) if isinstance(found, int) else found.tolist()
                for key, number in zip(keys, numbers, strict=True):
                    (expected,) = owner(plan, tag, key, shape.name, part)
                    assert plan.workers[number].id == expected == router.route(tag, key, shape.name, part)
                pieces = router.split(shape.name, part, events)
                placed = {number: range(len(keys)) if at is None else at.tolist() for number, at in pieces.items()}
                assert sorted(place for at in placed.values() for place in at) == list(range(len(keys)))
                assert all(numbers[place] == number for number, at in placed.items() for place in at)
                assert all(list(at) == sorted(at) for at in placed.values()), "events keep their order"


def test_a_part_with_one_worker_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make_plan(
        PageViews,
        [StreamRates("views", {"view": 1000}, parts=2), StreamRates("changes", {"change": 1})],
        workers=2,
        optimizer="greedy",
    )
    router = Router(plan, PageViews)

    def no_hashing(*_: object) -> None:
        raise AssertionError("nothing is to be hashed")

    monkeypatch.setattr("flumina.plan.routing.bucket_column", no_hashing)
    views = Batch.of_events([PageViews.view.event(ts=n, seq=n, page=str(n), user=n) for n in range(10)])
    assert router.numbers("views", 0, views) == 1
    assert router.split("views", 1, views) == {2: None}
    assert router.only("views", 1, "view") == 2
    assert router.split("views", 1, views.slice(0, 0)) == {}


def test_strings_and_mixed_batches() -> None:
    hot = KeySet.of("home")
    sides = (
        PlanWorker("w2", "States", (Itag("s", frozenset({0}), TagSet({"view": hot, "change": hot})),)),
        PlanWorker("w3", "States", (Itag("s", frozenset({0}), TagSet({"view": ALL - hot, "change": ALL - hot})),)),
    )
    plan = Plan.of(
        PageViews, [StreamShape("s", 1, fl.define(PageViews).everything)], PlanWorker("w1", "States", (), sides)
    )
    events = [
        PageViews.view.event(ts=0, stream="s", seq=0, page="home", user=1),
        PageViews.change.event(ts=1, stream="s", seq=1, page="other", info="x"),
        PageViews.change.event(ts=2, stream="s", seq=2, page="home", info="y"),
        PageViews.view.event(ts=3, stream="s", seq=3, page="", user=1),
    ]
    router = Router(plan, PageViews)
    numbers = router.numbers("s", 0, Batch.of_events(events))
    assert isinstance(numbers, np.ndarray)
    assert numbers.tolist() == [1, 2, 1, 2]
    assert route(plan, PageViews, PageViews.view, "home", "s", 0) == "w2"


def test_unkeyed_events() -> None:
    plan = make_plan(
        ValueBarrier,
        [StreamRates("v", {"value": 1e6}, parts=2), StreamRates("b", {"barrier": 1})],
        workers=2,
        optimizer="greedy",
    )
    router = Router(plan, ValueBarrier)
    assert [router.route("value", None, "v", part) for part in (0, 1)] == ["w2", "w3"]
    assert router.route(ValueBarrier.barrier, None, "b", 0) == "w1"
    barriers = Batch.of_events([ValueBarrier.barrier.event(ts=n, seq=n) for n in range(3)])
    assert router.split("b", 0, barriers) == {0: None}


def test_who_receives_a_part() -> None:
    plan = make_plan(
        KeyCounter,
        [StreamRates("r", {"read": 1}), StreamRates("i", {"inc": 100}, parts=2)],
        workers=2,
        optimizer="greedy",
    )
    router = Router(plan, KeyCounter)
    assert router.receivers("r", 0) == (0,)
    assert router.receivers("i", 1) == (2,)


def test_events_that_the_plan_does_not_expect_are_refused() -> None:
    sources = [StreamRates("s", {"inc": 10, "read": 1}, parts=2, keys=[[1, 2], [3]])]
    plan = make_plan(KeyCounter, sources, workers=2, optimizer="greedy")
    router = Router(plan, KeyCounter)
    with pytest.raises(InputError, match=r"UNROUTED.*stream 's', part 0: .*'inc' with key 3"):
        router.route("inc", 3, "s", 0)
    with pytest.raises(InputError, match="part 1, row 1") as caught:
        router.numbers("s", 1, batch(KeyCounter.inc, [3, 1]))
    assert (caught.value.stream, caught.value.part, caught.value.row) == ("s", 1, 1)
    with pytest.raises(UsageError, match="parts 0-1, got 2"):
        router.route("inc", 3, "s", 2)
    with pytest.raises(UsageError, match="no stream 'x'"):
        router.receivers("x", 0)
    assert NOBODY < 0


def test_routing_a_million_events_is_a_column_operation() -> None:
    plan = make_plan(KeyCounter, [StreamRates("s", {"inc": 1e6, "read": 1}, hot={"inc": {7: 5e5}})], workers=8)
    keys = pa.array(np.random.default_rng(0).integers(0, 10**6, 1_000_000))
    table = pa.record_batch([keys], schema=KeyCounter.inc.schema)
    places = np.arange(len(keys))
    events = Batch.one_tag(KeyCounter.inc, table, places, 0, places, ["s"])
    pieces = Router(plan, KeyCounter).split("s", 0, events)
    assert sum(len(keys) if at is None else len(at) for at in pieces.values()) == len(keys)


class TwoKinds(fl.Program):
    """Independent tags whose keys are of different types; sets of keys name those of both."""

    a = fl.Tag(key="name string")
    b = fl.Tag(key="number int")
    depends = fl.depends((a, a), (b, b))
    output = "n long"
    n = fl.Count()

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        state.n += 1


def test_a_key_is_not_taken_for_one_of_another_type() -> None:
    """A text "7", a number that no int holds, and 7 are three keys."""
    definition = define(TwoKinds)
    named = KeySet.of("7", 2**40, "x")
    rest = KeySet.everything() - named
    sides = [
        PlanWorker(f"w{n}", definition.initial, (Itag("s", frozenset({0}), TagSet({"a": keys, "b": keys})),))
        for n, keys in enumerate((named, rest))
    ]
    plan = Plan.of(
        TwoKinds, [StreamShape("s", 1, definition.everything)], PlanWorker("top", definition.initial, (), tuple(sides))
    )
    router = Router(plan, TwoKinds)
    for tag, column in ((TwoKinds.a, pa.array(["7", "x", "y"])), (TwoKinds.b, pa.array([7, 8], pa.int32()))):
        count = len(column)
        table = pa.record_batch([column], schema=tag.schema)
        batch = Batch.one_tag(tag, table, np.arange(count), 0, np.arange(count), ("s",))
        numbers = router.numbers("s", 0, batch)
        assert not isinstance(numbers, int)
        found = [plan.workers[number].id for number in numbers]
        assert found == [router.route(tag, key, "s", 0) for key in column.to_pylist()]
        assert found == (["w0", "w0", "w1"] if tag is TwoKinds.a else ["w1", "w1"])
