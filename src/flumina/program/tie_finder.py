"""Detect ties: dependent events of one stream that O can't order.

Within a stream, O orders by timestamp and then by ``seq``. Without a ``seq`` column that is the position inside a
part, which says nothing about events of two parts. If such events depend on each other, the outputs would depend on how
the input is divided into parts, so it is an error. The same holds for two events with the same ``seq``::

    a, b tie  =  same stream, a.ts = b.ts, and  a.seq = b.seq  (with a seq column)
                                           or   different parts (without)
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flumina.errors import OrderError
from flumina.model.batch import Batch
from flumina.model.depends import Dependence
from flumina.model.event import Event
from flumina.model.order import Ints
from flumina.model.tag import Tag
from flumina.model.tag_set import Key

FEW = 16
"""Up to this many events, a loop is faster than column operations."""


@dataclass(frozen=True, slots=True)
class Glimpse:
    """A summary of an event that another worker handles: enough to detect a tie and to name it."""

    tag: Tag
    ts: int
    stream: str
    seq: int
    key: Key

    def __repr__(self) -> str:
        key = "" if self.tag.key is None else f"{self.tag.key.name}={self.key!r}, "
        return f"{self.tag.name}({key}...)@{self.ts} {self.stream}#{self.seq}"


class Placed(NamedTuple):
    """An event, its part, and the scope in which O orders it: events of one scope do not tie."""

    place: int
    part: int
    event: Event | Glimpse


@dataclass(frozen=True)
class TieRule:
    """When events of one stream tie, and when that matters.

    ``sequenced``   whether the stream has a ``seq`` column
    ``by_key``      whether all its tags are keyed and depend on each other where keys are equal, if at all
    ``part_name``   the name of a part in error messages
    """

    depends: Dependence
    sequenced: bool
    by_key: bool
    part_name: Callable[[int], str] = "part {}".format

    @staticmethod
    def of(
        depends: Dependence, tags: Iterable[Tag], *, sequenced: bool, part_name: Callable[[int], str] = "part {}".format
    ) -> TieRule:
        """Return the rule for a stream with these tags."""
        listed = list(tags)
        one_type = len({tag.key and tag.key.type for tag in listed}) == 1 and listed[0].key is not None
        return TieRule(depends, sequenced, one_type and depends.only_by_key([tag.name for tag in listed]), part_name)


class Tied:
    """Events of one stream at one time (and ``seq``); refuses dependent ones in different scopes."""

    def __init__(self, rule: TieRule) -> None:
        self.rule = rule
        self.count = 0
        # Of each tag and key, two events in different places are enough to find a pair for any other event.
        self.shown: dict[str, dict[Key, list[Placed]]] = {}
        self.places: dict[str, set[int]] = {}

    def add(self, part: int, event: Event | Glimpse) -> None:
        """Add an event; raise :class:`~flumina.errors.OrderError` if O has to order it and can't."""
        self.count += 1
        placed = Placed(self.count if self.rule.sequenced else part, part, event)
        tag, key, place = event.tag.name, event.key, placed.place
        few = self.shown.setdefault(tag, {}).setdefault(key, [])
        if len(few) == 2 or (few and few[0].place == place):
            return
        few.append(placed)
        self.places.setdefault(tag, set()).add(place)
        for other, by_key in self.shown.items():
            if self.places[other] == {place}:
                continue
            for other_key in self.rule.depends.partners(tag, key, other, by_key.keys()):
                for tied in by_key[other_key]:
                    if tied.place != place:
                        raise _ambiguous(tied, placed, self.rule)


