"""Plans of several trees: each keeps its own share of the state, and all agree who has what of it."""

from __future__ import annotations

import os
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import flumina as fl
from flumina import local
from flumina.engine import driver
from flumina.errors import CheckpointError, TaskLostError
from flumina.plan.sources import Inputs
from flumina.plan.tree import Itag, Plan, PlanWorker
from flumina.state.compare import same
from flumina.testing import assert_same_outputs
from tests.system.checkpoints import (
    CASES,
    SMALL,
    assert_agrees,
    assert_crashed,
    assert_in_shares,
    assert_states_are_those_of_the_oracle,
    crash,
    run,
    sharded,
    snapshots,
)


@pytest.mark.parametrize("case", ["page-views", "key-counter"])
@pytest.mark.parametrize(("before", "after"), [(2, 5), (3, 3), (4, 2), (5, 1)])
def test_every_tree_keeps_its_own_share_and_others_go_on_with_it(
    case: str, before: int, after: int, tmp_path: Path
) -> None:
    with pytest.raises(TaskLostError):
        run(case, tmp_path, workers=before, optimizer=sharded, events=None, when=crash(tmp_path))
    taken = assert_crashed(case, tmp_path, before)
    assert_in_shares(case, taken)
    result = run(case, tmp_path, workers=after, optimizer=sharded, return_state=True)
    assert len(result.plan.leaves) == after
    assert_agrees(case, result)
    program, streams = CASES[case]
    whole = fl.spec(program, streams())
    assert same(result.state, whole.state)
    assert result.stats.events == whole.events - taken[-1].manifest.events < whole.events
    again = snapshots(case, tmp_path)
    assert len(again) == 2 + result.stats.snapshots >= 3
    assert_states_are_those_of_the_oracle(case, again)
    if after > 1:
        assert_in_shares(case, again[2:])


def test_a_tree_whose_share_is_damaged_is_told(tmp_path: Path) -> None:
    """Also if it is another task's than the driver's or the leader's."""
    with pytest.raises(TaskLostError):
        run("page-views", tmp_path, workers=4, optimizer=sharded, events=None, when=crash(tmp_path))
    for state in snapshots("page-views", tmp_path)[-1].manifest.state:
        file = tmp_path / "kept" / state.name
        whole = file.read_bytes()
        file.write_bytes(whole[:-1] + b"?")
        with pytest.raises(CheckpointError, match=rf"CHECKPOINT_DAMAGED.*{state.name}"):
            run("page-views", tmp_path, workers=4, optimizer=sharded)
        file.write_bytes(whole)
    assert_agrees("page-views", run("page-views", tmp_path, workers=4, optimizer=sharded))


@pytest.mark.parametrize("after", [4, 2])
def test_an_older_snapshot_is_used_on_request_if_one_share_is_damaged(after: int, tmp_path: Path) -> None:
    with pytest.raises(TaskLostError):
        run("page-views", tmp_path, workers=4, optimizer=sharded, events=None, when=crash(tmp_path))
    first, newest = snapshots("page-views", tmp_path)
    (tmp_path / "kept" / newest.manifest.state[-1].name).unlink()
    with pytest.raises(CheckpointError, match=rf"CHECKPOINT_MISSING_FILE.*{newest.manifest.state[-1].name}"):
        run("page-views", tmp_path, workers=after, optimizer=sharded)
    result = run("page-views", tmp_path, workers=after, optimizer=sharded, allow_older=True, return_state=True)
    assert_agrees("page-views", result)
    program, streams = CASES["page-views"]
    whole = fl.spec(program, streams())
    assert same(result.state, whole.state)
    assert result.stats.events == whole.events - first.manifest.events, "it went on from the first"
    assert result.stats.snapshots >= 2


def by_stream(inputs: Inputs, slots: int | None) -> Plan:
    """A tree for each part of each stream, as many as there are: they are independent."""
    del slots
    kind = inputs.definition.initial
    trees = [
        PlanWorker(f"{shape.name}{part}", kind, (Itag(shape.name, frozenset({part}), shape.tags),), (), f"p{part}")
        for shape in inputs.shapes
        for part in range(shape.parts)
    ]
    while len(trees) > 1:
        trees = [PlanWorker(f"above {trees[0].id}", kind, (), (trees[0], trees[1]), trees[0].place), *trees[2:]]
    return Plan.of(inputs.definition, inputs.shapes, trees[0])


