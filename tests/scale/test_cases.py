from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.scale import __main__ as command
from tests.scale import tree
from tests.scale.cases import DIMENSIONS, SECTIONS, Case, all_cases, pairwise, size
from tests.scale.inputs import PROGRAMS, Input
from tests.scale.table import BEGIN, END, record, row, table
from tests.scale.watch import HUNG, OK, Verdict

ROOT = command.ROOT


def test_every_case_has_a_name_of_its_own_and_every_section_has_cases() -> None:
    cases = all_cases()
    assert len({case.name for case in cases}) == len(cases)
    assert list(dict.fromkeys(case.section for case in cases)) == list(SECTIONS)
    assert {case.program for case in cases} <= set(PROGRAMS)
    assert len(list(pairwise())) == 40
    assert {case.rows for case in pairwise()} == set(DIMENSIONS["rows"])


def test_what_stands_alone_is_there() -> None:
    alone = {(c.section, c.engine, c.rows, c.ordered, c.batches) for c in all_cases()[40:]}
    assert {("outputs", e, 10**7, o, 0) for e in ("local", "spark") for o in (False, True)} <= alone
    assert {("huge", e, 5 * 10**7, False, 0) for e in ("local", "spark")} <= alone
    assert ("streaming", "spark", 10**6, False, 200) in alone


def test_a_case_survives_json() -> None:
    for case in all_cases():
        assert Case.of_json(json.loads(json.dumps(case.to_json()))) == case


def test_sizes_are_short() -> None:
    assert [size(rows) for rows in (1_500, 100_000, 2_000_000, 50_000_000)] == ["1.5k", "100k", "2M", "50M"]


def test_the_input_is_the_same_every_time(tmp_path: Path) -> None:
    case = Case("memory", "local", "memory", "page-views", 500, sorted=False)
    for name in ("one", "two"):
        Input(case, tmp_path / name).make()
    files = sorted(path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*.parquet"))
    assert len(files) == 5
    assert all((tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes() for file in files)


def test_sections_names_and_sizes_choose_cases(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["frames", "--list", "--rows", "100000", "--only", "fraud"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines] == [
        "spark/frames-2/fraud/100k",
        "spark/frames-3/fraud/100k/seq/unsorted/ordered",
    ]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [(["frame", "nonsense"], "got nonsense"), (["--only", "nonsense"], "no case has such a name")],
)
def test_misuse_is_told(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        command.main(arguments)
    assert told in capsys.readouterr().err


def test_verdicts_as_lines_and_as_a_table() -> None:
    case = Case("frames", "spark", "frames-2", "fraud", 500_000)
    good = Verdict(case, OK, "", {"seconds": 2.5, "rows/s": 200_000, "driver bytes": 2**27, "task bytes": 2**28})
    bad = Verdict(case, HUNG, "stands still", {"driver bytes": 2**27})
    assert row(good) == "ok (2.5 s, 200,000 rows/s; driver 128 MB, task 256 MB)"
    assert row(bad) == "HUNG (no end; driver 128 MB): stands still"
    assert table([good, bad]).splitlines()[2:] == [
        "| frames | spark/frames-2/fraud/500k | ok | 2.5 | 200,000 | 128 | 256 |  |",
        "| frames | spark/frames-2/fraud/500k | hung |  |  | 128 |  |  |",
    ]
    assert command.summary([good, bad, good]) == "3 cases: 2 ok, 1 hung"


def test_the_table_of_a_document_is_replaced() -> None:
    assert record(f"a\n{BEGIN}\nold\n{END}\nb", "new") == f"a\n{BEGIN}\n\nnew\n\n{END}\nb"
    with pytest.raises(ValueError, match="Expected"):
        record("nothing", "new")
    assert BEGIN in command.DOCUMENT.read_text()


def test_a_runner_that_is_ended_leaves_no_process_and_no_files(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.scale", "--only", "local/memory/fraud", "--out", str(tmp_path / "out")]
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE) as runner:
        while not (below := tree.Tree(runner.pid).look()[1:]):
            time.sleep(0.1)
        runner.terminate()
        assert runner.wait() == 128 + signal.SIGTERM
    assert [process for process in below if (now := tree.look(process.pid)) and now.start == process.start] == []
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
