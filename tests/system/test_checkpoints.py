"""Runs that are interrupted, and go on from their snapshots: outputs exactly once, states those of the oracle."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import fs

import flumina as fl
from flumina import local
from flumina.apps import Fraud, KeyCounter, PageViews, ValueBarrier
from flumina.checkpoint.store.checkpoints import Checkpoints
from flumina.engine.results import RunResult
from flumina.errors import CheckpointError, TaskLostError, UsageError
from flumina.runtime.topology import ProtocolOptions
from flumina.state.compare import same
from flumina.testing import assert_same_outputs
from tests.system.checkpoints import (
    CASES,
    EVENTS,
    SMALL,
    assert_agrees,
    assert_crashed,
    assert_states_are_those_of_the_oracle,
    assert_synchronized,
    crash,
    die,
    divided,
    every,
    fraud,
    key_counter,
    longer,
    page_views,
    run,
    snapshots,
    value_barrier,
)


@every
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_every_snapshot_is_the_fold_of_the_oracle(case: str, workers: int, tmp_path: Path) -> None:
    result = run(case, tmp_path, workers=workers, return_state=True)
    assert_synchronized(result, workers)
    assert_agrees(case, result)
    program, streams = CASES[case]
    assert same(result.state, fl.spec(program, streams()).state)
    taken = snapshots(case, tmp_path)
    assert len(taken) == result.stats.snapshots >= 3
    assert_states_are_those_of_the_oracle(case, taken)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "out"], "nothing else is left"


@pytest.mark.parametrize(
    ("case", "before", "after"),
    [
        *product(CASES, (2,), (5, 1)),
        *[(case, *workers) for case in ("fraud", "page-views") for workers in ((2, 2), (1, 3))],
    ],
)
def test_a_run_that_lost_a_process_goes_on_under_any_plan(case: str, before: int, after: int, tmp_path: Path) -> None:
    with pytest.raises(TaskLostError):
        run(case, tmp_path, workers=before, events=None, when=crash(tmp_path))
    taken = assert_crashed(case, tmp_path, before)
    result = run(case, tmp_path, workers=after)
    assert_synchronized(result, after)
    assert_agrees(case, result)
    program, streams = CASES[case]
    whole = fl.spec(program, streams()).events
    assert result.stats.events == whole - taken[-1].manifest.events < whole
    assert len(snapshots(case, tmp_path)) == 2 + result.stats.snapshots >= 3
    assert_states_are_those_of_the_oracle(case, snapshots(case, tmp_path))


@pytest.mark.parametrize("case", ["page-views", "key-counter"])
def test_workers_with_other_keys_of_the_same_parts(case: str, tmp_path: Path) -> None:
    """Events are read by one task and processed by another: some are on their way when a segment is cut off."""
    with pytest.raises(TaskLostError):
        run(case, tmp_path, workers=3, optimizer="greedy", events=None, when=crash(tmp_path))
    assert_crashed(case, tmp_path, 3)
    result = run(case, tmp_path, workers=4, optimizer="greedy")
    assert len(result.plan.leaves) == 4
    assert_agrees(case, result)
    assert len(snapshots(case, tmp_path)) == 2 + result.stats.snapshots >= 3
    assert_states_are_those_of_the_oracle(case, snapshots(case, tmp_path))


@every
@pytest.mark.parametrize("workers", [1, 2])
def test_snapshots_after_so_many_events_that_synchronize(case: str, workers: int, tmp_path: Path) -> None:
    result = run(case, tmp_path, workers=workers, events=None, syncs=10)
    assert_synchronized(result, workers)
    assert_agrees(case, result)
    cuts = [one.end for one in snapshots(case, tmp_path) if one.end is not None]
    assert len(cuts) == result.stats.snapshots >= (8 if workers == 1 else 1)
    synchronizing = pa.concat_tables(CASES[case][1]()[-1].parts())["ts"].to_numpy()
    until = synchronizing.searchsorted(cuts, "right").tolist()
    assert all(after - before >= 10 for before, after in pairwise([0, *until])), "not before it was time"


@every
def test_everything_was_sent_before_the_first_cut(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts that have ended long ago still have events after the cut, with the workers or on their way.

    Without the savings of the protocol, so that no worker is at the end while others have hardly begun.
    """
    program, streams = CASES[case]
    monkeypatch.setitem(CASES, case, (program, lambda: longer(streams(), 4)))
    plain = ProtocolOptions(coalesce=False, pipeline=False, hand_over=False, by_key=False)
    result = local.run(
        program,
        longer(streams(), 4),
        engine_options=fl.EngineOptions(protocol=plain),
        workers=3,
        optimizer=divided,
        out=tmp_path / "out",
        checkpoint=fl.Checkpoint(tmp_path / "kept", when=lambda since: since.snapshots < 5, keep=100),
        progress=False,
    )
    assert_synchronized(result, 3)
    assert_agrees(case, result)
    taken = snapshots(case, tmp_path)
    assert len(taken) == result.stats.snapshots >= 1  # how many depends on how fast the disk is
    assert_states_are_those_of_the_oracle(case, taken)


