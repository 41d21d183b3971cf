"""Rows whose order nobody can tell are found when the second of them comes, before anything of its batch is decided.

Later it would be too late: rows that have been logged, or are buffered in the checkpoint, nobody can repair any more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from flumina.errors import OrderError
from flumina.input.event_table import EventReader
from flumina.input.stream import Stream
from flumina.input.ties import matter
from flumina.program.definition import Definition
from flumina.program.ties import TieFinder, TieRule
from flumina.streaming.rows import batch_of, place_of
from flumina.streaming.validation import PLACE, ValidatedRows


def check_order(
    definition: Definition,
    streams: Sequence[Stream],
    rows: Mapping[str, pa.Table],
    validated: Mapping[str, ValidatedRows],
    batch: int,
) -> None:
    """Raise if two dependent rows of a stream tie, of those that are new in a batch and those that are buffered."""
    names = [stream.name for stream in streams]
    for rank, stream in enumerate(streams):
        table = rows[stream.name].combine_chunks()
        if not len(validated[stream.name].events) or not matter(definition, stream):
            continue
        files = validated[stream.name].files

        def told(place: int, files: Callable[[], Mapping[int, str]] = files) -> str:
            file = files().get(place_of(place)) if batch_of(place) == batch else None
            return f"partition {place_of(place)} of batch {batch_of(place)}" if file is None else file

        rule = TieRule.of(definition.depends, stream.tags, sequenced=stream.seq is not None, part_name=told)
        reader = EventReader(stream, rank, names)
        pieces = table.to_batches()
        places = [piece.column(PLACE).to_numpy().astype(np.int64) for piece in pieces]
        try:
            TieFinder(rule).look([reader.decode(piece) for piece in pieces], places)
        except OrderError as error:
            raise OrderError(
                error.condition,
                error.message,
                hint="nothing of this batch has been decided yet: repair the rows that are new, and start again; a "
                "seq= column orders events with equal timestamps, but has to be there from the first start on",
            ) from None
