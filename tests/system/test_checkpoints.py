"""Runs that are interrupted, and go on from their snapshots: outputs exactly once, states those of the oracle."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import fs

import flumina as fl
from flumina import local
from flumina.apps import Fraud, KeyCounter, PageViews, ValueBarrier
from flumina.engine import publish as publishing
from flumina.engine.checkpoint import Checkpoints, Snapshot
from flumina.engine.checkpoint.manifest import FILES
from flumina.engine.codec import Codec
from flumina.engine.driver import RunResult
from flumina.engine.location import Location
from flumina.engine.outputs import StagedFile
from flumina.engine.publish import Publication
from flumina.engine.recorder import Recorder
from flumina.errors import CheckpointError, OutputError, TaskLostError, UsageError
from flumina.order import LAST, Point
from flumina.plan.render.json import from_json
from flumina.plan.sources import Inputs
from flumina.plan.tree import Itag, Plan, Worker
from flumina.program import define
from flumina.state import same
from flumina.testing import assert_same_outputs

SMALL = fl.Settings(chunk_rows=20, window=40)
"""So that nobody is far ahead of the others: there is always something left behind the second snapshot."""
EVENTS = 150
ROWS = 400
"""On each of five parts, with half as many events that synchronise them."""


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


CASES: dict[str, tuple[Any, Callable[[], list[fl.Stream]]]] = {
    "value-barrier": (ValueBarrier, value_barrier),
    "fraud": (Fraud, fraud),
    "page-views": (PageViews, page_views),
    "key-counter": (KeyCounter, key_counter),
    "ties": (ValueBarrier, ties),
}
every = pytest.mark.parametrize("case", CASES)


def divided(inputs: Inputs, slots: int | None) -> Plan:
    """As many leaves as there may be, over the parts of the first stream; what synchronises them is above.

    For an input this small, the optimiser would have one worker do everything.
    """
    work, *others = inputs.shapes
    kind, above = inputs.definition.initial, tuple(Itag(s.name, frozenset(range(s.parts)), s.tags) for s in others)
    if slots == 1:
        everything = (Itag(work.name, frozenset(range(work.parts)), work.tags), *above)
        return Plan.of(inputs.definition, inputs.shapes, Worker("root", kind, everything, (), "p0"))
    assert slots is not None
    leaves = [
        Worker(f"leaf{n}", kind, (Itag(work.name, frozenset(range(n, work.parts, slots)), work.tags),), (), f"p{n}")
        for n in range(slots)
    ]
    below = leaves.pop()
    while len(leaves) > 1:
        left = leaves.pop()
        below = Worker(f"above {left.id}", kind, (), (left, below), left.place)
    return Plan.of(inputs.definition, inputs.shapes, Worker("root", kind, above, (leaves[0], below), "p0"))


def run(case: str, folder: Path, *, workers: int = 2, **policy: Any) -> RunResult:
    program, streams = CASES[case]
    names = ("optimiser", "order", "plan", "state")
    options = {"optimiser": divided} | {name: policy.pop(name) for name in names if name in policy}
    policy = {"events": EVENTS, "keep": 100, **policy}
    return local.run(
        program,
        streams(),
        workers=None if "plan" in options else workers,
        out=folder / "out",
        checkpoint=fl.Checkpoint(folder / "kept", **policy),
        settings=SMALL,
        progress=False,
        **options,
    )


def snapshots(case: str, folder: Path) -> list[Snapshot]:
    """Those that were taken on the way."""
    return [one for one in Checkpoints(folder / "kept").all() if one.after is not None]


def assert_agrees(case: str, result: RunResult) -> None:
    program, streams = CASES[case]
    assert_same_outputs(result.outputs, fl.spec(program, streams()).outputs)


def assert_states_are_those_of_the_oracle(case: str, taken: list[Snapshot]) -> None:
    program, streams = CASES[case]
    codec = Codec(define(program), [stream.name for stream in streams()])
    for snapshot in taken:
        assert snapshot.after is not None
        expected = fl.spec(program, streams(), until=Point(snapshot.after, LAST, LAST))
        assert same(codec.unpack(snapshot.state()), expected.state)
        assert snapshot.manifest.events == expected.events
        rows = {name: table.num_rows for name, table in expected.outputs.items() if table.num_rows}
        assert snapshot.manifest.rows == rows


def die(folder: Path, victim: int | None = None) -> None:
    """End this process, or the ``victim``, once two snapshots are there: a task may have yet to hand in its part."""
    deadline = time.monotonic() + 30
    while len(list(folder.glob("kept/snapshot-*.done"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(os.getpid() if victim is None else victim, signal.SIGKILL)


def crash(folder: Path, victim: int | None = None) -> Callable[[fl.Since], bool]:
    """Have two snapshots taken, and this process die (or the ``victim``) before the third."""

    def when(since: fl.Since) -> bool:
        if since.snapshots == 2 and since.events >= EVENTS // 2:
            die(folder, victim)
        return since.snapshots < 2 and since.events >= EVENTS

    return when


def assert_synchronised(result: RunResult, workers: int) -> None:
    """So many workers did it, and had to be synchronised."""
    assert len(result.plan.leaves) == workers
    assert (result.stats.joins > 0) == (workers > 1)


def assert_crashed(case: str, folder: Path, workers: int) -> list[Snapshot]:
    """Two snapshots by so many workers, and nothing that anybody could see."""
    taken = snapshots(case, folder)
    assert len(taken) == 2
    assert [len(from_json(str(one.manifest.plan)).leaves) for one in taken] == [workers, workers]
    assert not (folder / "out").exists(), "nothing is visible yet"
    return taken


@every
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_every_snapshot_is_the_fold_of_the_oracle(case: str, workers: int, tmp_path: Path) -> None:
    result = run(case, tmp_path, workers=workers, state=True)
    assert_synchronised(result, workers)
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
    assert_synchronised(result, after)
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
        run(case, tmp_path, workers=3, optimiser="greedy", events=None, when=crash(tmp_path))
    assert_crashed(case, tmp_path, 3)
    result = run(case, tmp_path, workers=4, optimiser="greedy")
    assert len(result.plan.leaves) == 4
    assert_agrees(case, result)
    assert len(snapshots(case, tmp_path)) == 2 + result.stats.snapshots >= 3
    assert_states_are_those_of_the_oracle(case, snapshots(case, tmp_path))


@every
@pytest.mark.parametrize("workers", [1, 2])
def test_snapshots_after_so_many_events_that_synchronise(case: str, workers: int, tmp_path: Path) -> None:
    result = run(case, tmp_path, workers=workers, events=None, syncs=10)
    assert_synchronised(result, workers)
    assert_agrees(case, result)
    cuts = [one.after for one in snapshots(case, tmp_path) if one.after is not None]
    assert len(cuts) == result.stats.snapshots >= (8 if workers == 1 else 1)
    synchronising = pa.concat_tables(CASES[case][1]()[-1].parts())["ts"].to_numpy()
    until = synchronising.searchsorted(cuts, "right").tolist()
    assert all(after - before >= 10 for before, after in pairwise([0, *until])), "not before it was time"


@every
def test_everything_was_sent_before_the_first_cut(case: str, tmp_path: Path) -> None:
    """Parts that have ended long ago still have events behind the cut, with the workers or on their way."""
    program, streams = CASES[case]
    result = local.run(
        program,
        streams(),
        workers=3,
        optimiser=divided,
        out=tmp_path / "out",
        checkpoint=fl.Checkpoint(tmp_path / "kept", when=lambda since: since.snapshots < 5, keep=100),
        progress=False,
    )
    assert_synchronised(result, 3)
    assert_agrees(case, result)
    assert_states_are_those_of_the_oracle(case, snapshots(case, tmp_path))


def test_ordered_outputs_across_a_crash(tmp_path: Path) -> None:
    with pytest.raises(TaskLostError):
        run("fraud", tmp_path, events=None, when=crash(tmp_path), order=True)
    assert_crashed("fraud", tmp_path, 2)
    result = run("fraud", tmp_path, order=True, workers=3)
    assert_synchronised(result, 3)
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
        fl.Stream("values", ValueBarrier.value, fl.Generated(paced_values, parts=2, rate=1000.0)),
        fl.Stream("barriers", ValueBarrier.barrier, fl.Generated(paced_barriers, rate=10.0)),
    ]

    def dies(since: fl.Since) -> bool:
        if since.snapshots == 2:
            die(tmp_path)
        return since.seconds >= 0.05

    def begin(**policy: Any) -> RunResult:
        kept: dict[str, Any] = {"out": tmp_path / "out", "checkpoint": fl.Checkpoint(tmp_path / "kept", **policy)}
        return local.run(ValueBarrier, streams, workers=2, optimiser=divided, progress=False, **kept)

    with pytest.raises(TaskLostError):
        begin(when=dies)
    before = assert_crashed("value-barrier", tmp_path, 2)[-1]
    assert before.after is not None
    began = time.monotonic()
    result = begin(seconds=0.05)
    assert_synchronised(result, 2)
    left = 2.0 - before.after / 1e6
    assert left - 0.2 < time.monotonic() - began, "events are not due before their time"
    assert result.stats.snapshots >= 3
    assert 0 < result.stats.latency.total < result.output.num_rows
    assert_same_outputs(result.outputs, fl.spec(ValueBarrier, streams).outputs)


DRIVER = """
import os, sys
from pathlib import Path
from tests.system import test_checkpoints as t

