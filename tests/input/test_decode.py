from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flumina.errors import InputError
from flumina.input.dead_letters import RejectedRows
from flumina.input.decode import Decoder, decode
from flumina.input.stream import Stream
from flumina.model.batch import Batch
from flumina.model.tag import Tag

NAMES = ["first", "clicks"]


class Tags:
    view = Tag("user long NOT NULL", key="page string")
    change = Tag("info short", key="page string")
    listed = Tag("user long", key="page string", keys=["a", "b", "c"])


PRICED = Tag("info decimal(3,0)", key="page string")
BOTH = {"v": Tags.view, "c": Tags.change}
VIEWS = Stream("clicks", Tags.view, None)
MIXED = Stream("clicks", BOTH, None, tag_column="kind")

Outcome = list[Any] | tuple[str, int | None, str | None]


def cut(table: pa.Table, cuts: Sequence[int]) -> list[pa.RecordBatch]:
    """The table in chunks that end at these rows, empty ones among them."""
    at = sorted(min(c, table.num_rows) for c in cuts)
    pairs = zip([0, *at], [*at, table.num_rows], strict=True)
    whole = table.combine_chunks()
    batch = pa.record_batch(
        [c.chunk(0) if c.num_chunks else pa.array([], c.type) for c in whole.columns], table.column_names
    )
    return [batch.slice(start, stop - start) for start, stop in pairs]


def outcome_of(error: InputError) -> tuple[str, int | None, str | None]:
    assert (error.stream, error.part) == ("clicks", 3)
    return error.condition, error.row, error.column


def whole(stream: Stream, table: pa.Table) -> Outcome:
    try:
        return list(decode(stream, 1, 3, table, NAMES).batch)
    except InputError as error:
        return outcome_of(error)


def in_chunks(stream: Stream, table: pa.Table, cuts: Sequence[int]) -> Outcome:
    decoder = Decoder(stream, 1, 3, NAMES)
    try:
        decoder.check_schema(table.schema)
        batches = list(decoder.batches(cut(table, cuts), 4))
    except InputError as error:
        return outcome_of(error)
    assert all(len(batch) for batch in batches)
    assert decoder.rows == table.num_rows
    return [event for batch in batches for event in batch]


