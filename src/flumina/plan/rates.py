"""Rates from data: exact counts for tags, heavy hitters for keys.

Keys are counted by a Misra-Gries summary with c counters, merged column by column. Of n keys seen, every count it
gives is at most the true one, and::

    true count - n / (c + 1)  <=  count given  <=  true count

so that no key with more than n / (c + 1) events is missed, whatever the order of the data.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flumina.decode import decode
from flumina.definition import Definition
from flumina.errors import UsageError
from flumina.plan.sources import Rate, Source
from flumina.program import AnyProgram, define
from flumina.streams import Stream
from flumina.tagsets import Key

COUNTERS = 1024
HOT = 0.01
"""A key with this share of its tag's events, or more, is planned for on its own."""


class HeavyHitters:
    """The keys that occur most, from any number of columns, in bounded memory."""

    def __init__(self, counters: int = COUNTERS) -> None:
        if counters < 1:
            raise UsageError("COUNTERS", f"heavy hitters need at least one counter, got {counters}")
        self.counters = counters
        self.seen = 0
        self.counts: dict[Key, int] = {}

    def add(self, keys: pa.Array | pa.ChunkedArray) -> None:
        """Count the keys of a column."""
        found = pc.value_counts(keys)
        counts = found.field("counts").to_numpy()
        self.seen += len(keys)
        if len(counts) > self.counters:  # the column's own summary, before any key becomes a Python object
            cut = int(np.partition(counts, -self.counters - 1)[-self.counters - 1])
            kept = np.flatnonzero(counts > cut)
            found, counts = found.take(pa.array(kept)), counts[kept] - cut
        for key, count in zip(found.field("values").to_pylist(), counts.tolist(), strict=True):
            self.counts[key] = self.counts.get(key, 0) + count
        if len(self.counts) > self.counters:
            ordered = sorted(self.counts.values(), reverse=True)
            cut = ordered[self.counters]
            self.counts = {key: count - cut for key, count in self.counts.items() if count > cut}

    def heavy(self, share: float = HOT) -> dict[Key, int]:
        """Every key with at least this share of all events, the heaviest first; counts are lower bounds."""
        slack = self.seen / (self.counters + 1)
        found = [(key, count) for key, count in self.counts.items() if count + slack >= share * self.seen]
        return dict(sorted(found, key=lambda pair: (-pair[1], repr(pair[0]))))


def estimate(
    program: AnyProgram,
    streams: Iterable[Stream],
    *,
    hot: float = HOT,
    rows: int | None = None,
    seconds: float | None = None,
) -> list[Source]:
    """What an optimiser needs to know of these streams, from their own data.

    ``hot`` is the share of a tag's events from which on a key counts as hot; ``rows`` limits how many rows of each part
    are looked at for keys (spread over the part; tags are counted exactly); ``seconds`` is how long the data took to
    arrive, which otherwise is read off the timestamps (of whole numbers, one is taken for a second).
    """
    definition, given = define(program), tuple(streams)
    if not given:
        raise UsageError("NO_STREAMS", "there is no stream to estimate rates from")
    if not 0 < hot <= 1:
        raise UsageError("HOT_SHARE", f"hot= is a share between 0 and 1, got {hot!r}")
    if seconds is not None and not seconds > 0:
        raise UsageError("SECONDS", f"seconds= is a time above 0, got {seconds!r}")
    names = [stream.name for stream in given]
    sampled = [_Sample(definition, stream, rank, names, rows) for rank, stream in enumerate(given)]
    span = seconds if seconds is not None else _span(sampled)
    return [sample.source(span, hot) for sample in sampled]


def _span(samples: Sequence[_Sample]) -> float:
    """How many seconds lie between the first and the last event of all streams."""
    times = [time for sample in samples for time in sample.times]
    return max(times) - min(times) or 1.0 if times else 1.0


class _Sample:
    """One stream, counted."""

    def __init__(
        self, definition: Definition, stream: Stream, rank: int, names: Sequence[str], rows: int | None
    ) -> None:
        self.stream = stream
        self.times: list[float] = []
        self.counts: dict[str, list[int]] = {tag.name: [] for tag in stream.tags}
        self.keys = {tag.name: HeavyHitters() for tag in stream.tags if tag.key is not None}
        for name in self.counts:
            if name not in definition.tags:
                raise UsageError("UNKNOWN_TAG", f"stream {stream.name!r}: {definition.name} declares no tag {name!r}")
        for number, table in enumerate(stream.parts()):
            part = decode(stream, rank, number, table, names)
            unit = 1.0 if pa.types.is_integer(part.ts_type) else 1e-6
            if len(part.batch):
                self.times += [float(part.batch.ts.min()) * unit, float(part.batch.ts.max()) * unit]
            for tag, of_tag in zip(part.batch.tags, part.batch.tables, strict=True):
                self.counts[tag.name].append(of_tag.num_rows)
                if tag.key is not None:
                    self.keys[tag.name].add(_spread(of_tag.column(0), rows))

    def source(self, span: float, hot: float) -> Source:
        """The counts as rates."""
        rates: dict[str, Rate] = {t: [n / span for n in counts] for t, counts in self.counts.items()}
        parts = len(next(iter(self.counts.values())))
        heavy: dict[str, dict[Key, float]] = {}
        for tag, keys in self.keys.items():
            scale = sum(self.counts[tag]) / span / keys.seen if keys.seen else 0.0
            found = {key: count * scale for key, count in keys.heavy(hot).items()}
            if found:
                heavy[tag] = found
        return Source(self.stream.name, rates, parts, heavy)


def _spread(keys: pa.Array, rows: int | None) -> pa.Array:
    """At most this many entries, evenly spread."""
    if rows is None or len(keys) <= rows:
        return keys
    return keys.take(pa.array(np.linspace(0, len(keys) - 1, rows).astype(np.int64)))
