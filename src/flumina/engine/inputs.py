"""Select the data of each task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from flumina.engine.job import Job
from flumina.input.sources import GeneratorSource, InMemoryTables
from flumina.input.stream import Stream


def is_paced(streams: Sequence[Stream]) -> bool:
    """Return whether all streams are paced, so that the latency of outputs can be measured."""
    return all(isinstance(s.data, GeneratorSource) and s.data.rate is not None for s in streams)


def data_of(job: Job, streams: Sequence[Stream], task: int) -> dict[str, object]:
    """Return the data of the parts that a task reads; a table in memory is sent only to the task that reads it."""
    found: dict[str, object] = {}
    for stream in streams:
        parts = {part for (name, part), to in job.placement.parts.items() if name == stream.name and to == task}
        if parts:
            source = stream.source()
            if isinstance(source, InMemoryTables):
                empty = source.tables[min(parts)].slice(0, 0)
                tables = [table if part in parts else empty for part, table in enumerate(source.tables)]
                found[stream.name] = replace(source, tables=tables)
            else:
                found[stream.name] = stream.data
    return found
