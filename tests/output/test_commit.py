"""Whole runs: what tasks emit is what is published, once."""

import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from flumina.errors import CheckpointError, OutputError, UsageError
from flumina.model.emit import Chunk, Row
from flumina.output import commit as publishing
from flumina.output.commit import commit_outputs
from flumina.output.writer import OutputWriter
from flumina.storage.output_directory import OutputDirectory
from tests.engine.writing import (
    ONE,
    TWO,
    assert_same,
    emitted,
    expected,
    listed,
    make,
    run_task,
    visible,
    without_renames,
)

TASKS = 3


def all_items(schemas: Any = ONE) -> list[list[Row | Chunk]]:
    return [emitted(task, schemas) for task in range(TASKS)]


@pytest.mark.parametrize("ordered", [False, True], ids=["as it comes", "in order"])
@pytest.mark.parametrize("inline", [False, True], ids=["files", "inline"])
@pytest.mark.parametrize("group_rows", [7, 100, 1 << 20])
def test_what_tasks_emit_is_published(tmp_path: Path, *, ordered: bool, inline: bool, group_rows: int) -> None:
    outputs = make(None if inline else tmp_path / "out", TWO, ordered=ordered, group_rows=group_rows)
    outputs.prepare()
    items = all_items(TWO)
    manifests = [run_task(outputs, task, mine) for task, mine in enumerate(items)]
    results = commit_outputs(outputs, manifests[::-1])
    for name in TWO:
        wanted = expected((item for mine in items for item in mine), name)
        assert results[name].rows == len(wanted) > 0
        table = results[name].table()
        assert table.schema.equals(outputs.final(name), check_metadata=True)
        assert_same(table, wanted, ordered=ordered)
        assert_same(results[name].dataset().to_table(), wanted, ordered=ordered)


@pytest.mark.parametrize("ordered", [False, True])
def test_what_is_prepared_twice_lies_in_other_files(tmp_path: Path, *, ordered: bool) -> None:
    """So that a driver which was replaced can't write into what its successor is about to publish."""
    outputs = make(tmp_path / "out", ordered=ordered)
    outputs.prepare()
    items = emitted(0) if ordered else []
    manifest = run_task(outputs, 0, items)
    first, second = (publishing.prepare(outputs, [manifest]) for _ in range(2))
    late, wanted = (list(prepared.files["output"].values()) for prepared in (first, second))
    assert len(late) == len(wanted) == 1
    assert late != wanted
    Path(late[0].path).write_bytes(b"half of a file")
    second.make_visible()
    assert_same(second.results()["output"].table(), expected(items), ordered=ordered)


def test_named_outputs_have_folders_and_the_only_one_has_none(tmp_path: Path) -> None:
    for schemas, place in ((TWO, "two"), (ONE, "one")):
        outputs = make(tmp_path / place, schemas)
        outputs.prepare()
        commit_outputs(outputs, [run_task(outputs, 0, emitted(0, schemas))])
    assert visible(tmp_path) == [
        "one",
        "one/_SUCCESS",
        "one/part-00000-run1.parquet",
        "two",
        "two/_SUCCESS",
        "two/big",
        "two/big/part-00000-run1.parquet",
        "two/small",
        "two/small/part-00000-run1.parquet",
    ]
    assert pq.read_table(tmp_path / "two" / "small").schema.names == ["n", "event_ts", "event_stream"]


def test_readers_see_results_only(tmp_path: Path) -> None:
    outputs = make(tmp_path / "data" / "out")
    outputs.prepare()
    manifest = run_task(outputs, 0, emitted(0))
    assert ds.dataset(tmp_path / "data").files == []
    assert manifest.files["output"].rows > 0
    commit_outputs(outputs, [manifest])
    assert len(ds.dataset(tmp_path / "data").files) == 1


@pytest.mark.parametrize("ordered", [False, True])
def test_only_the_attempts_that_counted_are_visible(tmp_path: Path, *, ordered: bool) -> None:
    outputs = make(tmp_path / "out", ordered=ordered, group_rows=50)
    outputs.prepare()
    items = all_items()
    run_task(outputs, 0, items[1], "a0")  # ended, but the stage was tried again
    crashed = OutputWriter(outputs, 1, "a0")
    crashed.write(items[1])
    manifests = [run_task(outputs, task, mine, "a1") for task, mine in enumerate(items)]
    results = commit_outputs(outputs, manifests)
    assert_same(results["output"].table(), expected(item for mine in items for item in mine), ordered=ordered)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    crashed.abandon()
    with pytest.raises(OutputError, match="OUT_FAILED"):
        OutputWriter(outputs, 1, "a2")  # too late
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_nothing_is_visible_before_publishing_nor_after_a_failure(tmp_path: Path) -> None:
    outputs = make(tmp_path / "out", group_rows=20)
    outputs.prepare()
    run_task(outputs, 0, emitted(0))
    crashed = OutputWriter(outputs, 1, "a0")
    crashed.write(emitted(1))
    assert not (tmp_path / "out").exists()
    outputs.discard()
    crashed.abandon()
    assert visible(tmp_path) == []


