"""One attempt of a task: what it writes, what it holds, and what happens when it can't write."""

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from flumina.errors import OutputError, UsageError
from flumina.model.emit import Emit, Row
from flumina.model.schema import Schema
from flumina.output import row_buffer as pieces
from flumina.output import writer as sink
from flumina.output.commit import commit_outputs
from flumina.output.parquet_file import ParquetFile
from flumina.output.writer import OutputWriter
from tests.engine.writing import TICK, TWO, batch, emitted, make, run_task, visible

SEVERAL = 100


def big(rows: int) -> list[Any]:
    emit = Emit(make(None).schemas)
    emit.batch = batch(range(rows), 0, range(rows))
    emit.columns(["x" * 20] * rows, np.arange(rows))
    return emit.drain()


def write_all(attempt: OutputWriter, items: list[Any], times: int) -> None:
    for _ in range(times):
        attempt.write(items)
    attempt.close()


def test_a_manifest_says_what_there_is(tmp_path: Path) -> None:
    outputs = make(tmp_path / "out", TWO)
    outputs.prepare()
    manifest = run_task(outputs, 7, emitted(0, TWO), "a3")
    assert (manifest.run, manifest.task, manifest.attempt) == ("run1", 7, "a3")
    for name, file in manifest.files.items():
        assert Path(file.path).stat().st_size == file.size
        assert file.rows == manifest.rows[name] > 0
    assert manifest.inline == {}


def test_inline_outputs_have_a_limit() -> None:
    outputs = make(None, inline_limit=100_000)
    small = OutputWriter(outputs, 0, "a")
    small.write(big(1000))
    assert small.close().rows == {"output": 1000}
    for rows in (SEVERAL, 10_000):
        endless = OutputWriter(outputs, 3, "a")
        with pytest.raises(OutputError, match=r"task 3 has more than 100,000 bytes.*\n.*out=PATH") as caught:
            write_all(endless, big(rows), 10_000 // rows)
        assert caught.value.condition == "TOO_MUCH_OUTPUT"
        endless.abandon()


def test_the_limit_counts_all_outputs() -> None:
    outputs = make(None, TWO, inline_limit=10_000)
    endless = OutputWriter(outputs, 0, "a")
    with pytest.raises(OutputError, match="TOO_MUCH_OUTPUT"):
        write_all(endless, emitted(0, TWO), 100)


@pytest.mark.parametrize("group_rows", [10, 1 << 20])
def test_abandoned_attempts_leave_nothing(tmp_path: Path, group_rows: int) -> None:
    outputs = make(tmp_path / "out", group_rows=group_rows)
    outputs.prepare()
    attempt = OutputWriter(outputs, 0, "a")
    attempt.write(emitted(0))
    attempt.abandon()
    attempt.abandon()
    assert visible(tmp_path) == ["_out.flumina-run1", "_out.flumina-run1/driver.lock"]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("flumina-outputs")]
    OutputWriter(make(None), 0, "a").abandon()


def test_a_value_of_the_wrong_type_names_the_event() -> None:
    attempt = OutputWriter(make(None), 0, "a")
    attempt.write([Row("output", ("x", "no number"), TICK.event(ts=5, stream="left", seq=3, n=1))])
    with pytest.raises(OutputError, match=r"OUTPUT_TYPE.*no number.*left#3"):
        attempt.close()


def test_staging_that_was_removed_is_told(tmp_path: Path) -> None:
    outputs = make(tmp_path / "out", group_rows=10)
    outputs.prepare()
    attempt = OutputWriter(outputs, 0, "a")
    outputs.discard()
    with pytest.raises(OutputError, match=r"OUT_FAILED.*_out\.flumina-run1.*\n.*removed during the run"):
        write_all(attempt, emitted(0), 1000)
    with pytest.raises(OutputError, match="OUT_FAILED"):
        attempt.close()
    attempt.abandon()
    with pytest.raises(OutputError, match="OUT_FAILED"):
        OutputWriter(outputs, 0, "b")
    assert visible(tmp_path) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is always full")
def test_a_full_disk_is_told(tmp_path: Path) -> None:
    outputs = make(tmp_path / "out", group_rows=10)
    outputs.prepare()
    attempt = OutputWriter(outputs, 0, "a")
    (tmp_path / "_out.flumina-run1" / "00000-a" / "output.parquet").symlink_to("/dev/full")
    with pytest.raises(OutputError, match=r"OUT_FAILED.*output\.parquet.*\n.*make room"):
        write_all(attempt, emitted(0), 1000)
    attempt.abandon()
    assert visible(tmp_path) == ["_out.flumina-run1", "_out.flumina-run1/driver.lock"]


def test_a_slow_disk_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded: no more pieces wait than may."""
    held: list[int] = []
    go_on = threading.Event()
    original = ParquetFile.write

    def slowly(self: ParquetFile, table: pa.Table) -> None:
        go_on.wait(20)
        original(self, table)

    monkeypatch.setattr(ParquetFile, "write", slowly)
    outputs = make(tmp_path / "out", group_rows=SEVERAL)
    outputs.prepare()
    attempt = OutputWriter(outputs, 0, "a")

    def write() -> None:
        for number in range(20):
            attempt.write(big(SEVERAL))
            held.append(number)

    thread = threading.Thread(target=write)
    thread.start()
    time.sleep(0.5)
    assert len(held) == sink.WAITING + 1  # and one being written, which the last call waits for
    go_on.set()
    thread.join()
    assert attempt.close().rows == {"output": 20 * SEVERAL}
    assert attempt.waited > 0.3


@pytest.mark.parametrize("attempt", ["", "a/b", "../x"])
def test_the_id_of_an_attempt_is_a_part_of_names(attempt: str) -> None:
    with pytest.raises(UsageError, match="ATTEMPT_ID"):
        OutputWriter(make(None), 0, attempt)


def test_wide_rows_are_written_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "BUFFER_BYTES", 10_000)
    outputs = make(tmp_path / "out", ordered=True)
    outputs.prepare()
    attempt = OutputWriter(outputs, 0, "a")
    for _ in range(10):
        attempt.write(big(SEVERAL))
    runs = attempt.close().files["output"].runs
    assert len(runs) > 2
    assert sum(run.rows for run in runs) == 1000


def test_a_file_system_that_hangs_does_not_hold_up_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = make(tmp_path / "out", group_rows=SEVERAL)
    outputs.prepare()
    attempt = OutputWriter(outputs, 0, "a")
    monkeypatch.setattr(sink, "PATIENCE", 0.1)
    release = threading.Event()
    monkeypatch.setattr(ParquetFile, "write", lambda *_: release.wait())
    attempt.write(big(SEVERAL))
    attempt.abandon()
    release.set()


def test_no_columns_but_those_of_the_event(tmp_path: Path) -> None:
    for place in (None, tmp_path / "out"):
        outputs = make(place, {"output": Schema.parse("")})
        outputs.prepare()
        emit = Emit(outputs.schemas)
        for emit.event in batch([4, 9], 1, [0, 1]):
            emit()
        emit.event, emit.batch = None, batch([10], 0, [0])
        emit.columns(at=[0, 0])
        result = commit_outputs(outputs, [run_task(outputs, 0, emit.drain())])["output"]
        assert sorted(result.table().column("event_ts").to_pylist()) == [4, 9, 10, 10]
