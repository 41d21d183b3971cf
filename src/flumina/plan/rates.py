"""Estimate rates from data: counts for tags, heavy hitters for keys.

Data in memory is counted in full. Of files, some row groups are read and the metadata has the number of rows;
of a generator, the first rows, and for how long they last; a paced one has its rate.

How many different keys there are is estimated (:mod:`flumina.plan.distinct_keys`), and extrapolated to rows that were
not read. Keys are counted by a Misra-Gries summary with c counters, merged column by column. Of n keys seen, every
count it gives is at most the true one, and::

    true count - n / (c + 1)  <=  count given  <=  true count

so that no key with more than n / (c + 1) events is missed, whatever the order of the data.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flumina.errors import UsageError
from flumina.input.decode import Decoder
from flumina.input.sources import Generator, GeneratorSource
from flumina.input.sources import Source as InputSource
from flumina.input.stream import Stream
from flumina.input.validation import read_column, read_timestamps, tag_rows
from flumina.model.tag_set import Key
from flumina.plan.distinct_keys import DistinctKeys
from flumina.plan.sources import StreamRates
from flumina.program.base import AnyProgram, define
from flumina.program.definition import Definition

COUNTERS = 1024
SAMPLE_ROWS = 1_000_000
"""Rows of a part that are read, where it is not in memory."""

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
        self.distinct = DistinctKeys()

    def add(self, keys: pa.Array | pa.ChunkedArray) -> None:
        """Count the keys of a column."""
        found = pc.value_counts(keys)
        counts = found.field("counts").to_numpy()
        self.seen += len(keys)
        self.distinct.add(found.field("values"))
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
        """Return every key with at least this share of all events, the heaviest first; counts are lower bounds."""
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
) -> list[StreamRates]:
    """Estimate what an optimizer needs to know of these streams from their data.

    ``hot`` is the share of a tag's events from which on a key counts as hot; ``rows`` limits how many rows of each part
    are read for keys (spread over the part); ``seconds`` is how long the data took to arrive, which otherwise is
    read off the timestamps (of whole numbers, one is taken for a second, or a microsecond if a stream is paced). Rows
    are not validated, which the run does: timestamps, tags and keys that can't be read do not count.
    """
    definition, given = define(program), tuple(streams)
    if not given:
        raise UsageError("NO_STREAMS", "there is no stream to estimate rates from")
    if not 0 < hot <= 1:
        raise UsageError("HOT_SHARE", f"hot= is a share between 0 and 1, got {hot!r}")
    if seconds is not None and not seconds > 0:
        raise UsageError("SECONDS", f"seconds= is a time above 0, got {seconds!r}")
    paced = any(isinstance(stream.data, GeneratorSource) and stream.data.rate is not None for stream in given)
    second = 1_000_000.0 if paced else 1.0
    sampled = [_Sample(definition, stream, rows, second) for stream in given]
    span = seconds if seconds is not None else _span(sampled)
    return [sample.source(span, hot) for sample in sampled]


def _span(samples: Sequence[_Sample]) -> float:
    """Return how many seconds lie between the first and the last event of all streams whose ends are known."""
    return _length([time for sample in samples for part in sample.parts if part.scale for time in part.times])


def _length(times: Sequence[float]) -> float:
    return max(times) - min(times) or 1.0 if times else 1.0


@dataclass
class _Counted:
    """One part: events of each tag that were seen, and what makes them the events of a second.

    ``scale`` is how many events stand behind each that was seen, 0 if unknown; then ``factor`` does it all.
    """

    counts: dict[str, int]
    times: list[float] = field(default_factory=list)
    scale: float = 0.0
    factor: float = 0.0

    def rate(self, tag: str, span: float) -> float:
        """Events of a tag in a second, where all events took this long."""
        return self.counts[tag] * (self.scale / span if self.scale else self.factor)


class _Sample:
    """One stream, counted."""

    def __init__(self, definition: Definition, stream: Stream, rows: int | None, second: float) -> None:
        self.stream, self.rows, self.second = stream, rows, second
        self.keys = {tag.name: HeavyHitters() for tag in stream.tags if tag.key is not None}
        for tag in stream.tags:
            if tag.name not in definition.tags:
                message = f"stream {stream.name!r}: {definition.name} declares no tag {tag.name!r}"
                raise UsageError("UNKNOWN_TAG", message)
        source = stream.source()
        self.parts = [self._count(source, number) for number in range(source.parts)]

    def _count(self, source: InputSource, number: int) -> _Counted:
        stream = self.stream
        decoder = Decoder(stream, 0, number, [stream.name])
        found = _Counted({tag.name: 0 for tag in stream.tags})
        keys: dict[str, list[pa.Array]] = {tag: [] for tag in self.keys}
        stamps: list[int] = []
        seen = 0
        if not isinstance(source, Generator) and (schema := source.schema(number)) is not None:
            decoder.check_schema(schema)
        known: pa.Schema | None = None
        for _, chunk in source.sample(number, stream.columns, SAMPLE_ROWS):
            if known is None or not chunk.schema.equals(known):
                known = chunk.schema
                decoder.check_schema(known)
            seen += chunk.num_rows
            stamps += _ends(chunk.column(stream.ts))
            for tag, rows in tag_rows(stream, chunk):
                found.counts[tag.name] += chunk.num_rows if rows is None else len(rows)
                if tag.key is not None:
                    held = read_column(stream, chunk, tag.key, rows).drop_null()
                    if tag.finite_keys is not None:
                        held = held.filter(pa.array(tag.universe.mask(held)))
                    keys[tag.name].append(held)
        bounds = source.bounds(number, stream.ts)
        if bounds is not None:
            stamps += _ends(bounds)
        unit = 1 / self.second if decoder.ts_type is None or pa.types.is_integer(decoder.ts_type) else 1e-6
        found.times = [stamp * unit for stamp in stamps]
        if isinstance(source, Generator) and source.generated.rate is not None:
            found.factor = source.generated.rate / max(1, seen)
        elif isinstance(source, Generator) and seen >= SAMPLE_ROWS:
            found.factor = 1 / _length(found.times)
        else:
            found.scale = (source.rows(number) or seen) / max(1, seen) or 1.0
        for name, columns in keys.items():
            if columns:
                self._add_keys(name, pa.chunked_array(columns), found.scale, decoder)
        return found

    def _add_keys(self, name: str, column: pa.ChunkedArray, scale: float, decoder: Decoder) -> None:
        """Count the keys of a part of which there are so many times as many."""
        looked_at = _spread(column, self.rows)
        try:
            self.keys[name].add(looked_at)
        except UnicodeDecodeError as error:
            key = next(tag.key for tag in self.stream.tags if tag.name == name)
            assert key is not None
            message = f"a key of tag {name!r} is not UTF-8: {error}"
            raise decoder.error("COLUMN_TYPE", message, self.stream.column_of(key.name)) from None
        if scale > 1 or len(looked_at) < len(column):
            self.keys[name].distinct.observe_growth(looked_at)

    def source(self, span: float, hot: float) -> StreamRates:
        """Return the counts as rates."""
        rates = {tag.name: [part.rate(tag.name, span) for part in self.parts] for tag in self.stream.tags}
        heavy: dict[str, dict[Key, float]] = {}
        for tag, keys in self.keys.items():
            scale = sum(rates[tag]) / keys.seen if keys.seen else 0.0
            found = {key: count * scale for key, count in keys.heavy(hot).items()}
            if found:
                heavy[tag] = found
        distinct = {tag: keys.distinct.count(self._unseen(tag)) for tag, keys in self.keys.items() if keys.seen}
        return StreamRates(self.stream.name, rates, len(self.parts), heavy, distinct=distinct)

    def _unseen(self, tag: str) -> float:
        """Return how many keys of a tag each sampled one stands for; 1 if the number of rows is unknown."""
        return sum(part.counts[tag] * (part.scale or 1.0) for part in self.parts) / max(1, self.keys[tag].seen)


def _ends(timestamps: pa.Array) -> list[int]:
    """Return the lowest and the highest timestamp that can be read."""
    ends = pc.min_max(read_timestamps(timestamps)[0]).as_py()
    return [] if ends["min"] is None else [ends["min"], ends["max"]]


def _spread(keys: pa.ChunkedArray, rows: int | None) -> pa.ChunkedArray:
    """Return at most this many entries, evenly spread."""
    if rows is None or len(keys) <= rows:
        return keys
    return keys.take(pa.array(np.linspace(0, len(keys) - 1, rows).astype(np.int64)))
