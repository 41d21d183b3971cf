"""Bounds: buffers are bounded by credits and work by what is released, however long the input is and however skewed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest

from flumina.apps.value_barrier import ValueBarrier
from flumina.model.batch import Batch
from flumina.model.emit import rows
from flumina.model.order import Point
from flumina.plan.tree import Plan, PlanWorker
from flumina.program.base import define
from flumina.runtime.inner import Inner
from flumina.runtime.leaf import Leaf
from flumina.runtime.mailbox import Queue
from flumina.runtime.messages import Data
from flumina.runtime.run import Run
from flumina.runtime.topology import ProtocolOptions
from tests.runtime.bulk import Bulk, column_part
from tests.runtime.support import PLAIN, Chain, chain_plan, itag, leaf, plan_of, streams

PROGRAM = define(ValueBarrier)
VALUE, BARRIER = PROGRAM.tags["value"], PROGRAM.tags["barrier"]
NAMES = ("value", "barrier")
SWITCHES = [ProtocolOptions(), ProtocolOptions(hand_over=False), PLAIN]


def two_leaves() -> Plan:
    leaves = tuple(leaf(f"leaf {n}", PROGRAM, itag(PROGRAM, "value", "value", parts=[n])) for n in range(2))
    root = PlanWorker("root", PROGRAM.initial, (itag(PROGRAM, "barrier", "barrier"),), leaves)
    return plan_of(ValueBarrier, streams(ValueBarrier, value=2, barrier=1), root)


def bulk(values: tuple[int, int], barriers: tuple[int, int], credits_: int, options: ProtocolOptions) -> Bulk:
    """A value of 1 in both parts, and a barrier, at each timestamp of these ranges."""
    parts = {("value", n): (column_part(VALUE, NAMES, *values, v=1), f"leaf {n}") for n in range(2)}
    barrier = {("barrier", 0): (column_part(BARRIER, NAMES, *barriers), "root")}
    return Bulk(PROGRAM, two_leaves(), parts | barrier, credits_, options)


class _Counted(deque[Any]):
    """A deque that counts how many of its entries are looked at."""

    reads = 0

    def __getitem__(self, index: Any) -> Any:
        self.reads += 1
        return super().__getitem__(index)

    def __iter__(self) -> Iterator[Any]:
        for entry in super().__iter__():
            self.reads += 1
            yield entry


@pytest.fixture
def points_read() -> Iterator[mock.Mock]:
    """Counts how often the point of a single event of a batch is looked at."""
    with mock.patch.object(Batch, "point", autospec=True, side_effect=Batch.point) as point:
        yield point


@pytest.mark.parametrize("options", SWITCHES, ids=str)
def test_one_barrier_after_a_million_values(options: ProtocolOptions, points_read: mock.Mock) -> None:
    run = bulk((1, 1_000_000), (1_000_001, 1_000_001), 10_000, options)
    run.run()
    assert [row.values for row in rows(run.outputs)] == [(2_000_000,)]
    assert max(worker.stats.buffered for worker in run.workers.values()) <= 10_000
    assert points_read.call_count < 5_000, "a few for each of the 200 runs, none for each event"


@pytest.mark.parametrize("options", SWITCHES, ids=str)
def test_one_value_after_many_barriers(options: ProtocolOptions) -> None:
    run = bulk((2_001, 2_001), (1, 2_000), 100, options)
    run.run()
    assert [row.values for row in rows(run.outputs)] == [(0,)] * 2_000
    assert run.tree_root.final["root"].total == 2
    assert max(worker.stats.buffered for worker in run.workers.values()) <= 100


@pytest.mark.parametrize("options", SWITCHES, ids=str)
def test_barriers_ahead_of_values_wait_in_the_source(options: ProtocolOptions) -> None:
    """Events that an inner worker has put in order are as much in its memory as those that it has not."""
    run = bulk((1, 1_000), (1, 1_000), 50, options)
    run.drain()
    barriers = run.sources["barrier", 0]
    while (news := barriers.next()) is not None:
        run.sent.append((("barrier", 0), "root", Data(("barrier", 0), *news)))
        run.drain()
    assert barriers.sent == 50
    assert run.workers["root"].waiting == 50
    run.run()
    assert sum(total for (total,) in (row.values for row in rows(run.outputs))) == 2 * 999 + 2


@pytest.mark.parametrize("options", SWITCHES[:2], ids=str)
def test_work_for_a_join_does_not_grow_with_those_that_wait(options: ProtocolOptions) -> None:
    """Entries of the sequence that are looked at, for 400 barriers of which 50 or 400 wait at once."""
    looked_at = {}
    for window in (50, 400):
        run = bulk((1, 400), (1, 400), window, options)
        root = run.workers["root"]
        assert isinstance(root, Inner)
        root.sequence = counted = _Counted()
        run.run()
        looked_at[window] = counted.reads
    assert looked_at[400] < 1.5 * looked_at[50] < 1.5 * 400 * 12


def test_a_queue_cuts_columns_by_binary_search(points_read: mock.Mock) -> None:
    queue = Queue()
    queue.put(Run(batch=column_part(VALUE, NAMES, 1, 100_000, v=1)), Point(100_000, 0, 0))
    points_read.reset_mock()
    for cut in range(1, 101):
        assert len(queue.take(Point(cut * 1_000, 1, 0))) == 1_000
    assert points_read.call_count <= 100 * 10
    assert queue.length == 0


def test_a_leaf_does_not_look_through_requests_that_do_not_concern_it() -> None:
    """The leaf of x is independent of a, which asks 400 times."""
    definition = define(Chain)
    names = [shape.name for shape in chain_plan().streams]
    spans = {"a": (1, 400), "c": (500, 500), "x": (1, 400), "y": (1, 1), "z": (1, 1)}
    owners = {"a": "root", "c": "middle"}
    parts = {
        (tag, 0): (column_part(definition.tags[tag], names, *span), owners.get(tag, f"leaf {tag}"))
        for tag, span in spans.items()
    }
    looked_at = {}
    for window in (50, 400):
        run = Bulk(definition, chain_plan(), parts, window, ProtocolOptions(hand_over=False))
        leaf_x = run.workers["leaf x"]
        assert isinstance(leaf_x, Leaf)
        leaf_x.requests = counted = _Counted()
        run.run()
        looked_at[window] = counted.reads
    assert looked_at[400] < 2 * looked_at[50]
