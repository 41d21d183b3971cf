"""Check a list of streams against a program, and their timestamps against one another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import pyarrow as pa

from flumina.errors import InputError, UsageError
from flumina.input.stream import Stream
from flumina.model.tick import Every, Tick
from flumina.program.definition import Definition


def check_units(definition: Definition, ts_type: pa.DataType, stream: str) -> None:
    """Refuse periods that do not fit the timestamps: times for whole numbers, numbers for times, zones for neither."""
    whole = pa.types.is_integer(ts_type)
    for tag in definition.tags.values():
        if not isinstance(tag, Every):
            continue
        if tag.timed == whole:
            units = "whole numbers" if whole else f"times ({ts_type})"
            given = "a time" if tag.timed else "a number"
            raise UsageError(
                "TICK_UNIT",
                f"timestamps of stream {stream!r} are {units}, but the period of {tag.name!r} is {given}: "
                f"{tag.described}, at {tag.where}",
                hint="give the period as a number of units" if whole else "give the period as a time, such as '1 h'",
            )
        if tag.zone is not None and pa.types.is_timestamp(ts_type) and ts_type.tz is None:
            message = f"timestamps of stream {stream!r} have no zone, but {tag.name!r} has zone={tag.zone.key!r}"
            raise UsageError("TICK_ZONE", f"{message}, at {tag.where}", hint="use timestamp, or leave out zone=")


def check_streams(definition: Definition, streams: Sequence[Stream]) -> None:
    """Refuse streams that do not fit a program: at least one, distinct names, its own tags."""
    if isinstance(streams, Stream) or not isinstance(streams, Sequence) or not streams:
        raise UsageError("NO_STREAMS", f"{definition.name} needs a list of at least one Stream, got {streams!r}")
    for stream in streams:
        if not isinstance(stream, Stream):
            raise UsageError("STREAMS", f"{definition.name} needs a list of fl.Stream, got {stream!r} in it")
    ticks = [name for name, tag in definition.tags.items() if isinstance(tag, Tick)]
    for stream in streams:
        if stream.name in ticks:
            message = f"stream {stream.name!r} has the name of a tick of {definition.name}"
            raise UsageError("TICK_STREAM", message, hint="outputs name the stream of their event; rename this one")
    for name, count in Counter(stream.name for stream in streams).items():
        if count > 1:
            raise UsageError("STREAM_NAME", f"two streams are called {name!r}")
    for stream in streams:
        for tag in stream.tags:
            if isinstance(tag, Tick):
                message = f"stream {stream.name!r} carries the tick {tag.name!r}, whose events come by themselves"
                raise UsageError("TICK_STREAM", message, hint="leave the stream out")
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
