"""Small files with their own checksum: no byte can change unnoticed."""

import json

import pytest

from flumina.errors import CheckpointError, UsageError
from flumina.storage.checksummed_file import VERSION, decode, encode


def test_every_byte_counts() -> None:
    data = encode("thing", {"a": 1, "b": ["x", None]})
    content = decode(data, "thing", "f")
    assert (content["a"], content["b"], json.loads(data)) == (1, ["x", None], content)
    for at in range(len(data)):
        for wrong in (data[:at], data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]):
            with pytest.raises(CheckpointError, match="CHECKPOINT_DAMAGED"):
                decode(wrong, "thing", "f")


def test_another_kind_is_refused() -> None:
    with pytest.raises(CheckpointError, match="is not the other of a checkpoint"):
        decode(encode("thing", {}), "other", "f")


def test_another_format_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("flumina.storage.checksummed_file.VERSION", VERSION + 1)
        data = encode("thing", {})
    with pytest.raises(CheckpointError, match=f"format {VERSION + 1}; this version of flumina reads format {VERSION}"):
        decode(data, "thing", "f")


def test_what_is_no_json_is_refused() -> None:
    with pytest.raises(UsageError, match="NOT_JSON"):
        encode("thing", {"a": float("nan")})
