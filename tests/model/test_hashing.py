import os
import subprocess
import sys
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flumina.errors import UsageError
from flumina.model.hashing import BUCKETS, bucket_column, bucket_of, hash_column, hash_key

ODD_TEXTS = ["", "a", "\0", "a\0", "\0a", "ä", "日本語", "🙂", "x" * 4096, "x" * 4097, "y" * 9000]


def test_golden_values() -> None:
    """Snapshots and plans refer to buckets, so these may never change."""
    assert {key: hash_key(key) for key in (0, 1, -1, 2**63 - 1, -(2**63))} == {
        0: 0xE220A8397B1DCDAF,
        1: 0x910A2DEC89025CC1,
        -1: 0xE4D971771B652C20,
        2**63 - 1: 0x2A67D7552E039EA7,
        -(2**63): 0x481EC0A212A9F3DB,
    }
    assert {key: hash_key(key) for key in ("", "page", "日本語", "x" * 5000)} == {
        "": 0xE220A8397B1DCDAF,
        "page": 0xE50039FB3F6FB47E,
        "日本語": 0x7534CA61F53B49C5,
        "x" * 5000: 0xC72DC1E3688326E7,
    }
    assert [bucket_of(key) for key in (0, 1, "page", b"\xff\x00")] == [3618, 2320, 3664, 1585]


def check(values: Sequence[object], type_: pa.DataType) -> None:
    expected = [hash_key(value) for value in values]
    assert hash_column(pa.array(values, type_)).tolist() == expected
    assert bucket_column(pa.array(values, type_)).tolist() == [h >> 52 for h in expected]


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_longs(values: list[int]) -> None:
    check(values, pa.int64())


@given(st.lists(st.integers(-(2**31), 2**31 - 1)))
def test_ints_hash_like_the_same_longs(values: list[int]) -> None:
    check(values, pa.int32())
    assert hash_column(pa.array(values, pa.int32())).tolist() == hash_column(pa.array(values, pa.int64())).tolist()


@given(st.lists(st.text()))
@example(ODD_TEXTS)
@example(["", "", ""])
def test_strings(values: list[str]) -> None:
    check(values, pa.string())
    check(values, pa.large_string())


@given(st.lists(st.binary()))
@example([text.encode() for text in ODD_TEXTS])
def test_binary(values: list[bytes]) -> None:
    check(values, pa.binary())
    check(values, pa.large_binary())


@given(st.lists(st.sampled_from(ODD_TEXTS), min_size=1), st.data())
def test_slices_chunks_and_dictionaries(values: list[str], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(values)))
    stop = data.draw(st.integers(start, len(values)))
    expected = [hash_key(value) for value in values[start:stop]]
    array = pa.array(values)
    chunked = pa.chunked_array([array[:start], array[start:stop], array[stop:]])
    for column in (
        array[start:stop],
        array.dictionary_encode()[start:stop],
        pa.array(values, pa.large_string())[start:stop],
        chunked.slice(start, stop - start),
        chunked.dictionary_encode().slice(start, stop - start),
    ):
        assert hash_column(column).tolist() == expected
    numbers = pa.array([len(value) for value in values])[start:stop]
    assert hash_column(numbers).tolist() == [hash_key(len(value)) for value in values[start:stop]]


def test_no_rows() -> None:
    for type_ in (pa.int64(), pa.string(), pa.large_binary()):
        assert hash_column(pa.array([], type_)).tolist() == []
        assert hash_column(pa.chunked_array([], type_)).tolist() == []


def test_same_in_every_process() -> None:
    program = "from flumina.model.hashing import *; print([hash_key(k) for k in (7, -7, 'page', b'page', '日本語')])"
    said = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("0", "1", "random")
    }
    assert said == {str([hash_key(k) for k in (7, -7, "page", b"page", "日本語")])}


@pytest.mark.parametrize(
    "keys",
    [
        pa.array(range(100_000)),
        pa.array(range(0, 100_000 * 4096, 4096)),
        pa.array([f"user-{i:08}" for i in range(100_000)]),
        pa.array([f"{i}@example.org" for i in range(100_000)]),
    ],
    ids=["sequential", "multiples", "padded", "addresses"],
)
def test_buckets_are_balanced(keys: pa.Array) -> None:
    counts = np.bincount(bucket_column(keys), minlength=BUCKETS)
    expected = len(keys) / BUCKETS
    chi_square = float((((counts - expected) ** 2) / expected).sum())
    # For random buckets: mean 4095, standard deviation 90.
    assert 4095 - 6 * 90 < chi_square < 4095 + 6 * 90
    assert len(counts) == BUCKETS


@pytest.mark.parametrize("key", [True, 1.5, (1, 2), np.float64(1)])
def test_no_key(key: object) -> None:
    with pytest.raises(UsageError, match="KEY_TYPE"):
        hash_key(key)


def test_no_key_column() -> None:
    with pytest.raises(UsageError, match="KEY_TYPE"):
        hash_column(pa.array([1.5]))
    with pytest.raises(UsageError, match="1 of 2 keys are null"):
        hash_column(pa.array(["a", None]))


def test_the_absent_key_has_a_bucket() -> None:
    assert bucket_of(None) == 0
