"""Made-up events of every program, and what it must emit for them, both computed by numpy alone.

Nothing here uses Flumina: results are judged by a second, independent computation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]

TIES = 5
"""How many events share a timestamp where a seq column tells them apart."""


@dataclass(frozen=True)
class Ordered:
    """All events in the order in which a sequential program gets them."""

    kind: npt.NDArray[np.int8]
    columns: Mapping[str, pa.ChunkedArray]
    """The columns of the log, in the order of the log."""
    row: Ints
    """For each event, its row in the log."""

    def ints(self, name: str) -> Ints:
        """Return a column of whole numbers, in order; nulls are 0."""
        return _ints(self.columns[name])[self.row]

    def of(self, *kinds: int) -> Ints:
        """Return the places of the events of these kinds."""
        return np.flatnonzero(np.isin(self.kind, kinds))


Emitted = tuple[Ints, dict[str, Any]]
"""Of one output: the place of the event that causes each row, and the columns."""


@dataclass(frozen=True)
class Model:
    """A program as numpy sees it.

    ``kinds``   the names of its tags; the first is that of nearly all events
    ``fields``  the columns of each tag
    ``make``    the columns of a log, given the kinds of its events and a source of randomness
    ``emit``    what the program emits: for each output the rows
    """

    kinds: tuple[str, ...]
    fields: Mapping[str, tuple[str, ...]]
    rare: tuple[float, ...]
    """The share of the events of each kind but the first."""
    make: Callable[[npt.NDArray[np.int8], np.random.Generator], dict[str, pa.Array]]
    emit: Callable[[Ordered], dict[str, Emitted]]


def log(model: Model, rows: int, seed: int, *, seq: bool) -> pa.Table:
    """Make up events: their timestamps, kinds and columns, in order of time.

    With ``seq`` some events share a timestamp, and only the column ``seq`` orders them.
    """
    rng = np.random.default_rng([seed, rows])
    draw = rng.random(rows)
    kind = np.zeros(rows, np.int8)
    bounds = np.cumsum([0.0, *(max(share, 5 / rows) for share in model.rare)])  # a few in small logs, too
    for number in range(len(model.rare)):
        kind[(draw >= bounds[number]) & (draw < bounds[number + 1])] = number + 1
    kind[rows - 1] = len(model.rare)  # the last event looks at what the others have left
    index = np.arange(rows)
    ts = index // TIES if seq else 3 * index + rng.integers(0, 3, rows)
    columns = {"ts": pa.array(ts), "kind": pa.array(kind)}
    if seq:
        columns["seq"] = pa.array(index)
    return pa.table(columns | model.make(kind, rng))


def expected(model: Model, table: pa.Table, stream: npt.NDArray[np.int8], names: list[str]) -> dict[str, pa.Table]:
    """Compute the outputs for the events of a log, each in the stream of this number."""
    ts, seq = _ints(table["ts"]), _ints(table["seq"]) if "seq" in table.column_names else np.arange(table.num_rows)
    row = np.lexsort((seq, stream, ts))
    kind = table["kind"].to_numpy()[row]
    ordered = Ordered(kind, {name: table[name] for name in table.column_names}, row)
    known = pa.array(names)
    found = {}
    for name, (at, columns) in model.emit(ordered).items():
        causes = row[at]
        stream_of = pa.DictionaryArray.from_arrays(pa.array(stream[causes]), known).cast(pa.string())
        found[name] = pa.table({**columns, "event_ts": pa.array(ts[causes]), "event_stream": stream_of})
    return found


def _ints(column: pa.ChunkedArray) -> Ints:
    filled = column.fill_null(0) if column.null_count else column
    return np.asarray(filled.to_numpy(), np.int64)


def _only(kind: npt.NDArray[np.int8], values: Ints, *kinds: int) -> pa.Array:
    """Return a column that is null in events of other kinds."""
    return pa.array(values, mask=~np.isin(kind, kinds))


def _since_last(values: Ints, ends: Ints) -> Ints:
    """Sum values from one end to the next."""
    upto = np.concatenate([[0], np.cumsum(values)])[ends]
    return np.diff(upto, prepend=0)


# Value-barrier: the sum of values since the last barrier.


def _make_values(kind: npt.NDArray[np.int8], rng: np.random.Generator) -> dict[str, pa.Array]:
    return {"v": _only(kind, rng.integers(0, 1 << 32, len(kind)), 0)}


def _emit_sums(events: Ordered) -> dict[str, Emitted]:
    barriers = events.of(1)
    return {"output": (barriers, {"total": pa.array(_since_last(events.ints("v"), barriers))})}


# Fraud: a rule sets the model from the sum since the last rule; transactions that match the model are flagged.

_MODULO = 1000


def _make_payments(kind: npt.NDArray[np.int8], rng: np.random.Generator) -> dict[str, pa.Array]:
    values, rules = rng.integers(0, 1 << 32, len(kind)), rng.integers(0, _MODULO, len(kind))
    return {"v": _only(kind, values, 0), "r": _only(kind, rules, 1)}


def _emit_flagged(events: Ordered) -> dict[str, Emitted]:
    rules, values = events.of(1), events.ints("v")
    totals = _since_last(values, rules)
    models = (totals + events.ints("r")[rules]) % _MODULO
    model = np.concatenate([[-1], models])[np.searchsorted(rules, np.arange(len(values)))]
    flagged = np.flatnonzero((events.kind == 0) & (values % _MODULO == model))
    return {
        "flagged": (flagged, {"v": pa.array(values[flagged])}),
        "aggregate": (rules, {"total": pa.array(totals)}),
    }


# Page views: a view or get emits the info that the page has, a change the one that it had.

_PAGES, _HOT = 1000, 2


def _make_views(kind: npt.NDArray[np.int8], rng: np.random.Generator) -> dict[str, pa.Array]:
    page = rng.integers(0, _PAGES, len(kind))
    hot = rng.random(len(kind)) < 0.8
    page[hot] %= _HOT
    pages = pa.array([f"page {number}" for number in range(_PAGES)])
    changes = np.flatnonzero(kind == 2)
    infos = pa.array([f"edition {number}" for number in range(len(changes))])
    edition = np.zeros(len(kind), np.int64)
    edition[changes] = np.arange(len(changes))
    return {
        "page": pages.take(pa.array(page)),
        "user": _only(kind, rng.integers(0, 1 << 30, len(kind)), 0),
        "info": infos.take(_only(kind, edition, 2)),
    }


def _emit_joined(events: Ordered) -> dict[str, Emitted]:
    pages = events.columns["page"].combine_chunks().dictionary_encode().indices.to_numpy()[events.row]
    by_page = np.argsort(pages, kind="stable")
    place = np.arange(len(by_page))
    starts = np.concatenate([[True], np.diff(pages[by_page]) != 0])
    first = np.maximum.accumulate(np.where(starts, place, 0))
    changed = np.where(events.kind[by_page] == 2, place, -1)
    before = np.concatenate([[-1], np.maximum.accumulate(changed)[:-1]])  # the last change before each event
    known = before >= first
    source = np.empty(len(by_page), np.int64)
    source[by_page] = np.where(known, events.row[by_page[np.maximum(before, 0)]], -1)
    rows = pa.array(events.row)
    info = events.columns["info"].take(pa.array(source, mask=source < 0))
    return {
        "output": (
            place,
            {"page": events.columns["page"].take(rows), "user": events.columns["user"].take(rows), "info": info},
        )
    }


# Totals: the sum of a key since its last read; a report counts the keys that have one.


def _make_totals(keys: int, *keyed: int) -> Callable[[npt.NDArray[np.int8], np.random.Generator], dict[str, pa.Array]]:
    def make(kind: npt.NDArray[np.int8], rng: np.random.Generator) -> dict[str, pa.Array]:
        # No more keys than events, so that in small logs, too, keys are met again.
        key, values = rng.integers(0, min(keys, len(kind)), len(kind)), rng.integers(1, 1 << 20, len(kind))
        key[rng.random(len(kind)) < 0.1] = 7  # one hot key
        return {"k": _only(kind, key, *keyed), "v": _only(kind, values, 0)}

    return make


def _emit_totals(events: Ordered) -> dict[str, Emitted]:
    at, keys, totals, _, _ = _reads(events)
    return {"output": (at, {"k": pa.array(keys), "total": pa.array(totals)})}


def _emit_reported(events: Ordered) -> dict[str, Emitted]:
    at, keys, totals, begins, ends = _reads(events)
    reports = events.of(2)
    read = np.zeros(len(events.kind), np.int64)
    read[at] = totals
    balance = np.cumsum(np.where(events.kind == 0, events.ints("v"), 0) - read)
    living = np.bincount(begins, minlength=len(events.kind)) - np.bincount(ends, minlength=len(events.kind))
    columns = {"keys": pa.array(np.cumsum(living)[reports]), "total": pa.array(balance[reports])}
    return {"totals": (at, {"k": pa.array(keys), "total": pa.array(totals)}), "reports": (reports, columns)}


def _reads(events: Ordered) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """Return places, keys and sums of reads; and where keys begin to have a sum, and where they cease to."""
    keyed = events.of(0, 1)
    keys = events.ints("k")[keyed]
    by_key = np.argsort(keys, kind="stable")
    at, key = keyed[by_key], keys[by_key]
    is_read = events.kind[at] == 1
    upto = np.cumsum(np.where(is_read, 0, events.ints("v")[at]))
    reads = np.flatnonzero(is_read)
    new_key = np.concatenate([[True], np.diff(key) != 0])
    first = np.maximum.accumulate(np.where(new_key, np.arange(len(key)), 0))[reads]
    floor = np.concatenate([[0], upto])[first]  # the sum of all keys before
    since = np.concatenate([[0], upto[reads][:-1]])
    totals = upto[reads] - np.maximum(floor, since)
    after = np.concatenate([[True], is_read[:-1]]) | new_key  # a key without a sum
    begins = ~is_read & after
    ends = is_read & ~after
    return at[reads], key[reads], totals, at[begins], at[ends]


_TOTALS = ("add", "read"), {"add": ("k", "v"), "read": ("k",)}

MODELS = {
    "value-barrier": Model(("value", "barrier"), {"value": ("v",), "barrier": ()}, (1e-3,), _make_values, _emit_sums),
    "page-views": Model(
        ("view", "get", "change"),
        {"view": ("page", "user"), "get": ("page",), "change": ("page", "info")},
        (1e-2, 1e-3),
        _make_views,
        _emit_joined,
    ),
    "fraud": Model(
        ("transaction", "rule"), {"transaction": ("v",), "rule": ("r",)}, (1e-3,), _make_payments, _emit_flagged
    ),
    "keys-1M": Model(*_TOTALS, (0.05,), _make_totals(1_000_000, 0, 1), _emit_totals),
    "keys-100k": Model(*_TOTALS, (0.05,), _make_totals(100_000, 0, 1), _emit_totals),
    "keys-200k-report": Model(
        ("add", "read", "report"),
        {**_TOTALS[1], "report": ()},
        (0.05, 1e-5),
        _make_totals(200_000, 0, 1),
        _emit_reported,
    ),
}
