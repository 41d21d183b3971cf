"""Deliver the rows of DataFrames to the tasks, with a shuffle only where needed.

One DataFrame with as many partitions as there are tasks is read in place. Other DataFrames are combined into one, with
columns for each stream, and shuffled: each row to its task, sorted there by O.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- as everybody calls it
from pyspark.sql import types as T  # noqa: N812

from flumina.engine.event_stream import Heartbeat
from flumina.errors import InputError
from flumina.input.stream import Stream
from flumina.model.schema import timestamp_type
from flumina.spark.row_origin import FILE, WITHIN, place_columns

PARTITION = "\0partition"
"""The column, for a stream in one part, with the file or else the partition that each row came from."""

ROW = "\0row"
"""The column with the positions of rows in their partition, while it is sorted."""

PIECE_ROWS = 65_536
"""The most rows that a task decodes at a time; Spark's default of 10,000 rows per batch is slower."""

_MOST_WAITING = 4
"""The most chunks of one stream that wait while another stream of the same task is read."""


@dataclass(frozen=True)
class Frame:
    """How a task reads the rows that Spark delivers: for each stream its columns, by name, in the combined DataFrame.

    ``mixed`` is False for a single DataFrame that is read in place.
    """

    columns: Mapping[str, Mapping[str, str]]
    mixed: bool
    parts: Mapping[str, tuple[int, ...]]
    """For each stream the tasks that have a part of it, by the number of the part."""

    def sources(self, task: int, batches: Iterator[pa.RecordBatch], rows: int = PIECE_ROWS) -> dict[str, object]:
        """Return a source for each stream that has a part in this task; it can be read once."""
        names = [name for name, tasks in self.parts.items() if task in tasks]
        pieces = regrouped(batches, min(rows, PIECE_ROWS))
        if not self.mixed:
            return {name: FrameSource(len(self.parts[name]), pieces) for name in names}
        shared = SharedFrameReader(pieces, self.columns, names)
        return {
            name: FrameSource(
                len(self.parts[name]),
                shared.of(name),
                PARTITION if PARTITION in self.columns[name] else None,
                shared.close,
            )
            for name in names
        }


