"""What passes the row_validator is what the decoder takes, and everything else is told, row by row."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flumina as fl
from flumina.input.decode import Decoder
from flumina.input.event_table import TS, EventReader
from flumina.input.watermark_policy import NOTHING, Seen
from flumina.streaming.dead_letters import dead_letters_of, first_error
from flumina.streaming.validation import PLACE, ROW, RowValidator, ValidatedRows


class Shop(fl.KeyedProgram):
    """Tags with everything that can be checked."""

    sale = fl.Tag("v long NOT NULL, price decimal(4,1)", key="shop string", keys=["a", "b"])
    close = fl.Tag(key="shop string", keys=["a", "b"])
    depends = fl.depends((close, close), (close, sale))
    output = "shop string, total long"
    total = fl.Sum()

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        if event.tag is self.sale:
            state.total += event.v
        else:
            emit(event.shop, state.total)


STREAM = fl.Stream(
    "all", {"s": Shop.sale, "c": Shop.close}, None, tag_column="k", seq="n", rename={"v": "value"}, sorted=False
)
COLUMNS = {
    "ts": pa.int64(),
    "n": pa.int64(),
    "k": pa.string(),
    "shop": pa.string(),
    "value": pa.int64(),
    "price": pa.decimal128(9, 1),
}

row = st.fixed_dictionaries(
    {
        "ts": st.sampled_from([None, 1, 5, 9, 2**62, -(2**63)]),
        "n": st.sampled_from([None, *range(9)]),
        "k": st.sampled_from(["s", "s", "c", "beat", "?", None]),
        "shop": st.sampled_from(["a", "b", "z", None]),
        "value": st.sampled_from([1, 2, None]),
        "price": st.sampled_from([Decimal("1.5"), None, Decimal("99999.9")]),
    }
)


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    table = pa.Table.from_pylist(rows, pa.schema(list(COLUMNS.items())))
    numbers = np.arange(len(rows))
    return table.append_column(PLACE, pa.array(numbers // 3)).append_column(ROW, pa.array(numbers % 3))


def record_batch(one: dict[str, Any]) -> pa.RecordBatch:
    return table_of([one]).select(list(COLUMNS)).combine_chunks().to_batches()[0]


def events_of(found: ValidatedRows, stream: fl.Stream) -> list[fl.Event]:
    """The events that passed, as tasks read them."""
    reader = EventReader(stream, 0, [stream.name])
    return [event for piece in found.events.to_batches() for event in reader.decode(piece)]


def judged(one: dict[str, Any], done: int) -> str:
    """What one row is, told the slow way: by the decoder where it is no heartbeat and in time."""
    if one["ts"] is None or one["k"] == "beat":
        return "bad" if one["ts"] is None or abs(one["ts"]) >= 2**62 else "beat"
    if abs(one["ts"]) >= 2**62:
        return "bad"
    if one["ts"] <= done:
        return "late"
    try:
        Decoder(STREAM, 0, 0, ["all"]).decode(record_batch(one))
    except fl.InputError:
        return "bad"
    return "good"


@given(st.lists(row, max_size=12), st.sampled_from([NOTHING, 1, 5]))
def test_the_sieve_agrees_with_the_decoder(rows: list[dict[str, Any]], done: int) -> None:
    found = RowValidator(STREAM, fl.Heartbeats("k", "beat"), done).validate(table_of(rows))
    kinds = [judged(one, done) for one in rows]
    assert found.rows == len(rows)
    passed = [one for one, kind in zip(rows, kinds, strict=True) if kind == "good"]
    assert events_of(found, STREAM) == [
        event for one in passed for event in Decoder(STREAM, 0, 0, ["all"]).decode(record_batch(one))
    ]
    places = [number for number, kind in enumerate(kinds) if kind == "good"]
    assert [3 * r[PLACE] + r[ROW] for r in found.events.select([PLACE, ROW]).to_pylist()] == places
    assert found.heartbeats == kinds.count("beat")
    assert found.late == kinds.count("late")
    assert len(found.bad) == kinds.count("bad") + kinds.count("late")
    good = [one["ts"] for one, kind in zip(rows, kinds, strict=True) if kind == "good"]
    beats = [one["ts"] for one, kind in zip(rows, kinds, strict=True) if kind == "beat"]
    assert found.seen == Seen(max(good, default=NOTHING), max(beats, default=NOTHING))
    dead = dead_letters_of("all", found, late=True, bad=True)
    places = [3 * r["partition"] + r["row"] for r in dead.to_pylist()]
    assert places == [number for number, kind in enumerate(kinds) if kind in ("bad", "late")]


GOOD: dict[str, Any] = {"ts": 3, "n": 1, "k": "s", "shop": "a", "value": 1, "price": None}


@pytest.mark.parametrize(
    ("wrong", "reason", "column"),
    [
        ({"ts": None, "shop": None}, "NULL_TIMESTAMP", "ts"),
        ({"ts": 2**62}, "TIMESTAMP_RANGE", "ts"),
        ({"ts": 1}, "LATE", "ts"),
        ({"n": None}, "NULL_SEQ", "n"),
        ({"k": None}, "NULL_TAG", "k"),
        ({"k": "?"}, "UNKNOWN_TAG", "k"),
        ({"shop": None}, "NULL_KEY", "shop"),
        ({"shop": "z"}, "UNKNOWN_KEY", "shop"),
        ({"value": None}, "NULL_VALUE", "value"),
        ({"price": Decimal("99999.9")}, "COLUMN_TYPE", "price"),
    ],
)
def test_reasons(wrong: dict[str, Any], reason: str, column: str) -> None:
    bad = {**GOOD, **wrong}
    found = RowValidator(STREAM, fl.InOrder(), 1).validate(table_of([GOOD, bad, {**GOOD, "k": "c", "value": None}]))
    (letter,) = dead_letters_of("all", found, late=True, bad=True).to_pylist()
    assert (letter["reason"], letter["column"], letter["stream"]) == (reason, column, "all")
    assert (letter["partition"], letter["row"]) == (0, 1)
    told = json.loads(letter["data"])
    assert told == {**bad, "price": None if bad["price"] is None else str(bad["price"])}
    error = first_error("all", found, late=True, bad=True)
    assert error is not None
    assert (error.condition, error.stream, error.part, error.row, error.column) == (reason, "all", 0, 1, column)
    late = reason == "LATE"
    assert (first_error("all", found, late=False, bad=True) is None) == late
    assert len(dead_letters_of("all", found, late=late, bad=not late)) == 1
    assert len(dead_letters_of("all", found, late=not late, bad=late)) == 0


def test_times_and_dates() -> None:
    day = 86_400_000_000
    for kind, expected in ((pa.timestamp("us", tz="UTC"), [5, 7]), (pa.date32(), [5 * day, 7 * day])):
        ts = pa.array([5, None, 7], pa.int32() if kind == pa.date32() else pa.int64()).cast(kind)
        table = pa.table({"ts": ts, "shop": ["a"] * 3, PLACE: pa.array([0, 0, 0]), ROW: pa.array([0, 1, 2])})
        found: ValidatedRows = RowValidator(fl.Stream("t", Shop.close, None), fl.InOrder()).validate(table)
        assert found.events.column(TS).to_pylist() == expected
        assert [fault.condition for fault in found.faults] == ["NULL_TIMESTAMP"]


def test_many_rows_are_sifted_column_by_column() -> None:
    rows = 200_000
    numbers = np.arange(rows)
    price = pa.array(numbers % 1000, pa.int64()).cast(pa.decimal128(19, 0)).cast(pa.decimal128(20, 1))
    columns = {"ts": numbers, "n": numbers, "k": ["s"] * rows, "shop": ["a", "b"] * (rows // 2), "value": numbers}
    table = pa.table({**columns, "price": price, PLACE: np.zeros(rows, np.int64), ROW: numbers})
    found = RowValidator(STREAM, fl.InOrder()).validate(table)
    assert len(found.events) == rows


@pytest.mark.parametrize("declared", [True, False])
def test_null_inside_where_it_is_declared_not_null(declared: bool) -> None:  # noqa: FBT001
    stream = fl.Stream("all", fl.Tag("s struct<b:long NOT NULL>"), None)
    kind = pa.struct([pa.field("b", pa.int64(), nullable=not declared)])
    values = pa.array([{"b": 1}, {"b": None}, None, {"b": 2}], kind)
    table = pa.table({"ts": [1, 2, 3, 4], "s": values, PLACE: [0] * 4, ROW: [0, 1, 2, 3]})
    found = RowValidator(stream, fl.InOrder(), NOTHING).validate(table)
    assert [event.s for event in events_of(found, stream)] == [{"b": 1}, None, {"b": 2}]
    (letter,) = dead_letters_of("all", found, late=True, bad=True).to_pylist()
    assert (letter["reason"], letter["column"], letter["row"]) == ("NULL_VALUE", "s", 1)