def test_ordered_outputs_across_a_crash(tmp_path: Path) -> None:
    with pytest.raises(TaskLostError):
        run("fraud", tmp_path, events=None, when=crash(tmp_path), ordered=True)
    assert_crashed("fraud", tmp_path, 2)
    result = run("fraud", tmp_path, ordered=True, workers=3)
    assert_synchronized(result, 3)
    assert result.stats.snapshots >= 1
    expected = fl.spec(Fraud, fraud()).outputs
    for name, table in result.outputs.items():
        assert table.to_pylist() == expected[name].to_pylist(), name


def paced_values(part: int) -> Iterator[dict[str, Any]]:
    for start in range(0, 2000, 100):
        yield {"v": [part + n for n in range(start, start + 100)]}


def paced_barriers(_: int) -> Iterator[dict[str, Any]]:
    yield {"ts": [50_000 + 100_000 * n for n in range(20)]}


def test_events_that_come_when_they_are_due(tmp_path: Path) -> None:
    """Snapshots by the clock; after a crash, the rest is due as if there had been none."""
    streams = [
        fl.Stream("values", ValueBarrier.value, fl.GeneratorSource(paced_values, parts=2, rate=1000.0)),
        fl.Stream("barriers", ValueBarrier.barrier, fl.GeneratorSource(paced_barriers, rate=10.0)),
    ]

    def dies(since: fl.CheckpointProgress) -> bool:
        if since.snapshots == 2:
            die(tmp_path)
        return since.seconds >= 0.05

    def begin(**policy: Any) -> RunResult:
        kept: dict[str, Any] = {"out": tmp_path / "out", "checkpoint": fl.Checkpoint(tmp_path / "kept", **policy)}
        return local.run(ValueBarrier, streams, workers=2, optimizer=divided, progress=False, **kept)

    with pytest.raises(TaskLostError):
        begin(when=dies)
    before = assert_crashed("value-barrier", tmp_path, 2)[-1]
    assert before.end is not None
    began = time.monotonic()
    result = begin(seconds=0.05)
    assert_synchronized(result, 2)
    left = 2.0 - before.end / 1e6
    assert left - 0.2 < time.monotonic() - began, "events are not due before their time"
    assert 0 < result.stats.latency.total < result.output.num_rows
    assert_same_outputs(result.outputs, fl.spec(ValueBarrier, streams).outputs)


DRIVER = """
import os, sys
from pathlib import Path
from tests.system import checkpoints as t

folder = Path(sys.argv[1])
t.run("page-views", folder, events=None, when=t.crash(folder, os.getpid()))
"""


def test_a_driver_that_was_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", DRIVER, str(tmp_path)]
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(root / "src")])}
    ended = subprocess.run(command, env=environment, timeout=500, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert_crashed("page-views", tmp_path, 2)
    result = run("page-views", tmp_path, workers=3)
    assert_synchronized(result, 3)
    assert_agrees("page-views", result)
    assert result.stats.events < fl.spec(PageViews, page_views()).events
    assert result.stats.snapshots >= 1
    assert_states_are_those_of_the_oracle("page-views", snapshots("page-views", tmp_path))


def test_a_changed_program_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TaskLostError):
        run("fraud", tmp_path, events=None, when=crash(tmp_path))
    transactions, rules = fraud()
    checkpoint = fl.Checkpoint(tmp_path / "kept", events=EVENTS, keep=100)
    with pytest.raises(CheckpointError, match=r"(?s)CHECKPOINT_PROGRAM.*rank"):
        local.run(Fraud, [rules, transactions], out=tmp_path / "out", checkpoint=checkpoint, progress=False)
    with pytest.raises(CheckpointError, match="CHECKPOINT_PROGRAM"):
        local.run(ValueBarrier, value_barrier(), out=tmp_path / "out", checkpoint=checkpoint, progress=False)
    with pytest.raises(CheckpointError, match="CHECKPOINT_OUT"):
        local.run(Fraud, fraud(), out=tmp_path / "elsewhere", checkpoint=checkpoint, progress=False)
    assert_agrees("fraud", run("fraud", tmp_path))