folder = Path(sys.argv[1])
t.run("page-views", folder, events=None, when=t.crash(folder, os.getpid()))
"""


def test_a_driver_that_was_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", DRIVER, str(tmp_path)]
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(root / "src")])}
    ended = subprocess.run(command, env=environment, timeout=60, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert_crashed("page-views", tmp_path, 2)
    result = run("page-views", tmp_path, workers=3)
    assert_synchronised(result, 3)
    assert_agrees("page-views", result)
    assert result.stats.events < fl.spec(PageViews, page_views()).events
    assert result.stats.snapshots >= 1
    assert_states_are_those_of_the_oracle("page-views", snapshots("page-views", tmp_path))


class DeadError(Exception):
    """The driver is gone, as far as anybody can see."""


@pytest.mark.parametrize(
    ("owner", "method"),
    [
        (Recorder, "publish"),
        (Location, "commit"),
        (Location, "_rename_in"),
        (Location, "_mark"),
        (Location, "discard"),
    ],
)
@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
def test_a_driver_that_dies_over_publishing(
    owner: type,
    method: str,
    done: bool,  # noqa: FBT001
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = getattr(owner, method)

    def dying(self: object, *arguments: object) -> None:
        if done:
            plain(self, *arguments)
        raise DeadError

    monkeypatch.setattr(owner, method, dying)
    with pytest.raises(DeadError):
        run("fraud", tmp_path, state=True)
    monkeypatch.undo()
    result = run("fraud", tmp_path, state=True)
    assert_agrees("fraud", result)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "out"]
    again = run("fraud", tmp_path, state=True)
    assert again.stats.events == 0
    assert_agrees("fraud", again)
    expected = fl.spec(Fraud, fraud()).state
    assert same(result.state, expected)
    assert same(again.state, expected)


def test_files_moved_one_by_one_before_the_driver_died(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moved: list[str] = []
    move_all = Location._move_all

    def some(self: Location, files: dict[str, str], folder: str) -> None:
        few = dict(list(files.items())[:2])
        move_all(self, few, folder)
        moved.extend(few)
        raise DeadError

    monkeypatch.setattr(Location, "_move_all", some)
    with pytest.raises(DeadError):
        run("page-views", tmp_path)
    assert len(moved) == 2
    monkeypatch.undo()
    assert_agrees("page-views", run("page-views", tmp_path))


def test_a_replaced_driver_spoils_nothing_that_its_successor_publishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first stands still before it merges; the second does all the work, and is about to rename its files."""
    merge, make_visible = publishing._merge, Publication.make_visible
    late: list[Any] = []
    results: list[RunResult] = []

    def stands_still(*arguments: Any) -> list[StagedFile]:
        if not late:
            late.append(arguments)
            results.append(run("value-barrier", tmp_path, order=True))
        return merge(*arguments)

    def is_overtaken(self: Publication) -> None:
        for file in merge(*late[0]):
            Path(file.path).write_bytes(b"half of a file")
        make_visible(self)

    monkeypatch.setattr(publishing, "_merge", stands_still)
    monkeypatch.setattr(Publication, "make_visible", is_overtaken)
    with pytest.raises((CheckpointError, OutputError)):
        run("value-barrier", tmp_path, order=True)
    expected = fl.spec(ValueBarrier, value_barrier()).output.to_pylist()
    assert results[0].output.to_pylist() == expected
    assert run("value-barrier", tmp_path, order=True).output.to_pylist() == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "out"]


