"""Streams that share the rows which Spark brings to a task: none of them keeps another one waiting for good."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flumina as fl
from flumina.apps import ValueBarrier
from flumina.engine.event_stream import Heartbeat, event_stream
from flumina.engine.source_reader import SourceReader
from flumina.model.order import END, Point
from flumina.model.tag_set import TagSet
from flumina.plan import Itag, Plan, PlanWorker, StreamShape
from flumina.plan.routing import Router
from flumina.program.base import define
from flumina.runtime.run import Run

frames = pytest.importorskip("flumina.spark.frames", reason="pyspark is not installed")

COLUMNS = {"barriers": {"ts": "c0_0"}, "values": {"ts": "c1_0", "v": "c1_1"}}
TAGS = {"barriers": ValueBarrier.barrier, "values": ValueBarrier.value}
NAMES = list(COLUMNS)
Rows = Sequence[tuple[int, int]]
"""Timestamps and numbers of streams, as Spark sorts them."""


def batches(rows: Rows, size: int) -> Iterator[pa.RecordBatch]:
    """What Spark brings, so many rows at a time."""
    table = pa.table(
        {
            "s": pa.array([s for _, s in rows], pa.int32()),
            "t": pa.array([t for t, _ in rows], pa.int64()),
            "c0_0": pa.array([t if s == 0 else None for t, s in rows], pa.int64()),
            "c1_0": pa.array([t if s == 1 else None for t, s in rows], pa.int64()),
            "c1_1": pa.array([1 if s == 1 else None for _, s in rows], pa.int64()),
        }
    )
    yield from table.to_batches(max_chunksize=size)


def frame(**parts: tuple[int, ...]) -> Any:
    return frames.Frame(COLUMNS, mixed=True, parts=parts)


def plan(parts: dict[str, tuple[int, ...]]) -> Plan:
    """One worker that has everything."""
    shapes = [StreamShape(name, len(parts[name]), TagSet.all_of([TAGS[name]])) for name in NAMES]
    everything = tuple(Itag(shape.name, frozenset(range(shape.parts)), shape.tags) for shape in shapes)
    return Plan.of(ValueBarrier, shapes, PlanWorker("root", define(ValueBarrier).initial, everything, (), "p0"))


def process(tasks: Sequence[Rows], *, spark: int, piece: int, window: int) -> int:
    """Run the feeds of some tasks as their loops do, with a worker that processes what no part can precede any more.

    Returns how many events were processed, once all parts have ended.
    """
    everywhere = tuple(range(len(tasks)))
    parts = {"barriers": (0,), "values": everywhere}
    router = Router(plan(parts), define(ValueBarrier))
    news = threading.Event()
    feeds: list[SourceReader] = []
    for task, rows in enumerate(tasks):
        sources = frame(**parts).sources(task, batches(rows, spark), piece)
        for name, source in sources.items():
            stream = fl.Stream(name, TAGS[name], source)
            read = partial(event_stream, stream, NAMES.index(name), parts[name].index(task), NAMES, chunk_rows=piece)
            feeds.append(SourceReader((name, parts[name].index(task)), read, router, window, news.set))
    waiting: list[tuple[Point, SourceReader]] = []
    processed = 0
    try:
        for feed in feeds:
            feed.start()
        deadline = time.monotonic() + 300
        while not all(feed.ended for feed in feeds):
            assert time.monotonic() < deadline, f"stands still at {[(feed.part, feed.frontier) for feed in feeds]}"
            news.clear()
            ready = [feed for feed in feeds if feed.ready()]
            for feed in ready:
                waiting += [(p, feed) for _, data in feed.take() for p in points(data.run)]
            lowest = min(feed.frontier for feed in feeds)
            for _, feed in [one for one in waiting if one[0] <= lowest]:
                feed.credit("root", 1)
                processed += 1
            waiting = [one for one in waiting if one[0] > lowest]
            if not ready:
                news.wait(0.05)
    finally:
        for feed in feeds:
            feed._stop.set()
        for feed in feeds:
            feed.stop()
    assert not waiting
    return processed


def points(run: Run) -> list[Point]:
    batch = run.batch
    return [] if batch is None else [batch.point(number) for number in range(len(batch))]


def test_a_stream_without_a_part_here_keeps_no_other_waiting() -> None:
    """Values lie in both tasks, barriers in the first one only: ten pieces of values are read in the second."""
    sources = frame(barriers=(0,), values=(0, 1)).sources(1, batches([(n, 1) for n in range(20)], 7), 2)
    assert list(sources) == ["values"]
    found: list[int] = []

    def read() -> None:
        found.extend(piece.num_rows for piece in sources["values"].pieces() if not isinstance(piece, Heartbeat))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    reader.join(10)
    assert not reader.is_alive(), "the reader waits for a stream that is read nowhere"
    assert found == [2] * 10


def test_many_rows_at_one_time_do_not_wait_for_rows_behind_them() -> None:
    """The barriers fill the window; the values at the same time, which they wait for, lie after them."""
    rows = [(5, 0)] * 50 + [(5, 1)] * 50
    assert process([rows], spark=10, piece=2, window=1) == 100


def test_many_rows_at_one_time_do_not_wait_for_a_stream_that_is_over_there() -> None:
    rows = [(5, 0), *[(5, 1)] * 100, (6, 0)]
    assert process([rows], spark=10, piece=2, window=1) == 102


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 6), st.sampled_from([0, 1, 1, 1])), max_size=60), min_size=1, max_size=3
    ),
    st.integers(1, 20),
    st.integers(1, 5),
    st.integers(1, 4),
)
def test_every_run_ends(tasks: list[list[tuple[int, int]]], spark: int, piece: int, window: int) -> None:
    given = [sorted((t, s if task == 0 else 1) for t, s in rows) for task, rows in enumerate(tasks)]
    assert process(given, spark=spark, piece=piece, window=window) == sum(map(len, given))


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 1)), min_size=1, max_size=40).map(sorted), st.integers(1, 9)
)
def test_frontiers_are_true_and_cover_all_that_was_read(rows: list[tuple[int, int]], piece: int) -> None:
    shared = frames.SharedFrameReader(frames.regrouped(batches(rows, 10), piece), COLUMNS, NAMES)
    reading = {name: shared.of(name) for name in NAMES}
    for end in range(piece, len(rows) + piece, piece):
        read, to_come = rows[:end], rows[end:]
        for number, name in enumerate(NAMES):
            next(reading[name])
            beat = next(reading[name])
            assert isinstance(beat, Heartbeat)
            frontier = beat.frontier(number)
            assert all(frontier < Point(t, s, 0) for t, s in to_come if s == number), "none of these is over"
            assert all(Point(t, s, 99) <= frontier for t, s in read if s != number), "all of these may be processed"


def test_an_error_of_the_input_reaches_every_stream() -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield from batches([(1, 0), (1, 1)], 2)
        raise OSError("the socket is gone")

    shared = frames.SharedFrameReader(broken(), COLUMNS, NAMES)
    for name in NAMES:
        with pytest.raises(OSError, match="the socket is gone"):
            list(shared.of(name))


def test_a_stream_that_leaves_keeps_no_other_waiting() -> None:
    """Because its reader has failed, or was told to stop."""
    shared = frames.SharedFrameReader(batches([(n // 2, n % 2) for n in range(100)], 2), COLUMNS, NAMES)
    leaving, staying = shared.of("barriers"), shared.of("values")
    next(leaving)
    found: list[int] = []
    reader = threading.Thread(target=lambda: found.extend(1 for _ in staying), daemon=True)
    reader.start()
    leaving.close()
    reader.join(10)
    assert not reader.is_alive()
    assert len(found) == 100


def test_bad_rows_of_one_stream_keep_no_other_waiting() -> None:
    """The error of a decoder holds the reader of its stream, in its traceback."""
    rows = batches([(n // 2, n % 2) for n in range(100)], 2)
    bad = (batch.set_column(4, "c1_1", pa.nulls(batch.num_rows, pa.int64())) for batch in rows)
    sources = frame(barriers=(0,), values=(0,)).sources(0, bad, 2)
    stream = fl.Stream("values", ValueBarrier.value, sources["values"])
    with pytest.raises(fl.InputError) as kept:
        list(event_stream(stream, 1, 0, NAMES))
    found: list[object] = []
    reader = threading.Thread(target=lambda: found.extend(sources["barriers"].pieces()), daemon=True)
    reader.start()
    reader.join(10)
    assert not reader.is_alive()
    assert len(found) == 100
    assert "NULL_VALUE" in str(kept.value)


@given(st.lists(st.integers(0, 30), max_size=10), st.integers(1, 20))
def test_pieces_have_the_size_that_was_asked_for(sizes: list[int], rows: int) -> None:
    total = sum(sizes)
    numbers = pa.record_batch({"n": pa.array(range(total), pa.int64())})
    starts = [sum(sizes[:place]) for place in range(len(sizes))]
    given = [numbers.slice(start, size) for start, size in zip(starts, sizes, strict=True)]
    found = list(frames.regrouped(iter(given), rows))
    assert [piece.num_rows for piece in found[:-1]] == [rows] * (len(found) - 1)
    assert all(0 < piece.num_rows <= rows for piece in found)
    assert [n for piece in found for n in piece.column(0).to_pylist()] == list(range(total))


def test_the_end_is_behind_everything() -> None:
    stream = fl.Stream("values", ValueBarrier.value, frame(values=(0,)).sources(0, batches([(1, 1)], 1))["values"])
    assert list(event_stream(stream, 1, 0, NAMES))[-1].frontier == END
