"""One owner: of a directory a run, of a run the driver with the highest term."""

from pathlib import Path

import pytest

from flumina.errors import OutputError
from flumina.storage.directory import Directory
from flumina.storage.owner_token import OWNER, OwnerName, OwnerToken, belongs_to, take


def test_a_driver_with_a_higher_term_fences_all_others_off() -> None:
    first = OwnerName.following(0)
    second = OwnerName.following(first.term)
    owner = OwnerToken("run", first)
    assert (owner.term, owner.id) == first
    assert not owner.is_fenced({first.term})
    assert owner.is_fenced({first.term, second.term})
    assert not OwnerToken("run", second).is_fenced({first.term, second.term})


def test_names_are_read_back() -> None:
    name = OwnerName(1234567, "0123456789abcdef")
    assert OwnerName.parse(str(name)) == name
    assert [OwnerName.parse(text) for text in ("owner-000001-x", "owner-000001", "x")] == [None] * 3


def test_a_directory_belongs_to_one_run(tmp_path: Path) -> None:
    directory = Directory.of(tmp_path / "new", "sink")
    assert not belongs_to(directory, "run")
    for _ in range(2):
        take(directory, "run")
        assert belongs_to(directory, "run")
    with pytest.raises(OutputError, match="OUT_TAKEN"):
        take(directory, "another")
    (tmp_path / "new").rename(tmp_path / "moved")
    assert belongs_to(Directory.of(tmp_path / "moved", "sink"), "run")


def test_a_directory_with_other_files_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(OutputError, match=r"OUT_EXISTS.*notes\.txt"):
        take(Directory.of(tmp_path, "sink"), "run")
    assert not (tmp_path / OWNER).exists()