def test_a_replaced_driver_that_notices_in_time_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish, prepare = Recorder.publish, publishing.prepare
    results: list[RunResult] = []
    prepared: list[Any] = []

    def replaced(self: Recorder, *arguments: Any) -> Any:
        monkeypatch.setattr(Recorder, "publish", publish)
        results.append(run("fraud", tmp_path, order=True))
        return publish(self, *arguments)

    def counted(*given: Any) -> Publication:
        prepared.append(given)
        return prepare(*given)

    monkeypatch.setattr(Recorder, "publish", replaced)
    monkeypatch.setattr("flumina.engine.recorder.prepare", counted)
    with pytest.raises(CheckpointError, match="CHECKPOINT_IN_USE"):
        run("fraud", tmp_path, order=True)
    assert len(prepared) == 1, "by the driver that was there last"
    assert_agrees("fraud", results[0])


RECORDED = """
import os

fsync = os.fsync

def settled(descriptor):
    fsync(descriptor)
    with open(os.environ["LOG"], "a") as log:
        print("settled", os.readlink(f"/proc/self/fd/{descriptor}"), file=log)

os.fsync = settled
"""

RECORDED_DRIVER = """
import os, sys
from pathlib import Path
from flumina.engine.checkpoint.folder import Folder
from tests.system import test_checkpoints as t

def vouched(self, name, data, epoch, write=Folder.write):
    with open(os.environ["LOG"], "a") as log:
        print("vouched", name, file=log)
    write(self, name, data, epoch)

Folder.write = vouched
t.run("fraud", Path(sys.argv[1]), order=sys.argv[2] == "True")
"""