@pytest.mark.parametrize("inside", [False, True], ids=["rename", "moves"])
def test_a_failure_while_publishing_leaves_nothing_visible(
    tmp_path: Path, *, monkeypatch: pytest.MonkeyPatch, inside: bool
) -> None:
    outputs = make(place(tmp_path, inside=inside), TWO)
    outputs.prepare()
    manifests = [run_task(outputs, task, mine) for task, mine in enumerate(all_items(TWO))]
    original, done = OutputDirectory._move_all, []

    def breaks(self: OutputDirectory, files: dict[str, str], folder: str) -> None:
        original(self, dict(list(files.items())[:2]), folder)
        done.append(folder)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(OutputDirectory, "_move_all", breaks)
    with pytest.raises(OutputError, match="make room"):
        commit_outputs(outputs, manifests)
    assert done
    assert ds.dataset(tmp_path).files == []
    outputs.discard()
    assert not list(tmp_path.rglob("*.parquet"))
    assert not list(tmp_path.rglob("_SUCCESS"))


@pytest.mark.parametrize("schemas", [ONE, TWO], ids=["one", "two"])
@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("inside", [False, True], ids=["rename", "moves"])
def test_publishing_is_tried_again_after_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, inside: bool, killed: bool, schemas: Any
) -> None:
    """A run that keeps snapshots has no other copy of what was moved before the failure."""
    outputs = make(place(tmp_path, inside=inside), schemas)
    outputs.prepare()
    items = all_items(schemas)
    publication = publishing.prepare(outputs, [run_task(outputs, task, mine) for task, mine in enumerate(items)])
    location = outputs.location
    assert location is not None
    files = [item for named in publication.files.values() for item in named.items()]
    with monkeypatch.context() as patch:
        original = OutputDirectory._move_all

        def breaks(self: OutputDirectory, files: dict[str, str], folder: str) -> None:
            original(self, dict(list(files.items())[:2]), folder)
            raise OSError(28, "No space left on device")

        patch.setattr(OutputDirectory, "_move_all", breaks)
        if killed:  # nobody cleans up
            folder = location.path if inside else f"{location.staging}/ready"
            original(location, {name: file.path for name, file in files[:2]}, folder)
        else:
            with pytest.raises(OutputError, match="make room"):
                publication.make_visible()
    publication.make_visible()
    for name, result in publication.results().items():
        assert_same(result.table(), expected((item for mine in items for item in mine), name))


def place(tmp_path: Path, *, inside: bool, overwrite: bool = False) -> OutputDirectory:
    out = tmp_path / "out"
    return without_renames(out, overwrite=overwrite) if inside else OutputDirectory.of(out, "run1", overwrite=overwrite)


@pytest.mark.parametrize("inside", [False, True], ids=["rename", "moves"])
def test_publishing_twice_is_refused(tmp_path: Path, *, inside: bool) -> None:
    for overwrite in (False, True):
        outputs = make(place(tmp_path, inside=inside, overwrite=overwrite))
        if not overwrite:
            outputs.prepare()
            manifest = run_task(outputs, 0, emitted(0))
            commit_outputs(outputs, [manifest])
        before = visible(tmp_path)
        with pytest.raises(UsageError, match="ALREADY_COMMITTED"):
            commit_outputs(outputs, [manifest])
        assert visible(tmp_path) == before


@pytest.mark.parametrize("inside", [False, True], ids=["rename", "moves"])
def test_old_results_stay_until_new_ones_are_published(tmp_path: Path, *, inside: bool) -> None:
    old = make(tmp_path / "out", TWO, run="old")
    old.prepare()
    commit_outputs(old, [run_task(old, 0, emitted(4, TWO))])
    before = visible(tmp_path / "out")
    outputs = make(place(tmp_path, inside=inside, overwrite=True))
    outputs.prepare()
    items = emitted(0)
    manifest = run_task(outputs, 0, items)
    staged = {name for name in visible(tmp_path / "out") if name.startswith("_flumina-")}
    assert sorted(set(visible(tmp_path / "out")) - staged) == before
    result = commit_outputs(outputs, [manifest])["output"]
    assert_same(result.table(), expected(items))
    assert ds.dataset(tmp_path / "out").files == list(result.files)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (tmp_path / "out" / "_SUCCESS").read_text() == "run1\n"


