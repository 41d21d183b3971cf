"""Where the rows of a DataFrame come from: which of them are in an order that means something.

Spark packs small files into one partition and cuts large ones into several, as the number of cores has it, so that a
partition says nothing: the place of a row that comes out of a file is that file, and its number the one that it has
there. Only where Spark can't tell the file is a partition all there is.
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
"""Columns of a batch: a hash of the file, something that grows within it, Spark's partition with the row there, and the
path of the file, which is only asked for when somebody is to see it."""

_ROW_BITS = 33
"""``monotonically_increasing_id`` has the number of the partition above so many bits, and below that of the row."""


def place_columns(frame: DataFrame) -> tuple[Column, Column]:
    """The columns :data:`FILE` and :data:`WITHIN` of a DataFrame: nulls if Spark does not know the file."""
    for within in ("row_index", "file_block_start"):  # some formats number rows; of a block, rows come in order
        found = _metadata(frame, "file_path", within)
        if found is not None:
            return F.xxhash64(found[0]).alias(FILE), found[1].alias(WITHIN)
    return F.lit(None).cast("long").alias(FILE), F.lit(None).cast("long").alias(WITHIN)


def path_column(frame: DataFrame) -> Column:
    """The column :data:`PATH` of a DataFrame: null if Spark does not know the file."""
    found = _metadata(frame, "file_path")
    return (F.lit(None).cast("string") if found is None else found[0]).alias(PATH)


def _metadata(frame: DataFrame, *names: str) -> list[Column] | None:
    """What Spark can tell of the file of every row, if it can."""
    plan: Any = frame._jdf.queryExecution().analyzed()
    if plan.collectLeaves().size() != 1:  # of two, the files might be those that a stream is joined with
        return None
    try:
        about = frame.metadataColumn("_metadata")
        found = [about.getField(name) for name in names]
        frame.select(*found)
    except PySparkException:
        return None
    return found


def paths(batch: DataFrame) -> dict[int, str]:
    """The files of a batch, by their numbers as :func:`places` counts them."""
    pairs = batch.select(FILE, PATH).where(F.col(PATH).isNotNull()).distinct().collect()
    return {number: path for number, (_, path) in enumerate(sorted((pair[0], pair[1]) for pair in pairs))}


def places(rows: pa.Table) -> tuple[Ints, Ints]:
    """For each row the number of its place, and the number that it has there."""
    positions: Ints = rows.column(POSITION).to_numpy()
    files = rows.column(FILE)
    if files.null_count == len(files):
        return positions >> _ROW_BITS, positions & np.int64((1 << _ROW_BITS) - 1)
    _, place = np.unique(files.to_numpy(), return_inverse=True)
    return place.astype(np.int64), _ranks((place,), (rows.column(WITHIN).to_numpy(), positions))


def in_order_digest(hashes: Ints, groups: tuple[pa.ChunkedArray, ...], place: Ints, row: Ints) -> int:
    """A digest of rows and of their order, but only where rows of one place are alike in all groups."""
    if len(hashes) == 0 or pc.count_distinct(groups[0], mode="all").as_py() == len(hashes):
        return int(hashes.sum(dtype=np.int64))
    encoded = (pc.dictionary_encode(group, null_encoding="encode").combine_chunks() for group in groups)
    codes = tuple(one.indices.to_numpy() for one in encoded)
    return int((hashes * (2 * _ranks((*codes, place), (row,)) + 1)).sum(dtype=np.int64))


def _ranks(groups: tuple[Ints, ...], order: tuple[Ints, ...]) -> Ints:
    """The number of each row among those of its group, in this order."""
    sorted_ = np.lexsort((*reversed(order), *groups))
    begins = np.ones(len(sorted_), bool)
    if len(sorted_):
        begins[1:] = np.any([group[sorted_][1:] != group[sorted_][:-1] for group in groups], axis=0)
    numbers = np.arange(len(sorted_))
    ranks = np.empty(len(sorted_), np.int64)
    ranks[sorted_] = numbers - np.maximum.accumulate(np.where(begins, numbers, 0))
    return ranks