class Tickets(fl.Program):
    """A fork that goes by the order of a set of texts, which is another one in every process."""

    note = fl.Tag("w string")
    depends = fl.depends()
    output = "w string"

    def init(self) -> set[str]:
        return {f"ticket {n}" for n in range(100)}

    def update(self, state: set[str], event: fl.Event, emit: fl.Emit) -> None:
        time.sleep(0.001)  # no task is at its end while others have hardly begun
        state.add(event.w)
        emit(event.w)

    def fork(self, state: set[str], left: fl.TagSet, right: fl.TagSet) -> tuple[set[str], set[str]]:
        items = list(state)
        return set(items[: len(items) // 2]), set(items[len(items) // 2 :])

    def join(self, left: set[str], right: set[str]) -> set[str]:
        return left | right


def notes(parts: int) -> list[fl.Stream]:
    tables = [
        pa.table({"ts": [n * parts + part for n in range(300)], "w": [f"note {n} of {part}" for n in range(300)]})
        for part in range(parts)
    ]
    return [fl.Stream("notes", Tickets.note, tables)]


def once_after_two(since: fl.CheckpointProgress) -> bool:
    """Two snapshots, and this process dies."""
    if since.snapshots == 2 and since.events >= 50:
        os.kill(os.getpid(), signal.SIGKILL)
    return since.snapshots < 2 and since.events >= 100


def test_a_state_is_divided_once_where_processes_might_not_agree(tmp_path: Path) -> None:
    """Neither what the program begins with is lost, nor what a snapshot holds."""
    whole = fl.spec(Tickets, notes(3))
    assert len(whole.state) == 1000
    begin = partial(local.run, Tickets, notes(3), workers=3, optimizer=by_stream, return_state=True, progress=False)
    result = begin()
    assert len(result.plan.leaves) == 3
    assert result.state == whole.state
    checkpoint = partial(fl.Checkpoint, tmp_path / "kept", keep=9)
    with pytest.raises(TaskLostError):
        begin(out=tmp_path / "out", engine_options=SMALL, checkpoint=checkpoint(when=once_after_two))
    result = local.run(
        Tickets,
        notes(3),
        workers=2,
        optimizer=turned,
        out=tmp_path / "out",
        checkpoint=checkpoint(events=100),
        engine_options=SMALL,
        return_state=True,
        progress=False,
    )
    assert result.stats.events < whole.events
    assert 2 + result.stats.snapshots >= 3
    assert result.state == whole.state
    assert_same_outputs(result.outputs, whole.outputs)


def turned(inputs: Inputs, slots: int | None) -> Plan:
    """Other trees than those of :func:`by_stream`: two parts in one of them."""
    del slots
    (shape,) = inputs.shapes
    trees = [
        PlanWorker(
            f"tree{n}", inputs.definition.initial, (Itag(shape.name, frozenset(parts), shape.tags),), (), f"p{n}"
        )
        for n, parts in enumerate(([0, 2], [1]))
    ]
    return Plan.of(
        inputs.definition, inputs.shapes, PlanWorker("top", inputs.definition.initial, (), tuple(trees), "p0")
    )


class Counting(fl.Program):
    """Counts events of one tag; nobody reads how many there were."""

    a = fl.Tag("v long")
    c = fl.Tag("v long")
    depends = fl.depends((a, a), (c, c))
    output = "n long"
    n = fl.Count()

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        if event.tag is self.a:
            state.n += 1


class Reading(fl.Program):
    """Does not count any more, but another tag reads what was counted."""

    a = fl.Tag("v long")
    c = fl.Tag("v long")
    depends = fl.depends((a, a), (c, c))
    output = "n long"
    n = fl.Count()

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        if event.tag is self.c:
            emit(state.n)


@pytest.mark.parametrize("plan", [by_stream, "sequential"])
def test_code_that_was_changed_gets_the_state_as_its_own_forks_divide_it(plan: Any, tmp_path: Path) -> None:
    def begin(program: Any, plan: Any, **policy: Any) -> Any:
        times = {"as": list(range(0, 2000, 2)), "cs": list(range(1, 2000, 2))}
        streams = [
            fl.Stream(name, tag, pa.table({"ts": times[name], "v": times[name]}))
            for name, tag in (("as", program.a), ("cs", program.c))
        ]
        checkpoint = fl.Checkpoint(tmp_path / "kept", keep=9, **policy)
        options: dict[str, Any] = {
            "out": tmp_path / "out",
            "checkpoint": checkpoint,
            "engine_options": SMALL,
            "progress": False,
        }
        return local.run(program, streams, workers=2, optimizer=plan, **options)

    with pytest.raises(TaskLostError):
        begin(Counting, by_stream, when=once_after_two)
    newest = snapshots("", tmp_path)[-1]
    counted = sum(1 for ts in range(0, 2000, 2) if ts <= (newest.end or 0))
    result = begin(Reading, plan, events=200, allow_code_change=True)
    assert 2 + result.stats.snapshots >= 3
    assert set(result.output.column("n").to_pylist()) == {counted}


class Slow(fl.Program):
    """A barrier near the end takes its time, so that a snapshot is due while everything has been sent."""

    value = fl.Tag("v long")
    barrier = fl.Tag()
    depends = fl.depends((barrier, barrier), (barrier, value))
    output = "total long"
    total = fl.Sum("long")

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        if event.tag is self.value:
            state.total += event.v
            emit(event.v)
        else:
            if event.ts == 3999:
                time.sleep(0.2)
            emit(state.total)
            state.total = 0


def test_a_task_that_only_reads_is_not_over_while_others_may_be_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Spark has them where there are more partitions than workers."""
    homes = {("values", 0): 1, ("barriers", 0): 0}
    monkeypatch.setattr(sys.modules["flumina.local.run"], "make_job", partial(driver.make_job, given=homes, tasks=2))
    values = pa.table({"ts": [10 * n for n in range(20)] + [100_000 + n for n in range(20)], "v": list(range(40))})
    streams = [
        fl.Stream("values", Slow.value, values),
        fl.Stream("barriers", Slow.barrier, pa.table({"ts": [2 * n + 1 for n in range(2000)]})),
    ]

    def alone(inputs: Inputs, slots: int | None) -> Plan:
        del slots
        itags = tuple(Itag(shape.name, frozenset({0}), shape.tags) for shape in inputs.shapes)
        return Plan.of(
            inputs.definition, inputs.shapes, PlanWorker("one", inputs.definition.initial, itags, (), "task0")
        )

    result = local.run(
        Slow,
        streams,
        workers=1,
        optimizer=alone,
        out=tmp_path / "out",
        checkpoint=fl.Checkpoint(tmp_path / "kept", events=2020),
        engine_options=fl.EngineOptions(chunk_rows=10, window=100_000),
        return_state=True,
        progress=False,
    )
    expected = fl.spec(Slow, streams)
    assert result.stats.snapshots == 1
    assert same(result.state, expected.state)
    assert_same_outputs(result.outputs, expected.outputs)
