"""Check a list of streams against a program, and their timestamps against one another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import pyarrow as pa

from flumina.errors import InputError, UsageError
from flumina.input.stream import Stream
from flumina.program.definition import Definition


def check_streams(definition: Definition, streams: Sequence[Stream]) -> None:
    """Refuse streams that do not fit a program: at least one, distinct names, its own tags."""
    if isinstance(streams, Stream) or not isinstance(streams, Sequence) or not streams:
        raise UsageError("NO_STREAMS", f"{definition.name} needs a list of at least one Stream, got {streams!r}")
    for stream in streams:
        if not isinstance(stream, Stream):
            raise UsageError("STREAMS", f"{definition.name} needs a list of fl.Stream, got {stream!r} in it")
    for name, count in Counter(stream.name for stream in streams).items():
        if count > 1:
            raise UsageError("STREAM_NAME", f"two streams are called {name!r}")
    for stream in streams:
        for tag in stream.tags:
            if definition.tags.get(tag.name) is not tag:
                twin = f"; the {tag.name!r} of {definition.name} is another one" if tag.name in definition.tags else ""
                raise UsageError(
                    "UNKNOWN_TAG",
                    f"stream {stream.name!r} carries the tag {tag.name!r} made at {tag.where}, "
                    f"which is not a tag of {definition.name}{twin}",
                    hint=f"its tags are {list(definition.tags)}",
                )


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
