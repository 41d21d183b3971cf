"""What the driver knows of the streams before anything is read, and what of them each task is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from flumina import decode
from flumina.engine.job import Job
from flumina.errors import InputError
from flumina.sources import Generated, Tables
from flumina.streams import Stream


def timestamp_type(streams: Sequence[Stream]) -> pa.DataType:
    """The kind of timestamps that all streams with any rows have in common."""
    first: tuple[Stream, pa.DataType] | None = None
    for stream in streams:
        source = stream.source()
        for part in range(source.parts):
            schema = source.schema(part)
            if schema is None or source.rows(part) == 0 or stream.ts not in schema.names:
                continue  # nothing to order, or an error that whoever reads it can tell better
            kind = decode.timestamp_type(schema.field(stream.ts).type)
            if kind is not None and first is not None and kind != first[1]:
                raise InputError(
                    "TIMESTAMP_TYPES",
                    f"timestamps are {kind}, but those of stream {first[0].name!r} {first[1]}",
                    stream=stream.name,
                    column=stream.ts,
                    hint="events of all streams are ordered together, so their timestamps must be of one kind",
                )
            if kind is not None and first is None:
                first = stream, kind
    return pa.int64() if first is None else first[1]


def is_paced(streams: Sequence[Stream]) -> bool:
    """Whether events come when they are due, so that it can be told how late outputs are."""
    return all(isinstance(s.data, Generated) and s.data.rate is not None for s in streams)


def data_of(job: Job, streams: Sequence[Stream], task: int) -> dict[str, object]:
    """What one task needs to read its parts: tables in memory are sent to those who read them only."""
    found: dict[str, object] = {}
    for stream in streams:
        mine = {part for (name, part), home in job.layout.parts.items() if name == stream.name and home == task}
        if mine:
            source = stream.source()
            if isinstance(source, Tables):
                empty = source.tables[min(mine)].slice(0, 0)
                kept = [table if part in mine else empty for part, table in enumerate(source.tables)]
                found[stream.name] = replace(source, tables=kept)
            else:
                found[stream.name] = stream.data
    return found
