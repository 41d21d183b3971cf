"""Every bad row is found and no other: judged value by value, by a decoder that gets one row, and in both modes."""

from contextlib import nullcontext
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flumina.errors import InputError
from flumina.input.dead_letters import RejectedRows
from flumina.input.decode import Decoder
from flumina.input.stream import Stream
from flumina.input.validation import Fault, RowFaults, Validated, tag_codes, validate
from flumina.model.nulls import nullable
from flumina.model.schema import cast
from flumina.model.tag import Tag


class Tags:
    sale = Tag("v int NOT NULL, price decimal(4,1), s struct<b:long NOT NULL>", key="shop string", keys=["a", "b"])
    close = Tag(key="shop string", keys=["a", "b"])


MIXED = Stream(
    "all", {"s": Tags.sale, "c": Tags.close}, None, tag_column="k", seq="n", rename={"v": "value"}, sorted=False
)
SINGLE = Stream("all", Tags.sale, None, rename={"v": "value"}, sorted=False)
COLUMNS = {
    "ts": pa.uint64(),
    "n": pa.uint64(),
    "k": pa.string(),
    "shop": pa.dictionary(pa.int32(), pa.string()),
    "value": pa.int32(),
    "price": pa.decimal128(9, 1),
    "s": pa.struct([("b", pa.int64())]),
}
HUGE = 2**63
row = st.fixed_dictionaries(
    {
        "ts": st.sampled_from([None, 1, 5, 5, HUGE - 1, HUGE]),
        "n": st.sampled_from([None, 1, 2, 3, HUGE]),
        "k": st.sampled_from(["s", "s", "s", "c", "?", None]),
        "shop": st.sampled_from(["a", "b", "b", "z", None]),
        "value": st.sampled_from([1, 2, 3, None]),
        "price": st.sampled_from([Decimal("1.5"), None, Decimal("99999.9")]),
        "s": st.sampled_from([{"b": 1}, None, {"b": None}]),
    }
)


def batch_of(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, pa.schema(list(COLUMNS.items())))


def told(found: Validated) -> list[tuple[str, str] | None]:
    """For each row the condition and the column of its fault."""
    faults = [(fault.condition, fault.column) for fault in found.faults.faults]
    return [None if which < 0 else faults[which] for which in found.faults.fault_of.tolist()]


def refused(stream: Stream, one: dict[str, Any]) -> tuple[str, str | None] | None:
    """What the decoder says of a row by itself."""
    decoder = Decoder(stream, 0, 0, ["all"])
    try:
        decoder.decode(batch_of([one]))
    except InputError as error:
        return error.condition, error.column
    return None


@pytest.mark.parametrize("stream", [MIXED, SINGLE], ids=["several tags", "one tag"])
@given(rows=st.lists(row, max_size=12))
def test_the_same_faults_as_those_of_each_row_by_itself(stream: Stream, rows: list[dict[str, Any]]) -> None:
    found = validate(stream, batch_of(rows))
    assert told(found) == [refused(stream, one) for one in rows]
    assert found.faults.good.tolist() == [fault is None for fault in told(found)]
    first = found.faults.first()
    bad = [number for number, fault in enumerate(told(found)) if fault is not None]
    assert (None if first is None else first[0]) == (bad[0] if bad else None)


@pytest.mark.parametrize("stream", [MIXED, SINGLE], ids=["several tags", "one tag"])
@given(rows=st.lists(row, max_size=12))
def test_one_mode_raises_the_first_fault_and_the_other_puts_all_aside(
    stream: Stream, rows: list[dict[str, Any]]
) -> None:
    expected = [refused(stream, one) for one in rows]
    dead: list[RejectedRows] = []
    events = list(Decoder(stream, 0, 0, ["all"], dead.append).decode(batch_of(rows)))
    letters = [letter for some in dead for letter in some.dead_letters().to_pylist()]
    assert [(letter["row"], (letter["reason"], letter["column"])) for letter in letters] == [
        (number, fault) for number, fault in enumerate(expected) if fault is not None
    ]
    good = [number for number, fault in enumerate(expected) if fault is None]
    assert [event.seq for event in events] == [rows[number]["n"] if stream.seq else number for number in good]
    assert [event.shop for event in events] == [rows[number]["shop"] for number in good]
    strict = Decoder(stream, 0, 0, ["all"])
    if len(good) == len(rows):
        assert list(strict.decode(batch_of(rows))) == events
        return
    with pytest.raises(InputError) as caught:
        strict.decode(batch_of(rows))
    first = next(number for number, fault in enumerate(expected) if fault is not None)
    assert (caught.value.row, (caught.value.condition, caught.value.column)) == (first, expected[first])


