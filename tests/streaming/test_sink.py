"""What a sink holds is what the query has made, whatever became of its checkpoint."""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import flumina as fl
from flumina.apps import ValueBarrier
from flumina.checkpoint.store.batches import MARKER
from flumina.checkpoint.store.checkpoints import Checkpoints
from flumina.checkpoint.store.manifest import EpochManifest, EpochOutputs
from flumina.cli.main import main
from flumina.output.commit import OutputCommit
from flumina.output.staged_outputs import DEAD_LETTERS, Outputs, StagedFile
from flumina.program.base import define
from flumina.storage.owner_token import OWNER, OwnerName, OwnerToken
from flumina.streaming.batches import Batches
from flumina.streaming.sink import ParquetSink
from flumina.testing import assert_same_outputs
from tests.checkpoint.store.support import commit
from tests.storage.crashing import PowerFailure, Steps, counted_calls, disk, power_of
from tests.streaming.support import Crash, Given, Query, crash_at, everything
from tests.streaming.test_batches import (
    BARRIERS,
    IN_ORDER,
    LATE,
    SPOILT,
    VALUES,
    barriers,
    batch,
    oracle,
    streams,
    values,
)

OTHER = batch(values(6, 8, 9), barriers(9))
"""Another batch 1 than that of IN_ORDER."""


def restored(folder: Path, *given: Given, **rules: str) -> Query:
    """A query that has processed some batches, on a copy of its checkpoint from before the last of them."""
    query = Query(folder, ValueBarrier, streams(), **rules)
    for number, rows in enumerate(given):
        if number == len(given) - 1:
            shutil.copytree(folder / "checkpoint", folder / "copy")
        query.feed(number, rows)
    shutil.rmtree(folder / "checkpoint")
    (folder / "copy").rename(folder / "checkpoint")
    query.start()
    return query


def test_a_restored_checkpoint_with_other_rows_is_noticed(tmp_path: Path) -> None:
    query = restored(tmp_path, IN_ORDER[0], OTHER)
    given = [IN_ORDER[0], batch(values(6, 7), barriers(7, 9))]
    with pytest.raises(fl.OutputError, match=r"OUT_OTHER_BATCH.*batch=1 holds(.|\n)*restored(.|\n)*delete batch=1"):
        query.feed(1, given[1])
    shutil.rmtree(tmp_path / "out" / "batch=1")  # what the hint says
    query.start()
    query.feed(1, given[1])
    assert_same_outputs(query.output(), oracle(given))


def test_a_restored_checkpoint_with_the_same_rows_goes_on(tmp_path: Path) -> None:
    query = restored(tmp_path, IN_ORDER[0], OTHER)
    query.feed(1, OTHER)
    assert_same_outputs(query.output(), oracle([IN_ORDER[0], OTHER]))


@pytest.mark.parametrize("given", [batch(values(6), barriers()), batch(values(), barriers())])
def test_a_batch_without_outputs_is_not_the_one_that_has_some(tmp_path: Path, given: Given) -> None:
    query = restored(tmp_path, IN_ORDER[0], OTHER)
    with pytest.raises(fl.OutputError, match=r"OUT_OTHER_BATCH"):
        query.feed(1, given)


def test_a_batch_after_other_batches_is_another_one(tmp_path: Path) -> None:
    """Batch 1 has no outputs either way, so that the difference shows in batch 2, which has the same rows and cut."""
    after = batch(values(), barriers(12))
    query = Query(tmp_path, ValueBarrier, streams())
    query.feed(0, IN_ORDER[0])
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "copy")
    for number, rows in ((1, batch(values(6, 9), barriers())), (2, after)):
        query.feed(number, rows)
    shutil.rmtree(tmp_path / "checkpoint")
    (tmp_path / "copy").rename(tmp_path / "checkpoint")
    query.start()
    query.feed(1, batch(values(7, 9), barriers()))
    with pytest.raises(fl.OutputError, match=r"OUT_OTHER_BATCH.*batch=2"):
        query.feed(2, after)


