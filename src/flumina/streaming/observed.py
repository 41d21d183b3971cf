"""What has been seen of the input lately: how many events of each tag, and which keys have many of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from flumina.input.event_table import TAG, columns_of
from flumina.input.stream import Stream
from flumina.model.tag import Tag
from flumina.model.tag_set import Key
from flumina.plan.rates import HOT, HeavyHitters
from flumina.plan.sources import StreamRates

FADE = 0.5
"""What a batch counts for, once another one has come: rates follow a change within a few batches."""

_LEAST = 1e-3
"""The rate of what has not been seen yet: little, but not nothing."""

_FEWER = 64
"""Of more hot keys than this, only the hottest are planned for."""


class Observed:
    """Counts of events and keys that fade from batch to batch; how many different keys there were does not."""

    def __init__(self, streams: Sequence[Stream]) -> None:
        self.streams = tuple(streams)
        self.counts: dict[tuple[str, str], float] = {(s.name, tag.name): 0.0 for s in streams for tag in s.tags}
        self.keys = {(s.name, tag.name): HeavyHitters() for s in streams for tag in s.tags if tag.key is not None}

    def add(self, ready: Mapping[str, pa.Table]) -> None:
        """The events of one more batch."""
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
        """What an optimizer needs to know."""
        found = []
        for stream in self.streams:
            rates = {tag.name: max(self.counts[stream.name, tag.name], _LEAST) for tag in stream.tags}
            hot = {tag.name: self.hot(stream.name, tag.name) for tag in stream.tags if tag.key is not None}
            heavy: dict[str, Mapping[Key, float]] = {
                tag: {key: share * rates[tag] for key, share in shares.items()} for tag, shares in hot.items() if shares
            }
            distinct = {
                tag.name: self.keys[stream.name, tag.name].distinct.count()
                for tag in stream.tags
                if tag.key is not None
            }
            found.append(StreamRates(stream.name, rates, parts[stream.name], heavy, distinct=distinct))
        return found

    def hot(self, stream: str, tag: str) -> dict[Key, float]:
        """The keys with many events of a tag, each with its share."""
        hitters = self.keys[stream, tag]
        heavy = list(hitters.heavy(HOT).items())[:_FEWER]
        return {key: count / hitters.seen for key, count in heavy} if hitters.seen else {}

    def shares(self) -> dict[str, float]:
        """For each tag of each stream its share of all events."""
        total = sum(self.counts.values()) or 1.0
        return {f"{tag} on {stream}": count / total for (stream, tag), count in self.counts.items()}

    def outline(self) -> tuple[object, ...]:
        """Equal as long as nothing has changed that would be worth another plan.

        That is shares by factors of 1.5, hot keys, and the number of different keys, of which states are made, by
        factors of 2.
        """
        rates = tuple(_step(share) for share in self.shares().values())
        keys = tuple(
            tuple(sorted((repr(key), _step(share)) for key, share in self.hot(*place).items() if share >= 5 * HOT))
            for place in self.keys
        )
        return rates, keys, tuple(round(math.log2(1 + hitters.distinct.count())) for hitters in self.keys.values())


def _step(share: float) -> int:
    return round(math.log(max(share, 1e-6)) / math.log(1.5))


def _keys_by_tag(stream: Stream, table: pa.Table) -> Iterator[tuple[Tag, int, pa.ChunkedArray | None]]:
    """Yield for each tag how many events it has in a table, and their keys if it has a key."""
    codes = table.column(TAG).to_numpy() if len(stream.tags) > 1 else None
    for which, (tag, columns) in enumerate(zip(stream.tags, columns_of(stream.tags), strict=True)):
        keys = None if tag.key is None else table.column(columns[tag.key.name])
        if codes is None:
            yield tag, len(table), keys
        else:
            rows = np.flatnonzero(codes == which)
            yield tag, len(rows), None if keys is None else keys.take(pa.array(rows))
