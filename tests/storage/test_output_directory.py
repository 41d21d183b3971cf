"""Where results go: what is refused before a run, and in which words."""

import os
import pickle
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyarrow import fs

from flumina.errors import OutputError, UsageError
from flumina.storage.output_directory import OutputDirectory
from tests.engine.writing import visible, without_renames


def test_what_is_staged_lies_beside_the_results_where_folders_can_be_renamed(tmp_path: Path) -> None:
    assert OutputDirectory.of(tmp_path / "x" / "out", "r").staging == str(tmp_path / "x" / "_out.flumina-r")
    assert OutputDirectory.of(f"{tmp_path}/out/", "r").staging == str(tmp_path / "_out.flumina-r")
    assert OutputDirectory.of("out", "r", filesystem=fs._MockFileSystem()).staging == "_out.flumina-r"
    root = OutputDirectory.of("/", "r")
    assert (root.staging, root.renames) == ("/_flumina-r", False)


def test_relative_paths_are_those_of_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    location = pickle.loads(pickle.dumps(OutputDirectory.of("out", "r")))  # noqa: S301
    monkeypatch.chdir("/")
    location.prepare()
    assert visible(tmp_path) == ["_out.flumina-r", "_out.flumina-r/driver.lock"]


def test_an_object_store_is_written_below_the_results() -> None:
    store = SimpleNamespace(protocol="store")  # what fsspec gives for one
    location = OutputDirectory.of("bucket/out", "r", filesystem=store)
    assert (location.renames, location.staging) == (False, "bucket/out/_flumina-r")


@pytest.mark.parametrize("content", ["x.parquet", "_SUCCESS", "below/y.parquet"])
def test_a_folder_that_is_not_empty_is_refused_before_the_run(tmp_path: Path, content: str) -> None:
    file = tmp_path / "out" / content
    file.parent.mkdir(parents=True)
    file.touch()
    before = visible(tmp_path)
    with pytest.raises(OutputError, match="overwrite=True") as caught:
        OutputDirectory.of(tmp_path / "out", "r").prepare()
    assert caught.value.condition == "OUT_EXISTS"
    assert visible(tmp_path) == before
    with pytest.raises(OutputError, match=r"OUT_FOREIGN.*not the result of a run"):
        OutputDirectory.of(tmp_path / "out", "r", overwrite=True).prepare()
    (tmp_path / "out" / "_SUCCESS").write_text("run0\n")
    OutputDirectory.of(tmp_path / "out", "r", overwrite=True).prepare()
    assert file.exists()


def test_an_empty_folder_and_what_other_runs_staged_are_no_results(tmp_path: Path) -> None:
    (tmp_path / "out" / "_flumina-other").mkdir(parents=True)
    without_renames(tmp_path / "out").prepare()
    (tmp_path / "empty").mkdir()
    location = OutputDirectory.of(tmp_path / "empty", "r")
    location.prepare()
    location.commit({})
    assert visible(tmp_path / "empty") == ["_SUCCESS"]