def test_dead_letters_of_another_batch_are_noticed(tmp_path: Path) -> None:
    query = restored(tmp_path, *LATE, late="dead-letter")
    with pytest.raises(fl.OutputError, match=r"OUT_OTHER_BATCH.*dead/batch=1"):
        query.feed(1, batch(values(3, 6), barriers(8)))


def test_dead_letters_are_replayed(tmp_path: Path) -> None:
    query = Query(tmp_path, ValueBarrier, streams(), late="dead-letter")
    query.feed(0, LATE[0])
    crash_at(query, "after-sink", 1)
    with pytest.raises(Crash):
        query.feed(1, LATE[1])
    query.start()
    query.feed(1, LATE[1])
    assert len(query.dead()) == 2


def words(folder: Path) -> Sequence[Path]:
    return sorted(folder.glob(f"*/batch=*/{MARKER}"))


@pytest.mark.parametrize("left", ["nothing", "a file", "half a marker"])
@pytest.mark.parametrize("place", ["out", "dead"])
def test_a_folder_that_no_query_has_published_is_no_batch(tmp_path: Path, left: str, place: str) -> None:
    """A tool that makes folders of partitions, or a copy without hidden files."""
    query = Query(tmp_path, ValueBarrier, streams(), late="dead-letter")
    query.feed(0, LATE[0])
    folder = tmp_path / place / "batch=1"
    folder.mkdir()
    if left != "nothing":
        (folder / ("part-0.parquet" if left == "a file" else MARKER)).write_bytes(b'{"sha256": "0')
    told = {"nothing": "an empty folder", "a file": "1 other files", "half a marker": "is damaged"}[left]
    with pytest.raises(
        fl.OutputError, match=rf"OUT_NOT_OURS.*{MARKER} in .*{place}/batch=1.*{told}(.|\n)*delete the folder"
    ):
        query.feed(1, LATE[1])
    shutil.rmtree(folder)  # what the hint says
    query.start()
    query.feed(1, LATE[1])
    assert len(query.dead()) == 2
    assert (tmp_path / "out" / "batch=1" / MARKER).exists()


class Doubling(ValueBarrier):
    """The same state and as many rows, with other values."""

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        if event.tag is self.value:
            state.total += event.v
        else:
            emit(2 * state.total)
            state.total = 0

    def update_batch(self, state: fl.State, batch: fl.Batch, emit: fl.Emit) -> None:
        if batch.tag is self.value:
            state.total += fl.total(batch["v"])
        elif len(batch):
            emit.columns([2 * state.total] + [0] * (len(batch) - 1))
            state.total = 0


Doubling.__name__ = "ValueBarrier"


def test_rows_of_other_code_are_never_kept_silently(tmp_path: Path) -> None:
    """The same rows, cut alike, with as many outputs: only the code tells them apart."""
    query = restored(tmp_path, IN_ORDER[0], OTHER)
    before = query.output()
    query.program, query.changed = Doubling, True
    query.start()
    with pytest.raises(
        fl.OutputError, match=r"OUT_OTHER_PROGRAM.*batch=1 holds(.|\n)*code of update(.|\n)*delete batch=1"
    ):
        query.feed(1, OTHER)
    assert query.output().equals(before)
    shutil.rmtree(tmp_path / "out" / "batch=1")  # what the hint says
    query.start()
    query.feed(1, OTHER)
    old, new = (everything(tmp_path / "out").column("total").to_pylist(), before.column("total").to_pylist())
    assert old == [new[0], *(2 * total for total in new[1:])]


