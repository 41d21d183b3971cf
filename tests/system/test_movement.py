"""What moves between tasks: changes, not maps."""

import numpy as np
import pyarrow as pa

import flumina as fl
from flumina import local
from flumina.apps import PageViews
from flumina.model.tag_set import KeySet, TagSet
from flumina.plan import Itag, Plan, PlanWorker, StreamShape
from flumina.program.base import define
from flumina.testing import assert_same_outputs


def pages(cold: int, changes: int) -> list[fl.Stream]:
    """A hot page, viewed on two parts and changed so many times; and cold pages on streams of their own."""
    views = [
        pa.table({"ts": np.arange(2000) * 2 + part, "page": ["hot"] * 2000, "user": range(2000)}) for part in (0, 1)
    ]
    hot = pa.table({"ts": 4000 * np.arange(changes) // changes, "page": ["hot"] * changes, "info": ["new"] * changes})
    names = [f"cold{n}" for n in range(cold)]
    told = pa.table({"ts": [0] * cold, "page": names, "info": ["x" * 100] * cold})
    seen = pa.table({"ts": [1] * cold, "page": names, "user": range(cold)})
    return [
        fl.Stream("changes", PageViews.change, hot),
        fl.Stream("views", PageViews.view, views),
        fl.Stream("cold changes", PageViews.change, told),
        fl.Stream("cold views", PageViews.view, seen),
    ]


def plan() -> Plan:
    """Changes of the hot page above two leaves that view it; all other pages on a leaf beside the first of them."""
    definition = define(PageViews)
    kind, hot = definition.initial, KeySet.of("hot")
    shapes = [
        StreamShape(name, parts, TagSet.all_of([tag]))
        for name, parts, tag in (
            ("changes", 1, PageViews.change),
            ("views", 2, PageViews.view),
            ("cold changes", 1, PageViews.change),
            ("cold views", 1, PageViews.view),
        )
    ]

    def itag(shape: StreamShape, *parts: int, others: bool = False) -> Itag:
        ((tag, keys),) = shape.tags
        return Itag(shape.name, frozenset(parts), TagSet([(tag, keys - hot if others else hot)]))

    changes, views, cold_changes, cold_views = shapes
    left = PlanWorker("hot0", kind, (itag(views, 0), itag(cold_views, 0)), place="p0")
    right = PlanWorker("hot1", kind, (itag(views, 1),), place="p1")
    above = PlanWorker("hot", kind, (itag(changes, 0), itag(cold_changes, 0)), (left, right), place="p0")
    others = tuple(itag(shape, *range(shape.parts), others=True) for shape in shapes)
    return Plan.of(
        PageViews, shapes, PlanWorker("root", kind, (), (above, PlanWorker("cold", kind, others, place="p0")), "p0")
    )


def moved(cold: int, changes: int) -> tuple[int, int]:
    """Bytes between the two tasks, and joins."""
    streams = pages(cold, changes)
    result = local.run(PageViews, streams, plan=plan(), progress=False)
    assert_same_outputs(result.output, fl.spec(PageViews, streams).output)
    return result.stats.bytes_between, result.stats.joins


def test_state_moves_by_changes_and_not_by_keys() -> None:
    few, joins = moved(cold=10, changes=50)
    many, joins_of_many = moved(cold=5000, changes=50)
    more, joins_of_more = moved(cold=10, changes=200)
    assert (joins, joins_of_many, joins_of_more) == (50, 50, 200)
    assert many < 1.5 * few, "the same changes among five hundred times as many keys"
    assert 2 * few < more < 5 * few, "four times as many changes"


def test_nothing_moves_in_a_run_on_one_task() -> None:
    result = local.run(PageViews, pages(10, 10), optimizer="sequential", progress=False)
    assert result.stats.bytes_between == 0
    assert result.stats.shuffled_bytes == 0


class Reported(fl.KeyedProgram):
    """Views of pages that change, and a report that sees all pages."""

    view = fl.Tag("user long", key="page string")
    change = fl.Tag("info string", key="page string")
    report = fl.Tag()
    depends = fl.depends((change, change), (change, view), (report, report), (report, change))
    output = "page string, info string"
    info = fl.Replicated("string", read_by=[view, report], set_by=[change])

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        if event.tag is self.view:
            emit(event.page, state.info)
        else:
            state.info = event.info

    def update_all(self, states: dict[str, fl.State], event: fl.Event, emit: fl.Emit) -> None:
        emit("all pages", str(len(states)))


def reported(cold: int, changes: int, reports: int) -> int:
    """Bytes between two tasks: the hot page is viewed on both, all others on the second; reports see all of them."""
    views = [pa.table({"ts": np.arange(300) * 2 + part, "page": ["hot"] * 300, "user": range(300)}) for part in (0, 1)]
    hot = pa.table(
        {"ts": 1 + 600 * np.arange(changes) // changes, "page": ["hot"] * changes, "info": ["new"] * changes}
    )
    told = pa.table({"ts": [0] * cold, "page": [f"cold{n}" for n in range(cold)], "info": ["x" * 100] * cold})
    streams = [
        fl.Stream("changes", Reported.change, hot),
        fl.Stream("views", Reported.view, views),
        fl.Stream("cold changes", Reported.change, told),
        fl.Stream("reports", Reported.report, pa.table({"ts": 300 + np.arange(reports)})),
    ]
    definition = define(Reported)
    kind, key = definition.initial, KeySet.of("hot")
    others = Reported.change.universe - key
    shapes = [
        StreamShape(stream.name, parts, TagSet.all_of([tag]))
        for stream, parts, tag in zip(
            streams, (1, 2, 1, 1), (Reported.change, Reported.view, Reported.change, Reported.report), strict=True
        )
    ]

    def itag(stream: str, tag: str, keys: KeySet, *parts: int) -> Itag:
        return Itag(stream, frozenset(parts), TagSet([(tag, keys)]))

    left = PlanWorker("left", kind, (itag("views", "view", key, 0),), place="p0")
    cold_itags = (
        itag("changes", "change", others, 0),
        itag("cold changes", "change", others, 0),
        itag("views", "view", others, 0, 1),
    )
    right = PlanWorker("right", kind, (itag("views", "view", key, 1), *cold_itags), place="p1")
    own = (
        itag("changes", "change", key, 0),
        itag("cold changes", "change", key, 0),
        Itag("reports", frozenset({0}), TagSet.all_of([Reported.report])),
    )
    made = Plan.of(Reported, shapes, PlanWorker("root", kind, own, (left, right), "p0"))
    result = local.run(Reported, streams, plan=made, progress=False)
    assert_same_outputs(result.output, fl.spec(Reported, streams).output)
    return result.stats.bytes_between


def test_of_a_keyed_program_with_an_unkeyed_tag_only_the_events_of_that_tag_move_all_states() -> None:
    cold, size = 20_000, 20_000 * 100
    none, changed, once, both, twice = (
        reported(cold, changes, reports) for changes, reports in ((50, 0), (200, 0), (50, 1), (200, 1), (50, 2))
    )
    assert changed - none < size / 10, "a change of the hot page moves its state, not those of 20,000 others"
    assert once - none > 2 * size, "a report moves all states, there and back"
    assert both - once < size / 10, "a report between them does not alter that"
    assert twice - once > 2 * size
