"""Events written as a table and read again are the same events."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flumina.input.event_table import SEQ, TAG, TS, EventReader, columns_of, to_table
from flumina.input.stream import Stream
from flumina.input.validation import validate
from flumina.model.batch import Batch
from flumina.model.tag import Tag


class Tags:
    sale = Tag("v int, s struct<b:long NOT NULL>", key="shop string")
    back = Tag("v long NOT NULL", key="shop string")
    close = Tag()


MIXED = Stream("all", {"s": Tags.sale, "b": Tags.back, "c": Tags.close}, None, tag_column="k", seq="n", sorted=False)
SINGLE = Stream("all", Tags.sale, None, sorted=False)
EMPTY = Stream("all", Tags.close, None, sorted=False)
row = st.fixed_dictionaries(
    {
        "ts": st.integers(0, 9),
        "n": st.integers(0, 9),
        "k": st.sampled_from("sbc?"),
        "shop": st.sampled_from(["a", "b"]),
        "v": st.sampled_from([1, 2, None]),
        "s": st.sampled_from([None, {"b": 1}, {"b": None}]),
    }
)
SCHEMA = pa.schema(
    [
        ("ts", pa.int64()),
        ("n", pa.int64()),
        ("k", pa.string()),
        ("shop", pa.string()),
        ("v", pa.int16()),
        ("s", pa.struct([("b", pa.int64())])),
    ]
)


def batch_of(stream: Stream, rows: list[dict[str, Any]]) -> Batch:
    return validate(stream, pa.RecordBatch.from_pylist(rows, SCHEMA)).batch(2, ["x", "y", "all"])


@pytest.mark.parametrize("stream", [MIXED, SINGLE, EMPTY], ids=["several tags", "one tag", "no columns"])
@given(rows=st.lists(row, max_size=9), cut=st.integers(0, 9))
def test_written_and_read_again(stream: Stream, rows: list[dict[str, Any]], cut: int) -> None:
    batch = batch_of(stream, rows)
    table = to_table(batch, sequenced=True).combine_chunks()
    reader = EventReader(stream, 2, ["x", "y", "all"])
    pieces = [piece for part in (table.slice(0, cut), table.slice(cut)) for piece in part.to_batches()]
    events = [event for some in reader.batches(pieces, 5) for event in some]
    assert events == list(batch)
    assert reader.rows == len(batch)
    assert set(table.column_names) <= set(reader.columns)


def test_columns_of_one_type_are_shared_and_others_are_not() -> None:
    assert columns_of(MIXED.tags) == [{"shop": "shop", "v": "v", "s": "s"}, {"shop": "shop", "v": "v\0001"}, {}]
    table = to_table(batch_of(MIXED, []), sequenced=False)
    assert table.column_names == [TS, TAG, "shop", "v", "s", "v\0001"]
    assert (table.schema.field("v").type, table.schema.field("v\0001").type) == (pa.int32(), pa.int64())


def test_without_sequence_numbers_rows_are_counted_across_chunks() -> None:
    rows = [{"ts": t, "shop": "a", "v": 1, "s": None} for t in (5, 6, 7)]
    table = to_table(batch_of(SINGLE, rows), sequenced=False)
    assert SEQ not in table.column_names
    reader = EventReader(SINGLE, 0, ["x", "y", "all"])
    assert [batch.seq.tolist() for batch in reader.batches(table.to_batches(2), 2)] == [[0, 1], [2]]