class TieFinder:
    """Finds ties in one stream whose events come in chunks, all of a timestamp before :meth:`forget`.

    Columns are searched for equal timestamps first; only candidates are compared one by one.
    """

    def __init__(self, rule: TieRule) -> None:
        self.rule = rule
        self.open: dict[int, dict[int, Tied]] = {}
        """For each open timestamp and each of its ``seq``, the events so far that may tie."""
        self.times: list[int] = []
        """The open timestamps, in order."""

    def add(self, part: int, event: Event | Glimpse) -> None:
        """Add one event."""
        at_time = self.open.get(event.ts)
        if at_time is None:
            at_time = self.open[event.ts] = {}
            insort(self.times, event.ts)
        number = event.seq if self.rule.sequenced else 0
        tied = at_time.get(number)
        if tied is None:
            tied = at_time[number] = Tied(self.rule)
        tied.add(part, event)

    def look(self, batches: Sequence[Batch], parts: Sequence[Ints | int]) -> None:
        """Add events in columns, each batch in O, with the part of all its events or of each."""
        lengths = [len(batch) for batch in batches]
        chosen: list[Ints] = [np.arange(length) for length in lengths]
        if sum(lengths) > FEW:
            ts = np.concatenate([batch.ts for batch in batches])
            part = np.concatenate([np.broadcast_to(p, n) for p, n in zip(parts, lengths, strict=True)])
            several = len(batches) > 1 or not isinstance(parts[0], int)
            rows = self._suspects(batches, ts, part, several=several)
            cuts = np.cumsum([0, *lengths])
            bounds = np.searchsorted(rows, cuts)
            chosen = [rows[a:b] - cut for a, b, cut in zip(bounds[:-1], bounds[1:], cuts[:-1], strict=True)]
        for batch, of_batch, mine in zip(batches, parts, chosen, strict=True):
            if len(mine):
                numbers = np.broadcast_to(of_batch, len(batch))[mine].tolist()
                for number, event in zip(numbers, batch.take(mine), strict=True):
                    self.add(number, event)

    def forget(self, before: int) -> None:
        """Forget timestamps before this one: no more events of them will come."""
        if self.times and self.times[0] < before:
            over = bisect_left(self.times, before)
            for ts in self.times[:over]:
                del self.open[ts]
            del self.times[:over]

    def _suspects(self, batches: Sequence[Batch], ts: Ints, part: Ints, *, several: bool) -> Ints:
        """Return the rows, over all batches, that tie with another row, an open timestamp, or a later row."""
        newest = max(int(batch.ts[-1]) for batch in batches if len(batch))
        oldest = min(int(batch.ts[0]) for batch in batches if len(batch))
        near = self.times[bisect_left(self.times, oldest) : bisect_right(self.times, newest)]
        decorated = ts == newest
        if near:
            decorated |= np.isin(ts, near)
        if several or self.rule.sequenced:
            seq = np.concatenate([batch.seq for batch in batches]) if self.rule.sequenced else None
            rows, group = _tied_rows(ts, part, seq)
            if len(rows) and self.rule.by_key:
                rows = rows[_same_key(_keys(batches, rows), group, None if seq is not None else part[rows])]
            decorated[rows] = True
        return np.flatnonzero(decorated)


def _tied_rows(ts: Ints, part: Ints, seq: Ints | None) -> tuple[Ints, Ints]:
    """Return the rows that tie with another one, in order, and numbers that are equal for rows that tie."""
    ordered = np.argsort(ts, kind="stable") if seq is None else np.lexsort((seq, ts))
    ts, part = ts[ordered], part[ordered]
    same = ts[1:] == ts[:-1]
    if seq is None:
        group = np.concatenate([[0], np.cumsum(~same)])
        cut = np.unique(group[1:][same & (part[1:] != part[:-1])])
        tied = np.zeros(group[-1] + 1, bool)
        tied[cut] = True
        member = tied[group]
    else:
        same &= np.diff(seq[ordered]) == 0
        group = np.concatenate([[0], np.cumsum(~same)])
        member = np.zeros(len(ts), bool)
        member[1:] |= same
        member[:-1] |= same
    rows, group = ordered[member], group[member]
    back = np.argsort(rows)
    return rows[back], group[back]


def _keys(batches: Sequence[Batch], rows: Ints) -> pa.Array:
    """Return the keys of these rows, of all batches together; all tags are keyed, with one type."""
    found: list[pa.Array] = []
    start = 0
    for batch in batches:
        low, high = np.searchsorted(rows, (start, start + len(batch)))
        mine = rows[low:high] - start
        start += len(batch)
        if batch.table_of is None or batch.row_of is None:
            found.append(batch.tables[0].column(0).take(pa.array(mine)))
            continue
        offsets = np.cumsum([0, *(table.num_rows for table in batch.tables)])
        whole = pa.concat_arrays([table.column(0) for table in batch.tables])
        found.append(whole.take(pa.array(offsets[batch.table_of[mine]] + batch.row_of[mine])))
    return pa.concat_arrays(found)


def _same_key(keys: pa.Array, group: Ints, part: Ints | None) -> npt.NDArray[np.bool_]:
    """Return which of these have another one with the same key in their group, in another part if parts are given."""
    code: Ints = keys.dictionary_encode().indices.to_numpy()
    places = np.arange(len(group)) if part is None else part
    ordered = np.lexsort((places, code, group))
    starts = np.concatenate([[True], (np.diff(group[ordered]) != 0) | (np.diff(code[ordered]) != 0)])
    first = np.flatnonzero(starts)
    last = np.append(first[1:], len(ordered)) - 1
    several = places[ordered[first]] != places[ordered[last]]
    found = np.empty(len(group), bool)
    found[ordered] = several[np.cumsum(starts) - 1]
    return found


def _ambiguous(a: Placed, b: Placed, rule: TieRule) -> OrderError:
    first, second = sorted((a, b), key=lambda placed: (placed.part, placed.place))
    how = "with the same seq" if rule.sequenced else "without a seq column"
    one, other = (f"{placed.event!r} in {rule.part_name(placed.part)}" for placed in (first, second))
    return OrderError(
        "AMBIGUOUS_ORDER",
        f"stream {a.event.stream!r}: two dependent events have the timestamp {a.event.ts} {how}, so their order is "
        f"not determined: {one} and {other}",
        hint="give the stream a seq= column that orders events with equal timestamps",
    )
