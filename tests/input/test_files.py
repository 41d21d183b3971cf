import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.fs
import pyarrow.parquet as pq
import pytest

import flumina as fl
from flumina.errors import InputError, UsageError
from flumina.input import files
from flumina.input.files import Files

ROWS = pa.table({"ts": [1, 2, 3, 4, 5], "user": [5, 6, 7, 8, 9], "extra": ["a", "b", "c", "d", "e"]})


class Unsendable(pa.fs.FSSpecHandler):  # type: ignore[misc]
    """A handler of a file system that holds on to something of this process."""

    def __init__(self) -> None:
        super().__init__(None)
        self.held = lambda: None


def source(path: Any, **options: Any) -> Files:
    return fl.Parquet(path, **options).source("clicks")


def names(found: Files) -> list[str]:
    assert found.parts == len(found.parquet.files)
    return [Path(file.path).name for file in found.parquet.files]


def write(path: Path, table: pa.Table = ROWS, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".arrow":
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=options.get("row_group_size"))
    else:
        pq.write_table(table, path, **options)
    return path


class TestFinding:
    @pytest.fixture
    def tree(self, tmp_path: Path) -> Path:
        for name in ("b.parquet", "a.parquet", "c.arrow", "_d.parquet", ".e.parquet"):
            write(tmp_path / name)
        (tmp_path / "_SUCCESS").touch()
        return tmp_path

    def test_a_folder_has_its_files_by_name_without_hidden_ones(self, tree: Path) -> None:
        assert names(source(tree)) == ["a.parquet", "b.parquet", "c.arrow"]
        assert names(source(str(tree))) == ["a.parquet", "b.parquet", "c.arrow"]
        assert names(source(tree.as_uri())) == ["a.parquet", "b.parquet", "c.arrow"]

    def test_single_files_and_lists_keep_their_order(self, tree: Path) -> None:
        assert names(source(tree / "b.parquet")) == ["b.parquet"]
        assert names(source([tree / "b.parquet", tree / "a.parquet"])) == ["b.parquet", "a.parquet"]
        assert names(source(tree / "_d.parquet")) == ["_d.parquet"]

    def test_patterns(self, tree: Path) -> None:
        write(tree / "x" / "y" / "f.parquet")
        assert names(source(tree / "*.parquet")) == ["a.parquet", "b.parquet"]
        assert names(source(tree / "?.arrow")) == ["c.arrow"]
        assert names(source(tree / "[ab].parquet")) == ["a.parquet", "b.parquet"]
        assert names(source(tree / "*" / "*" / "f.*")) == ["f.parquet"]
        assert names(source(tree / "**" / "*.parquet")) == ["a.parquet", "b.parquet", "f.parquet"]

    def test_a_name_that_looks_like_a_pattern(self, tree: Path) -> None:
        assert names(source(write(tree / "x[1].parquet"))) == ["x[1].parquet"]

    def test_folders_in_folders_are_not_left_out_silently(self, tree: Path) -> None:
        write(tree / "x" / "f.parquet")
        with pytest.raises(InputError, match=r"UNREADABLE_FILE.*'clicks'.*/x is a folder too; .*\*\*/\*\.parquet"):
            _ = source(tree).parts

    def test_a_path_below_the_working_directory(self, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tree)
        found = source("a.parquet")
        assert found.rows(0) == 5
        monkeypatch.chdir("/")
        copy = pickle.loads(pickle.dumps(found))  # noqa: S301
        assert copy.read(0).equals(ROWS)

    def test_copies_read_the_same_files(self, tree: Path) -> None:
        parquet = fl.Parquet(tree)
        assert len(parquet.files) == 3
        _ = parquet.source("s").schema(0)
        write(tree / "d.parquet")
        copy = pickle.loads(pickle.dumps(parquet))  # noqa: S301
        assert names(copy.source("s")) == ["a.parquet", "b.parquet", "c.arrow"]
        assert copy.source("s").read(2).equals(ROWS)
        assert len(fl.Parquet(tree).files) == 4

    def test_other_file_systems(self, tree: Path) -> None:
        system = pa.fs.SubTreeFileSystem(str(tree), pa.fs.LocalFileSystem())
        assert names(source("/", filesystem=system)) == ["a.parquet", "b.parquet", "c.arrow"]
        for name in ("a.parquet", "c.arrow"):
            found = pickle.loads(pickle.dumps(fl.Parquet(name, filesystem=system))).source("s")  # noqa: S301
            assert found.read(0).equals(ROWS)

    @pytest.mark.parametrize("path", ["missing.parquet", "missing/*.parquet", "*.csv", "missing/"])
    def test_what_is_not_there(self, tree: Path, path: str) -> None:
        for action in (lambda s: s.parts, lambda s: s.schema(0), lambda s: list(s.chunks(0, ["ts"]))):
            with pytest.raises(InputError, match=r"NO_FILE.*stream 'clicks'.*(missing|\.csv)"):
                action(source(f"{tree}/{path}"))

    @pytest.mark.parametrize("path", ["", [], None, 5, [None]])
    def test_no_path(self, path: Any) -> None:
        with pytest.raises(UsageError, match="PARQUET_PATH"):
            fl.Parquet(path)

    def test_file_systems_that_can_not_be_sent(self) -> None:
        for system in (object(), pa.fs.PyFileSystem(Unsendable())):
            with pytest.raises(UsageError, match="PARQUET_FILESYSTEM"):
                fl.Parquet("a", filesystem=system)


