"""What users see when something goes wrong in the middle of a run, and that nothing is left of the run then."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import flumina as fl
from flumina import local
from flumina.apps.value_barrier import ValueBarrier
from flumina.engine.job import Settings
from flumina.engine.results import RunResult
from flumina.errors import InputError, OutputError, TaskLostError, UsageError, UserCodeError
from flumina.local.pool import POOL
from flumina.testing import assert_same_outputs
from tests.system import failing
from tests.system.failing import BAD
from tests.system.processes import children

PATIENT = Settings(patience=50.0)


def line_of(mark: str) -> str:
    """``file:line`` of a line in the programs, found by the comment behind it."""
    lines = Path(failing.__file__).read_text(encoding="utf-8").splitlines()
    return f"failing.py:{next(n for n, line in enumerate(lines, 1) if line.endswith(f'#: {mark}'))}"


def streams(program: Any, rows: int = 2000, bad: int | None = 777) -> list[fl.Stream]:
    """Two parts of values, of which one row of the second is bad, and barriers."""
    values = [np.arange(rows) % 1000 for _ in range(2)]
    if bad is not None:
        values[1][bad] = BAD
    parts = [pa.table({"ts": np.arange(rows) * 2 + part, "v": v}) for part, v in enumerate(values)]
    barriers = pa.table({"ts": np.arange(100, 2 * rows, 200)})
    return [fl.Stream("barriers", program.barrier, barriers), fl.Stream("values", program.value, parts)]


def run(program: Any, given: list[fl.Stream], **more: Any) -> RunResult:
    return local.run(program, given, workers=2, optimiser="greedy", progress=False, settings=PATIENT, **more)


@pytest.fixture(autouse=True)
def the_next_run_works() -> Iterator[None]:
    """Processes come back from a run that failed, or are ended; the next run has what it needs."""
    yield
    given = streams(ValueBarrier, bad=None)
    assert_same_outputs(run(ValueBarrier, given).output, fl.spec(ValueBarrier, given).output)


USER_CODE = [
    (failing.InUpdate, "update", "InUpdate.update", True),
    (failing.InUpdateBatch, "update_batch", "InUpdateBatch.update_batch", False),
    (failing.InFork, "fork", "InFork.fork", False),
    (failing.InJoin, "join", "InJoin.join", False),
    (failing.InInit, "init", "InInit.init", False),
    (failing.InUpdateStrangely, "strange", "InUpdateStrangely.update", True),
]


def assert_tells(error: UserCodeError, mark: str, function: str, *, event: bool) -> None:
    """The error names the user's file and line, the function, the event and the worker."""
    text = "\n".join([str(error), *getattr(error, "__notes__", ())])
    assert line_of(mark) in error.where
    assert error.function == function
    assert "bad value" in text or "1 and 2" in text
    if event:
        for part in ("value(", "@1555", "values#777"):
            assert part in text, f"{part} is not in: {text}"
    if mark != "init":
        assert "worker w" in text, text


@pytest.mark.parametrize(("program", "mark", "function", "event"), USER_CODE, ids=str)
def test_an_exception_in_user_code_ends_the_run(
    program: Any,
    mark: str,
    function: str,
    event: bool,  # noqa: FBT001 -- as the table has it
    tmp_path: Path,
) -> None:
    began = time.monotonic()
    with pytest.raises(UserCodeError) as caught:
        run(program, streams(program), out=tmp_path / "out")
    assert_tells(caught.value, mark, function, event=event)
    assert time.monotonic() - began < 15
    assert list(tmp_path.iterdir()) == []


def test_an_output_of_another_type_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(OutputError) as caught:
        run(failing.InOutput, streams(failing.InOutput), out=tmp_path / "out")
    for part in ("'many'", "'total'", "value(v=7777)@1555 values#777"):
        assert part in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("workers", [1, 2])
def test_a_state_that_cannot_be_sent_is_named(workers: int) -> None:
    with pytest.raises(UsageError) as caught:
        local.run(failing.Locked, streams(failing.Locked), workers=workers, optimiser="greedy", state=True)
    assert caught.value.condition == "STATE_NOT_PICKLABLE"


def written(program: Any, tmp_path: Path, spoil: Any) -> list[fl.Stream]:
    """The streams in files; ``spoil`` changes the second file of the values."""
    tmp_path.mkdir()
    found = []
    for stream in streams(program, bad=None):
        files = []
        for number, table in enumerate(stream.parts()):
            path = tmp_path / f"{stream.name}-{number}.parquet"
            pq.write_table(spoil(table) if path.name == "values-1.parquet" else table, path, row_group_size=500)
            files.append(path)
        found.append(fl.Stream(stream.name, stream.tag, fl.Parquet(files)))
    return found