@pytest.mark.parametrize("point", ["staged", "before-state", "after-state", "before-sink", "after-sink"])
def test_rows_and_state_of_a_batch_are_of_one_program(tmp_path: Path, point: str) -> None:
    """A batch that counts is that of the code that made it; one that does not is made again by the new code."""
    query = Query(tmp_path, ValueBarrier, streams())
    query.feed(0, IN_ORDER[0])
    crash_at(query, point, 1)
    with pytest.raises(Crash):
        query.feed(1, OTHER)
    query.program, query.changed = Doubling, True
    query.start()
    query.feed(1, OTHER)
    times = 2 if point in ("staged", "before-state") else 1
    wanted = oracle([IN_ORDER[0], OTHER]).column("total").to_pylist()
    assert query.output().column("total").to_pylist() == [wanted[0], *(times * total for total in wanted[1:])]


def test_a_query_whose_code_changed_in_between_goes_on(tmp_path: Path) -> None:
    query = Query(tmp_path, ValueBarrier, streams())
    query.feed(0, IN_ORDER[0])
    query.program, query.changed = Doubling, True
    query.start()
    query.feed(1, OTHER)
    assert [path.parent.name for path in words(tmp_path)] == ["batch=0", "batch=1"]


def test_verify_looks_for_the_files_of_the_sink(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    query = Query(tmp_path, ValueBarrier, streams(), late="dead-letter")
    for number, given in enumerate(LATE):
        query.feed(number, given)

    def verify(*sink: object) -> tuple[int, str]:
        code = main(["checkpoint", "verify", str(tmp_path / "checkpoint"), *map(str, sink)])
        return code, capsys.readouterr().out

    assert verify("--sink")[0] == 0
    batches = sorted((tmp_path / "out").glob("batch=*"))
    assert len(batches) > 1
    for folder in [*batches, tmp_path / "dead" / "batch=1"]:
        file = next(folder.glob("*.parquet"))
        whole = file.read_bytes()
        file.write_bytes(whole[:-1])
        assert verify()[0] == 0, "nobody has asked"
        code, out = verify("--sink")
        assert (code, f"DAMAGED {file}: has {len(whole) - 1:,} bytes, {len(whole):,} were committed" in out) == (
            1,
            True,
        )
        file.unlink()
        assert (verify("--sink")[0], f"DAMAGED {file}: is not there" in verify("--sink")[1]) == (1, True)
        file.write_bytes(whole)
        (folder / MARKER).rename(tmp_path / "kept")
        code, out = verify("--sink")
        assert (code, f"DAMAGED {folder}: has no {MARKER}" in out) == (1, True)
        (tmp_path / "kept").rename(folder / MARKER)
        folder.rename(tmp_path / "kept")
        code, out = verify("--sink")
        assert (code, f"DAMAGED {folder}: is not there" in out) == (1, True), folder
        (tmp_path / "kept").rename(folder)
    (tmp_path / "out").rename(tmp_path / "moved")
    assert verify("--sink")[0] == 1
    assert verify("--sink", tmp_path / "moved")[0] == 0


def test_verify_of_a_sink_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commit(Checkpoints(tmp_path / "c").take_over(resumes=None), state=b"x")
    assert main(["checkpoint", "verify", str(tmp_path / "c"), "--sink"]) == 2
    assert "NO_SINK" in capsys.readouterr().err


def test_readers_pass_over_what_we_remember(tmp_path: Path) -> None:
    query = Query(tmp_path, ValueBarrier, streams())
    query.feed(0, IN_ORDER[0])
    assert words(tmp_path)
    assert ds.dataset(tmp_path / "out", format="parquet", partitioning="hive").count_rows() == 1


def test_a_query_goes_on_in_the_folder_where_it_began(tmp_path: Path) -> None:
    query = Query(tmp_path, ValueBarrier, streams())
    query.out = tmp_path / "first"
    query.start()  # nothing was written yet, so that another folder is as good
    crash_at(query, "after-sink", 0)
    with pytest.raises(Crash):
        query.feed(0, IN_ORDER[0])
    query.out = tmp_path / "second"
    with pytest.raises(fl.CheckpointError, match=r"CHECKPOINT_OUT.*/first, not to .*/second"):
        query.start()
    assert not (tmp_path / "second").exists()
    (tmp_path / "first").rename(tmp_path / "second")
    for number in (0, 1, 2, 3):
        query.start()  # moved as a whole
        query.feed(number, IN_ORDER[number])
    assert_same_outputs(query.output(), oracle(IN_ORDER))


@pytest.mark.parametrize("first", ["folder", "function"])
def test_a_folder_is_no_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str) -> None:
    query = Query(tmp_path, ValueBarrier, streams())
    if first == "function":
        stage = query.batches.sink.stage
        monkeypatch.setattr(query.batches.sink, "stage", lambda *given: replace(stage(*given), folder=None))
    query.feed(0, IN_ORDER[0])
    monkeypatch.undo()
    if first == "folder":
        monkeypatch.setattr(ParquetSink, "is_of", lambda *_: False)
        monkeypatch.setattr(Batches, "_sink_path", None)
    with pytest.raises(fl.CheckpointError, match=r"CHECKPOINT_OUT.*a function"):
        query.batches.prepare() if first == "folder" else query.start()


