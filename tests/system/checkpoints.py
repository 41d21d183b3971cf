"""Cases for tests of snapshots: programs with input for five workers, and ways to die on the way."""

import os
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import flumina as fl
from flumina import local
from flumina.apps import Fraud, KeyCounter, PageViews, ValueBarrier
from flumina.checkpoint.state_partitions import PartitionedState
from flumina.checkpoint.store.checkpoints import Checkpoints
from flumina.checkpoint.store.snapshot import Snapshot, read_state
from flumina.engine.message_codec import Codec
from flumina.engine.results import RunResult
from flumina.model.hashing import BUCKETS
from flumina.model.order import LAST, Point
from flumina.model.tag_set import KeySet, TagSet
from flumina.plan.forest import Forest
from flumina.plan.render.json import from_json
from flumina.plan.sources import Inputs
from flumina.plan.tree import Itag, Plan, PlanWorker, StreamShape
from flumina.program.base import define
from flumina.state.compare import same
from flumina.testing import assert_same_outputs

SMALL = fl.EngineOptions(chunk_rows=20, window=40)
"""So that nobody is far ahead of the others: there is always something left behind the second snapshot."""
EVENTS = 150
ROWS = 400
"""On each of five parts, with half as many events that synchronize them."""


def columns(*, first: int, step: int, count: int, **payload: Callable[[int], Any]) -> pa.Table:
    return pa.table(
        {
            "ts": [first + step * n for n in range(count)],
            **{name: [value(n) for n in range(count)] for name, value in payload.items()},
        }
    )


