"""What moves between tasks: changes, not maps."""

import numpy as np
import pyarrow as pa
import pytest

import flumina as fl
from flumina import local
from flumina.apps import PageViews
from flumina.engine.driver import RunStats
from flumina.plan import Itag, Plan, StreamShape, Worker
from flumina.program import define
from flumina.tagsets import KeySet, TagSet
from flumina.testing import assert_same_outputs


def views_of_one_hot_page(cold: int, changes: int) -> list[fl.Stream]:
    """A hot page in two parts, changed so many times, and as many cold pages as wanted, each viewed once."""
    pages = [np.array(["hot"] * 2000 + [f"cold{n}" for n in range(part, cold, 2)]) for part in range(2)]
    views = []
    for part, names in enumerate(pages):
        order = np.random.default_rng(part).permutation(len(names))
        times = np.linspace(0, 1_000_000, len(names)).astype(np.int64)
        views.append(pa.table({"ts": times, "page": names[order], "user": np.arange(len(names))}))
    # Every page has been given information, so that there is a map that could be shipped.
    told = ["hot", *(f"cold{n}" for n in range(cold))] + ["hot"] * changes
    times = [-1] * (cold + 1) + [1_000_000 * n // changes for n in range(changes)]
    changed = pa.table({"ts": times, "page": told, "info": [f"edition {n % 97}" for n in range(len(told))]})
    return [fl.Stream("changes", PageViews.change, changed), fl.Stream("views", PageViews.view, views)]


def plan_by_part(streams: list[fl.Stream]) -> Plan:
    """Changes of the hot page at a worker above two leaves that view it; the cold pages on one leaf."""
    definition = define(PageViews)
    kind, everything = definition.initial, definition.everything
    hot = KeySet.of("hot")
    shapes = [StreamShape("changes", 1, TagSet.all_of([PageViews.change])), StreamShape("views", 2, TagSet.all_of([PageViews.view]))]  # fmt: skip

    def itag(stream: str, tag: str, keys: KeySet, *parts: int) -> Itag:
        return Itag(stream, frozenset(parts), TagSet([(tag, keys)]))

    leaves = tuple(Worker(f"hot{n}", kind, (itag("views", "view", hot, n),), place=f"p{n}") for n in range(2))
    left = Worker("hot", kind, (itag("changes", "change", hot, 0),), leaves, place="p0")
    rest = everything["view"] - hot
    cold = Worker("cold", kind, (itag("changes", "change", rest, 0), itag("views", "view", rest, 0, 1)), place="p1")
    return Plan.of(PageViews, shapes, Worker("root", kind, (), (left, cold), place="p0"))


def moved(cold: int, changes: int, *, read_elsewhere: bool = False) -> tuple[RunStats, int]:
    """The numbers of a run, and the bytes of states."""
    streams = views_of_one_hot_page(cold, changes)
    result = local.run(PageViews, streams, plan=plan_by_part(streams), progress=False)
    assert_same_outputs(result.output, fl.spec(PageViews, streams).output)
    return result.stats, result.stats.total.state_bytes


@pytest.mark.timeout(120)
def test_state_moves_by_changes_and_not_by_keys() -> None:
    few, of_few = moved(cold=10, changes=100)
    many, of_many = moved(cold=100_000, changes=100)
    more, of_more = moved(cold=10, changes=400)
    assert few.joins == many.joins
    assert of_few > 0, "states are measured"
    assert of_many < 1.5 * of_few, "the same changes among ten thousand times as many keys"
    assert 3 * of_few < of_more < 5 * of_few, "four times as many changes"


def test_nothing_moves_in_a_run_on_one_task() -> None:
    streams = views_of_one_hot_page(10, 10)
    result = local.run(PageViews, streams, optimiser="sequential", progress=False)
    assert result.stats.bytes_between == 0
    assert result.stats.shuffled_bytes == 0
