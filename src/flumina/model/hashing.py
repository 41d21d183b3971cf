"""Hash keys alike in every process and on every machine, whole columns at once.

Python's own ``hash`` is salted per process, so it must never decide where a key lives. Ours::

    hash(int k)       = mix(k mod 2**64)
    hash(bytes b)     = mix(len(b) + sum(mix(b[i] + 256 * i) for i in range(len(b))))   (mod 2**64)
    hash(str s)       = hash(s.encode("utf-8"))
    bucket(k)         = hash(k) >> 52                                                   (4096 buckets)

``mix`` is the finalizer of the splitmix64 generator. A sum of mixed (byte, position) pairs is a column operation
for any number of strings. It does not defend against keys chosen to collide: they share one bucket, which costs
balance, never correctness.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flumina.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Hashable

BUCKETS = 4096
"""Virtual buckets that unbounded keys are divided into; fixed, because snapshots and plans refer to them."""

_SHIFT = 52
_WORD = 2**64 - 1
_POSITIONS = 4096  # longer keys: positions repeat, which costs balance only

U64 = npt.NDArray[np.uint64]


def _mix_int(x: int) -> int:
    x = (x + 0x9E3779B97F4A7C15) & _WORD
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _WORD
    return x ^ (x >> 31)


def _mix(x: U64) -> U64:
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@lru_cache(maxsize=1)
def _byte_table() -> U64:
    """Return ``mix(byte + 256 * position)`` for every byte and position: 8 MB, made on first use."""
    return _mix(np.arange(256 * _POSITIONS, dtype=np.uint64))


@lru_cache(maxsize=65536, typed=True)
def hash_key(key: Hashable) -> int:
    """Return the 64-bit hash of one key: an int, a str or bytes.

    >>> hash_key("page") == hash_key(b"page")
    True
    """
    if isinstance(key, str):
        key = key.encode()
    if isinstance(key, bytes):
        total = sum(_mix_int(byte + 256 * (i % _POSITIONS)) for i, byte in enumerate(key))
        return _mix_int((len(key) + total) & _WORD)
    if isinstance(key, int) and not isinstance(key, bool):
        return _mix_int(key & _WORD)
    raise UsageError(
        "KEY_TYPE",
        f"a key is an int, a str or bytes, got {type(key).__name__}: {key!r}",
        hint="combine several columns into one string or binary column",
    )


def bucket_of(key: Hashable) -> int:
    """Return the virtual bucket of one key; the absent key of an unkeyed tag counts as bucket 0."""
    return 0 if key is None else hash_key(key) >> _SHIFT


def hash_column(keys: pa.Array | pa.ChunkedArray) -> U64:
    """Return :func:`hash_key` of every entry of an Arrow column without nulls.

    >>> hash_column(pa.array(["a", "bc"])).tolist() == [hash_key("a"), hash_key("bc")]
    True
    """
    if isinstance(keys, pa.ChunkedArray):
        keys = keys.combine_chunks() if keys.num_chunks != 1 else keys.chunk(0)
    if keys.null_count:
        raise UsageError("NULL_KEY", f"{keys.null_count} of {len(keys)} keys are null")
    if pa.types.is_dictionary(keys.type):
        hashes: U64 = hash_column(keys.dictionary)[keys.indices.to_numpy(zero_copy_only=False)]
        return hashes
    if pa.types.is_integer(keys.type):
        return _mix(keys.to_numpy(zero_copy_only=False).astype(np.int64).view(np.uint64))
    if pa.types.is_string(keys.type) or pa.types.is_binary(keys.type):
        return _hash_bytes(keys, np.dtype(np.int32))
    if pa.types.is_large_string(keys.type) or pa.types.is_large_binary(keys.type):
        return _hash_bytes(keys, np.dtype(np.int64))
    raise UsageError("KEY_TYPE", f"a key column holds ints, strings or binary, got {keys.type}")


def bucket_column(keys: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """Return :func:`bucket_of` of every entry of an Arrow column."""
    return (hash_column(keys) >> np.uint64(_SHIFT)).astype(np.int64)


def _hash_bytes(keys: pa.Array, offset_type: np.dtype[np.int32] | np.dtype[np.int64]) -> U64:
    if len(keys) == 0:
        return np.empty(0, np.uint64)
    _, offset_buffer, data_buffer = keys.buffers()
    offsets = np.frombuffer(offset_buffer, offset_type)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    lengths = np.diff(offsets)
    if offsets[-1] == offsets[0]:
        return _mix(lengths.view(np.uint64))
    data = np.frombuffer(data_buffer, np.uint8)[offsets[0] : offsets[-1]]
    positions = np.arange(len(data)) - np.repeat(offsets[:-1] - offsets[0], lengths)
    mixed = _byte_table()[data + 256 * (positions % _POSITIONS)]
    # Sums per key as differences of a running sum: exact modulo 2**64, and empty keys are no special case.
    running = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed, dtype=np.uint64)])
    starts = offsets - offsets[0]
    totals = running[starts[1:]] - running[starts[:-1]]
    return _mix(lengths.view(np.uint64) + totals)
