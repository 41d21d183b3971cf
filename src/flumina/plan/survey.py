"""Survey the input once, before the tasks run: types, rows, rates, hot keys and first rows.

Data in memory is counted in full. Of files, some row groups are read and the metadata has the number of rows;
of a generator, the first rows, and for how long they last; a paced one has its rate. Distinct keys are extrapolated to
rows that were not read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flumina.errors import UsageError
from flumina.input.decode import Decoder
from flumina.input.files import Files
from flumina.input.sources import Generator, GeneratorSource, InMemoryTables
from flumina.input.sources import Source as InputSource
from flumina.input.stream import Stream
from flumina.input.stream_checks import one_ts_type
from flumina.input.validation import read_column, read_timestamps, tag_rows
from flumina.model.tag_set import Key
from flumina.plan.heavy_hitters import HOT, HeavyHitters
from flumina.plan.sources import StreamRates
from flumina.plan.state_sizes import EVENTS
from flumina.program.base import AnyProgram, define
from flumina.program.definition import Definition

SAMPLE_ROWS = 1_000_000
"""Rows of a part that are read, where it is not in memory."""


@dataclass(frozen=True)
class Survey:
    """What the driver knows of all streams of a run, each of which it has opened once."""

    streams: tuple[StreamSurvey, ...]

    @staticmethod
    def of(program: AnyProgram, streams: Iterable[Stream], *, rows: int | None = None) -> Survey:
        """Survey the streams; ``rows`` limits how many rows of each part are counted for keys (spread over the part).

        Rows are not validated, which the run does: timestamps, tags and keys that can't be read do not count.
        """
        definition, given = define(program), tuple(streams)
        if not given:
            raise UsageError("NO_STREAMS", "there is no stream to estimate rates from")
        paced = any(isinstance(stream.data, GeneratorSource) and stream.data.rate is not None for stream in given)
        second = 1_000_000.0 if paced else 1.0
        return Survey(tuple(StreamSurvey(definition, stream, rows, second) for stream in given))

    def rates(self, *, hot: float = HOT, seconds: float | None = None) -> list[StreamRates]:
        """Return the rates of all streams.

        ``hot`` is the share of a tag's events from which on a key counts as hot; ``seconds`` is how long the data took
        to arrive, which otherwise is read off the timestamps (of whole numbers, one is taken for a second, or a
        microsecond if a stream is paced).
        """
        if not 0 < hot <= 1:
            raise UsageError("HOT_SHARE", f"hot= is a share between 0 and 1, got {hot!r}")
        if seconds is not None and not seconds > 0:
            raise UsageError("SECONDS", f"seconds= is a time above 0, got {seconds!r}")
        span = seconds if seconds is not None else _span(self.streams)
        return [stream.rates(span, hot) for stream in self.streams]

    @property
    def ts_type(self) -> pa.DataType:
        """The type of timestamps that all streams with rows have in common."""
        return one_ts_type((found.stream, found.ts_type) for found in self.streams) or pa.int64()

    @property
    def inputs(self) -> list[Stream]:
        """The streams, with data in memory as it was converted for the survey."""
        return [
            replace(found.stream, data=found.source) if isinstance(found.source, InMemoryTables) else found.stream
            for found in self.streams
        ]

    @property
    def heads(self) -> list[Stream]:
        """The streams that have rows, with the first rows of each part as their data."""
        heads = [(found.stream, [part.head for part in found.parts if part.head is not None]) for found in self.streams]
        return [replace(stream, data=tables) for stream, tables in heads if tables]

    def rows(self, unknown: int) -> int:
        """Return the number of rows of all parts; a part whose number is not known counts as ``unknown``."""
        return sum(unknown if part.rows is None else part.rows for found in self.streams for part in found.parts)


def estimate(
    program: AnyProgram,
    streams: Iterable[Stream],
    *,
    hot: float = HOT,
    rows: int | None = None,
    seconds: float | None = None,
) -> list[StreamRates]:
    """Estimate what an optimizer needs to know of these streams from their data.

    The arguments are those of :meth:`Survey.of` and :meth:`Survey.rates`.
    """
    return Survey.of(program, streams, rows=rows).rates(hot=hot, seconds=seconds)


def _span(streams: Sequence[StreamSurvey]) -> float:
    """Return how many seconds lie between the first and the last event of all streams whose ends are known."""
    return _duration([time for stream in streams for part in stream.parts if part.scale for time in part.times])


def _duration(times: Sequence[float]) -> float:
    """Return the seconds from the first to the last time; 1 if they are the same or there are none."""
    return max(times) - min(times) or 1.0 if times else 1.0


@dataclass
class PartSurvey:
    """The survey of one part, from a sample of its rows.

    ``counts``   sampled events of each tag
    ``rows``     the number of rows of the part; None if it is not known without reading them all
    ``head``     the first rows
    ``times``    the first and the last time of each sampled chunk, in seconds
    ``scale``    the number of events for each sampled one; 0 if the number of rows is not known
    ``factor``   used if ``scale`` is 0: the events per second for each sampled one
    """

    counts: dict[str, int]
    rows: int | None = None
    head: pa.Table | None = None
    ts_type: pa.DataType | None = None
    times: list[float] = field(default_factory=list)
    scale: float = 0.0
    factor: float = 0.0

    def weigh(self, source: InputSource, seen: int) -> None:
        """Compute ``scale`` or ``factor`` from the number of sampled rows."""
        if isinstance(source, Generator) and source.generated.rate is not None:
            self.factor = source.generated.rate / max(1, seen)
        elif isinstance(source, Generator) and seen >= SAMPLE_ROWS:
            self.factor = 1 / _duration(self.times)
        else:
            self.scale = (self.rows or seen) / max(1, seen) or 1.0

    def rate(self, tag: str, span: float) -> float:
        """Return the events of a tag per second, if all streams together span so many seconds."""
        return self.counts[tag] * (self.scale / span if self.scale else self.factor)


class StreamSurvey:
    """One stream: its source, and what was found in it."""

    def __init__(self, definition: Definition, stream: Stream, rows: int | None, second: float) -> None:
        self.stream, self.rows, self.second = stream, rows, second
        self.keys = {tag.name: HeavyHitters() for tag in stream.tags if tag.key is not None}
        for tag in stream.tags:
            if tag.name not in definition.tags:
                message = f"stream {stream.name!r}: {definition.name} declares no tag {tag.name!r}"
                raise UsageError("UNKNOWN_TAG", message)
        self.source: InputSource = stream.source()
        self.parts = [self._survey(self.source, number) for number in range(self.source.parts)]
        if isinstance(self.source, Files):
            self.source.check_schemas(stream.columns)
        self.ts_type = one_ts_type((stream, part.ts_type) for part in self.parts)
        """The type of its timestamps; None if it has no rows."""

    def _survey(self, source: InputSource, number: int) -> PartSurvey:
        stream = self.stream
        decoder = Decoder(stream, 0, number, [stream.name])
        found = PartSurvey({tag.name: 0 for tag in stream.tags}, source.rows(number))
        head: list[pa.RecordBatch] = []
        keys: dict[str, list[pa.Array]] = {tag: [] for tag in self.keys}
        stamps: list[int] = []
        seen = 0
        if not isinstance(source, Generator) and (schema := source.schema(number)) is not None:
            decoder.check_schema(schema)
        known: pa.Schema | None = None
        for first, chunk in source.sample(number, stream.columns, SAMPLE_ROWS):
            if first == sum(piece.num_rows for piece in head) < EVENTS:
                head.append(_first_rows(chunk, EVENTS - first, copied=not isinstance(source, InMemoryTables)))
            if known is None or not chunk.schema.equals(known):
                known = chunk.schema
                decoder.check_schema(known)
            seen += chunk.num_rows
            stamps += _min_max(chunk.column(stream.ts))
            for tag, rows in tag_rows(stream, chunk):
                found.counts[tag.name] += chunk.num_rows if rows is None else len(rows)
                if tag.key is not None:
                    values = read_column(stream, chunk, tag.key, rows).drop_null()
                    if tag.finite_keys is not None:
                        values = values.filter(pa.array(tag.universe.mask(values)))
                    keys[tag.name].append(values)
        bounds = source.bounds(number, stream.ts)
        if bounds is not None:
            stamps += _min_max(bounds)
        unit = 1 / self.second if decoder.ts_type is None or pa.types.is_integer(decoder.ts_type) else 1e-6
        found.times = [stamp * unit for stamp in stamps]
        found.weigh(source, seen)
        for name, columns in keys.items():
            if columns:
                self._add_keys(name, pa.chunked_array(columns), found.scale, decoder)
        found.head = pa.concat_tables(map(_table, head), promote_options="default") if head else None
        found.ts_type = None if found.rows == 0 else decoder.ts_type
        return found

    def _add_keys(self, name: str, column: pa.ChunkedArray, scale: float, decoder: Decoder) -> None:
        """Count the keys of a part; ``scale`` is the number of events for each sampled one."""
        counted = _evenly_spaced(column, self.rows)
        try:
            self.keys[name].add(counted)
        except UnicodeDecodeError as error:
            key = next(tag.key for tag in self.stream.tags if tag.name == name)
            assert key is not None
            message = f"a key of tag {name!r} is not UTF-8: {error}"
            raise decoder.error("COLUMN_TYPE", message, self.stream.column_of(key.name)) from None
        if scale > 1 or len(counted) < len(column):
            self.keys[name].distinct.observe_growth(counted)

    def rates(self, span: float, hot: float) -> StreamRates:
        """Return the counts as rates."""
        rates = {tag.name: [part.rate(tag.name, span) for part in self.parts] for tag in self.stream.tags}
        heavy: dict[str, dict[Key, float]] = {}
        for tag, keys in self.keys.items():
            scale = sum(rates[tag]) / keys.seen if keys.seen else 0.0
            found = {key: count * scale for key, count in keys.heavy(hot).items()}
            if found:
                heavy[tag] = found
        distinct = {
            tag: keys.distinct.count(self._unsampled_ratio(tag)) for tag, keys in self.keys.items() if keys.seen
        }
        return StreamRates(self.stream.name, rates, len(self.parts), heavy, distinct=distinct)

    def _unsampled_ratio(self, tag: str) -> float:
        """Return the number of events of a tag for each one whose key was counted; 1 if it is not known."""
        return sum(part.counts[tag] * (part.scale or 1.0) for part in self.parts) / max(1, self.keys[tag].seen)


def _min_max(timestamps: pa.Array) -> list[int]:
    """Return the lowest and the highest timestamp that can be read."""
    ends = pc.min_max(read_timestamps(timestamps)[0]).as_py()
    return [] if ends["min"] is None else [ends["min"], ends["max"]]


def _evenly_spaced(keys: pa.ChunkedArray, rows: int | None) -> pa.ChunkedArray:
    """Return at most so many keys, at even distances."""
    if rows is None or len(keys) <= rows:
        return keys
    return keys.take(pa.array(np.linspace(0, len(keys) - 1, rows).astype(np.int64)))


def _first_rows(chunk: pa.RecordBatch, rows: int, *, copied: bool) -> pa.RecordBatch:
    """Return the first rows of a chunk; copied, they do not hold the whole chunk in memory."""
    first = chunk.slice(0, rows)
    return first.take(pa.array(np.arange(first.num_rows))) if copied else first


def _table(batch: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([batch])
