"""Whether a file is what was written: no byte of it can change, be lost or be added without being noticed."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from flumina.errors import CheckpointError
from flumina.storage.checksum import Checksum, check_files
from tests.engine.writing import emitted, make, run_task

LOCAL = fs.LocalFileSystem()


def written(folder: Path) -> tuple[Path, Checksum]:
    """A small file of outputs, and what the task says of it."""
    outputs = make(folder / "out", checked=True)
    outputs.prepare()
    file = run_task(outputs, 0, emitted(0, events=5)).files["output"]
    assert file.crc is not None
    assert pq.read_table(file.path).num_rows == file.rows > 0
    return Path(file.path), Checksum(file.size, file.crc)


def test_every_byte_and_every_cut(tmp_path: Path) -> None:
    path, checksum = written(tmp_path)
    whole = path.read_bytes()
    assert len(whole) == checksum.size
    flipped = (whole[:n] + bytes([byte ^ 1 << n % 8]) + whole[n + 1 :] for n, byte in enumerate(whole))
    cut = (whole[:n] for n in range(len(whole)))
    memory = fs._MockFileSystem()
    tried = 0
    for wrong in (*flipped, *cut, whole + b"\0", whole[1:], whole[::-1]):
        with memory.open_output_stream("rows.parquet") as stream:
            stream.write(wrong)
        with pytest.raises(CheckpointError, match="CHECKPOINT_DAMAGED") as caught:
            check_files(memory, {"rows.parquet": checksum})
        assert caught.value.file == "rows.parquet"
        tried += 1
    assert tried > 1_000
    check_files(LOCAL, {str(path): checksum})
    assert Checksum.of(LOCAL, str(path)) == checksum


def test_one_of_many(tmp_path: Path) -> None:
    files = {}
    for number in range(50):
        (tmp_path / str(number)).write_bytes(b"%d" % number * number)
        files[str(tmp_path / str(number))] = Checksum.of(LOCAL, str(tmp_path / str(number)))
    check_files(LOCAL, files)
    check_files(LOCAL, {})
    for victim, what in (("7", "CHECKPOINT_MISSING_FILE"), ("31", "CHECKPOINT_FAILED")):
        path = tmp_path / victim
        whole = path.read_bytes()
        path.unlink()
        if what == "CHECKPOINT_FAILED":
            path.mkdir()
        with pytest.raises(CheckpointError, match=rf"{what}(.|\n)*{path}"):
            check_files(LOCAL, files)
        if path.is_dir():
            path.rmdir()
        path.write_bytes(whole)
    check_files(LOCAL, files)