def value_barrier() -> list[fl.Stream]:
    parts = [columns(first=part, step=8, count=ROWS, v=lambda n: n) for part in range(5)]
    return [
        fl.Stream("values", ValueBarrier.value, parts),
        fl.Stream("barriers", ValueBarrier.barrier, columns(first=15, step=16, count=ROWS // 2)),
    ]


def fraud() -> list[fl.Stream]:
    parts = [columns(first=part, step=8, count=ROWS, v=lambda n: n * 7 % 100) for part in range(5)]
    return [
        fl.Stream("transactions", Fraud.transaction, parts),
        fl.Stream("rules", Fraud.rule, columns(first=7, step=16, count=ROWS // 2, r=lambda n: n * 13)),
    ]


def page_views() -> list[fl.Stream]:
    parts = [columns(first=p, step=8, count=ROWS, page=lambda n: "abcd"[n % 4], user=lambda n: n) for p in range(5)]
    changes = columns(first=7, step=16, count=ROWS // 2, page=lambda n: "ab"[n % 2], info=lambda n: f"info {n}")
    return [fl.Stream("views", PageViews.view, parts), fl.Stream("changes", PageViews.change, changes)]


def key_counter() -> list[fl.Stream]:
    parts = [columns(first=p, step=8, count=ROWS, k=lambda n: n % 5) for p in range(5)]
    resets = columns(first=7, step=16, count=ROWS // 2, k=lambda n: n % 3)
    return [fl.Stream("incs", KeyCounter.inc, parts), fl.Stream("reads", KeyCounter.read, resets)]


def ties() -> list[fl.Stream]:
    """Many events at each timestamp, so that a cut in the middle of one would be noticed."""
    parts = [
        pa.table({"ts": [n // 4 * 20 for n in range(2 * ROWS)], "v": list(range(part, part + 2 * ROWS))})
        for part in range(5)
    ]
    return [
        fl.Stream("values", ValueBarrier.value, parts),
        fl.Stream("barriers", ValueBarrier.barrier, columns(first=0, step=20, count=ROWS // 2)),
    ]


def longer(streams: list[fl.Stream], times: int) -> list[fl.Stream]:
    """The same events again and again, so that a run takes a while."""

    def repeated(table: pa.Table) -> pa.Table:
        later = (pc.add(table.column("ts"), 4_000 * n) for n in range(times))
        return pa.concat_tables([table.set_column(0, "ts", ts) for ts in later])

    return [replace(stream, data=[repeated(table) for table in stream.parts()]) for stream in streams]


CASES: dict[str, tuple[Any, Callable[[], list[fl.Stream]]]] = {
    "value-barrier": (ValueBarrier, value_barrier),
    "fraud": (Fraud, fraud),
    "page-views": (PageViews, page_views),
    "key-counter": (KeyCounter, key_counter),
    "ties": (ValueBarrier, ties),
}
every = pytest.mark.parametrize("case", CASES)


def divided(inputs: Inputs, slots: int | None) -> Plan:
    """As many leaves as there may be, over the parts of the first stream; what synchronizes them is above.

    For an input this small, the optimizer would have one worker do everything.
    """
    work, *others = inputs.shapes
    kind, above = inputs.definition.initial, tuple(Itag(s.name, frozenset(range(s.parts)), s.tags) for s in others)
    if slots == 1:
        everything = (Itag(work.name, frozenset(range(work.parts)), work.tags), *above)
        return Plan.of(inputs.definition, inputs.shapes, PlanWorker("root", kind, everything, (), "p0"))
    assert slots is not None
    leaves = [
        PlanWorker(f"leaf{n}", kind, (Itag(work.name, frozenset(range(n, work.parts, slots)), work.tags),), (), f"p{n}")
        for n in range(slots)
    ]
    below = leaves.pop()
    while len(leaves) > 1:
        left = leaves.pop()
        below = PlanWorker(f"above {left.id}", kind, (), (left, below), left.place)
    return Plan.of(inputs.definition, inputs.shapes, PlanWorker("root", kind, above, (leaves[0], below), "p0"))


def sharded(inputs: Inputs, slots: int | None) -> Plan:
    """Each worker has some of the keys, of all streams; from three on, the first ones share a tree over the parts."""
    assert slots is not None
    kind = inputs.definition.initial

    def some(shape: StreamShape, number: int, shards: int, parts: Iterable[int] | None = None) -> Itag:
        keys = KeySet.from_buckets(range(number, BUCKETS, shards))
        tags = TagSet((name, keys) for name, _ in shape.tags)
        return Itag(shape.name, frozenset(range(shape.parts) if parts is None else parts), tags)

    shards = slots if slots < 3 else slots - 1
    trees = [
        PlanWorker(f"shard{n}", kind, tuple(some(shape, n, shards) for shape in inputs.shapes), (), f"p{n}")
        for n in range(shards)
    ]
    if slots >= 3:
        work, *others = inputs.shapes
        halves = [
            PlanWorker(f"half{n}", kind, (some(work, 0, shards, range(n, work.parts, 2)),), (), f"p{n * shards}")
            for n in range(2)
        ]
        trees[0] = PlanWorker("hot", kind, tuple(some(shape, 0, shards) for shape in others), tuple(halves), "p0")
    while len(trees) > 1:
        trees = [PlanWorker(f"above {trees[0].id}", kind, (), (trees[0], trees[1]), trees[0].place), *trees[2:]]
    return Plan.of(inputs.definition, inputs.shapes, trees[0])


def run(case: str, folder: Path, *, workers: int = 2, **policy: Any) -> RunResult:
    program, streams = CASES[case]
    names = ("optimizer", "ordered", "plan", "return_state")
    options = {"optimizer": divided} | {name: policy.pop(name) for name in names if name in policy}
    policy = {"events": EVENTS, "keep": 100, **policy}
    return local.run(
        program,
        streams(),
        workers=None if "plan" in options else workers,
        out=folder / "out",
        checkpoint=fl.Checkpoint(folder / "kept", **policy),
        engine_options=SMALL,
        progress=False,
        **options,
    )


def snapshots(case: str, folder: Path) -> list[Snapshot]:
    """Those that were taken on the way."""
    return [one for one in Checkpoints(folder / "kept").all() if one.end is not None]


def assert_agrees(case: str, result: RunResult) -> None:
    program, streams = CASES[case]
    assert_same_outputs(result.outputs, fl.spec(program, streams()).outputs)


def assert_states_are_those_of_the_oracle(case: str, taken: list[Snapshot]) -> None:
    program, streams = CASES[case]
    codec = Codec(define(program), [stream.name for stream in streams()])
    for snapshot in taken:
        assert snapshot.end is not None
        expected = fl.spec(program, streams(), until=Point(snapshot.end, LAST, LAST))
        assert same(PartitionedState.of(snapshot).whole(define(program), codec), expected.state)
        assert snapshot.manifest.events == expected.events
        rows = {name: table.num_rows for name, table in expected.outputs.items() if table.num_rows}
        assert snapshot.manifest.rows == rows


def assert_in_shares(case: str, taken: list[Snapshot]) -> None:
    """Each tree's keys are in the file of its own task, and in no other; nowhere is everything."""
    program, streams = CASES[case]
    definition = define(program)
    codec = Codec(definition, [stream.name for stream in streams()])
    for snapshot in taken:
        plan = from_json(str(snapshot.manifest.plan))
        trees = {tree.id: tree for tree in Forest.of(plan.root).trees}
        places = {plan[name].place for name in trees}
        assert len(snapshot.manifest.state) == len(places) == len(trees) > 1
        found: list[Any] = []
        for file in snapshot.manifest.state:
            ((name, size),) = file.tree_sizes
            assert size == file.size
            state = codec.unpack(read_state(snapshot.folder, file))
            assert all(trees[name].tags.has_key(key) for key in state)
            found += state
        assert len(found) == len(set(found)) > 1


def die(folder: Path, victim: int | None = None) -> None:
    """End this process, or the ``victim``, once two snapshots are there: a task may have yet to hand in its part."""
    deadline = time.monotonic() + 300
    while len(list(folder.glob("kept/snapshot-*.done"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(os.getpid() if victim is None else victim, signal.SIGKILL)


def crash(folder: Path, victim: int | None = None) -> Callable[[fl.CheckpointProgress], bool]:
    """Have two snapshots taken, and this process die (or the ``victim``) before the third."""

    def when(since: fl.CheckpointProgress) -> bool:
        if since.snapshots == 2 and since.events >= EVENTS // 2:
            die(folder, victim)
        return since.snapshots < 2 and since.events >= EVENTS

    return when


def assert_synchronized(result: RunResult, workers: int) -> None:
    """So many workers did it, and had to be synchronized."""
    assert len(result.plan.leaves) == workers
    assert (result.stats.joins > 0) == (workers > 1)


def assert_crashed(case: str, folder: Path, workers: int) -> list[Snapshot]:
    """Two snapshots by so many workers, and nothing that anybody could see."""
    taken = snapshots(case, folder)
    assert len(taken) == 2
    assert [len(from_json(str(one.manifest.plan)).leaves) for one in taken] == [workers, workers]
    assert not (folder / "out").exists(), "nothing is visible yet"
    return taken