def test_bad_rows_in_the_middle_of_a_file_are_named(tmp_path: Path) -> None:
    def spoil(table: pa.Table) -> pa.Table:
        ts = table["ts"].to_numpy().copy()
        ts[1234] = 5
        return table.set_column(0, "ts", pa.array(ts))

    given = written(ValueBarrier, tmp_path / "in", spoil)
    with pytest.raises(InputError) as caught:
        run(ValueBarrier, given, out=tmp_path / "out")
    error = caught.value
    assert (error.condition, error.stream, error.part, error.row, error.column) == (
        "DECREASING_TIMESTAMP", "values", 1, 1234, "ts",
    )  # fmt: skip
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_a_null_in_the_middle_of_a_file_is_named(tmp_path: Path) -> None:
    def spoil(table: pa.Table) -> pa.Table:
        values = table["v"].to_pylist()
        values[1500] = None
        return table.set_column(1, "v", pa.array(values, pa.int64()))

    with pytest.raises(InputError) as caught:
        run(ValueBarrier, written(ValueBarrier, tmp_path / "in", spoil))
    error = caught.value
    assert (error.condition, error.part, error.row, error.column) == ("NULL_VALUE", 1, 1500, "v")


def slow(part: int, told: str = "") -> Iterator[dict[str, Any]]:
    """Values for a run that takes about ten seconds at its pace; who reads them says so in the folder ``told``."""
    if told:
        Path(told, f"{part}-{os.getpid()}").touch()
    for start in range(0, 10_000, 100):
        yield {"v": np.arange(start, start + 100) * 2 + part}


def beats(part: int) -> Iterator[dict[str, Any]]:
    yield {"ts": np.arange(100_000, 10_000_000, 100_000)}


def paced(program: Any, told: Path | None = None, rate: float = 1000.0) -> list[fl.Stream]:
    values = partial(slow, told=str(told or ""))
    return [
        fl.Stream("barriers", program.barrier, fl.Generated(beats, rate=rate)),
        fl.Stream("values", program.value, fl.Generated(values, parts=2, rate=rate)),
    ]


def test_a_process_that_is_killed_ends_the_run_at_once(tmp_path: Path) -> None:
    killed: list[tuple[int, float]] = []
    told = tmp_path / "told"
    told.mkdir()

    def kill() -> None:
        deadline = time.monotonic() + 60
        while len(reading := readers(told)) < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(0.5)
        killed.append((reading[1], time.monotonic()))
        os.kill(reading[1], signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    with pytest.raises(TaskLostError) as caught:
        run(ValueBarrier, paced(ValueBarrier, told), out=tmp_path / "out")
    thread.join()
    assert killed[0][0] == caught.value.pid
    assert time.monotonic() - killed[0][1] < 4
    assert [path.name for path in tmp_path.iterdir()] == ["told"]


def readers(told: Path) -> dict[int, int]:
    """The process that reads each part, this one aside: it only looks at the first rows."""
    found = [tuple(map(int, path.name.split("-"))) for path in told.iterdir()]
    return {part: pid for part, pid in found if pid != os.getpid()}


def processes() -> set[int]:
    """The processes that the pool has started."""
    return {pid for pid, command in children(os.getpid()).items() if "flumina.local.process" in command}


def test_a_program_that_ends_its_process_is_a_lost_task() -> None:
    began = time.monotonic()
    with pytest.raises(TaskLostError, match="ended before its work did"):
        run(failing.Dies, streams(failing.Dies))
    assert time.monotonic() - began < 10


@pytest.mark.timeout(60)
def test_a_process_that_dies_before_it_has_come_is_a_lost_task() -> None:
    POOL.close()
    began = time.monotonic()

    def kill() -> None:
        while not processes() and time.monotonic() < began + 20:
            time.sleep(0.001)
        os.kill(min(processes()), signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    with pytest.raises(TaskLostError):
        run(ValueBarrier, paced(ValueBarrier))
    thread.join()
    assert time.monotonic() - began < 10
    began = time.monotonic()
    run(ValueBarrier, streams(ValueBarrier, bad=None))
    assert time.monotonic() - began < 30, "the other process looks for a run that is over, and was taken for idle"


def test_a_generator_that_raises_in_the_middle_ends_the_run() -> None:
    def broken(part: int) -> Iterator[dict[str, Any]]:
        yield {"ts": [1, 2, 3], "v": [1, 2, 3]}
        yield {"ts": [4], "v": [1 // 0]}

    given = [streams(ValueBarrier)[0], fl.Stream("values", ValueBarrier.value, fl.Generated(broken, parts=2))]
    with pytest.raises(UserCodeError, match="ZeroDivisionError") as caught:
        run(ValueBarrier, given)
    assert "test_failures.py" in caught.value.where


@pytest.mark.timeout(60)
def test_an_interrupt_calls_the_run_off(tmp_path: Path) -> None:
    def interrupt() -> None:
        time.sleep(3)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # who is started in the background ignores it
    threading.Thread(target=interrupt).start()
    began = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            run(ValueBarrier, paced(ValueBarrier), out=tmp_path / "out")
    finally:
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - began < 8
    assert list(tmp_path.iterdir()) == []
