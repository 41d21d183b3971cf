"""Describe a stream before its data is read: enough to plan a run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from flumina.errors import InputError
from flumina.input.decode import Decoder
from flumina.input.files import Files
from flumina.input.sources import Generator
from flumina.input.stream import Stream


@dataclass(frozen=True)
class StreamInfo:
    """The shape of a stream.

    ``ts_type`` is None if the stream has no rows. ``rows`` is the number of rows of each part, None where only reading
    would tell. ``paced``: timestamps are microseconds since the start of the run.
    """

    parts: int
    ts_type: pa.DataType | None
    rows: tuple[int | None, ...]
    paced: bool = False


def describe(stream: Stream) -> StreamInfo:
    """Read schemas and metadata of all parts, and the first rows of a generator's first part.

    Raises :class:`~flumina.errors.InputError` for files that can't be read and for columns that don't fit.
    """
    source = stream.source()
    generated = isinstance(source, Generator)
    rows = tuple(source.rows(part) for part in range(source.parts))
    ts_types = []
    for part in range(1 if generated else source.parts):
        schema = source.schema(part)
        if schema is not None:
            decoder = Decoder(stream, 0, part, [stream.name])
            decoder.check_schema(schema)
            if rows[part] != 0:
                ts_types.append((stream, decoder.ts_type))
    if isinstance(source, Files):
        source.check_schemas(stream.columns)
    paced = isinstance(source, Generator) and source.generated.rate is not None
    return StreamInfo(source.parts, one_ts_type(ts_types), rows, paced)


def one_ts_type(found: Iterable[tuple[Stream, pa.DataType | None]]) -> pa.DataType | None:
    """Return the common type of the timestamps of these streams; None if no stream has rows."""
    first: tuple[Stream, pa.DataType] | None = None
    for stream, ts_type in found:
        if ts_type is None:
            continue
        first = first or (stream, ts_type)
        if ts_type != first[1]:
            raise InputError(
                "TIMESTAMP_TYPES",
                f"timestamps are {ts_type}, but {first[1]} in stream {first[0].name!r}",
                stream=stream.name,
                column=stream.ts,
                hint="events of all streams are ordered together, so their timestamps must be of one kind",
            )
    return first[1] if first else None