def mostly(good: st.SearchStrategy[Any], bad: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.integers(0, 19).flatmap(lambda n: bad if n == 0 else good)


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Rows that are mostly in order, with all kinds of mistakes."""
    count = draw(st.integers(0, 12))

    def column(good: st.SearchStrategy[Any], bad: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(mostly(good, bad), min_size=count, max_size=count))

    steps = column(st.integers(0, 2), st.just(-1))
    ts: list[int | None] = np.cumsum(steps).tolist()
    if draw(mostly(st.just(""), st.just("null"))) and count:
        ts[draw(st.integers(0, count - 1))] = None
    pages = pa.array(column(st.sampled_from("abc"), st.sampled_from(["z", None])), pa.string())
    return pa.table(
        {
            "ts": pa.array(ts, draw(st.sampled_from([pa.int64(), pa.int32(), pa.timestamp("ms")]))),
            "seq": pa.array(column(st.integers(0, 9), st.none()), pa.int64()),
            "kind": pa.array(column(st.sampled_from("vc"), st.sampled_from(["x", None])), pa.string()),
            "page": pages.dictionary_encode() if draw(st.booleans()) else pages,
            "user": pa.array(column(st.integers(0, 9), st.sampled_from([None, 2**63])), pa.uint64()),
            "info": pa.array(column(st.integers(0, 9), st.just(9)), pa.int16()),
        }
    )


@given(
    table=tables(),
    cuts=st.lists(st.integers(0, 12), max_size=5),
    tag=st.sampled_from([Tags.view, Tags.listed, BOTH]),
    seq=st.sampled_from([None, "seq"]),
    is_sorted=st.booleans(),
)
@settings(max_examples=600, deadline=None)
def test_cuts_change_nothing(table: pa.Table, cuts: list[int], tag: Any, seq: str | None, is_sorted: bool) -> None:  # noqa: FBT001
    column = "kind" if tag is BOTH else None
    stream = Stream("clicks", tag, None, seq=seq, tag_column=column, sorted=is_sorted)
    assert in_chunks(stream, table, cuts) == whole(stream, table)


def views(ts: Sequence[int], **changed: Any) -> pa.Table:
    count = len(ts)
    return pa.table({"ts": ts, "page": ["a"] * count, "user": pa.array(range(count), pa.int64()), **changed})


class TestAcrossChunks:
    def test_positions_go_on(self) -> None:
        decoder = Decoder(VIEWS, 1, 0, NAMES)
        batches = [decoder.decode(chunk) for chunk in cut(views([1, 2, 2, 3]), [1, 3])]
        assert [batch.seq.tolist() for batch in batches] == [[0], [1, 2], [3]]
        assert [batch.rank.tolist() for batch in batches] == [[1], [1, 1], [1]]

    def test_times_are_compared(self) -> None:
        with pytest.raises(InputError, match=r"row 2.*the timestamp 4 comes after 5"):
            list(Decoder(VIEWS, 1, 0, NAMES).batches(cut(views([1, 5, 4]), [2]), 10))

    def test_sequence_numbers_are_compared_at_equal_times_only(self) -> None:
        stream = Stream("clicks", Tags.view, None, seq="n")
        fine = views([1, 2, 2], n=[9, 3, 4])
        assert len(list(Decoder(stream, 1, 0, NAMES).batches(cut(fine, [1, 2]), 10))) == 3
        with pytest.raises(InputError, match=r"row 2.*the sequence number 3 comes after 4 at the timestamp 2"):
            list(Decoder(stream, 1, 0, NAMES).batches(cut(views([1, 2, 2], n=[9, 4, 3]), [2]), 10))

    def test_rows_count_from_the_start_of_the_part(self) -> None:
        table = views([1, 2, 3, 4], page=["a", "b", "c", None])
        with pytest.raises(InputError) as caught:
            list(Decoder(VIEWS, 1, 0, NAMES).batches(cut(table, [2]), 10))
        assert (caught.value.condition, caught.value.row) == ("NULL_KEY", 3)

    def test_an_unsorted_part_is_sorted_as_a_whole_and_cut_again(self) -> None:
        stream = Stream("clicks", Tags.view, None, sorted=False)
        batches = list(Decoder(stream, 1, 0, NAMES).batches(cut(views([9, 1, 8, 2, 7]), [2, 3]), 2))
        assert [batch.ts.tolist() for batch in batches] == [[1, 2], [7, 8], [9]]
        assert [batch.seq.tolist() for batch in batches] == [[1, 3], [4, 2], [0]]

    def test_several_tags(self) -> None:
        table = views([1, 2, 3, 4], kind=["v", "c", "c", "v"], info=pa.array([1, 2, 3, 4], pa.int16()))
        decoder = Decoder(MIXED, 1, 0, NAMES)
        found = [[event.tag.name for event in decoder.decode(chunk)] for chunk in cut(table, [2])]
        assert found == [["view", "change"], ["change", "view"]]


class TestErrors:
    def test_of_several_mistakes_the_lowest_row_is_told(self) -> None:
        table = views([1, 2, 9, 3], page=["a", None, "b", "c"], user=pa.array([1, 2, 3, None]))
        assert whole(VIEWS, table) == ("NULL_KEY", 1, "page")

    def test_a_type_comes_before_any_row(self) -> None:
        assert whole(VIEWS, views([2, 1], page=[1.5, 2.5])) == ("COLUMN_TYPE", None, "page")

    def test_a_missing_column_is_told_with_those_there_are(self) -> None:
        decoder = Decoder(VIEWS, 1, 0, NAMES)
        with pytest.raises(InputError, match=r"MISSING_COLUMN.*'user'.*there are \['ts', 'page', 'usr'\]"):
            decoder.check_schema(pa.schema({"ts": pa.int64(), "page": pa.string(), "usr": pa.int64()}))

    def test_a_part_that_can_not_be_sorted_in_one_piece(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def merge(batches: Sequence[Batch]) -> Batch:
            raise pa.ArrowInvalid("offset overflow while concatenating arrays")

        monkeypatch.setattr(Batch, "merge", merge)
        decoder = Decoder(Stream("clicks", Tags.view, None, sorted=False), 1, 3, NAMES)
        with pytest.raises(InputError, match=r"PART_TOO_LARGE.*offset overflow"):
            list(decoder.batches(cut(views([1, 2]), [1]), 1000))


def test_nothing_is_copied() -> None:
    table = pa.record_batch({"ts": [1, 2, 3], "page": ["a", "b", "c"], "user": [4, 5, 6]})
    decoder = Decoder(VIEWS, 1, 0, NAMES)
    for start, count in ((0, 1), (1, 2)):
        batch = decoder.decode(table.slice(start, count))
        address = table.column(0).buffers()[1].address + 8 * start
        assert batch.ts.__array_interface__["data"][0] == address
        assert batch.arrow("user").buffers()[1].address == table.column(2).buffers()[1].address


def test_the_kind_of_timestamps_is_known_after_the_first_chunk() -> None:
    decoder = Decoder(VIEWS, 1, 0, NAMES)
    assert decoder.ts_type is None
    moments = pa.array([datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)])
    batch: Batch = decoder.decode(pa.record_batch({"ts": moments, "page": ["a"], "user": [1]}))
    assert (decoder.ts_type, batch.ts.tolist()) == (pa.timestamp("us", tz="UTC"), [1_000_000])


STRUCTS = Stream("clicks", Tag("s struct<b:long NOT NULL>, l array<struct<c:long NOT NULL>>"), None)


@pytest.mark.parametrize("declared", [True, False])
def test_null_inside_where_it_is_declared_not_null(declared: bool) -> None:  # noqa: FBT001
    """The same whether the data itself says NOT NULL or not: a null around it is fine."""
    b, c = (pa.struct([pa.field(name, pa.int64(), nullable=not declared)]) for name in "bc")

    def outcome(values: list[Any], lists: list[Any]) -> Outcome:
        columns = {"ts": range(len(values)), "s": pa.array(values, b), "l": pa.array(lists, pa.list_(c))}
        return whole(STRUCTS, pa.table(columns))

    fine = outcome([{"b": 1}, None], [None, [{"c": 1}, None]])
    assert isinstance(fine, list)
    assert [(event.s, event.l) for event in fine] == [({"b": 1}, None), (None, [{"c": 1}, None])]
    assert outcome([{"b": 1}, {"b": None}], [None, None]) == ("NULL_VALUE", 1, "s")
    assert outcome([None, None, {"b": None}], [None, [{"c": 1}, {"c": None}], None]) == ("NULL_VALUE", 1, "l")


def test_what_is_null_inside_is_named() -> None:
    table = pa.table({"ts": [1], "s": [{"b": 1}], "l": [[{"c": None}]]})
    table = table.set_column(2, "l", pa.array([[{"c": None}]], pa.list_(pa.struct([("c", pa.int32())]))))
    with pytest.raises(InputError, match=r"element.c of the value is null, but declared NOT NULL: \[\{'c': None\}\]"):
        decode(STRUCTS, 1, 3, table, NAMES)


def on_bad_rows(stream: Stream, pieces: Sequence[pa.RecordBatch]) -> tuple[list[Any], list[dict[str, Any]]]:
    """The events of a part in pieces, and its dead letters."""
    dead: list[RejectedRows] = []
    decoder = Decoder(stream, 1, 3, NAMES, dead.append)
    events = [event for batch in decoder.batches(pieces, 1000) for event in batch]
    assert decoder.rows == sum(piece.num_rows for piece in pieces)
    return events, [letter for refused in dead for letter in refused.dead_letters().to_pylist()]


class TestAside:
    ROWS = pa.table(
        {
            "ts": [1, None, 2, 2, 4, 5, 6],
            "kind": ["v", "v", "c", "?", "v", "c", None],
            "page": ["a", "b", "c", "d", None, "f", "g"],
            "user": [1, 2, None, 4, 5, None, 7],
            "info": pa.array([None, None, 3, None, None, 70_000, None], pa.int64()).cast(pa.decimal128(19, 0)),
        }
    )
    REASONS = {1: "NULL_TIMESTAMP", 3: "UNKNOWN_TAG", 4: "NULL_KEY", 5: "COLUMN_TYPE", 6: "NULL_TAG"}

    @given(st.lists(st.integers(0, 7), max_size=4), st.booleans())
    def test_rows_that_can_not_be_read_are_put_aside_however_the_part_is_cut(
        self,
        cuts: list[int],
        is_sorted: bool,  # noqa: FBT001
    ) -> None:
        stream = Stream("clicks", {"v": Tags.view, "c": PRICED}, None, tag_column="kind", sorted=is_sorted)
        table = self.ROWS.combine_chunks()
        ends = [0, *sorted(cuts), len(table)]
        pieces = [piece for a, b in pairwise(ends) for piece in table.slice(a, b - a).to_batches() if b > a]
        events, dead = on_bad_rows(stream, pieces)
        assert [(event.ts, event.seq, event.page) for event in events] == [(1, 0, "a"), (2, 2, "c")]
        assert {letter["row"]: letter["reason"] for letter in dead} == self.REASONS
        assert len(dead) == len(self.REASONS), "each once"
        assert {(letter["stream"], letter["partition"], letter["file"]) for letter in dead} == {("clicks", 3, None)}

    def test_without_somebody_to_take_them_the_first_is_an_error(self) -> None:
        stream = Stream("clicks", {"v": Tags.view, "c": PRICED}, None, tag_column="kind")
        with pytest.raises(InputError, match="NULL_TIMESTAMP") as caught:
            list(Decoder(stream, 1, 3, NAMES).batches(self.ROWS.to_batches(), 10))
        assert caught.value.row == 1

    @pytest.mark.parametrize("size", [1, 2, 3, 10])
    def test_that_rows_are_not_in_order_is_an_error_of_the_row_as_it_is_numbered(self, size: int) -> None:
        table = pa.table({"ts": [5, None, 7, None, 6, 1], "page": list("abcdef"), "user": [1, 2, 3, 4, 5, 6]})
        with pytest.raises(InputError, match=r"DECREASING_TIMESTAMP.* 6 comes after 7") as caught:
            on_bad_rows(VIEWS, table.to_batches(size))
        assert caught.value.row == 4

    @pytest.mark.parametrize("size", [2, 10])
    def test_of_two_kinds_of_disorder_the_first_is_told(self, size: int) -> None:
        stream = Stream("clicks", Tags.view, None, seq="n")
        columns = {"ts": [5, 5, None, 4], "n": [3, 2, 1, 1], "page": list("abcd"), "user": [1, 2, 3, 4]}
        with pytest.raises(InputError, match="DECREASING_SEQ") as caught:
            on_bad_rows(stream, pa.table(columns).to_batches(size))
        assert caught.value.row == 1

    def test_columns_of_another_type_are_no_matter_of_rows(self) -> None:
        table = pa.table({"ts": [1], "page": ["a"], "user": ["text"]})
        with pytest.raises(InputError, match="COLUMN_TYPE"):
            on_bad_rows(VIEWS, table.to_batches())

    def test_nothing_but_bad_rows(self) -> None:
        table = pa.table({"ts": pa.nulls(3, pa.int64()), "page": list("abc"), "user": [1, 2, 3]})
        events, dead = on_bad_rows(VIEWS, table.to_batches(2))
        assert events == []
        assert [letter["row"] for letter in dead] == [0, 1, 2]


LISTS = Stream("clicks", Tag("xs array<int>, m map<string,int>"), None)


@pytest.mark.parametrize("size", [1, 7, 100, 1000])
def test_a_bad_value_in_a_list_is_not_blamed_on_its_neighbors(size: int) -> None:
    """Arrow looks at all values below a list, also at those that a slice leaves out."""
    lists, maps = [[n] for n in range(1000)], [[("k", n)] for n in range(1000)]
    lists[700], maps[30] = [2**40], [("k", 2**40)]
    kind = pa.map_(pa.string(), pa.int64())
    table = pa.table({"ts": range(1000), "xs": lists, "m": pa.array(maps, kind)})
    events, dead = on_bad_rows(LISTS, table.to_batches(size))
    assert len(events) == 998
    assert sorted(letter["row"] for letter in dead) == [30, 700]
    with pytest.raises(InputError, match="COLUMN_TYPE") as caught:
        list(Decoder(LISTS, 1, 0, NAMES).batches(table.to_batches(size), 10))
    assert caught.value.row == 30


@pytest.mark.parametrize(
    ("declared", "found"),
    [
        ("struct<a:long>", pa.struct([("b", pa.int64())])),
        ("struct<a:long>", pa.list_(pa.int64())),
        ("array<struct<a:long>>", pa.list_(pa.struct([("b", pa.int64())]))),
        ("map<string,struct<a:long>>", pa.map_(pa.string(), pa.struct([("b", pa.int64())]))),
        ("map<string,long>", pa.list_(pa.int64())),
        ("array<long>", pa.int64()),
        ("array<long>", pa.map_(pa.string(), pa.int64())),
        ("array<array<long>>", pa.list_(pa.int64())),
    ],
)
def test_nested_columns_of_another_shape_are_refused(declared: str, found: pa.DataType) -> None:
    decoder = Decoder(Stream("clicks", Tag(f"v {declared}"), None), 1, 0, NAMES)
    with pytest.raises(InputError, match="COLUMN_TYPE"):
        decoder.check_schema(pa.schema([("ts", pa.int64()), ("v", found)]))


def test_nested_columns_may_have_more_fields_in_another_order() -> None:
    stream = Stream("clicks", Tag("v array<struct<a:long,c:string>>"), None)
    kind = pa.large_list(pa.struct([("c", pa.string()), ("b", pa.int64()), ("a", pa.int32())]))
    table = pa.table({"ts": [1], "v": pa.array([[{"a": 1, "b": 2, "c": "x"}]], kind)})
    (event,) = decode(stream, 1, 0, table, NAMES).batch
    assert event.v == [{"a": 1, "c": "x"}]


def test_columns_that_arrow_can_not_take_rows_of() -> None:
    columns = {"ts": [1, 2, 3], "kind": ["v", "?", "v"], "page": ["a", "b", "c"], "user": [1, 2, 3], "info": [None] * 3}
    table = pa.table(columns).cast(
        pa.schema(
            {
                "ts": pa.int64(),
                "kind": pa.string_view(),
                "page": pa.string_view(),
                "user": pa.int64(),
                "info": pa.int16(),
            }
        )
    )
    events, dead = on_bad_rows(MIXED, table.to_batches())
    assert [event.page for event in events] == ["a", "c"]
    assert [letter["reason"] for letter in dead] == ["UNKNOWN_TAG"]


def test_of_nothing_but_nulls_the_kind_of_timestamps_is_that_of_other_rows() -> None:
    moments = pa.array([datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)])
    pieces = [
        pa.record_batch({"ts": ts, "page": pa.array(["a"] * len(ts)), "user": pa.array([1] * len(ts))})
        for ts in (pa.nulls(2), moments, pa.nulls(1))
    ]
    events, dead = on_bad_rows(VIEWS, pieces)
    assert [event.seq for event in events] == [2]
    assert [letter["row"] for letter in dead] == [0, 1, 3]