@pytest.mark.parametrize("order", [False, True])
def test_outputs_are_on_the_disk_before_a_snapshot_vouches_for_them(tmp_path: Path, *, order: bool) -> None:
    """What all processes force to the disk and what the driver commits, in one log."""
    log, place, root = tmp_path / "log", tmp_path / "data", Path(__file__).parents[2]
    place.mkdir()
    (tmp_path / "sitecustomize.py").write_text(RECORDED)
    paths = os.pathsep.join(map(str, [tmp_path, root, root / "src"]))
    command = [sys.executable, "-c", RECORDED_DRIVER, str(place), str(order)]
    subprocess.run(command, env={**os.environ, "PYTHONPATH": paths, "LOG": str(log)}, timeout=60, check=True)
    lines = log.read_text().splitlines()
    taken = Checkpoints(place / "kept").all()
    staging = Path(str(taken[0].manifest.folder))
    for snapshot in taken:
        known = set(lines[: lines.index(f"vouched {snapshot.manifest.place.manifest}")])
        files = [staging / file.path for file in snapshot.manifest.outputs]
        files += [Path(path) for named in snapshot.manifest.extra.get(FILES, {}).values() for path in named.values()]
        for file in files:
            wanted = [file, *(folder for folder in file.parents if folder.is_relative_to(place))]
            assert [path for path in wanted if f"settled {path}" not in known] == []
    assert len(taken) >= 4
    assert taken[-1].manifest.finished
    last = lines[lines.index(f"vouched {taken[-2].manifest.place.marker}") :]
    ready = f"settled {staging}/ready"
    published = [f"{ready}/_SUCCESS", ready, *(f"{ready}/{name}" for name in Fraud.output), f"settled {place}/out"]
    end = last.index(f"vouched {taken[-1].manifest.place.manifest}")
    assert [line for line in [*published, f"settled {place}"] if line not in last[:end]] == []


