"""What users see when something goes wrong in the middle of a run, and that nothing is left of the run then."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
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
from flumina.engine.options import EngineOptions
from flumina.engine.results import RunResult
from flumina.errors import (
    InputError,
    OutOfMemoryError,
    OutputError,
    TaskLostError,
    TaskSilentError,
    UsageError,
    UserCodeError,
)
from flumina.local.pool import POOL
from flumina.testing import assert_same_outputs
from tests.system import failing
from tests.system.failing import BAD
from tests.system.processes import children
from tests.waiting import FOREVER, wait_until

PATIENT = EngineOptions(patience=FOREVER)


def line_of(mark: str) -> str:
    """``file:line`` of a line in the programs, found by the comment after it."""
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
    return local.run(program, given, workers=2, optimizer="greedy", progress=False, engine_options=PATIENT, **more)


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
    with pytest.raises(UserCodeError) as caught:
        run(program, streams(program), out=tmp_path / "out")
    assert_tells(caught.value, mark, function, event=event)
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
        local.run(failing.Locked, streams(failing.Locked), workers=workers, optimizer="greedy", return_state=True)
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
        fl.Stream("barriers", program.barrier, fl.GeneratorSource(beats, rate=rate)),
        fl.Stream("values", program.value, fl.GeneratorSource(values, parts=2, rate=rate)),
    ]


def test_a_process_that_is_killed_ends_the_run_at_once(tmp_path: Path) -> None:
    killed: list[int] = []
    told = tmp_path / "told"
    told.mkdir()

    def kill() -> None:
        wait_until("both parts are read", lambda: len(readers(told)) == 2)
        killed.append(readers(told)[1])
        os.kill(killed[0], signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    with pytest.raises(TaskLostError) as caught:
        run(ValueBarrier, paced(ValueBarrier, told), out=tmp_path / "out")
    thread.join()
    assert killed == [caught.value.pid]
    assert [path.name for path in tmp_path.iterdir()] == ["told"]


def readers(told: Path) -> dict[int, int]:
    """The process that reads each part, this one aside: it only looks at the first rows."""
    found = [tuple(map(int, path.name.split("-"))) for path in told.iterdir()]
    return {part: pid for part, pid in found if pid != os.getpid()}


def processes() -> set[int]:
    """The processes that the pool has started."""
    return {pid for pid, command in children(os.getpid()).items() if "flumina.local.process" in command}


def test_a_program_that_ends_its_process_is_a_lost_task() -> None:
    with pytest.raises(TaskLostError, match="ended before its work did"):
        run(failing.Dies, streams(failing.Dies))


def test_a_process_that_dies_before_it_has_come_is_a_lost_task() -> None:
    POOL.close()

    def kill() -> None:
        while not processes():
            time.sleep(0.001)
        os.kill(min(processes()), signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    with pytest.raises(TaskLostError):
        run(ValueBarrier, paced(ValueBarrier))
    thread.join()
    run(ValueBarrier, streams(ValueBarrier, bad=None))  # hangs if a process that looks for the other run counts as idle


def test_a_generator_that_raises_in_the_middle_ends_the_run() -> None:
    def broken(part: int) -> Iterator[dict[str, Any]]:
        yield {"ts": [1, 2, 3], "v": [1, 2, 3]}
        yield {"ts": [4], "v": [1 // 0]}

    given = [streams(ValueBarrier)[0], fl.Stream("values", ValueBarrier.value, fl.GeneratorSource(broken, parts=2))]
    with pytest.raises(UserCodeError, match="ZeroDivisionError") as caught:
        run(ValueBarrier, given)
    assert "test_failures.py" in caught.value.where


def test_an_interrupt_calls_the_run_off(tmp_path: Path) -> None:
    def interrupt() -> None:
        time.sleep(3)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # who is started in the background ignores it
    threading.Thread(target=interrupt).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            run(ValueBarrier, paced(ValueBarrier), out=tmp_path / "out")
    finally:
        signal.signal(signal.SIGINT, before)
    assert list(tmp_path.iterdir()) == []


def blocked(part: int, told: str, driver: int) -> Iterator[dict[str, Any]]:
    """Some values; then, in a task, nothing more for ever, and the file ``part-pid`` in the folder ``told``."""
    values = np.arange(100) % 1000
    values[50] = BAD
    yield {"ts": np.arange(100) * 2 + part, "v": values}
    if os.getpid() != driver:
        Path(told, f"{part}-{os.getpid()}").touch()
        while True:
            time.sleep(1)


def blocking(program: Any, told: Path) -> list[fl.Stream]:
    told.mkdir()
    values = fl.GeneratorSource(partial(blocked, told=str(told), driver=os.getpid()), parts=2)
    return [
        fl.Stream("barriers", program.barrier, pa.table({"ts": [1_000]})),
        fl.Stream("values", program.value, values),
    ]


def test_an_exception_is_told_though_inputs_block(tmp_path: Path) -> None:
    """The task waited for its readers before it told the driver: for ever, if one sits in a generator."""
    with pytest.raises(UserCodeError, match="bad value") as caught:
        run(failing.InUpdate, blocking(failing.InUpdate, tmp_path / "told"), out=tmp_path / "out")
    assert_tells_function(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["told"]
    left = set(readers(tmp_path / "told").values())
    assert not left & {worker.process.pid for worker in POOL.idle}, "a thread of the run before still sits in there"


def assert_tells_function(error: UserCodeError) -> None:
    assert error.function == "InUpdate.update"
    assert line_of("update") in error.where


DRIVER = """
import sys
from pathlib import Path
from flumina.apps.value_barrier import ValueBarrier
from tests.system.test_failures import blocking, run
if __name__ == "__main__":
    run(ValueBarrier, blocking(ValueBarrier, Path(sys.argv[1])))
