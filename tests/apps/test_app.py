from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import flumina as fl
from flumina.apps.registry import APPS


def test_files_beside_folders(tmp_path: Path) -> None:
    (tmp_path / "values").mkdir()
    pq.write_table(pa.table({"ts": [1, 2], "v": [3, 4]}), tmp_path / "values" / "a.parquet")
    pq.write_table(pa.table({"ts": [5]}), tmp_path / "barriers.parquet")
    app = APPS["value-barrier"]
    opened = app.open(tmp_path)
    assert [stream.name for stream in opened.streams] == ["values", "barriers"]
    assert fl.spec(app.program, opened.streams).output.column("total").to_pylist() == [7]


@pytest.mark.parametrize("other", ["values", "values.arrow"])
def test_no_stream_is_read_from_two_places(other: str, tmp_path: Path) -> None:
    pq.write_table(pa.table({"ts": [1, 2], "v": [3, 4]}), tmp_path / "values.parquet")
    pq.write_table(pa.table({"ts": [5]}), tmp_path / "barriers.parquet")
    APPS["value-barrier"].open(tmp_path)
    (tmp_path / other).mkdir()
    with pytest.raises(fl.UsageError, match=f"more than one thing for the stream values: {other}, values.parquet"):
        APPS["value-barrier"].open(tmp_path)


def test_missing_streams_are_named(tmp_path: Path) -> None:
    (tmp_path / "views").mkdir()
    with pytest.raises(fl.UsageError, match="streams gets, changes") as caught:
        APPS["page-views"].open(tmp_path)
    assert "gets.parquet" in str(caught.value)


def test_options_belong_to_formats_of_their_own(tmp_path: Path) -> None:
    assert APPS["fraud"].options == ()
    assert APPS["outliers"].options == ("every",)
    assert APPS["smart-home"].options == ("slice_seconds",)
    with pytest.raises(fl.UsageError, match="has no 'every'"):
        APPS["smart-home"].open(tmp_path / "a.txt", every=3)
    with pytest.raises(fl.UsageError, match="expected slice_seconds= as int, got 'x'"):
        APPS["smart-home"].open(tmp_path / "a.txt", slice_seconds="x")
    for name in ("ends", "loads"):
        (tmp_path / name).mkdir()
    with pytest.raises(fl.UsageError, match="has no 'slice_seconds'") as caught:
        APPS["smart-home"].open(tmp_path, slice_seconds=3)
    assert "nothing to be set" in str(caught.value)


def test_a_folder_without_streams_is_told_before_options(tmp_path: Path) -> None:
    with pytest.raises(fl.UsageError, match="has nothing for the streams ends, loads") as caught:
        APPS["smart-home"].open(tmp_path, slice_seconds=5)
    assert "ends.parquet" in str(caught.value)