def test_plain_runs_do_not_wait_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", None)
    local.run(Fraud, fraud(), out=tmp_path / "out", order=True, progress=False)


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
        assert (run("key-counter", folder, state=asked).state is None) != asked
        assert run("key-counter", folder, state=False).state is None
    again = run("key-counter", tmp_path / "asked", state=True, workers=5, keep=1)
    assert again.stats.events == 0
    assert same(again.state, fl.spec(KeyCounter, key_counter()).state)
    with pytest.raises(CheckpointError, match=r"CHECKPOINT_STATE.*over(.|\n)*state=True") as caught:
        run("key-counter", tmp_path / "not", state=True)
    assert str(caught.value.file).endswith("not/kept")
    assert_agrees("key-counter", run("key-counter", tmp_path / "not"))


class Diary(fl.Program):
    """Events that depend on each other and on nothing else."""

    note = fl.Tag()
    depends = fl.depends((note, note))
    notes = fl.Count()

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        state.notes += 1


def test_a_program_in_which_nothing_synchronises_is_told_so(tmp_path: Path) -> None:
    notes = [fl.Stream("notes", Diary.note, {"ts": [1, 2, 3]})]
    kept: dict[str, Any] = {"out": tmp_path / "out", "progress": False}
    with pytest.raises(UsageError, match=r"NO_SYNCS.*syncs=4(.|\n)*Diary(.|\n)*events="):
        local.run(Diary, notes, checkpoint=fl.Checkpoint(tmp_path / "kept", syncs=4), **kept)
    assert list(tmp_path.iterdir()) == []
    seen = fl.Checkpoint(tmp_path / "kept", when=lambda since: since.syncs > 0)
    assert local.run(Diary, notes, checkpoint=seen, state=True, **kept).state.notes == 3


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
        optimiser=divided,
        out=fl.NOWHERE,
        checkpoint=fl.Checkpoint(tmp_path, events=EVENTS),
        settings=SMALL,
        progress=False,
    )
    assert_synchronised(result, 2)
    assert result.stats.snapshots >= 3


def staged(folder: Path) -> list[Path]:
    return sorted((folder / "_out.flumina-x").parent.glob("_out.flumina-*/*/*.parquet"))


@pytest.mark.parametrize("damage", ["flip", "cut", "delete"])
def test_damaged_outputs_are_noticed(damage: str, tmp_path: Path) -> None:
    with pytest.raises(TaskLostError):
        run("page-views", tmp_path, events=None, when=crash(tmp_path))
    named = {Path(file.path).as_posix() for one in snapshots("page-views", tmp_path) for file in one.manifest.outputs}
    victim = next(path for path in staged(tmp_path) if "/".join(path.parts[-2:]) in named)
    whole = victim.read_bytes()
    if damage == "delete":
        victim.unlink()
    else:
        middle = len(whole) // 2
        victim.write_bytes(
            whole[:middle] if damage == "cut" else whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
        )
    with pytest.raises(CheckpointError, match=r"CHECKPOINT_(DAMAGED|MISSING_FILE)") as caught:
        run("page-views", tmp_path)
    assert victim.name in str(caught.value)
    victim.write_bytes(whole)
    assert_agrees("page-views", run("page-views", tmp_path))