def test_overwriting_spares_what_no_run_would_have_written(tmp_path: Path) -> None:
    thesis = tmp_path / "out" / "papers" / "thesis.tex"
    thesis.parent.mkdir(parents=True)
    thesis.write_text("years of work")
    (tmp_path / "out" / "_SUCCESS").write_text("run0\n")
    with pytest.raises(OutputError, match=r"OUT_FOREIGN.*thesis\.tex"):
        OutputDirectory.of(tmp_path / "out", "r", overwrite=True).prepare()
    assert thesis.exists()


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of what has been forced to the disk, in this order."""
    paths: list[str] = []
    fsync = os.fsync

    def recorded(descriptor: int) -> None:
        fsync(descriptor)
        paths.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))

    monkeypatch.setattr(os, "fsync", recorded)
    return paths


@pytest.mark.parametrize("renames", [False, True])
@pytest.mark.parametrize("durable", [False, True])
def test_what_lasts_is_on_the_disk_before_it_is_visible(
    tmp_path: Path, settled: list[str], monkeypatch: pytest.MonkeyPatch, *, renames: bool, durable: bool
) -> None:
    location = OutputDirectory.of(tmp_path / "new" / "out", "r", durable=durable)
    if not renames:
        location = replace(location, renames=False, staging=f"{location.path}/_flumina-r")
    location.prepare()
    assert settled == ([str(tmp_path)] if durable else [])
    file = Path(location.task_directory(0, "a")) / "x.parquet"
    file.write_text("x")
    location.sync(str(file))
    up = [str(file), *(str(folder) for folder in file.parents if folder.is_relative_to(tmp_path / "new"))]
    assert settled[1:] == (up if durable else [])
    settled.clear()
    seen: list[str] = []
    mark = OutputDirectory._mark

    def marked(self: OutputDirectory, folder: str, run: str) -> None:
        seen.extend(settled)
        mark(self, folder, run)

    monkeypatch.setattr(OutputDirectory, "_mark", marked)
    location.commit({"below/part.parquet": str(file)})
    assert (tmp_path / "new" / "out" / "below" / "part.parquet").read_text() == "x"
    if not durable:
        assert settled == []
        return
    made = Path(location.staging if renames else location.path) / ("ready" if renames else "")
    assert {str(made / "_SUCCESS"), str(made), str(made / "below")} <= set(settled)
    assert renames or str(made / "below") in seen, "files are moved one by one, and the marker vouches for them"
    assert settled[-2:] == [location.path, str(tmp_path / "new")], "and so is the name of the results"


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_file_is_no_folder(tmp_path: Path, *, overwrite: bool) -> None:
    (tmp_path / "out").write_text("x")
    with pytest.raises(OutputError, match="is a file"):
        OutputDirectory.of(tmp_path / "out", "r", overwrite=overwrite).prepare()
    with pytest.raises(OutputError, match="OUT_FAILED"):
        OutputDirectory.of(tmp_path / "out" / "below", "r").prepare()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir(mode=0o500)
    with pytest.raises(OutputError, match="may write"):
        OutputDirectory.of(tmp_path / "mine" / "out", "r").prepare()


def test_a_place_that_nobody_may_write_to_is_refused() -> None:
    with pytest.raises(OutputError, match=r"OUT_FAILED.*/proc/flumina/out") as caught:
        OutputDirectory.of("/proc/flumina/out", "r").prepare()
    assert caught.value.hint


@pytest.mark.parametrize("path", ["", "nosuchscheme://x/y", "s3:///"])
def test_paths_that_mean_nothing_are_refused(path: str) -> None:
    with pytest.raises(UsageError, match="OUT"):
        OutputDirectory.of(path, "r")


def test_discarding_never_fails(tmp_path: Path) -> None:
    location = OutputDirectory.of(tmp_path / "out", "r")
    location.discard()
    location.prepare()
    location.discard()
    location.discard()
    assert visible(tmp_path) == []


@pytest.mark.parametrize("renames", [False, True])
def test_what_a_driver_that_died_has_moved_is_found_and_taken_back(
    tmp_path: Path, settled: list[str], *, renames: bool
) -> None:
    location = OutputDirectory.of(tmp_path / "out", "r", durable=True)
    if not renames:
        location = replace(location, renames=False, staging=f"{location.path}/_flumina-r")
    location.prepare()
    folder = Path(location.task_directory(0, "a"))
    names = {f"{folder}/{n}.parquet": f"below/part-{n}-r.parquet" for n in range(3)}
    for path in names:
        Path(path).write_text(path)
    first, second, third = names
    location._move_all({names[first]: first, names[second]: second}, location.ready)
    assert {path: location.locate(path, name) for path, name in names.items()} == {
        first: f"{location.ready}/{names[first]}",
        second: f"{location.ready}/{names[second]}",
        third: third,
    }
    assert location.locate("gone", "below/gone") == "gone", "whoever reads it will tell"
    settled.clear()
    for _ in range(2):
        location.restage({**names, "gone": "below/gone"})
        assert [Path(path).read_text() for path in names] == list(names)
        assert [location.locate(path, name) for path, name in names.items()] == list(names)
    assert str(folder) in settled, "the next snapshot vouches for them"
    assert not Path(location.ready, names[first]).exists()
    location.commit({name: path for path, name in names.items()})
    assert visible(tmp_path / "out") == ["_SUCCESS", "below", *sorted(names.values())]