@pytest.mark.parametrize("inside", [False, True], ids=["rename", "moves"])
def test_old_results_survive_a_publication_that_fails(tmp_path: Path, *, inside: bool) -> None:
    old = make(tmp_path / "out", run="old")
    old.prepare()
    items = emitted(4)
    commit_outputs(old, [run_task(old, 0, items)])
    outputs = make(place(tmp_path, inside=inside, overwrite=True))
    outputs.prepare()
    manifest = run_task(outputs, 0, emitted(0))
    Path(manifest.files["output"].path).unlink()
    with pytest.raises(OutputError, match="OUT_LOST"):
        commit_outputs(outputs, [manifest])
    outputs.discard()
    assert_same(pq.read_table(tmp_path / "out"), expected(items))
    assert (tmp_path / "out" / "_SUCCESS").read_text() == "old\n"


@pytest.mark.parametrize("inside", [False, True], ids=["rename", "moves"])
def test_old_results_come_back_where_new_ones_can_not_take_their_place(tmp_path: Path, *, inside: bool) -> None:
    old = make(tmp_path / "out", run="old")
    old.prepare()
    items = emitted(4)
    commit_outputs(old, [run_task(old, 0, items)])
    location = place(tmp_path, inside=inside, overwrite=True)
    outputs = make(location)
    outputs.prepare()
    manifest = run_task(outputs, 0, emitted(0))

    class Breaks:
        """A file system that can't move anything to where results are seen."""

        def __getattr__(self, name: str) -> Any:
            return getattr(location.filesystem, name)

        def move(self, source: str, target: str) -> None:
            if target.startswith(location.path) and "replaced" not in source and location.staging not in target:
                raise OSError(13, "Permission denied")
            location.filesystem.move(source, target)

    broken = replace(location, filesystem=Breaks())
    with pytest.raises(OutputError, match="OUT_FAILED"):
        commit_outputs(replace(outputs, location=broken), [manifest])
    outputs.discard()
    assert_same(pq.read_table(tmp_path / "out"), expected(items))
    assert (tmp_path / "out" / "_SUCCESS").read_text() == "old\n"


def test_what_another_run_has_staged_is_left_alone(tmp_path: Path) -> None:
    theirs = tmp_path / "out" / "_flumina-other" / "x.parquet"
    theirs.parent.mkdir(parents=True)
    theirs.touch()
    outputs = make(place(tmp_path, inside=True, overwrite=True))
    outputs.prepare()
    commit_outputs(outputs, [run_task(outputs, 0, emitted(0))])
    assert theirs.exists()


def test_results_that_came_up_meanwhile_are_not_touched(tmp_path: Path) -> None:
    outputs = make(tmp_path / "out")
    outputs.prepare()
    manifest = run_task(outputs, 0, emitted(0))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious").touch()
    with pytest.raises(OutputError, match="OUT_EXISTS"):
        commit_outputs(outputs, [manifest])
    assert visible(tmp_path / "out") == ["precious"]


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("inline", [False, True], ids=["files", "inline"])
def test_outputs_without_rows_have_their_columns(tmp_path: Path, *, ordered: bool, inline: bool) -> None:
    outputs = make(None if inline else tmp_path / "out", TWO, ordered=ordered, ts_type=pa.timestamp("us", tz="UTC"))
    outputs.prepare()
    results = commit_outputs(outputs, [run_task(outputs, 0, []), run_task(outputs, 1, [])])
    for name in TWO:
        assert results[name].rows == 0
        assert results[name].table().schema.equals(outputs.final(name))
        assert results[name].table().num_rows == 0
        if not inline:
            assert pq.read_table(tmp_path / "out" / name).schema.equals(outputs.final(name))