def test_a_finished_run_does_not_give_its_result_for_other_input(tmp_path: Path) -> None:
    def of(*ts: int) -> list[fl.Stream]:
        values = fl.Stream("values", ValueBarrier.value, pa.table({"ts": ts, "v": ts}))
        return [values, fl.Stream("barriers", ValueBarrier.barrier, pa.table({"ts": [9]}))]

    kept: dict[str, Any] = {"out": tmp_path / "out", "checkpoint": tmp_path / "kept"}
    assert local.run(ValueBarrier, of(1, 2), **kept).output.column("total").to_pylist() == [3]
    assert local.run(ValueBarrier, of(1, 2), **kept).output.column("total").to_pylist() == [3], "it is over"
    with pytest.raises(CheckpointError, match=r"CHECKPOINT_PROGRAM(.|\n)*input 'values': rows 2 -> 3"):
        local.run(ValueBarrier, of(1, 2, 3), **kept)


def test_a_finished_run_gives_its_state_again_if_it_kept_it(tmp_path: Path) -> None:
    for folder, asked in (tmp_path / "asked", True), (tmp_path / "not", False):
        assert (run("key-counter", folder, return_state=asked).state is None) != asked
        assert run("key-counter", folder, return_state=False).state is None
    again = run("key-counter", tmp_path / "asked", return_state=True, workers=5, keep=1)
    assert again.stats.events == 0
    assert same(again.state, fl.spec(KeyCounter, key_counter()).state)
    with pytest.raises(CheckpointError, match=r"CHECKPOINT_STATE.*over(.|\n)*return_state=True") as caught:
        run("key-counter", tmp_path / "not", return_state=True)
    assert str(caught.value.file).endswith("not/kept")
    assert_agrees("key-counter", run("key-counter", tmp_path / "not"))


class Diary(fl.Program):
    """Events that depend on each other and on nothing else."""

    note = fl.Tag()
    depends = fl.depends((note, note))
    notes = fl.Count()

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        state.notes += 1


def test_a_program_in_which_nothing_synchronizes_is_told_so(tmp_path: Path) -> None:
    notes = [fl.Stream("notes", Diary.note, {"ts": [1, 2, 3]})]
    kept: dict[str, Any] = {"out": tmp_path / "out", "progress": False}
    with pytest.raises(UsageError, match=r"NO_SYNCS.*syncs=4(.|\n)*Diary(.|\n)*events="):
        local.run(Diary, notes, checkpoint=fl.Checkpoint(tmp_path / "kept", syncs=4), **kept)
    assert list(tmp_path.iterdir()) == []
    seen = fl.Checkpoint(tmp_path / "kept", when=lambda since: since.syncs > 0)
    assert local.run(Diary, notes, checkpoint=seen, return_state=True, **kept).state.notes == 3


def test_a_checkpoint_needs_a_place_for_outputs(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"CHECKPOINT_OUT.*out="):
        local.run(Fraud, fraud(), checkpoint=tmp_path, progress=False)


@pytest.mark.parametrize("inside", ["out", "out/kept"])
def test_a_checkpoint_in_the_folder_for_outputs(inside: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"CHECKPOINT_OUT.*out"):
        local.run(Fraud, fraud(), out=tmp_path / "out", checkpoint=tmp_path / inside, progress=False)
    assert list(tmp_path.iterdir()) == []


def test_outputs_that_nobody_wants(tmp_path: Path) -> None:
    result = local.run(
        Fraud,
        fraud(),
        workers=2,
        optimizer=divided,
        out=fl.DISCARD,
        checkpoint=fl.Checkpoint(tmp_path, events=EVENTS),
        engine_options=SMALL,
        progress=False,
    )
    assert_synchronized(result, 2)
    assert result.stats.snapshots >= 3


def test_a_damaged_state_is_noticed_and_an_older_one_used_on_request(tmp_path: Path) -> None:
    with pytest.raises(TaskLostError):
        run("fraud", tmp_path, events=None, when=crash(tmp_path))
    newest = snapshots("fraud", tmp_path)[-1]
    file = tmp_path / "kept" / newest.manifest.state[0].name
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    with pytest.raises(CheckpointError, match="CHECKPOINT_DAMAGED"):
        run("fraud", tmp_path)
    result = run("fraud", tmp_path, allow_older=True)
    assert_agrees("fraud", result)
    taken = snapshots("fraud", tmp_path)
    assert 1 + result.stats.snapshots >= 3, "the first one, and those since"
    assert_states_are_those_of_the_oracle(
        "fraud", [one for one in taken if one.manifest.snapshot_id != newest.manifest.snapshot_id]
    )


def die_early(since: fl.CheckpointProgress) -> bool:
    if since.events >= 50:
        os.kill(os.getpid(), signal.SIGKILL)
    return False