def test_a_damaged_state_is_noticed_and_an_older_one_used_on_request(tmp_path: Path) -> None:
    with pytest.raises(TaskLostError):
        run("fraud", tmp_path, events=None, when=crash(tmp_path))
    newest = snapshots("fraud", tmp_path)[-1]
    file = tmp_path / "kept" / newest.manifest.states[0].name
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    with pytest.raises(CheckpointError, match="CHECKPOINT_DAMAGED"):
        run("fraud", tmp_path)
    assert_agrees("fraud", run("fraud", tmp_path, older=True))


def damage(victim: Path, how: str) -> bytes:
    """Spoil a file, so that whoever looks at its size alone sees a flipped bit never; gives what it was."""
    whole = victim.read_bytes()
    middle = len(whole) // 2
    flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
    victim.write_bytes(flipped if how == "flip" else whole[:-5])
    return whole


def dies_over_publishing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, moved: int, *, renames: bool, order: bool
) -> list[Path]:
    """A driver that dies before its files are visible, after it moved so many of them; where they lie now."""
    move_all = Location._move_all

    def some(self: Location, files: dict[str, str]) -> None:
        move_all(self, dict(list(files.items())[:moved]), self.ready)
        raise DeadError

    with monkeypatch.context() as patched:
        patched.setattr(Location, "_rename_in" if renames else "_move_in", some)
        with pytest.raises(DeadError):
            run("page-views", folder, order=order)
    over = Checkpoints(folder / "kept").latest()
    assert over is not None
    assert not over.manifest.finished
    named = {name: Path(path) for files in over.manifest.extra[FILES].values() for name, path in files.items()}
    place = Path(str(over.manifest.folder)) / "ready" if renames else folder / "out"
    lie = [place / name if (place / name).exists() else path for name, path in named.items()]
    assert len(set(lie) - set(named.values())) == moved
    return lie


def assert_page_views(result: RunResult, *, order: bool) -> None:
    assert_agrees("page-views", result)
    if order:
        for name, table in fl.spec(PageViews, page_views()).outputs.items():
            assert result.outputs[name].to_pylist() == table.to_pylist(), name


@pytest.mark.parametrize("how", ["flip", "cut"])
@pytest.mark.parametrize("order", [False, True], ids=["as it comes", "in order"])
@pytest.mark.parametrize(
    ("moved", "renames"), [(0, True), (1, True), (1, False)], ids=["none moved", "one moved", "one moved for good"]
)
def test_nothing_damaged_is_published(
    how: str, moved: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, order: bool, renames: bool
) -> None:
    """The driver died when all files had their names; those that it had moved are looked at as well."""
    if not renames:
        monkeypatch.setattr("flumina.engine.location.can_rename", lambda _: False)
    lie = dies_over_publishing(tmp_path, monkeypatch, moved, renames=renames, order=order)
    for victim in {lie[0], lie[-1]}:
        whole = damage(victim, how)
        with pytest.raises(CheckpointError, match="CHECKPOINT_DAMAGED") as caught:
            run("page-views", tmp_path, order=order)
        assert caught.value.file == str(victim)
        assert not (tmp_path / "out" / "_SUCCESS").exists()
        victim.write_bytes(whole)
    result = run("page-views", tmp_path, order=order)
    assert result.stats.events == 0
    assert_page_views(result, order=order)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "out"]


