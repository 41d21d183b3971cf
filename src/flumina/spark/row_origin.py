"""Find the origin of each row of a DataFrame: its file and position.

Spark packs small files into one partition and splits large files into several, depending on the number of cores, so
that partitions have no lasting meaning. The place of a row is therefore its file, and its number the position in the
file; where Spark does not know the file, they are the partition and the position in it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- as everybody calls it

from flumina.model.order import Ints

FILE, WITHIN, POSITION, PATH = "f", "w", "p", "n"
"""Columns of a batch: a hash of the file, a number that increases within it, Spark's partition with the position there,
and the path of the file, which is read only for error messages and dead letters."""

_ROW_BITS = 33
"""The lower bits of ``monotonically_increasing_id``, which number the rows of a partition."""


def place_columns(frame: DataFrame) -> tuple[Column, Column]:
    """Return the columns :data:`FILE` and :data:`WITHIN` of a DataFrame: nulls if Spark does not know the file."""
    for within in ("row_index", "file_block_start"):  # not all formats number rows; the rows of a block are in order
        found = _metadata(frame, "file_path", within)
        if found is not None:
            return F.xxhash64(found[0]).alias(FILE), found[1].alias(WITHIN)
    return F.lit(None).cast("long").alias(FILE), F.lit(None).cast("long").alias(WITHIN)


def path_column(frame: DataFrame) -> Column:
    """Return the column :data:`PATH` of a DataFrame: null if Spark does not know the file."""
    found = _metadata(frame, "file_path")
    return (F.lit(None).cast("string") if found is None else found[0]).alias(PATH)


def _metadata(frame: DataFrame, *names: str) -> list[Column] | None:
    """Return fields of Spark's column ``_metadata``; None if Spark does not know the file of each row."""
    plan: Any = frame._jdf.queryExecution().analyzed()
    if plan.collectLeaves().size() != 1:  # the files could be those of a table that the stream is joined with
        return None
    try:
        about = frame.metadataColumn("_metadata")
        found = [about.getField(name) for name in names]
        frame.select(*found)
    except PySparkException:
        return None
    return found


def paths(batch: DataFrame) -> dict[int, str]:
    """Return the files of a batch by their numbers, as in :func:`places`."""
    pairs = batch.select(FILE, PATH).where(F.col(PATH).isNotNull()).distinct().collect()
    return {number: path for number, (_, path) in enumerate(sorted((pair[0], pair[1]) for pair in pairs))}


def places(rows: pa.Table) -> tuple[Ints, Ints]:
    """Return for each row the number of its place, and the number of the row there."""
    positions: Ints = rows.column(POSITION).to_numpy()
    files = rows.column(FILE)
    if files.null_count == len(files):
        return positions >> _ROW_BITS, positions & np.int64((1 << _ROW_BITS) - 1)
    _, place = np.unique(files.to_numpy(), return_inverse=True)
    return place.astype(np.int64), _ranks((place,), (rows.column(WITHIN).to_numpy(), positions))


def in_order_digest(hashes: Ints, groups: tuple[pa.ChunkedArray, ...], place: Ints, row: Ints) -> int:
    """Return a digest of the rows, which depends on the order of rows of one place that are equal in all groups."""
    if len(hashes) == 0 or pc.count_distinct(groups[0], mode="all").as_py() == len(hashes):
        return int(hashes.sum(dtype=np.int64))
    encoded = (pc.dictionary_encode(group, null_encoding="encode").combine_chunks() for group in groups)
    codes = tuple(one.indices.to_numpy() for one in encoded)
    return int((hashes * (2 * _ranks((*codes, place), (row,)) + 1)).sum(dtype=np.int64))


def _ranks(groups: tuple[Ints, ...], order: tuple[Ints, ...]) -> Ints:
    """Return the rank of each row in its group, in this order."""
    sorted_ = np.lexsort((*reversed(order), *groups))
    begins = np.ones(len(sorted_), bool)
    if len(sorted_):
        begins[1:] = np.any([group[sorted_][1:] != group[sorted_][:-1] for group in groups], axis=0)
    numbers = np.arange(len(sorted_))
    ranks = np.empty(len(sorted_), np.int64)
    ranks[sorted_] = numbers - np.maximum.accumulate(np.where(begins, numbers, 0))
    return ranks
