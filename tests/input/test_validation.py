"""Every bad row is found, and it is the same rows that the decoder does not take, for the same reasons."""

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flumina.errors import InputError
from flumina.input.decode import Decoder
from flumina.input.stream import Stream
from flumina.input.validation import Fault, Marks, faults, tag_codes
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


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, pa.schema(list(COLUMNS.items())))


def refused(stream: Stream, one: dict[str, Any]) -> tuple[str, str | None] | None:
    """What the decoder says of a row by itself."""
    decoder = Decoder(stream, 0, 0, ["all"])
    try:
        decoder.decode(table_of([one]).combine_chunks().to_batches()[0])
    except InputError as error:
        return error.condition, error.column
    return None


@pytest.mark.parametrize("stream", [MIXED, SINGLE], ids=["several tags", "one tag"])
@given(rows=st.lists(row, max_size=12))
def test_the_same_rows_as_the_decoder_for_the_same_reasons(stream: Stream, rows: list[dict[str, Any]]) -> None:
    marks = faults(stream, table_of(rows))
    found = [None if which < 0 else marks.faults[which] for which in marks.fault_of.tolist()]
    told = [None if fault is None else (fault.condition, fault.column) for fault in found]
    assert told == [refused(stream, one) for one in rows]
    assert marks.good.tolist() == [fault is None for fault in found]


def test_the_first_mark_counts() -> None:
    marks = Marks(4)
    one, other = Fault("ONE", "a", "first"), Fault("OTHER", "b", "second")
    marks.add(np.array([False, True, False, False]), one)
    marks.add_at(np.array([1, 3]), other)
    marks.add(np.zeros(4, bool), Fault("NEVER", "c", "nowhere"))
    assert marks.faults == [one, other]
    assert marks.fault_of.tolist() == [-1, 0, -1, 1]
    assert marks.good.tolist() == [True, False, True, False]


def test_few_bad_values_among_many_cost_little() -> None:
    rows = 200_000
    values = np.zeros(rows, np.int64)
    values[[7, 100_000]] = 2**40
    table = pa.table({"ts": np.arange(rows), "v": values})
    marks = faults(Stream("s", Tag("v int"), None), table)
    assert np.flatnonzero(~marks.good).tolist() == [7, 100_000]


def test_numbers_of_tags() -> None:
    column = pa.chunked_array([["s", None], ["c", "?"]])
    assert tag_codes(MIXED, column).tolist() == [0, -1, 1, -1]
