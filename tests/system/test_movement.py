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