@pytest.mark.parametrize("filesystem", ["uri", "subtree", "mock", "mock subtree"])
@pytest.mark.parametrize("ordered", [False, True])
def test_any_file_system(tmp_path: Path, *, filesystem: str, ordered: bool) -> None:
    found, path = {
        "uri": (None, (tmp_path / "a b").as_uri()),
        "subtree": (fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()), "deep/out"),
        "mock": (fs._MockFileSystem(), "out"),
        "mock subtree": (fs.SubTreeFileSystem("", fs._MockFileSystem()), "x/y/out/"),
    }[filesystem]
    location = OutputDirectory.of(path, "run1", filesystem=found)
    outputs = make(location, ordered=ordered)
    outputs.prepare()
    items = all_items()
    travels = not filesystem.startswith("mock")  # it is in the memory of this process
    tasks = [run_task(outputs, task, mine, pickled=travels) for task, mine in enumerate(items)]
    result = commit_outputs(outputs, tasks)["output"]
    assert_same(result.table(), expected(item for mine in items for item in mine), ordered=ordered)
    there = location.filesystem.get_file_info(fs.FileSelector(location.path, recursive=True))
    assert {info.base_name for info in there} == {"_SUCCESS", *(file.rpartition("/")[2] for file in result.files)}
    assert location.filesystem.get_file_info(location.staging).type == fs.FileType.NotFound


def test_a_staged_file_that_went_away_is_named(tmp_path: Path) -> None:
    for ordered in (False, True):
        outputs = make(tmp_path / f"out{ordered}", ordered=ordered)
        outputs.prepare()
        manifest = run_task(outputs, 0, emitted(0))
        staged = Path(manifest.files["output"].path)
        staged.write_bytes(staged.read_bytes()[:-1])
        with pytest.raises(OutputError, match=r"OUT_LOST.*output\.parquet"):
            commit_outputs(outputs, [manifest])
        assert not (tmp_path / f"out{ordered}").exists()


def test_every_task_counts_once(tmp_path: Path) -> None:
    outputs = make(tmp_path / "out")
    outputs.prepare()
    first, again = (run_task(outputs, 0, emitted(0), attempt) for attempt in ("a0", "a1"))
    third = run_task(outputs, 2, emitted(0))
    other = run_task(make(None, run="run2"), 1, [])
    for wrong in ([first, again], [first, third], [first, other]):
        with pytest.raises(UsageError, match="MANIFESTS"):
            commit_outputs(outputs, wrong)


def test_ordered_results_go_on_in_further_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "FILE_ROWS", 200)
    outputs = make(tmp_path / "out", ordered=True, group_rows=64)
    outputs.prepare()
    items = all_items()
    result = commit_outputs(outputs, [run_task(outputs, task, mine) for task, mine in enumerate(items)])["output"]
    assert len(result.files) > 2
    assert list(result.files) == sorted(result.files)
    found = [row for file in result.files for row in listed(pq.read_table(file))]
    assert found == expected(item for mine in items for item in mine)


@pytest.mark.parametrize("ordered", [False, True])
def test_all_that_is_prepared_for_later_has_checksums(tmp_path: Path, *, ordered: bool) -> None:
    """What tasks wrote, what is merged of it, and what says that there are no rows."""
    outputs = make(tmp_path / "out", TWO, ordered=ordered, checked=True)
    outputs.prepare()
    items = [item for item in emitted(0, TWO) if item.output == "big"]
    publication = publishing.prepare(outputs, [run_task(outputs, 0, items)])
    staged = [file for named in publication.files.values() for file in named.values()]
    assert len(staged) == len(TWO)
    data = [Path(file.path).read_bytes() for file in staged]
    assert [(file.size, file.crc) for file in staged] == [(len(whole), zlib.crc32(whole)) for whole in data]
    plain = publishing.prepare(make(tmp_path / "out", TWO), [])
    assert {file.crc for named in plain.files.values() for file in named.values()} == {None}, "nobody will ask"


@pytest.mark.parametrize("ordered", [False, True])
def test_a_staged_file_with_another_checksum_is_named(tmp_path: Path, *, ordered: bool) -> None:
    outputs = make(tmp_path / "out", ordered=ordered, checked=True)
    outputs.prepare()
    manifest = run_task(outputs, 0, emitted(0))
    staged = Path(manifest.files["output"].path)
    whole = staged.read_bytes()
    staged.write_bytes(whole[:50] + bytes([whole[50] ^ 4]) + whole[51:])
    with pytest.raises(CheckpointError, match=r"CHECKPOINT_DAMAGED.*output\.parquet"):
        commit_outputs(outputs, [manifest])
    assert not (tmp_path / "out").exists()
    staged.write_bytes(whole)
    assert_same(commit_outputs(outputs, [manifest])["output"].table(), expected(emitted(0)), ordered=ordered)
