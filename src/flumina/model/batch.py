"""Hold events in columns: the unit of work of workers and of ``update_batch``.

A :class:`Batch` is a sequence of events in columns. Each tag's events lie in one Arrow record batch with that tag's
own columns; where a batch holds several tags, two index vectors say which table and which row each event is
(Arrow's dense-union layout). Slicing copies nothing.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from flumina.errors import InputError, UsageError
from flumina.model import order
from flumina.model.order import Ints, Point
from flumina.model.schema import Schema
from flumina.model.tag_set import Key, TagSet

if TYPE_CHECKING:
    from flumina.model.event import Event
    from flumina.model.tag import Tag

_MOST = (1 << 63) - 1
"""The largest sum that numpy's int64 can hold."""


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """A sequence of events in columns, in processing order.

    ``table_of`` and ``row_of`` are None for a batch of one tag: then event i is row i of the only table. Use
    :meth:`one_tag`, :meth:`merge`, :meth:`slice` and :meth:`take` rather than the constructor.
    """

    tags: tuple[Tag, ...]
    tables: tuple[pa.RecordBatch, ...]
    ts: Ints
    rank: Ints
    seq: Ints
    streams: tuple[str, ...]
    table_of: Ints | None = None
    row_of: Ints | None = None

    @staticmethod
    def one_tag(
        tag: Tag, table: pa.RecordBatch, ts: Ints, rank: Ints | int, seq: Ints, streams: Sequence[str]
    ) -> Batch:
        """Return a batch of one tag from validated columns; a scalar rank costs no memory."""
        ranks = np.broadcast_to(np.int64(rank), len(ts)) if isinstance(rank, int) else rank
        return Batch((tag,), (table,), ts, ranks, seq, tuple(streams))

    @staticmethod
    def of_tables(
        tags: tuple[Tag, ...],
        tables: Sequence[pa.RecordBatch],
        table_of: Ints | None,
        places: Sequence[Ints | None],
        ts: Ints,
        rank: int,
        seq: Ints,
        streams: Sequence[str],
    ) -> Batch:
        """Return a batch of one stream from one table for each tag; several tags need ``table_of`` and ``places``."""
        ranks = np.broadcast_to(np.int64(rank), len(ts))
        if len(tags) == 1:
            return Batch(tags, tuple(tables), ts, ranks, seq, tuple(streams))
        assert table_of is not None, "several tags need table_of"
        row_of = np.empty(len(ts), np.int64)
        for mine, table in zip(places, tables, strict=True):
            row_of[mine] = np.arange(table.num_rows)
        return Batch(tags, tuple(tables), ts, ranks, seq, tuple(streams), table_of, row_of)

    @staticmethod
    def of_events(events: Sequence[Event], streams: Sequence[str] | None = None) -> Batch:
        """Return a batch of these events, in their order; for tests and small runs."""
        if not events:
            raise UsageError("EMPTY_BATCH", "a batch of no events needs a tag; use Batch.empty(tag)")
        names = tuple(dict.fromkeys(event.stream for event in events)) if streams is None else tuple(streams)
        tags = tuple(dict.fromkeys(event.tag for event in events))
        tables = tuple(_table_of_events(tag, [event for event in events if event.tag is tag]) for tag in tags)
        ts, rank, seq = (
            np.fromiter(column, np.int64, len(events))
            for column in ((e.ts for e in events), (names.index(e.stream) for e in events), (e.seq for e in events))
        )
        if len(tags) == 1:
            return Batch(tags, tables, ts, rank, seq, names)
        table_of = np.fromiter((tags.index(event.tag) for event in events), np.int64, len(events))
        row_of = np.empty(len(events), np.int64)
        for which in range(len(tags)):
            mine = table_of == which
            row_of[mine] = np.arange(np.count_nonzero(mine))
        return Batch(tags, tables, ts, rank, seq, names, table_of, row_of)

    @staticmethod
    def empty(tag: Tag) -> Batch:
        """Return the batch of this tag without events."""
        none = np.empty(0, np.int64)
        return Batch((tag,), (_table_of_events(tag, ()),), none, none, none, ())

    def __len__(self) -> int:
        return len(self.ts)

    @property
    def tag(self) -> Tag:
        """The tag of a batch that holds one; ``update_batch`` only ever gets such batches."""
        if len(self.tags) != 1:
            raise UsageError("MIXED_BATCH", f"the batch holds {[t.name for t in self.tags]}; split it with runs()")
        return self.tags[0]

    def arrow(self, column: str) -> pa.Array:
        """Return a column of a one-tag batch as Arrow, without a copy."""
        index = self.tag.schema.get_field_index(column)
        if index < 0:
            known = [field.name for field in self.tag.schema]
            raise UsageError("NO_COLUMN", f"tag {self.tag.name!r} has no column {column!r}; it has {known}")
        return self.tables[0].column(index)

    def __getitem__(self, column: str) -> npt.NDArray[Any]:
        """Return a column of a one-tag batch as numpy: without a copy for numbers, else as objects.

        A numpy array of numbers can't hold nulls: declare the column NOT NULL, or use :meth:`arrow`.
        """
        array = self.arrow(column)
        if array.null_count and pa.types.is_primitive(array.type):
            raise UsageError(
                "NULLS",
                f"column {column!r} of tag {self.tag.name!r} has {array.null_count} nulls",
                hint="declare it NOT NULL, so that input is checked, or use batch.arrow(column)",
            )
        values: npt.NDArray[Any] = array.to_numpy(zero_copy_only=False)
        return values

    @property
    def keys(self) -> pa.Array:
        """The key column of a one-tag batch of a keyed tag."""
        if self.tag.key is None:
            raise UsageError("NO_KEY", f"tag {self.tag.name!r} has no key")
        return self.tables[0].column(0)

    def point(self, index: int) -> Point:
        """Return the place in O of one event."""
        return Point(int(self.ts[index]), int(self.rank[index]), int(self.seq[index]))

    def points(self) -> Iterator[Point]:
        """Return the places in O of all events."""
        return map(Point, self.ts.tolist(), self.rank.tolist(), self.seq.tolist())

    def count_up_to(self, bound: Point, start: int = 0, stop: int | None = None) -> int:
        """Return how many events of a batch in O lie at or before a point, by binary search.

        The caller guarantees that events before ``start`` do, and events from ``stop`` on do not.
        """
        stop = len(self.ts) if stop is None else stop
        high = start + int(self.ts[start:stop].searchsorted(bound.ts, "right"))
        if high == start or self.ts[high - 1] < bound.ts:
            return high
        low = start + int(self.ts[start:high].searchsorted(bound.ts))
        return bisect_right(range(high), bound, lo=low, key=self.point)

    def slice(self, start: int, stop: int) -> Batch:
        """Return the events from ``start`` up to ``stop``, as views; bounds work as in list slices."""
        start, stop, _ = slice(start, stop).indices(len(self))
        stop = max(start, stop)  # Arrow crashes on a negative length instead of refusing it
        ts, rank, seq = self.ts[start:stop], self.rank[start:stop], self.seq[start:stop]
        if self.table_of is None or self.row_of is None:
            tables = (self.tables[0].slice(start, stop - start),)
            return Batch(self.tags, tables, ts, rank, seq, self.streams)
        return Batch(
            self.tags, self.tables, ts, rank, seq, self.streams, self.table_of[start:stop], self.row_of[start:stop]
        )

    def take(self, indices: Ints) -> Batch:
        """Return the events at these positions, in the order given."""
        ts, rank, seq = self.ts[indices], self.rank[indices], self.seq[indices]
        if self.table_of is None or self.row_of is None:
            return Batch(self.tags, (_take_rows(self.tables[0], indices),), ts, rank, seq, self.streams)
        return Batch(self.tags, self.tables, ts, rank, seq, self.streams, self.table_of[indices], self.row_of[indices])

    def places_of_keys(self, keys: Collection[Key]) -> tuple[Ints, list[Key]]:
        """Return for each event the index of its key in the returned list; -1 if its key is not among ``keys``.

        Only keys that occur in the batch are searched, so the cost depends on the events alone.
        """
        found = np.full(len(self), -1)
        listed: dict[Key, int] = {key: place for place, key in enumerate(keys)} if len(keys) <= len(self) else {}
        few = list(listed)
        for which, (tag, table) in enumerate(zip(self.tags, self.tables, strict=True)):
            if tag.key is None:
                continue
            column, mine = table.column(0), slice(None)
            if self.table_of is not None and self.row_of is not None:
                mine = np.flatnonzero(self.table_of == which)  # type: ignore[assignment]
                column = column.take(pa.array(self.row_of[mine]))
            if few:
                places = pc.index_in(column, pa.array(few, tag.key.type))
                found[mine] = pc.fill_null(places, -1).to_numpy()
                continue
            encoded = column.dictionary_encode()
            there = [listed.setdefault(k, len(listed)) if k in keys else -1 for k in as_list(encoded.dictionary)]
            found[mine] = np.array(there, np.int64)[encoded.indices.to_numpy()]
        return found, list(listed)

    def count(self, tags: TagSet) -> int:
        """Return how many events are in a tag set; keys are read only for tags of which the set has some keys."""
        found = 0
        for which, tag in enumerate(self.tags):
            keys = tags[tag.name]
            if keys == tag.universe:
                found += len(self) if self.table_of is None else int(np.count_nonzero(self.table_of == which))
            elif not keys.is_empty():
                found += int(np.count_nonzero(keys.mask(self._of_table(which).keys)))
        return found

    def runs(self) -> Iterator[Batch]:
        """Yield the batch cut into maximal runs of one tag."""
        if self.table_of is None:
            if len(self):
                yield self
            return
        cuts = (np.flatnonzero(np.diff(self.table_of)) + 1).tolist()
        for start, stop in zip((0, *cuts), (*cuts, len(self)), strict=True):
            if start < stop:
                yield self.slice(start, stop)._of_table(int(self.table_of[start]))

    def _of_table(self, which: int) -> Batch:
        """Return the events that lie in one table, as a batch of one tag."""
        if self.table_of is None or self.row_of is None:
            return self
        mine = np.flatnonzero(self.table_of == which)
        table = _take_rows(self.tables[which], self.row_of[mine])
        return Batch((self.tags[which],), (table,), self.ts[mine], self.rank[mine], self.seq[mine], self.streams)

    def __iter__(self) -> Iterator[Event]:
        """Return the events one by one, as ``update`` takes them, made without a Python loop."""
        if self.table_of is not None:
            tables = [iter(self._of_table(which)) for which in range(len(self.tables))]
            return (next(tables[which]) for which in self.table_of.tolist())
        one_stream = len(self) > 0 and self.rank.strides[0] == 0
        names = (
            itertools.repeat(self.streams[self.rank[0]], len(self))
            if one_stream
            else [self.streams[rank] for rank in self.rank.tolist()]
        )
        keys = [] if self.tags[0].key is not None else [itertools.repeat(None, len(self))]
        columns = [self._listed(place) for place in range(self.tables[0].num_columns)]
        rows = zip(self.ts.tolist(), names, self.seq.tolist(), *keys, *columns, strict=True)
        return map(self.tags[0].make_event, rows)

    def _listed(self, place: int) -> list[Any]:
        """Return a column as Python values, or raise an error that names the value that Python can't hold."""
        column = self.tables[0].column(place)
        try:
            return as_list(column)
        except (OverflowError, ValueError) as error:
            row = next(row for row in range(len(column)) if not _has_value(column[row]))
            raise InputError(
                "VALUE_RANGE",
                f"the event at {self.ts[row]} has a value that Python can't hold: {error}",
                stream=self.streams[self.rank[row]],
                column=self.tables[0].column_names[place],
                hint="update_batch is given columns as they are",
            ) from None

    @staticmethod
    def merge(batches: Sequence[Batch]) -> Batch:
        """Return all events of these batches (of one run: the same stream names) as one batch in O."""
        pieces = [batch._of_table(which) for batch in batches for which in range(len(batch.tables))]
        tags = tuple(dict.fromkeys(piece.tag for piece in pieces))
        pieces.sort(key=lambda piece: tags.index(piece.tag))
        counts = [sum(len(piece) for piece in pieces if piece.tag is tag) for tag in tags]
        tables = tuple(_concat([piece.tables[0] for piece in pieces if piece.tag is tag]) for tag in tags)
        ts, rank, seq = (
            np.concatenate([getattr(piece, column) for piece in pieces]) for column in ("ts", "rank", "seq")
        )
        ordered = order.argsort(ts, rank, seq)
        ts, rank, seq, streams = ts[ordered], rank[ordered], seq[ordered], batches[0].streams
        if len(tags) == 1:
            return Batch(tags, (_take_rows(tables[0], ordered),), ts, rank, seq, streams)
        table_of = np.repeat(np.arange(len(tags)), counts)[ordered]
        row_of = np.concatenate([np.arange(count) for count in counts])[ordered]
        return Batch(tags, tables, ts, rank, seq, streams, table_of, row_of)


