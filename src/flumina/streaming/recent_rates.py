"""Estimate recent rates of the input: events of each tag, and hot keys."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from flumina.input.event_table import TAG, columns_of
from flumina.input.stream import Stream
from flumina.model.tag import Tag
from flumina.model.tag_set import Key
from flumina.plan.heavy_hitters import HOT, HeavyHitters
from flumina.plan.sources import StreamRates

FADE = 0.5
"""The weight of a batch after each later one: rates follow a change within a few batches."""

_LEAST = 1e-3
"""The rate of a tag without events so far: small, but positive, so that the plan has room for it."""

_MOST_HOT_KEYS = 64
"""The plan considers at most this many hot keys of a tag, the hottest ones."""


class RecentRates:
    """Counts events and keys, with less weight for earlier batches; the number of distinct keys does not fade."""

    def __init__(self, streams: Sequence[Stream]) -> None:
        self.streams = tuple(streams)
        self.counts: dict[tuple[str, str], float] = {(s.name, tag.name): 0.0 for s in streams for tag in s.tags}
        self.keys = {(s.name, tag.name): HeavyHitters() for s in streams for tag in s.tags if tag.key is not None}

    def add(self, ready: Mapping[str, pa.Table]) -> None:
        """Count the events of one more batch."""
        for place in self.counts:
            self.counts[place] *= FADE
        for hitters in self.keys.values():
            hitters.seen = int(hitters.seen * FADE)
            hitters.counts = {key: faded for key, count in hitters.counts.items() if (faded := int(count * FADE))}
        for stream in self.streams:
            for tag, count, keys in _keys_by_tag(stream, ready[stream.name]):
                self.counts[stream.name, tag.name] += count
                if keys is not None and count:
                    self.keys[stream.name, tag.name].add(keys)

    def sources(self, parts: Mapping[str, int]) -> list[StreamRates]:
        """Return the rates of all streams for the optimizer, with the number of parts of each."""
        found = []
        for stream in self.streams:
            rates = {tag.name: max(self.counts[stream.name, tag.name], _LEAST) for tag in stream.tags}
            hot = {tag.name: self.hot(stream.name, tag.name) for tag in stream.tags if tag.key is not None}
            heavy: dict[str, Mapping[Key, float]] = {
                tag: {key: fraction * rates[tag] for key, fraction in keys.items()} for tag, keys in hot.items() if keys
            }
            distinct = {
                tag.name: self.keys[stream.name, tag.name].distinct.count()
                for tag in stream.tags
                if tag.key is not None
            }
            found.append(StreamRates(stream.name, rates, parts[stream.name], heavy, distinct=distinct))
        return found

    def hot(self, stream: str, tag: str) -> dict[Key, float]:
        """Return the hot keys of a tag, each with its fraction of the tag's events."""
        hitters = self.keys[stream, tag]
        heavy = list(hitters.heavy(HOT).items())[:_MOST_HOT_KEYS]
        return {key: count / hitters.seen for key, count in heavy} if hitters.seen else {}

    def fractions(self) -> dict[str, float]:
        """Return each tag's fraction of all events, by tag and stream."""
        total = sum(self.counts.values()) or 1.0
        return {f"{tag} on {stream}": count / total for (stream, tag), count in self.counts.items()}

    def outline(self) -> tuple[object, ...]:
        """Return a value that changes only where another plan may be worthwhile.

        It has the fractions in steps of 1.5 times, the hot keys, and the number of distinct keys, which determines the
        size of states, in steps of 2 times.
        """
        rates = tuple(map(_step, self.fractions().values()))
        keys = tuple(
            tuple(sorted((repr(key), _step(part)) for key, part in self.hot(*place).items() if part >= 5 * HOT))
            for place in self.keys
        )
        return rates, keys, tuple(round(math.log2(1 + hitters.distinct.count())) for hitters in self.keys.values())


def _step(fraction: float) -> int:
    return round(math.log(max(fraction, 1e-6)) / math.log(1.5))


def _keys_by_tag(stream: Stream, table: pa.Table) -> Iterator[tuple[Tag, int, pa.ChunkedArray | None]]:
    """Yield for each tag the number of its events in a table, and their keys if it has a key."""
    codes = table.column(TAG).to_numpy() if len(stream.tags) > 1 else None
    for which, (tag, columns) in enumerate(zip(stream.tags, columns_of(stream.tags), strict=True)):
        keys = None if tag.key is None else table.column(columns[tag.key.name])
        if codes is None:
            yield tag, len(table), keys
        else:
            rows = np.flatnonzero(codes == which)
            yield tag, len(rows), None if keys is None else keys.take(pa.array(rows))
