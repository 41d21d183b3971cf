import gzip
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import flumina as fl
from flumina.apps import text
from flumina.apps.text import LINE, TextFile, beginning
from flumina.cli.main import in_options

COLUMNS = {"ts": pa.int64(), "v": pa.float64(), "name": pa.string()}


def file(path: Path, content: str, **options: Any) -> TextFile:
    path.write_text(content, encoding="utf-8")
    return TextFile(path, "things", COLUMNS, **options)


def rows(given: TextFile) -> list[dict[str, object]]:
    return [row for table in given.tables() for row in table.to_pylist()]


def test_rows_and_their_lines(tmp_path: Path) -> None:
    assert rows(file(tmp_path / "a", "1,0.5,x\n2,-1,\n")) == [
        {"ts": 1, "v": 0.5, "name": "x", LINE: 0},
        {"ts": 2, "v": -1.0, "name": "", LINE: 1},
    ]


def test_blanks(tmp_path: Path) -> None:
    found = rows(file(tmp_path / "a", " 1   0.5\tx \n2 3 y\n", blanks=True))
    assert [(row["ts"], row["v"], row["name"]) for row in found] == [(1, 0.5, "x"), (2, 3.0, "y")]


def test_compressed(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"1,0.5,x\n"))
    assert [row["ts"] for row in rows(TextFile(path, "things", COLUMNS))] == [1]
    assert beginning(path, "things") == b"1,0.5,x\n"


def test_blocks_of_any_size_give_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = file(tmp_path / "a", "".join(f"{n},{n / 2},name {n}\n" for n in range(500)))
    expected = rows(given)
    for size in (20, 97, 1_000):
        monkeypatch.setattr(text, "BLOCK", size)
        assert rows(given) == expected
    assert [row[LINE] for row in expected] == list(range(500))


BAD = {
    "1,2.0\n": "2 columns instead of 3 in the line '1,2.0'",
    "1,2.0,x,y\n": "4 columns instead of 3",
    "\n": "1 columns instead of 3",
    "one,2.0,x\n": "column 'ts': expected long, got 'one'",
    "1.5,2.0,x\n": "column 'ts': expected long, got '1.5'",
    "99999999999999999999,2.0,x\n": "column 'ts': expected long, got '99999999999999999999'",
    "1,,x\n": "column 'v': expected double, got ''",
    "5,5.0,cut": "the file ends within the line '5,5.0,cut', which may have been cut short",
}


@pytest.mark.parametrize("bad", BAD)
def test_bad_lines_are_named(bad: str, tmp_path: Path) -> None:
    given = file(tmp_path / "a", "1,1.0,a\n2,2.0,b\n" + bad + ("" if bad.endswith("cut") else "3,3.0,c\n"))
    with pytest.raises(fl.InputError) as caught:
        rows(given)
    assert BAD[bad] in str(caught.value)
    assert f"{given.path}:3:" in str(caught.value)
    assert "stream 'things', row 2" in str(caught.value)
    assert "read it with lenient=True" in str(caught.value)
    assert "read it with --lenient" in in_options(caught.value)


def test_leniently_they_are_left_out_and_counted(tmp_path: Path) -> None:
    content = "1,1.0,a\n" + "".join(bad for bad in BAD if bad.endswith("\n")) + "2,2.0,b\n" * 300 + "x\n3,3.0,c"
    given = file(tmp_path / "a", content, lenient=True)
    seen: list[int] = []
    left_out = given.scan(lambda table: seen.append(table.num_rows))
    assert len(left_out) == len(BAD) + 1
    assert [int(what.split(":")[1]) for what in left_out] == [2, 3, 4, 5, 6, 7, 8, 309, 310]
    assert sum(seen) == len(rows(given)) == 301
    with pytest.raises(fl.InputError, match="BAD_LINE"):
        replace(given, lenient=False).scan(lambda table: None)


@pytest.mark.parametrize("bad", ["nan", "NaN", "inf", "-inf", "1e300", "10.5", "-10.5"])
def test_values_beyond_a_limit(bad: str, tmp_path: Path) -> None:
    content = f"1,1.0,a\n2,{bad},b\n3,-10,c\n4,{bad},d\nx\n5,10,e\n"
    given = file(tmp_path / "a", content, limits={"v": 10.0})
    with pytest.raises(fl.InputError, match=r"BAD_LINE.*a:2: column 'v': \S+ is not between -10 and 10"):
        given.scan(lambda table: None)
    lenient, seen = replace(given, lenient=True), []
    left_out = lenient.scan(lambda table: seen.extend(table.column("ts").to_pylist()))
    assert [int(what.split(":")[1]) for what in left_out] == [2, 4, 5]
    assert seen == [row["ts"] for row in rows(lenient)] == [1, 3, 5]
    assert [row[LINE] for row in rows(lenient)] == [0, 2, 5]


def test_a_file_without_lines(tmp_path: Path) -> None:
    for lenient in (False, True):
        with pytest.raises(fl.InputError, match=r"NO_LINES.*nothing has no lines"):
            file(tmp_path / "nothing", "", lenient=lenient).scan(lambda table: None)
    assert len(file(tmp_path / "bad", "1,2\n", lenient=True).scan(lambda table: None)) == 1


def test_files_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(fl.InputError, match="NO_FILE"):
        rows(TextFile(tmp_path / "nothing", "things", COLUMNS))
    with pytest.raises(fl.InputError, match="NO_FILE"):
        beginning(tmp_path / "nothing", "things")
    broken = tmp_path / "b.gz"
    broken.write_bytes(b"no gzip at all")
    with pytest.raises(fl.InputError, match="UNREADABLE_FILE"):
        rows(TextFile(broken, "things", COLUMNS))
    monkeypatch.setattr(text, "BLOCK", 100)
    with pytest.raises(fl.InputError, match="longer than 100 bytes"):
        rows(file(tmp_path / "c", "x" * 1_000))
    assert rows(file(tmp_path / "d", "")) == []