def test_dead_letters_go_on_in_the_folder_where_they_began(tmp_path: Path) -> None:
    """Else those of a batch that is tried again would be in both."""
    rules = {"watermarks": dict.fromkeys((VALUES, BARRIERS), fl.BoundedDelay()), "bad_rows": "dead-letter"}
    query = Query(tmp_path, ValueBarrier, streams(), late="dead-letter", **rules)
    crash_at(query, "after-sink", 0)
    with pytest.raises(Crash):
        query.feed(0, SPOILT[0])
    query.dead_letters = tmp_path / "elsewhere"
    with pytest.raises(fl.CheckpointError, match=r"CHECKPOINT_OUT.*dead letters.*/dead, not to .*/elsewhere"):
        query.start()
    assert not (tmp_path / "elsewhere").exists()
    (tmp_path / "dead").rename(tmp_path / "elsewhere")
    query.start()
    for number, given in enumerate(SPOILT):
        query.feed(number, given)
    totals = query.last["totals"]
    assert len(query.dead()) == totals["late"] + totals["bad"] > 0


TIMES = [1]


def times() -> int:
    """Part of the program that is not looked at: only methods of the class are."""
    return TIMES[0]


class Repeating(fl.Program):
    """Gives out each value, as often as a function outside of the class says."""

    value = fl.Tag("v long NOT NULL")
    barrier = fl.Tag()
    depends = fl.depends((barrier, barrier), (barrier, value))
    output = "total long"
    total = fl.Sum("long")

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        for _ in range(times()):
            emit(1)