S, L = pa.struct([("b", pa.int64())]), pa.list_(pa.struct([("c", pa.int64())]))
TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "boolean": (pa.bool_(), [True, False]),
    "byte": (pa.uint8(), [0, 127, 128]),
    "short": (pa.uint16(), [0, 2**15 - 1, 2**15]),
    "int": (pa.uint32(), [0, 2**31 - 1, 2**31]),
    "long": (pa.uint64(), [0, HUGE - 1, HUGE]),
    "float": (pa.float32(), [0.5, float("inf")]),
    "double": (pa.float32(), [0.5, float("inf")]),
    "string": (pa.dictionary(pa.int8(), pa.string()), ["", "a"]),
    "binary": (pa.large_binary(), [b"", b"a"]),
    "date": (pa.date32(), [date(1970, 1, 2)]),
    "timestamp": (pa.timestamp("ns", "UTC"), [0, 1000, 1]),
    "timestamp_ntz": (pa.timestamp("s"), [datetime(2026, 1, 1), np.datetime64(2**53, "s")]),  # noqa: DTZ001
    "decimal(4,1)": (pa.decimal128(9, 2), [Decimal("1.50"), Decimal("1.55"), Decimal("9999.00")]),
    "array<int>": (pa.list_(pa.int64()), [[], [1, None], [1, 2**31]]),
    "map<string,int>": (pa.map_(pa.string(), pa.int64()), [[], [("a", 1)], [("a", 2**31)]]),
    "struct<b:int>": (S, [{"b": 1}, {"b": None}, {"b": 2**31}]),
    "struct<b:int NOT NULL>": (S, [{"b": 1}, {"b": None}, {"b": 2**31}]),
    "array<struct<c:long NOT NULL>>": (L, [[], [None, {"c": 1}], [{"c": 1}, {"c": None}]]),
    "map<string,struct<c:long NOT NULL>>": (
        pa.map_(pa.string(), pa.struct([("c", pa.int32())])),
        [[], [("a", {"c": 1})], [("a", {"c": None})], [("a", None)]],
    ),
}
"""For each type that can be declared one that data may have instead, and values, some of which do not fit."""


