"""What the driver knows of the streams before anything is read, and what of them each task is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from flumina.engine.job import Job
from flumina.input.sources import GeneratorSource, InMemoryTables
from flumina.input.stream import Stream
from flumina.input.stream_info import describe, one_ts_type


def timestamp_type(streams: Sequence[Stream]) -> pa.DataType:
    """The kind of timestamps that all streams with any rows have in common."""
    return one_ts_type((stream, describe(stream).ts_type) for stream in streams) or pa.int64()


def is_paced(streams: Sequence[Stream]) -> bool:
    """Whether events come when they are due, so that it can be told how late outputs are."""
    return all(isinstance(s.data, GeneratorSource) and s.data.rate is not None for s in streams)


def data_of(job: Job, streams: Sequence[Stream], task: int) -> dict[str, object]:
    """What one task needs to read its parts: tables in memory are sent to those who read them only."""
    found: dict[str, object] = {}
    for stream in streams:
        mine = {part for (name, part), home in job.placement.parts.items() if name == stream.name and home == task}
        if mine:
            source = stream.source()
            if isinstance(source, InMemoryTables):
                empty = source.tables[min(mine)].slice(0, 0)
                resume_point = [table if part in mine else empty for part, table in enumerate(source.tables)]
                found[stream.name] = replace(source, tables=resume_point)
            else:
                found[stream.name] = stream.data
    return found
