"""Where results go: what is refused before a run, and in which words."""

import os
import pickle
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyarrow import fs

from flumina.engine.location import Location
from flumina.errors import OutputError, UsageError
from tests.engine.writing import visible, without_renames


def test_what_is_staged_lies_beside_the_results_where_folders_can_be_renamed(tmp_path: Path) -> None:
    assert Location.of(tmp_path / "x" / "out", "r").staging == str(tmp_path / "x" / "_out.flumina-r")
    assert Location.of(f"{tmp_path}/out/", "r").staging == str(tmp_path / "_out.flumina-r")
    assert Location.of("out", "r", filesystem=fs._MockFileSystem()).staging == "_out.flumina-r"
    root = Location.of("/", "r")
    assert (root.staging, root.renames) == ("/_flumina-r", False)


def test_relative_paths_are_those_of_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    location = pickle.loads(pickle.dumps(Location.of("out", "r")))  # noqa: S301
    monkeypatch.chdir("/")
    location.prepare()
    assert visible(tmp_path) == ["_out.flumina-r"]


def test_an_object_store_is_written_below_the_results() -> None:
    store = SimpleNamespace(protocol="store")  # what fsspec gives for one
    location = Location.of("bucket/out", "r", filesystem=store)
    assert (location.renames, location.staging) == (False, "bucket/out/_flumina-r")


@pytest.mark.parametrize("content", ["x.parquet", "_SUCCESS", "below/y.parquet"])
def test_a_folder_that_is_not_empty_is_refused_before_the_run(tmp_path: Path, content: str) -> None:
    file = tmp_path / "out" / content
    file.parent.mkdir(parents=True)
    file.touch()
    before = visible(tmp_path)
    with pytest.raises(OutputError, match="overwrite=True") as caught:
        Location.of(tmp_path / "out", "r").prepare()
    assert caught.value.condition == "OUT_EXISTS"
    assert visible(tmp_path) == before
    with pytest.raises(OutputError, match=r"OUT_FOREIGN.*no run has written it"):
        Location.of(tmp_path / "out", "r", overwrite=True).prepare()
    (tmp_path / "out" / "_SUCCESS").write_text("run0\n")
    Location.of(tmp_path / "out", "r", overwrite=True).prepare()
    assert file.exists()


def test_an_empty_folder_and_what_other_runs_staged_are_no_results(tmp_path: Path) -> None:
    (tmp_path / "out" / "_flumina-other").mkdir(parents=True)
    without_renames(tmp_path / "out").prepare()
    (tmp_path / "empty").mkdir()
    location = Location.of(tmp_path / "empty", "r")
    location.prepare()
    location.commit({})
    assert visible(tmp_path / "empty") == ["_SUCCESS"]


def test_overwriting_spares_what_no_run_would_have_written(tmp_path: Path) -> None:
    thesis = tmp_path / "out" / "papers" / "thesis.tex"
    thesis.parent.mkdir(parents=True)
    thesis.write_text("years of work")
    (tmp_path / "out" / "_SUCCESS").write_text("run0\n")
    with pytest.raises(OutputError, match=r"OUT_FOREIGN.*thesis\.tex"):
        Location.of(tmp_path / "out", "r", overwrite=True).prepare()
    assert thesis.exists()


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_file_is_no_folder(tmp_path: Path, *, overwrite: bool) -> None:
    (tmp_path / "out").write_text("x")
    with pytest.raises(OutputError, match="is a file"):
        Location.of(tmp_path / "out", "r", overwrite=overwrite).prepare()
    with pytest.raises(OutputError, match="OUT_FAILED"):
        Location.of(tmp_path / "out" / "below", "r").prepare()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir(mode=0o500)
    with pytest.raises(OutputError, match="may write"):
        Location.of(tmp_path / "mine" / "out", "r").prepare()


def test_a_place_that_nobody_may_write_to_is_refused() -> None:
    with pytest.raises(OutputError, match=r"OUT_FAILED.*/proc/flumina/out") as caught:
        Location.of("/proc/flumina/out", "r").prepare()
    assert caught.value.hint


@pytest.mark.parametrize("path", ["", "nosuchscheme://x/y", "s3:///"])
def test_paths_that_mean_nothing_are_refused(path: str) -> None:
    with pytest.raises(UsageError, match="OUT"):
        Location.of(path, "r")


def test_discarding_never_fails(tmp_path: Path) -> None:
    location = Location.of(tmp_path / "out", "r")
    location.discard()
    location.prepare()
    location.discard()
    location.discard()
    assert visible(tmp_path) == []
