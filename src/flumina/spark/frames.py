"""Streams that are DataFrames: how their rows reach the tasks, moved by Spark only where they must be.

One DataFrame with as many partitions as there are tasks is read where it lies. Anything else is brought together: all
streams as one DataFrame with columns for each of them, every row sent to its task, sorted there by O.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- as everybody calls it
from pyspark.sql import types as T  # noqa: N812

from flumina.engine.arrivals import Beat
from flumina.errors import InputError
from flumina.schema import timestamp_type
from flumina.spark.place import FILE, WITHIN, place_columns
from flumina.streams import Stream

PARTITION = "\0partition"
"""The column that holds, for a stream gathered into one part, which file, or else which partition, each row lay in."""

_BEHIND = 4
"""How many pieces of one stream may wait while another one of the same task is read on."""


@dataclass(frozen=True)
class Frame:
    """How to read in a task what Spark brings: for each stream its columns, and their names in what is brought.

    ``streams`` has one entry and no number for a DataFrame that is read where it lies.
    """

    columns: Mapping[str, Mapping[str, str]]
    mixed: bool
    parts: Mapping[str, tuple[int, ...]]
    """For each stream the tasks that have a part of it, by the number of the part."""

    def sources(self, task: int, batches: Iterator[pa.RecordBatch]) -> dict[str, object]:
        """For each stream that has a part in this task a source that can be read once."""
        names = [name for name, tasks in self.parts.items() if task in tasks]
        if not self.mixed:
            return {name: Brought(len(self.parts[name]), batches) for name in names}
        shared = Shared(batches, list(self.columns), self.columns)
        return {
            name: Brought(
                len(self.parts[name]), shared.of(name), PARTITION if PARTITION in self.columns[name] else None
            )
            for name in names
        }


@dataclass(frozen=True, eq=False)
class Brought:
    """Rows that Spark brings to this task; they can be read once, and a task that is tried again gets them again."""

    parts: int
    batches: Iterator[pa.RecordBatch | Beat]
    gathered: str | None = None

    def schema(self, part: int) -> None:
        """Known to the driver only."""

    def rows(self, part: int) -> None:
        """Nobody has counted."""

    def pieces(self) -> Iterator[pa.RecordBatch | Beat]:
        """The rows as they come."""
        return self.batches

    def chunks(self, part: int, columns: Sequence[str], size: int = 0) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        """The rows alone."""
        return (piece for piece in self.batches if not isinstance(piece, Beat))

    def sample(self, part: int, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        """Nothing: they can be read once."""
        raise NotImplementedError

    def bounds(self, part: int, column: str) -> None:
        """Nobody has looked."""

    def read(self, part: int) -> pa.Table:
        """All rows."""
        return pa.Table.from_batches(list(self.chunks(part, ())))


class Shared:
    """Rows of several streams in one sequence, in O; each stream is read by a thread of its own.

    Whoever has nothing left reads the next piece for all. Behind its rows of a piece, a stream is told how far the
    whole has come, so that nobody waits for one that has few.
    """

    def __init__(
        self, batches: Iterator[pa.RecordBatch], names: Sequence[str], columns: Mapping[str, Mapping[str, str]]
    ) -> None:
        self.batches, self.names, self.columns = batches, names, columns
        self.waiting: dict[str, deque[tuple[pa.RecordBatch, Beat]]] = {name: deque() for name in names}
        self.ended = False
        self.changed = threading.Condition()
        self.reading = False
        self.failed: BaseException | None = None

    def of(self, name: str) -> Iterator[pa.RecordBatch | Beat]:
        """The rows of one stream."""
        while (piece := self._next(name)) is not None:
            yield from piece

    def _next(self, name: str) -> tuple[pa.RecordBatch, Beat] | None:
        with self.changed:
            while True:
                if self.failed is not None:
                    raise self.failed
                if self.waiting[name]:
                    self.changed.notify_all()
                    return self.waiting[name].popleft()
                if self.ended:
                    return None
                if not self.reading and all(len(queue) < _BEHIND for queue in self.waiting.values()):
                    self.reading = True
                    break
                self.changed.wait()
        try:
            batch = next(self.batches, None)
            pieces = {} if batch is None else {other: (self._rows(other, batch), _beat(batch)) for other in self.names}
        except BaseException as error:
            with self.changed:
                self.failed, self.reading = error, False
                self.changed.notify_all()
            raise
        with self.changed:
            self.reading = False
            self.ended = batch is None
            for other, piece in pieces.items():
                self.waiting[other].append(piece)
            self.changed.notify_all()
        return self._next(name)

    def _rows(self, name: str, batch: pa.RecordBatch) -> pa.RecordBatch:
        number = self.names.index(name)
        mine = batch.filter(pc.equal(batch.column(0), number))
        found = self.columns[name]
        return pa.record_batch([mine.column(column) for column in found.values()], names=list(found))


def _beat(batch: pa.RecordBatch) -> Beat:
    """Rows are in order, so that nothing comes any more from before the last one."""
    last = batch.column("t").slice(batch.num_rows - 1)
    if not batch.num_rows or last.null_count:  # a row without a timestamp is an error of whoever reads it
        return Beat(-(2**63))
    kind = timestamp_type(last.type)
    return Beat(last.cast(kind).cast(pa.int64())[0].as_py() - 1)


def in_place(stream: Stream, frame: DataFrame, columns: Sequence[str]) -> DataFrame:
    """One DataFrame as the input of the gang, with the columns that the stream needs, sorted where it must be."""
    chosen = frame.select(*[quoted(name) for name in columns])
    if not stream.sorted:
        chosen = chosen.sortWithinPartitions(*[quoted(n) for n in (stream.ts, stream.seq) if n is not None])
    return chosen


def brought_together(
    streams: Sequence[Stream],
    frames: Sequence[DataFrame],
    columns: Sequence[Sequence[str]],
    single: Sequence[bool],
    tasks: int,
) -> tuple[DataFrame, Frame]:
    """Several DataFrames (or one with another number of partitions) as the input of a gang of so many tasks."""
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
    """The timestamps as what they are sorted by: whole numbers alike."""
    type_ = frame.schema[stream.ts].dataType
    column = F.col(quoted(stream.ts))
    return column.cast("long") if isinstance(type_, T.IntegralType) else column


def quoted(name: str) -> str:
    """A column's name, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"


def needed(stream: Stream, frame: DataFrame) -> list[str]:
    """The columns of a DataFrame that a stream looks at; an error names what is missing."""
    wanted = dict.fromkeys((stream.ts, *(n for n in (stream.seq, stream.tag_column) if n is not None)))
    wanted |= dict.fromkeys(stream.column_of(f.name) for tag in stream.tags for f in tag.schema)
    for name in wanted:
        if name not in frame.columns:
            raise InputError(
                "MISSING_COLUMN",
                f"there is no such column; there are {frame.columns}",
                stream=stream.name,
                column=name,
                hint="rename= maps declared columns to columns of the data; ts= and seq= name theirs",
            )
        if frame.columns.count(name) > 1:
            raise InputError("DUPLICATE_COLUMN", "the column stands twice", stream=stream.name, column=name)
    return list(wanted)