def regrouped(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Slice and join batches so that each but the last has ``rows`` rows.

    The size of Spark's batches is a setting of the user's session, which other jobs use, too, so it is not changed.
    """
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        start = 0
        while batch.num_rows - start >= rows - count:
            held.append(batch.slice(start, rows - count))
            start += rows - count
            yield _joined(held)
            held, count = [], 0
        if start < batch.num_rows:
            held.append(batch.slice(start))
            count += batch.num_rows - start
    if held:
        yield _joined(held)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


@dataclass(frozen=True, eq=False)
class FrameSource:
    """Rows that Spark delivers to this task; they can be read once, and Spark delivers them again to a retried task."""

    parts: int
    batches: Iterator[pa.RecordBatch | Heartbeat]
    gathered: str | None = None
    wake: Callable[[], None] | None = None
    """Ends the wait of a reader for rows that another reader has yet to read."""

    def close(self) -> None:
        """End all reading, from any thread; a reader that waits for Spark ends when Spark ends the task."""
        if self.wake is not None:
            self.wake()

    def schema(self, part: int) -> None:
        """Return None: only the driver knows the schema."""

    def rows(self, part: int) -> None:
        """Return None: the number of rows is not known."""

    def pieces(self) -> Iterator[pa.RecordBatch | Heartbeat]:
        """Return the rows and heartbeats in the order in which Spark delivers them."""
        return self.batches

    def chunks(self, part: int, columns: Sequence[str], size: int = 0) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        """Return the rows without heartbeats."""
        return (piece for piece in self.batches if not isinstance(piece, Heartbeat))

    def sample(self, part: int, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        """Raise NotImplementedError: the rows can be read only once."""
        raise NotImplementedError

    def bounds(self, part: int, column: str) -> None:
        """Return None: no statistics available."""

    def read(self, part: int) -> pa.Table:
        """Return all rows."""
        return pa.Table.from_batches(list(self.chunks(part, ())))


class SharedFrameReader:
    """Divides one sequence of rows in O among the streams that this task reads, each in its own thread.

    A thread without rows reads the next chunk for all streams. Every stream gets its rows of the chunk and a
    :class:`Heartbeat`, so that its frontier advances also where it has few rows. Once :data:`_MOST_WAITING` chunks of a
    stream wait, no thread reads on until that stream has taken one, or has ended.

    This can't deadlock the run, however small windows and queues are. Let P be the part with the lowest frontier of all
    parts of the run, and R the last row that its task has read.

    1. Every event at or before the frontier of P can be processed, since no frontier is lower. So all events of P that
       were sent are processed, P has room in its window, and takes the chunks that wait for it here.
    2. Once P has taken them, its frontier is at or after every row up to R, of all streams of the task: rows are
       sorted by (t, stream), so that after R = (t, s) a stream before s has nothing more at t, and every other one
       nothing before its first row at t. :func:`_beats` states exactly that. (A frontier of t - 1 would not do: the
       events at t that fill the window of a stream would wait for P, and P for its rows after them.)
    3. So all events up to R are processed (1), the streams of this task get their credits back, take the chunks that
       wait for them here, and the next chunk is read.

    A stream whose reader fails or is stopped does not delay the others. An exception of the sequence itself is raised
    in every stream.
    """

    def __init__(
        self,
        batches: Iterator[pa.RecordBatch],
        columns: Mapping[str, Mapping[str, str]],
        names: Sequence[str],
    ) -> None:
        self.batches, self.columns = batches, columns
        self.numbers = {name: number for number, name in enumerate(columns)}
        self.waiting: dict[str, deque[tuple[pa.RecordBatch, Heartbeat]]] = {name: deque() for name in names}
        self.ended = False
        self.changed = threading.Condition()
        self.reading = False
        self.failed: BaseException | None = None
        self.closed = False

    def close(self) -> None:
        """End all reading: there are no more rows for any stream."""
        with self.changed:
            self.closed = True
            self.changed.notify_all()

    def of(self, name: str) -> Iterator[pa.RecordBatch | Heartbeat]:
        """Yield the rows of one stream, with a heartbeat after each chunk of all streams."""
        try:
            while (piece := self._next(name)) is not None:
                yield from piece
        finally:
            with self.changed:
                self.waiting.pop(name, None)
                self.changed.notify_all()

    def _next(self, name: str) -> tuple[pa.RecordBatch, Heartbeat] | None:
        while True:
            with self.changed:
                self.changed.wait_for(
                    lambda: self.closed or self.failed or self.waiting[name] or self.ended or self._may_read()
                )
                if self.closed:
                    return None
                if self.failed is not None:
                    raise self.failed
                if self.waiting[name]:
                    self.changed.notify_all()
                    return self.waiting[name].popleft()
                if self.ended:
                    return None
                self.reading = True
                streams = list(self.waiting)
            self._read(streams)

    def _may_read(self) -> bool:
        return not self.reading and all(len(queue) < _MOST_WAITING for queue in self.waiting.values())

    def _read(self, streams: Sequence[str]) -> None:
        """Read the next chunk, and divide it among the streams."""
        pieces: dict[str, tuple[pa.RecordBatch, Heartbeat]] = {}
        failed: BaseException | None = None
        batch: pa.RecordBatch | None = None
        try:
            batch = next(self.batches, None)
            if batch is not None:
                beats = _beats(batch, [self.numbers[name] for name in streams])
                pieces = {name: (self._rows(name, batch), beat) for name, beat in zip(streams, beats, strict=True)}
        except BaseException as error:  # noqa: BLE001 -- raised again in every stream
            failed = error
        with self.changed:
            self.reading, self.failed, self.ended = False, failed, batch is None
            for name, piece in pieces.items():
                if name in self.waiting:  # its reader may have ended meanwhile
                    self.waiting[name].append(piece)
            self.changed.notify_all()

    def _rows(self, name: str, batch: pa.RecordBatch) -> pa.RecordBatch:
        mine = batch.filter(pc.equal(batch.column(0), self.numbers[name]))
        found = self.columns[name]
        return pa.record_batch([mine.column(column) for column in found.values()], names=list(found))


def _beats(batch: pa.RecordBatch, streams: Sequence[int]) -> list[Heartbeat]:
    """Return a heartbeat for each stream after the last row of a chunk, in the order of (t, stream)."""
    last = batch.column("t").slice(batch.num_rows - 1)
    if not batch.num_rows or last.null_count:  # rows without a timestamp come first, and are no events
        return [Heartbeat(-(2**63), over=False) for _ in streams]
    kind = timestamp_type(last.type)
    ts: int = last.cast(kind).cast(pa.int64())[0].as_py()
    stream: int = batch.column(0)[-1].as_py()
    return [Heartbeat(ts, over=number < stream) for number in streams]


def in_place(stream: Stream, frame: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Select the columns of a stream from its DataFrame, with each partition sorted by O.

    Partitions are sorted even if the stream is declared sorted, as those of combined DataFrames are: the choice
    depends on slots and partitions, and must not affect which input is refused.
    """
    row = F.monotonically_increasing_id().alias(ROW)  # rows that tie keep their places
    keys = [quoted(name) for name in (stream.ts, stream.seq, ROW) if name is not None]
    return frame.select(*[quoted(name) for name in columns], row).sortWithinPartitions(*keys).drop(ROW)


def combine_frames(
    streams: Sequence[Stream],
    frames: Sequence[DataFrame],
    columns: Sequence[Sequence[str]],
    single: Sequence[bool],
    tasks: int,
) -> tuple[DataFrame, Frame]:
    """Combine DataFrames into one with a sorted partition for each task, and return it with how to read it."""
    wide: list[DataFrame] = []
    names: dict[str, dict[str, str]] = {}
    for number, (stream, frame, mine, one) in enumerate(zip(streams, frames, columns, single, strict=True)):
        names[stream.name] = {name: f"c{number}_{place}" for place, name in enumerate(mine)}
        row = F.monotonically_increasing_id()
        order = F.col(quoted(stream.seq)).cast("long") if stream.seq is not None else row
        place = place_columns(frame) if one else ()  # the others can't tie with rows of their own stream
        wide.append(
            frame.select(
                F.lit(number).alias("s"),
                (F.lit(0) if one else F.pmod(row, F.lit(tasks)).cast("int")).alias("task"),
                time_of(frame, stream).alias("t"),
                order.alias("q"),
                *place,
                *[F.col(quoted(name)).alias(alias) for name, alias in names[stream.name].items()],
            )
        )
        if one:
            names[stream.name][PARTITION] = "q"
    union = wide[0]
    for other in wide[1:]:
        union = union.unionByName(other, allowMissingColumns=True)
    files = [name for name in (FILE, WITHIN) if name in union.columns]
    placed = union.repartitionById(tasks, F.col("task")).sortWithinPartitions("t", "s", *files, "q").drop("task")
    # The upper bits of a row's id are the number of its partition; the lower ones, its place there.
    partition = F.shiftright("q", 33)
    lay = F.coalesce(F.col(FILE), partition) if files else partition
    placed = placed.withColumn("q", lay).drop(*files) if any(single) else placed.drop("q")
    parts = {s.name: (0,) if one else tuple(range(tasks)) for s, one in zip(streams, single, strict=True)}
    return placed, Frame(names, mixed=True, parts=parts)


def time_of(frame: DataFrame, stream: Stream) -> F.Column:  # type: ignore[name-defined]
    """Return the timestamp column to sort by: integers of all widths as long."""
    type_ = frame.schema[stream.ts].dataType
    column = F.col(quoted(stream.ts))
    return column.cast("long") if isinstance(type_, T.IntegralType) else column


def quoted(name: str) -> str:
    """Quote a column name for Spark."""
    return "`" + name.replace("`", "``") + "`"


def needed(stream: Stream, frame: DataFrame) -> list[str]:
    """Return the columns of a DataFrame that a stream reads; raises InputError for a missing or duplicate column."""
    columns = dict.fromkeys((stream.ts, *(n for n in (stream.seq, stream.tag_column) if n is not None)))
    columns |= dict.fromkeys(stream.column_of(f.name) for tag in stream.tags for f in tag.schema)
    for name in columns:
        if name not in frame.columns:
            raise InputError(
                "MISSING_COLUMN",
                f"there is no such column; there are {frame.columns}",
                stream=stream.name,
                column=name,
                hint="rename= maps declared columns to columns of the data; ts= and seq= name theirs",
            )
        if frame.columns.count(name) > 1:
            raise InputError("DUPLICATE_COLUMN", "the column occurs twice", stream=stream.name, column=name)
    return list(columns)