def plain(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def fault_of(value: Any, ddl: str, found: pa.DataType, *, not_null: bool) -> str | None:
    """What is wrong with one value, told the slow way: by Arrow's cast of it alone, and by looking into it."""
    if value is None:
        return "NULL_VALUE" if not_null else None
    declared = Tag(f"v {ddl}").schema.field("v").type
    try:
        cast(plain(pa.array([value], found)), nullable(declared))
    except pa.ArrowException:
        return "COLUMN_TYPE"
    holds = value if isinstance(value, list) else [value]
    inner = [one[1] if isinstance(one, tuple) else one for one in holds]
    empty = "NOT NULL" in ddl and any(isinstance(one, dict) and None in one.values() for one in inner)
    return "NULL_VALUE" if empty else None


@pytest.mark.parametrize("not_null", [False, True], ids=["nullable", "NOT NULL"])
@pytest.mark.parametrize("ddl", TYPES)
@given(data=st.data())
@settings(max_examples=40)
def test_columns_of_every_type(ddl: str, not_null: bool, data: st.DataObject) -> None:  # noqa: FBT001
    """What is called good is what can be read, and read it is what it was, in both directions."""
    found, known = TYPES[ddl]
    values = data.draw(st.lists(st.sampled_from([*known, None]), max_size=6))
    stream = Stream("s", Tag(f"v {ddl}{' NOT NULL' if not_null else ''}"), None)
    chunk = pa.record_batch({"ts": pa.array(range(len(values)), pa.int64()), "v": pa.array(values, found)})
    expected = [fault_of(value, ddl, found, not_null=not_null) for value in values]
    dead: list[RejectedRows] = []
    decoder = Decoder(stream, 0, 0, ["s"], dead.append)
    start = data.draw(st.integers(0, len(values)))
    batches = [decoder.decode(chunk.slice(0, start)), decoder.decode(chunk.slice(start))]
    letters = [letter for some in dead for letter in some.dead_letters().to_pylist()]
    assert {letter["row"]: letter["reason"] for letter in letters} == {
        row: reason for row, reason in enumerate(expected) if reason is not None
    }
    good = [row for row, reason in enumerate(expected) if reason is None]
    assert [seq for batch in batches for seq in batch.seq.tolist()] == good
    for batch in batches:
        batch.tables[0].validate(full=True)
    read = [value for batch in batches for value in batch.tables[0].column("v").to_pylist()]
    raw = plain(chunk.column("v").take(pa.array(good, pa.int64())))
    assert read == cast(raw, nullable(stream.tags[0].schema.field("v").type)).to_pylist()
    for row, reason in enumerate(expected):
        strict = Decoder(stream, 0, 0, ["s"])
        with nullcontext() if reason is None else pytest.raises(InputError, match=reason):
            strict.decode(chunk.slice(row, 1))


def test_the_first_fault_of_a_row_counts() -> None:
    faults = RowFaults(4)
    one, other = Fault("ONE", "a", "first"), Fault("OTHER", "b", "second")
    faults.add(np.array([False, True, False, False]), one)
    faults.add_at(np.array([1, 3]), other)
    faults.add(np.zeros(4, bool), Fault("NEVER", "c", "nowhere"))
    assert faults.faults == [one, other]
    assert faults.fault_of.tolist() == [-1, 0, -1, 1]
    assert faults.good.tolist() == [True, False, True, False]
    assert faults.first() == (1, 0)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"ts": None}, "the timestamp is null"),
        ({"ts": HUGE}, "not a long: Integer value 9223372036854775808 not in range: 0 to 9223372036854775807"),
        ({"n": None}, "the sequence number is null"),
        ({"k": "?"}, "'?' is none of the declared tags ['s', 'c']"),
        ({"shop": "z"}, "the key 'z' is none of the declared keys of tag 'sale'"),
        ({"shop": None}, "the key of tag 'sale' is null"),
        ({"value": None}, "the value is null, but declared NOT NULL"),
        ({"price": Decimal("99999.9")}, "not a decimal(4,1): Decimal value does not fit in precision 4"),
        ({"s": {"b": None}}, "b of the value is null, but declared NOT NULL: {'b': None}"),
    ],
)
def test_an_error_says_what_the_value_is(wrong: dict[str, Any], message: str) -> None:
    fine = {"ts": 1, "n": 1, "k": "s", "shop": "a", "value": 1, "price": None, "s": None}
    with pytest.raises(InputError) as caught:
        Decoder(MIXED, 0, 3, ["all"]).decode(batch_of([fine, fine, {**fine, **wrong}]))
    assert caught.value.message.endswith(f": {message}")
    assert (caught.value.stream, caught.value.part, caught.value.row) == ("all", 3, 2)
    assert caught.value.column == {"v": "value"}.get(*wrong, *wrong)
    assert caught.value.hint == 'repair the data, or have such rows put aside with bad_rows="dead-letter"'


def test_few_bad_values_among_many_cost_little() -> None:
    rows = 200_000
    values = np.zeros(rows, np.int64)
    values[[7, 100_000]] = 2**40
    chunk = pa.record_batch({"ts": np.arange(rows), "v": pa.array(values).cast(pa.decimal128(19, 0))})
    found = validate(Stream("s", Tag("v decimal(4,0)"), None), chunk)
    assert np.flatnonzero(~found.faults.good).tolist() == [7, 100_000]


def test_numbers_of_tags() -> None:
    column = pa.array(["s", None, "c", "?"])
    assert tag_codes(MIXED, column).tolist() == [0, -1, 1, -1]