@pytest.mark.parametrize("how", ["flip", "cut"])
@pytest.mark.parametrize("order", [False, True], ids=["as it comes", "in order"])
def test_what_is_damaged_before_the_same_driver_publishes(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, order: bool
) -> None:
    publish = Recorder.publish
    spoilt: list[tuple[Path, bytes]] = []

    def damaged(self: Recorder, *arguments: Any) -> Any:
        victim = staged(tmp_path)[0]
        spoilt.append((victim, damage(victim, how)))
        return publish(self, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(Recorder, "publish", damaged)
        with pytest.raises(CheckpointError, match="CHECKPOINT_DAMAGED") as caught:
            run("page-views", tmp_path, order=order)
    ((victim, whole),) = spoilt
    assert caught.value.file == str(victim)
    assert not (tmp_path / "out").exists()
    victim.write_bytes(whole)
    assert_page_views(run("page-views", tmp_path, order=order), order=order)


def files_of(snapshot: Snapshot) -> set[Path]:
    return {Path(str(snapshot.manifest.folder)) / file.path for file in snapshot.manifest.outputs}


@pytest.mark.parametrize("how", ["flip", "cut", "delete"])
@pytest.mark.parametrize("order", [False, True], ids=["as it comes", "in order"])
def test_damaged_outputs_lead_to_an_older_snapshot_on_request(how: str, tmp_path: Path, *, order: bool) -> None:
    with pytest.raises(TaskLostError):
        run("page-views", tmp_path, events=None, when=crash(tmp_path), order=order)
    first, second = snapshots("page-views", tmp_path)
    victim = min(files_of(second) - files_of(first))
    victim.unlink() if how == "delete" else damage(victim, how)
    with pytest.raises(CheckpointError, match=r"CHECKPOINT_(DAMAGED|MISSING_FILE)(.|\n)*older=True") as caught:
        run("page-views", tmp_path, order=order)
    assert caught.value.file == str(victim)
    result = run("page-views", tmp_path, order=order, older=True)
    assert_page_views(result, order=order)
    whole = fl.spec(PageViews, page_views()).events
    assert result.stats.events == whole - first.manifest.events, "what came behind the first snapshot was done again"
    again = run("page-views", tmp_path, order=order)
    assert again.stats.events == 0
    assert_page_views(again, order=order)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "out"]


def test_an_older_snapshot_is_asked_for_and_none_is_whole(tmp_path: Path) -> None:
    with pytest.raises(TaskLostError):
        run("page-views", tmp_path, events=None, when=crash(tmp_path))
    first, _ = snapshots("page-views", tmp_path)
    victim = min(files_of(first))
    whole = damage(victim, "flip")
    for _ in range(2):
        with pytest.raises(CheckpointError, match="CHECKPOINT_DAMAGED") as caught:
            run("page-views", tmp_path, older=True)
        assert caught.value.file == str(victim)
        assert caught.value.__notes__ == [f"none of the 2 snapshots in {tmp_path / 'kept'} is whole"]
        assert "older=True" not in str(caught.value), "it was asked for"
    victim.write_bytes(whole)
    assert_agrees("page-views", run("page-views", tmp_path, older=True))


def test_an_older_snapshot_is_asked_for_and_all_are_whole(tmp_path: Path) -> None:
    with pytest.raises(TaskLostError):
        run("page-views", tmp_path, events=None, when=crash(tmp_path))
    _, second = snapshots("page-views", tmp_path)
    result = run("page-views", tmp_path, older=True)
    assert_agrees("page-views", result)
    assert result.stats.events == fl.spec(PageViews, page_views()).events - second.manifest.events


