"""Compare the outputs of a run with the expected ones, row by row, in little memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

SHOWN = 5
"""How many rows that are missing or surplus are shown."""

Rows = Mapping[str, Iterable[pa.RecordBatch]]


def committed(folder: Path, outputs: Sequence[str]) -> dict[str, Iterator[pa.RecordBatch]]:
    """Read the outputs that a run has written, file after file in the order of their names."""
    return {name: _batches(folder if len(outputs) == 1 else folder / name) for name in outputs}


def _batches(folder: Path) -> Iterator[pa.RecordBatch]:
    for path in sorted(folder.rglob("*.parquet")):
        if not any(part.startswith(("_", ".")) for part in path.relative_to(folder).parts):
            yield from pq.ParquetFile(path).iter_batches(131_072)


def complaints(actual: Rows, expected: Mapping[str, pa.Table], order: Sequence[str] | None) -> list[str]:
    """List what is wrong with outputs: rows that are missing or surplus, and rows out of order.

    ``order`` has the streams by their rank if rows must come in the order of their events.
    """
    found: list[str] = []
    for name, wanted in expected.items():
        numbers, count, last = [], 0, None
        for batch in actual[name]:
            if batch.schema.names != wanted.schema.names:
                found.append(f"output {name!r}: expected the columns {wanted.schema.names}, got {batch.schema.names}")
                break
            if order is not None:
                places = _places(batch, order)
                if len(places) and (np.any(np.diff(places) < 0) or (last is not None and places[0] < last)):
                    found.append(f"output {name!r}: rows {count:,} to {count + len(places):,} are not in order")
                last = places[-1] if len(places) else last
            count += batch.num_rows
            numbers.append(digest(batch))
        got = np.concatenate(numbers) if numbers else np.zeros(0, np.uint64)
        found += _difference(name, got, wanted)
    return found


def _difference(name: str, got: npt.NDArray[np.uint64], wanted: pa.Table) -> list[str]:
    due = np.concatenate([digest(batch) for batch in wanted.to_batches()] or [np.zeros(0, np.uint64)])
    if len(got) == len(due) and np.array_equal(np.sort(got), np.sort(due)):
        return []
    values = np.unique(np.concatenate([got, due]))
    surplus = np.bincount(np.searchsorted(values, got), minlength=len(values)) - np.bincount(
        np.searchsorted(values, due), minlength=len(values)
    )
    lacking = np.flatnonzero(np.isin(due, values[surplus < 0]))[:SHOWN]
    missing, extra = int(-surplus[surplus < 0].sum()), int(surplus[surplus > 0].sum())
    shown = wanted.take(pa.array(lacking)).to_pylist()
    text = f"output {name!r}: expected {len(due):,} rows, got {len(got):,}; {missing:,} missing, {extra:,} surplus"
    return [text + (f"; missing are e.g. {shown}" if shown else "")]


def _places(batch: pa.RecordBatch, streams: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return a number for each row that grows with its timestamp and the rank of its stream."""
    rank = pc.index_in(batch.column("event_stream"), pa.array(streams)).to_numpy(zero_copy_only=False)
    return np.asarray(batch.column("event_ts").to_numpy() * len(streams) + rank, np.int64)


def digest(batch: pa.RecordBatch) -> npt.NDArray[np.uint64]:
    """Return a number for each row: rows are the same, but for one in 2^64, if their numbers are."""
    mixed = np.zeros(batch.num_rows, np.uint64)
    for column in batch.columns:
        mixed = _scrambled(mixed * np.uint64(31) + _numbers(column))
    return mixed


def _numbers(column: pa.Array) -> npt.NDArray[np.uint64]:
    if pa.types.is_string(column.type) or pa.types.is_dictionary(column.type):
        encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        words = np.array([_of_text(text) for text in encoded.dictionary.to_pylist()] or [0], np.uint64)
        codes = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False)
        found = words[codes] if len(codes) else np.zeros(0, np.uint64)
    else:
        found = _scrambled(column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False).astype(np.uint64))
    if column.null_count:
        found = np.where(pc.is_null(column).to_numpy(zero_copy_only=False), np.uint64(0x9E3779B97F4A7C15), found)
    return found


def _of_text(text: str) -> int:
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def _scrambled(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return splitmix64 of each number."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