"""


def test_tasks_end_quietly_with_a_driver_that_was_killed(tmp_path: Path) -> None:
    script, told, said = tmp_path / "script.py", tmp_path / "told", tmp_path / "said"
    script.write_text(DRIVER)
    with said.open("wb") as file:
        command = [sys.executable, str(script), str(told)]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        driver = subprocess.Popen(command, stderr=file, stdout=file, env=environment)
    tasks: set[int] = set()
    try:
        wait_until("both parts are read", lambda: told.is_dir() and len(list(told.iterdir())) == 2)
        tasks = set(children(driver.pid))
    finally:
        driver.kill()
        driver.wait()
    assert tasks
    try:
        wait_until("all tasks have ended", lambda: not [pid for pid in tasks if alive(pid)])
    finally:
        for pid in filter(alive, tasks):
            os.kill(pid, signal.SIGKILL)
    assert said.read_text() == ""


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


SOON = EngineOptions(patience=FOREVER, liveness_interval=0.05, warn_after=2.0)


def test_a_task_that_stands_still_is_named_and_ended_after_the_timeout(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told = tmp_path / "told"
    given = blocking(ValueBarrier, told)
    stopped: list[int] = []

    def stop() -> None:
        wait_until("both parts are read", lambda: len(readers(told)) == 2)
        stopped.append(readers(told)[1])
        os.kill(stopped[0], signal.SIGSTOP)

    thread = threading.Thread(target=stop)
    thread.start()
    with pytest.raises(TaskSilentError, match="gave no sign of life") as caught:
        local.run(
            ValueBarrier, given, workers=2, optimizer="greedy", progress=False, engine_options=SOON, task_timeout=6.0
        )
    thread.join()
    assert caught.value.pid == stopped[0]
    assert not alive(stopped[0])
    assert f"process {stopped[0]} on " in caplog.text


def test_a_call_that_holds_the_lock_of_python_is_no_more_than_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    given = streams(failing.HoldsTheLock)
    result = local.run(failing.HoldsTheLock, given, workers=2, optimizer="greedy", progress=False, engine_options=SOON)
    assert_same_outputs(result.output, fl.spec(ValueBarrier, streams(ValueBarrier)).output)
    assert "has given no sign of life" in caplog.text
    assert "without limit, as no task_timeout= is set" in caplog.text


@pytest.mark.parametrize(
    ("program", "where"),
    [
        (failing.NoMemoryInUpdate, "NoMemoryInUpdate.update, at "),
        (failing.NoMemoryInJoin, "NoMemoryInJoin.join, at "),
        (failing.NoMemoryToSend, "in __reduce__, at "),
    ],
    ids=str,
)
def test_that_memory_ran_out_is_not_told_as_the_users_error(program: Any, where: str) -> None:
    with pytest.raises(OutOfMemoryError, match=r"task \d ran out of memory \(its process had up to .*iB") as caught:
        run(program, streams(program))
    error = caught.value
    assert error.condition == "OUT_OF_MEMORY"
    assert where in str(error)
    assert error.task is not None
    assert isinstance(error.__cause__, MemoryError)
    assert "keep less state" in (error.hint or "")


def test_that_memory_ran_out_in_a_generator_has_the_same_name() -> None:
    def greedy(part: int) -> Iterator[dict[str, Any]]:
        yield {"ts": [1, 2, 3], "v": [1, 2, 3]}
        bytearray(1 << 62)

    given = [streams(ValueBarrier)[0], fl.Stream("values", ValueBarrier.value, fl.GeneratorSource(greedy, parts=2))]
    with pytest.raises(OutOfMemoryError, match="greedy, at "):
        run(ValueBarrier, given)