@pytest.mark.parametrize("order", [False, True], ids=["as it comes", "in order"])
@pytest.mark.parametrize(
    ("moved", "renames"),
    [(False, True), (True, True), (True, False)],
    ids=["none moved", "some moved", "some moved for good"],
)
def test_an_older_snapshot_than_the_one_that_was_to_be_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, moved: bool, order: bool, renames: bool
) -> None:
    """Files that it needs, and that were moved already, are taken back; the work behind it is done again, once."""
    if not renames:
        monkeypatch.setattr("flumina.engine.location.can_rename", lambda _: False)
    count = 0 if not moved else 1 if order else 3
    lie = dies_over_publishing(tmp_path, monkeypatch, count, renames=renames, order=order)
    damage(lie[-1], "flip")
    with pytest.raises(CheckpointError, match="CHECKPOINT_DAMAGED"):
        run("page-views", tmp_path, order=order)
    result = run("page-views", tmp_path, order=order, older=True)
    assert 0 < result.stats.events < fl.spec(PageViews, page_views()).events
    assert_page_views(result, order=order)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "out"]


def die_after_five(since: fl.Since) -> bool:
    if since.snapshots == 5 and since.events >= 10:
        os.kill(os.getpid(), signal.SIGKILL)
    return since.events >= 20


def test_two_are_kept_and_nothing_else(tmp_path: Path) -> None:
    kept = tmp_path / "kept"

    def begin(**policy: Any) -> RunResult:
        checkpoint = fl.Checkpoint(kept, keep=2, **policy)
        place = tmp_path / "out"
        return local.run(Fraud, fraud(), workers=2, out=place, checkpoint=checkpoint, settings=SMALL, progress=False)

    def assert_two_with_their_files(*, states: int) -> None:
        both = Checkpoints(kept).all()
        assert len(both) == 2
        assert sum(len(one.manifest.states) for one in both) == states
        named = [name for one in both for name in (one.manifest.place.manifest, one.manifest.place.marker)]
        named += [file.name for one in both for file in one.manifest.states]
        epoch = both[-1].manifest.epoch
        there = sorted(path.name for path in kept.iterdir())
        assert there == sorted([*named, f"claim-{epoch:06d}-{both[-1].manifest.claim}.json"])
        assert Checkpoints(kept).verify() == [] or not states

    with pytest.raises(TaskLostError):
        begin(when=die_after_five)
    assert [one.number for one in Checkpoints(kept).all()] == [4, 5]
    assert_two_with_their_files(states=2)
    result = begin(events=20)
    assert_agrees("fraud", result)
    assert_two_with_their_files(states=0)


def test_a_checkpoint_in_a_file_system_that_was_given(tmp_path: Path) -> None:
    """Its paths mean something else on the disk: whoever forgot the file system would find or leave files elsewhere."""
    (tmp_path / "store").mkdir()
    filesystem = fs.SubTreeFileSystem(str(tmp_path / "store"), fs.LocalFileSystem())

    def begin(**policy: Any) -> RunResult:
        checkpoint = fl.Checkpoint("runs/kept", keep=100, filesystem=filesystem, **policy)
        place = tmp_path / "out"
        return local.run(Fraud, fraud(), workers=2, out=place, checkpoint=checkpoint, settings=SMALL, progress=False)

    with pytest.raises(TaskLostError):
        begin(when=crash(tmp_path / "store" / "runs"))
    taken = Checkpoints(tmp_path / "store" / "runs" / "kept").all()
    assert len(taken) == 2
    assert_states_are_those_of_the_oracle("fraud", taken)
    result = begin(events=EVENTS)
    assert_agrees("fraud", result)
    assert result.stats.events == fl.spec(Fraud, fraud()).events - taken[-1].manifest.events
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


@pytest.mark.parametrize("older", [False, True])
def test_results_that_somebody_has_removed_are_not_published_again(tmp_path: Path, *, older: bool) -> None:
    run("fraud", tmp_path)
    (tmp_path / "out").rename(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match=r"CHECKPOINT_MISSING_FILE.*out/_SUCCESS") as caught:
        run("fraud", tmp_path, older=older)
    assert caught.value.file == str(tmp_path / "out" / "_SUCCESS")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["elsewhere", "kept"]
    (tmp_path / "elsewhere").rename(tmp_path / "out")
    assert_agrees("fraud", run("fraud", tmp_path, older=older))
