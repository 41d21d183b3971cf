"""Refuse a batch with ties: dependent rows that O can't order.

The check precedes the choice of the batch watermark: rows that have been logged, or are buffered in the checkpoint,
can't be repaired any more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from flumina.errors import OrderError
from flumina.input.event_table import EventReader
from flumina.input.stream import Stream
from flumina.input.tie_checks import matter
from flumina.program.definition import Definition
from flumina.program.tie_finder import TieFinder, TieRule
from flumina.streaming.rows import batch_of, place_of
from flumina.streaming.validation import PLACE, ValidatedRows


def check_order(
    definition: Definition,
    streams: Sequence[Stream],
    rows: Mapping[str, pa.Table],
    validated: Mapping[str, ValidatedRows],
    batch: int,
) -> None:
    """Raise OrderError if two dependent rows of a stream tie, among the new rows of a batch and the buffered ones."""
    names = [stream.name for stream in streams]
    for rank, stream in enumerate(streams):
        table = rows[stream.name].combine_chunks()
        if not len(validated[stream.name].events) or not matter(definition, stream):
            continue
        files = validated[stream.name].files

        def part_name(place: int, files: Callable[[], Mapping[int, str]] = files) -> str:
            file = files().get(place_of(place)) if batch_of(place) == batch else None
            return f"partition {place_of(place)} of batch {batch_of(place)}" if file is None else file

        rule = TieRule.of(definition.depends, stream.tags, sequenced=stream.seq is not None, part_name=part_name)
        reader = EventReader(stream, rank, names)
        chunks = table.to_batches()
        places = [chunk.column(PLACE).to_numpy().astype(np.int64) for chunk in chunks]
        try:
            TieFinder(rule).look([reader.decode(chunk) for chunk in chunks], places)
        except OrderError as error:
            raise OrderError(
                error.condition,
                error.message,
                hint="no row of this batch has been processed yet: repair the new rows and start again; a seq= column "
                "orders events with equal timestamps, but has to be declared from the first start on",
            ) from None
