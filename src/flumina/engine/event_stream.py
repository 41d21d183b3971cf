"""Read and decode one part of a stream: batches of events, each with a frontier.

The iterator reads and decodes the source, and sleeps if it is paced, so it is meant for a thread of its own::

    after a batch                                          frontier = the point of its last event
    after all events that were due before t (paced)        frontier = heartbeat(t - 1)
    after the last batch                                   frontier = END
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from flumina.input.decode import Decoder, OnBadRows
from flumina.input.event_table import EventReader, HoldsEvents
from flumina.input.sources import CHUNK_ROWS, GeneratorSource
from flumina.input.stream import Stream
from flumina.model.batch import Batch
from flumina.model.depends import Dependence
from flumina.model.order import END, START, Point, heartbeat
from flumina.program.tie_finder import TieFinder, TieRule
from flumina.runtime.truncate import after

_FIRST = -(2**63)
"""The lowest sequence number that a row can have."""


class EventBatch(NamedTuple):
    """Events, or none, and a frontier: nothing at or before it is still to come on this part."""

    batch: Batch | None
    frontier: Point


class Heartbeat(NamedTuple):
    """Progress of a source: no row before ``ts`` is still to come, nor one at ``ts`` if that is ``over``."""

    ts: int
    over: bool = True

    def frontier(self, rank: int) -> Point:
        """Return the highest frontier that follows for a stream with this rank."""
        return after(self.ts) if self.over else Point(self.ts, rank, _FIRST)


@runtime_checkable
class ReportsFrontiers(Protocol):
    """A source with one part, in order, that also reports its progress while it has no rows.

    If its rows were gathered from several places, ``gathered`` names the column with the number of each row's place:
    rows of one place are in order, rows of two places with equal timestamps have no order.
    """

    gathered: str | None

    def pieces(self) -> Iterator[pa.RecordBatch | Heartbeat]:
        """Yield rows, and heartbeats with the progress of the source."""


def event_stream(
    stream: Stream,
    rank: int,
    number: int,
    names: Sequence[str],
    *,
    started: Callable[[], float] | None = None,
    stop: threading.Event | None = None,
    chunk_rows: int = CHUNK_ROWS,
    depends: Dependence | None = None,
    after: int | None = None,
    on_bad_rows: OnBadRows | None = None,
) -> Iterator[EventBatch]:
    """Yield the events of one part of a stream; the last batch has the frontier END.

    ``started`` returns when the run started, as ``time.time()`` counts, and may wait until it has; without it, the run
    starts with the first event. It is called once, and only for a paced source, after its first rows have been made.
    Once ``stop`` is set, the iterator ends. With ``depends``, gathered rows are checked for ties between dependent
    events. With ``after``, events up to and including this timestamp are left out: they have been processed before.
    With ``on_bad_rows``, all rows that can't be read, also before ``after``, are passed to it instead of raised.
    """
    for found in _all(stream, rank, number, names, started, stop, chunk_rows, depends, on_bad_rows):
        if after is None or not found.batch or found.batch.ts[0] > after:
            yield found
        elif (first := int(np.searchsorted(found.batch.ts, after, "right"))) < len(found.batch):
            yield EventBatch(found.batch.slice(first, len(found.batch)), found.frontier)


def _all(
    stream: Stream,
    rank: int,
    number: int,
    names: Sequence[str],
    started: Callable[[], float] | None,
    stop: threading.Event | None,
    chunk_rows: int,
    depends: Dependence | None,
    on_bad_rows: OnBadRows | None,
) -> Iterator[EventBatch]:
    stop = threading.Event() if stop is None else stop
    source = stream.source()
    generated = stream.data if isinstance(stream.data, GeneratorSource) else None
    decoder: Decoder | EventReader
    if isinstance(source, HoldsEvents):
        decoder = EventReader(stream, rank, names)
    else:
        decoder = Decoder(stream, rank, number, names, on_bad_rows)
        if generated is None and (schema := source.schema(number)) is not None:
            decoder.check_schema(schema)
    if isinstance(source, ReportsFrontiers):
        yield from _reported(source, decoder, rank, stop, depends, chunk_rows)
        return
    batches = decoder.batches(source.chunks(number, decoder.columns, chunk_rows), chunk_rows)
    if generated is not None and generated.rate is not None:
        yield from _paced(batches, rank, 1 / generated.heartbeats, started or time.time, stop, chunk_rows)
    else:
        for batch in batches:
            if stop.is_set():
                return
            yield EventBatch(batch, batch.point(-1))
    if not stop.is_set():
        yield EventBatch(None, END)


def _reported(
    source: ReportsFrontiers,
    decoder: Decoder | EventReader,
    rank: int,
    stop: threading.Event,
    depends: Dependence | None,
    most: int,
) -> Iterator[EventBatch]:
    """Yield the batches and frontiers of a source that reports its progress."""
    finder = None
    if source.gathered is not None and depends is not None:
        finder = TieFinder(TieRule.of(depends, decoder.stream.tags, sequenced=False))
    frontier = START
    pieces = source.pieces()
    try:
        for piece in pieces:
            if stop.is_set():
                return
            if isinstance(piece, Heartbeat):
                if piece.frontier(rank) > frontier:  # after a row of its own, a stream is further
                    frontier = piece.frontier(rank)
                    yield EventBatch(None, frontier)
                continue
            first = decoder.rows
            if len(batch := decoder.decode(piece)):
                if finder is not None:  # the stream has no sequence numbers: seq is the number of the row
                    places = piece.column(source.gathered).to_numpy().astype(np.int64)
                    finder.look([batch], [places[batch.seq - first]])
                    finder.forget(int(batch.ts[-1]))
                for start in range(0, len(batch), most):
                    rows = batch.slice(start, start + most)
                    frontier = rows.point(-1)
                    yield EventBatch(rows, frontier)
    finally:
        # After an error, its traceback keeps the iterator alive, and streams that share rows would wait for this one.
        if isinstance(pieces, Generator):
            pieces.close()
    if not stop.is_set():
        yield EventBatch(None, END)


def _paced(
    batches: Iterator[Batch],
    rank: int,
    period: float,
    started: Callable[[], float],
    stop: threading.Event,
    most: int,
) -> Iterator[EventBatch]:
    """Yield events when they are due, once in a period, and a heartbeat where there are none."""
    waiting = next(batches, None)
    start = time.monotonic() - (time.time() - started())  # monotonic: later changes of the clock have no effect
    while waiting is not None:
        elapsed = time.monotonic() - start
        now = int(elapsed * 1e6)
        due: list[Batch] = []
        while waiting is not None and sum(map(len, due)) < most:
            count = int(np.searchsorted(waiting.ts, now))  # due before now: later rows are at now or after it
            if count:
                due.append(waiting.slice(0, count))
            if count < len(waiting):
                waiting = waiting.slice(count, len(waiting))
                break
            waiting = next(batches, None)
        lags = waiting is not None and int(waiting.ts[0]) < now
        batch = None if not due else due[0] if len(due) == 1 else Batch.merge(due)
        if stop.is_set():
            return
        yield EventBatch(batch, batch.point(-1) if lags and batch is not None else heartbeat(now - 1, rank))
        if waiting is not None and not lags:
            elapsed = time.monotonic() - start
            if stop.wait((int(elapsed / period) + 1) * period - elapsed if elapsed >= 0 else -elapsed):
                return
