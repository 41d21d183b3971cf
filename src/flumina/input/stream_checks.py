"""Check a list of streams against a program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from flumina.errors import UsageError
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