def test_a_batch_with_another_number_of_outputs_is_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows, their cut and the code, as far as it is looked at, are the same."""
    given = [fl.Stream(VALUES, Repeating.value, None), fl.Stream(BARRIERS, Repeating.barrier, None)]
    query = Query(tmp_path, Repeating, given)
    query.feed(0, IN_ORDER[0])
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "copy")
    query.feed(1, OTHER)
    shutil.rmtree(tmp_path / "checkpoint")
    (tmp_path / "copy").rename(tmp_path / "checkpoint")
    monkeypatch.setattr(f"{__name__}.TIMES", [2])
    query.start()
    with pytest.raises(fl.OutputError, match=r"OUT_OTHER_BATCH.*batch=1"):
        query.feed(1, OTHER)


class Named(fl.Program):
    """An output with the name of something else that a snapshot tells of."""

    value = fl.Tag("v long NOT NULL")
    barrier = fl.Tag()
    depends = fl.depends((barrier, barrier), (barrier, value))
    output = {"letters": "total long"}
    total = fl.Sum("long")

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        if event.tag is self.value:
            state.total += event.v
        else:
            emit.letters(state.total)
            state.total = 0


def test_an_output_called_letters_is_not_taken_for_the_dead_letters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    declared = [fl.Stream(VALUES, Named.value, None), fl.Stream(BARRIERS, Named.barrier, None)]
    query = Query(tmp_path, Named, declared, late="dead-letter")
    for number, given in enumerate(LATE):
        query.feed(number, given)
    newest = Checkpoints(tmp_path / "checkpoint" / "state").latest()
    assert newest is not None
    last = (newest.manifest.outputs.last, newest.manifest.dead_letters.last)
    assert last == ({"letters": 1}, {DEAD_LETTERS: 1})
    for gone in (tmp_path / "out" / "letters" / "batch=1", tmp_path / "dead" / "batch=1"):
        aside = gone.rename(tmp_path / "aside")
        assert main(["checkpoint", "verify", str(tmp_path / "checkpoint"), "--sink"]) == 1
        assert str(gone) in capsys.readouterr().out
        aside.rename(gone)


ROWS = pa.table({"total": [1, 2, 3]})


def put_out(sink: ParquetSink, owner: OwnerToken, before: EpochManifest | None = None) -> EpochManifest:
    """One driver: it shows what the manifest before it names, or stages the only batch, and shows that."""
    sink.prepare(owner.run, {})
    if before is not None:
        sink.show(before)
        sink.begin(owner)
        return before
    sink.begin(owner)
    location = sink.staging(0)
    data = pa.BufferOutputStream()
    pq.write_table(ROWS, data)
    whole, path = data.getvalue().to_pybytes(), Path(location.staging, "part-00000.parquet")
    path.write_bytes(whole)
    outputs = Outputs(define(ValueBarrier).outputs, pa.int64(), (), location.run, location)
    file = StagedFile(str(path), len(ROWS), len(whole), crc=zlib.crc32(whole))
    commit = OutputCommit(outputs, {"output": len(ROWS)}, {"output": {"part-00000.parquet": file}})
    staged = sink.stage(0, commit, EpochOutputs(), "lineage")
    made = EpochManifest(
        number=1,
        outputs=staged,
        term=owner.term,
        owner=owner.id,
        run=owner.run,
        parent=None,
        created=datetime.now(UTC),
        flumina="",
    )
    MANIFEST.append(made)
    sink.show(made)
    sink.clear(0)
    return made


MANIFEST: list[EpochManifest] = []
"""That of the batch, once it would have been written."""


def test_a_sink_is_killed_at_every_file_operation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch is there whole or not at all; the next driver shows it once, and leaves nothing else."""
    under_test: list[Steps] = []
    was_there = []
    for steps in range(200):
        out = tmp_path / str(steps)
        filesystem, killed = disk(steps), False
        MANIFEST.clear()
        sink = ParquetSink(out)
        sink.folder = replace(sink.folder, filesystem=filesystem)
        sink.staged.directory = replace(sink.staged.directory, filesystem=filesystem)
        with counted_calls(monkeypatch, under_test, str(out)), power_of(filesystem, under_test):
            try:
                put_out(sink, OwnerToken("run", OwnerName(1, "0" * 16)))
            except PowerFailure:
                killed = True
        batch = out / "batch=0"
        was_there.append(batch.exists())
        if batch.exists():
            assert pq.read_table(batch / "part-00000.parquet").equals(ROWS)
            assert (batch / MARKER).exists()
        second = OwnerToken("run", OwnerName(2, "1" * 16))
        put_out(ParquetSink(out), second, MANIFEST[0] if MANIFEST else None)
        assert sorted(path.name for path in batch.iterdir()) == [MARKER, "part-00000.parquet"], steps
        assert everything(out).equals(ROWS)
        assert sorted(path.name for path in out.iterdir()) == ["_flumina", OWNER, "batch=0"], steps
        assert [path.name for path in (out / "_flumina").rglob("*")] == [str(second.name)], steps
        if not killed:
            break
    else:
        pytest.fail("it never came to its end")
    assert was_there == sorted(was_there)
    assert len(was_there) > 20
