"""Dead letters of a task: to a file, back to the driver, or only counted."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flumina.errors import OutputError
from flumina.input.dead_letters import RejectedRows
from flumina.input.validation import Fault
from flumina.model.schema import Schema
from flumina.output import dead_letter_writer as letterbox
from flumina.output.commit import commit_outputs
from flumina.output.dead_letter_writer import DeadLetterWriter
from flumina.output.staged_outputs import DEAD_LETTERS, Manifest, Outputs
from flumina.storage.output_directory import OutputDirectory

FAULT = Fault("NULL_KEY", "k", "the key is null")
NOTHING = Manifest("r", 0, "1-0", {"output": 0}, {}, {})


def some(first: int, count: int) -> RejectedRows:
    rows = pa.table({"k": pa.nulls(count, pa.string())})
    return RejectedRows("s", rows, [FAULT] * count, [None] * count, [0] * count, range(first, first + count))


def outputs(folder: Path | None, **more: Any) -> Outputs:
    location = None if folder is None else OutputDirectory.of(folder, "r")
    made = Outputs({"output": Schema.parse("n long")}, pa.int64(), ("s",), "r", location, aside=True, **more)
    made.prepare()
    return made


def rows_of(table: pa.Table) -> list[int]:
    return sorted(table.column("row").to_pylist())


@pytest.mark.parametrize("at_once", [1, 7, 1000])
def test_to_a_file_from_many_threads(tmp_path: Path, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letterbox, "ROWS_AT_ONCE", at_once)
    out = outputs(tmp_path / "out", checked=True)
    box = DeadLetterWriter(out, 0, "1-0")

    def work(number: int) -> None:
        for piece in range(20):
            box.put(some(100 * number + 5 * piece, 5))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    manifest = box.added_to(NOTHING)
    assert box.rows == manifest.rows[DEAD_LETTERS] == 400
    assert manifest.files[DEAD_LETTERS].crc is not None
    result = commit_outputs(out, [manifest])[DEAD_LETTERS]
    assert rows_of(result.table()) == list(range(400))
    assert rows_of(pq.read_table(tmp_path / "out" / DEAD_LETTERS)) == list(range(400))


@pytest.mark.parametrize("ordered", [True, False])
def test_back_to_the_driver_behind_those_of_other_tasks(ordered: bool) -> None:  # noqa: FBT001
    out = outputs(None, ordered=ordered)
    manifests = []
    for task in range(3):
        box = DeadLetterWriter(out, task, "1-0")
        if task:
            box.put(some(10 * task, 4))
        manifests.append(box.added_to(Manifest("r", task, "1-0", {"output": 0}, {}, {})))
    result = commit_outputs(out, manifests)[DEAD_LETTERS]
    assert rows_of(result.table()) == [10, 11, 12, 13, 20, 21, 22, 23]
    assert result.rows == 8


def test_more_than_can_be_sent_back_says_what_to_do() -> None:
    box = DeadLetterWriter(outputs(None, inline_limit=2000), 3, "1-0")
    box.put(some(0, 1))
    with pytest.raises(OutputError, match=r"TOO_MUCH_OUTPUT.*task 3.*dead letters[\s\S]*out=PATH"):
        box.put(some(1, 100))


def test_counted_only() -> None:
    out = outputs(None, kept=False)
    box = DeadLetterWriter(out, 0, "1-0")
    box.put(some(0, 9))
    result = commit_outputs(out, [box.added_to(NOTHING)])[DEAD_LETTERS]
    assert (result.rows, result.kept) == (9, False)


def test_none_are_a_file_without_rows(tmp_path: Path) -> None:
    out = outputs(tmp_path / "out")
    commit_outputs(out, [DeadLetterWriter(out, 0, "1-0").added_to(NOTHING)])
    assert pq.read_table(tmp_path / "out" / DEAD_LETTERS).num_rows == 0


def test_what_is_abandoned_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letterbox, "ROWS_AT_ONCE", 1)
    out = outputs(tmp_path / "out")
    assert out.location is not None
    staging = Path(out.location.staging)
    box = DeadLetterWriter(out, 0, "1-0")
    box.put(some(0, 2))
    assert {path.name for path in staging.iterdir()} > {"driver.lock"}
    box.abandon()
    assert {path.name for path in staging.iterdir()} == {"driver.lock"}
    DeadLetterWriter(out, 0, "2-0").abandon()