class TestReading:
    @pytest.mark.parametrize("name", ["x.parquet", "x.arrow", "feather"])
    def test_chunks(self, tmp_path: Path, name: str) -> None:
        path = tmp_path / name
        if name == "feather":
            pa.feather.write_feather(ROWS, path, chunksize=3)
        else:
            write(path, row_group_size=3)
        found = source(path)
        assert (found.rows(0), found.schema(0)) == (5, ROWS.schema)
        chunks = list(found.chunks(0, ["ts", "user", "other"], 2))
        assert all(chunk.num_rows <= 2 for chunk in chunks)
        assert pa.Table.from_batches(chunks).equals(ROWS.select(["ts", "user"]))
        assert found.read(0).equals(ROWS)
        assert list(found.chunks(0, ["ts", "user"], 2)) == chunks

    def test_memory_stays_flat_whatever_the_size_of_row_groups(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write(tmp_path / "x.parquet", row_group_size=2)
        for mapped in (0, 1, 300, 2**30):
            monkeypatch.setattr(files, "_MAPPED", mapped)
            assert source(tmp_path).read(0).equals(ROWS)

    def test_no_rows(self, tmp_path: Path) -> None:
        for name in ("x.parquet", "x.arrow"):
            found = source(write(tmp_path / name, ROWS.slice(0, 0)))
            assert found.rows(0) == 0
            assert list(found.chunks(0, ["ts"])) == []
            assert list(found.sample(0, ["ts"], 5)) == []
            assert found.read(0).equals(ROWS.slice(0, 0))
            assert found.bounds(0, "ts") is None

    @pytest.mark.parametrize("name", ["x.parquet", "x.arrow"])
    def test_damage(self, tmp_path: Path, name: str) -> None:
        table = pa.table({"ts": np.arange(20_000), "user": np.random.default_rng(0).integers(0, 2**60, 20_000)})
        path = write(tmp_path / name, table)
        content = path.read_bytes()
        for damaged in (b"", b"hello world", content[:1000], content[: len(content) // 2] + content[-100:]):
            path.write_bytes(damaged)
            found = source(path)
            with pytest.raises(InputError, match=rf"UNREADABLE_FILE.*stream 'clicks', part 0: .*/{name}"):
                found.read(0)

    def test_damaged_pages(self, tmp_path: Path) -> None:
        table = pa.table({"ts": np.arange(20_000)})
        path = write(tmp_path / "x.parquet", table, row_group_size=10_000, use_dictionary=False)
        content = bytearray(path.read_bytes())
        middle = len(content) // 2
        content[middle : middle + 20_000] = b"\xff" * 20_000
        path.write_bytes(content)
        found = source(path)
        if found.rows(0):
            with pytest.raises(InputError, match="UNREADABLE_FILE"):
                list(found.chunks(0, ["ts"]))

    def test_sample_is_spread_over_the_file(self, tmp_path: Path) -> None:
        table = pa.table({"ts": np.arange(10_000)})
        found = source(write(tmp_path / "x.parquet", table, row_group_size=100))
        pieces = list(found.sample(0, ["ts"], 400))
        assert [first for first, _ in pieces] == [chunk.column("ts")[0].as_py() for _, chunk in pieces]
        sample = pa.Table.from_batches([chunk for _, chunk in pieces]).column("ts").to_numpy()
        assert 300 <= len(sample) <= 400
        assert sample[0] < 100
        assert sample[-1] >= 9900
        assert len(np.unique(sample // 1000)) >= 7
        arrow = source(write(tmp_path / "x.arrow", table, row_group_size=100))
        pieces = list(arrow.sample(0, ["ts"], 1000))
        assert [first for first, _ in pieces] == [chunk.column("ts")[0].as_py() for _, chunk in pieces]
        sample = pa.Table.from_batches([chunk for _, chunk in pieces]).column("ts").to_numpy()
        assert len(sample) == 1000
        assert sample[-1] >= 9000

    def test_bounds_come_from_statistics(self, tmp_path: Path) -> None:
        found = source(write(tmp_path / "x.parquet", row_group_size=2))
        bounds = found.bounds(0, "user")
        assert bounds is not None
        assert bounds.equals(pa.array([5, 9]))
        assert found.bounds(0, "other") is None
        moments = pa.table({"ts": ROWS["ts"].cast(pa.timestamp("us", tz="UTC"))})
        bounds = source(write(tmp_path / "t.parquet", moments)).bounds(0, "ts")
        assert bounds is not None
        assert bounds.cast(pa.int64()).to_pylist() == [1, 5]
        bare = source(write(tmp_path / "n.parquet", write_statistics=False))
        assert bare.bounds(0, "ts") is None


class TestStreams:
    class Tags:
        view = fl.Tag("user long")

    def test_spec_judges_files(self, tmp_path: Path) -> None:
        for number in range(2):
            write(tmp_path / f"{number}.parquet", ROWS.slice(2 * number, 2))
        stream = fl.Stream("s", self.Tags.view, fl.Parquet(tmp_path))
        assert [part.column("user").to_pylist() for part in stream.parts()] == [[5, 6], [7, 8]]
        assert pickle.loads(pickle.dumps(stream.data)).files == stream.data.files  # noqa: S301