def _table_of_events(tag: Tag, events: Sequence[Event]) -> pa.RecordBatch:
    if not len(tag.schema):
        return no_columns(len(events))
    return pa.record_batch([pa.array([e[f.name] for e in events], f.type) for f in tag.schema], schema=tag.schema)


def no_columns(rows: int) -> pa.RecordBatch:
    """Return a record batch with rows but no columns, for an unkeyed tag without payload."""
    return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), rows, [None]))


def _take_rows(table: pa.RecordBatch, rows: Ints) -> pa.RecordBatch:
    """Return these rows, without a copy where they are consecutive."""
    if not table.num_columns:
        return no_columns(len(rows))
    if len(rows) == 0 or (rows[-1] - rows[0] == len(rows) - 1 and bool((np.diff(rows) == 1).all())):
        return table.slice(int(rows[0]) if len(rows) else 0, len(rows))
    return table.take(pa.array(rows))


def _concat(tables: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    if not tables[0].num_columns:
        return no_columns(sum(table.num_rows for table in tables))
    return tables[0] if len(tables) == 1 else pa.concat_batches(tables)


def as_list(column: pa.Array) -> list[Any]:
    """Return a column as Python values; numbers without nulls go through numpy, which is faster."""
    if column.null_count == 0 and (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        values: list[Any] = column.to_numpy().tolist()
        return values
    listed: list[Any] = column.to_pylist()
    return listed


def _has_value(scalar: pa.Scalar) -> bool:
    try:
        scalar.as_py()
    except (OverflowError, ValueError):
        return False
    return True


def repeat(value: object, count: int, type_: str) -> pa.Array:
    """Return a column that holds one value, of a type in Spark's DDL: for ``emit.columns``.

    >>> repeat(None, 2, "string").to_pylist()
    [None, None]
    """
    return pa.repeat(pa.scalar(value, _type(type_)), count)


def total(values: npt.NDArray[Any], starts: Ints | None = None) -> Any:  # noqa: ANN401 -- an int, or a list of them
    """Return the exact sum of a column of whole numbers, where numpy's sum would silently overflow.

    With ``starts``, return a list with the sum of each group that begins at these positions.

    >>> total(np.array([2**63 - 1, 1, -5])), total(np.array([2**63 - 1, 1, -5]), np.array([0, 2]))
    (9223372036854775803, [9223372036854775808, -5])
    """
    if values.dtype.kind not in "iub":
        raise UsageError("TOTAL", f"total() is for whole numbers, got {values.dtype}", hint="for others, values.sum()")
    if len(values) and max(-int(values.min()), int(values.max())) > _MOST // len(values):
        values = values.astype(object)
    return int(values.sum()) if starts is None else np.add.reduceat(values, starts).tolist()


@lru_cache(maxsize=256)
def _type(ddl: str) -> pa.DataType:
    return Schema.parse(f"value {ddl}").fields[0].type