def test_of_runs_that_died_before_their_first_snapshot_nothing_is_left(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(TaskLostError):
            run("fraud", tmp_path, events=None, when=die_early)
    assert len([path for path in tmp_path.iterdir() if path.name.startswith("_out.flumina-")]) == 1
    assert_agrees("fraud", run("fraud", tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "out"]


def die_after_five(since: fl.CheckpointProgress) -> bool:
    if since.snapshots == 5 and since.events >= 10:
        os.kill(os.getpid(), signal.SIGKILL)
    return since.events >= 20


def test_two_are_kept_and_nothing_else(tmp_path: Path) -> None:
    kept = tmp_path / "kept"

    def begin(**policy: Any) -> RunResult:
        checkpoint = fl.Checkpoint(kept, keep=2, **policy)
        place = tmp_path / "out"
        return local.run(
            Fraud, fraud(), workers=2, out=place, checkpoint=checkpoint, engine_options=SMALL, progress=False
        )

    def assert_two_with_their_files(*, states: int) -> None:
        both = Checkpoints(kept).all()
        assert len(both) == 2
        assert sum(len(one.manifest.state) for one in both) == states
        named = [name for one in both for name in (one.manifest.snapshot_id.manifest, one.manifest.snapshot_id.marker)]
        named += [file.name for one in both for file in one.manifest.state]
        term = both[-1].manifest.term
        there = sorted(path.name for path in kept.iterdir())
        assert there == sorted([*named, f"owner-{term:06d}-{both[-1].manifest.owner}.json"])
        assert [finding for finding in Checkpoints(kept).verify() if finding.damaged] == []

    with pytest.raises(TaskLostError):
        begin(when=die_after_five)
    assert [one.number for one in Checkpoints(kept).all()] == [4, 5]
    assert_two_with_their_files(states=2)
    result = begin(events=20)
    assert_agrees("fraud", result)
    assert_two_with_their_files(states=1)


def test_a_checkpoint_in_a_file_system_that_was_given(tmp_path: Path) -> None:
    """Its paths mean something else on the disk: whoever forgot the file system would find or leave files elsewhere."""
    (tmp_path / "store").mkdir()
    filesystem = fs.SubTreeFileSystem(str(tmp_path / "store"), fs.LocalFileSystem())

    def begin(**policy: Any) -> RunResult:
        checkpoint = fl.Checkpoint("runs/kept", keep=100, filesystem=filesystem, **policy)
        place = tmp_path / "out"
        return local.run(
            Fraud, fraud(), workers=2, out=place, checkpoint=checkpoint, engine_options=SMALL, progress=False
        )

    with pytest.raises(TaskLostError):
        begin(when=crash(tmp_path / "store" / "runs"))
    taken = Checkpoints(tmp_path / "store" / "runs" / "kept").all()
    assert len(taken) == 2
    assert_states_are_those_of_the_oracle("fraud", taken)
    result = begin(events=EVENTS)
    assert_agrees("fraud", result)
    assert result.stats.events == fl.spec(Fraud, fraud()).events - taken[-1].manifest.events
    assert len(taken) + result.stats.snapshots >= 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "store"]


def test_outputs_and_checkpoint_with_equal_paths_in_two_file_systems(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
    outputs, kept = (fs.SubTreeFileSystem(str(tmp_path / name), fs.LocalFileSystem()) for name in "ab")
    for _ in range(2):
        result = local.run(
            Fraud,
            fraud(),
            out="results",
            filesystem=outputs,
            checkpoint=fl.Checkpoint("results/kept", filesystem=kept),
            progress=False,
        )
        assert_agrees("fraud", result)
    with pytest.raises(UsageError, match="CHECKPOINT_OUT"):
        local.run(Fraud, fraud(), out="x", filesystem=kept, checkpoint=fl.Checkpoint("x/y", filesystem=kept))


def test_the_state_of_a_program_that_was_typed_into_a_script_is_given_again(tmp_path: Path) -> None:
    """Its class travels by value, and is not the same one for who unpacks the state."""

    class Meter(fl.KeyedProgram):
        read = fl.Tag("watts long", key="home long")
        depends = fl.depends((read, read))
        output = "watts long"
        watts = fl.Sum()

        def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
            state.watts += event.watts

    rows = pa.table({"ts": [1, 2, 3], "home": [1, 2, 1], "watts": [5, 6, 7]})
    for _ in range(2):
        result = local.run(
            Meter,
            [fl.Stream("reads", Meter.read, rows)],
            out=tmp_path / "out",
            checkpoint=tmp_path / "kept",
            return_state=True,
            progress=False,
        )
        assert {home: one.watts for home, one in result.state.items()} == {1: 12, 2: 6}
