from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from flumina.errors import InputError, UsageError
from flumina.input.decode import Part, decode
from flumina.input.stream import Stream
from flumina.model.event import Event
from flumina.model.tag import Tag, user_line


class Tags:
    view = Tag("user long NOT NULL, price double", key="page string")
    change = Tag("info string", key="page string")
    tick = Tag()
    small = Tag("n int, b byte, f float", key="k int")
    listed = Tag(key="k long", keys=[1, 2])
    odd = Tag("a array<long>, d decimal(10,2), t timestamp, day date, raw binary, flag boolean")


NAMES = ["first", "clicks"]
BOTH = {"v": Tags.view, "c": Tags.change}


def view_columns(**changed: object) -> dict[str, Any]:
    columns: dict[str, Any] = {"ts": [1, 2, 2], "page": ["a", "b", "a"], "user": [7, 8, 9], "price": [None, 1.5, 2.0]}
    return {name: values for name, values in (columns | changed).items() if values is not ...}


def parts_of(stream: Stream) -> list[Part]:
    return [decode(stream, 1, number, table, NAMES) for number, table in enumerate(stream.parts())]


def events_of(stream: Stream) -> list[Event]:
    return [event for part in parts_of(stream) for event in part.batch]


def refused(stream: Callable[[], Stream]) -> InputError:
    """The error for bad data: always ours, with the stream's name."""
    with pytest.raises(InputError) as caught:
        parts_of(stream())
    assert caught.value.stream == "clicks"
    assert "stream 'clicks'" in str(caught.value)
    return caught.value


def place(error: InputError) -> tuple[str, int | None, int | None, str | None]:
    return error.condition, error.part, error.row, error.column


EXPECTED = [
    Tags.view.event(ts=1, stream="clicks", seq=0, page="a", user=7, price=None),
    Tags.view.event(ts=2, stream="clicks", seq=1, page="b", user=8, price=1.5),
    Tags.view.event(ts=2, stream="clicks", seq=2, page="a", user=9, price=2.0),
]


class TestShapes:
    @pytest.mark.parametrize(
        "data",
        [
            view_columns(),
            pa.table(view_columns()),
            pa.record_batch(view_columns()),
            pa.table(view_columns()).to_pylist(),
            tuple(pa.table(view_columns()).to_pylist()),
            [pa.table(view_columns())],
            pd.DataFrame(view_columns()),
            pd.DataFrame(view_columns()).set_index(pd.Index([5, 5, 5])),
            {name: np.array(values, object if None in values else None) for name, values in view_columns().items()},
            {
                name: pa.chunked_array([values[:1], values[1:]])
                for name, values in view_columns(price=[1.0, 2.0, 3.0]).items()
            },
            view_columns(extra=[object(), [], "x"]),
        ],
        ids=["dict", "table", "record batch", "rows", "tuple", "parts", "pandas", "index", "numpy", "arrow", "extra"],
    )
    def test_kinds_of_data(self, data: object) -> None:
        found = events_of(Stream("clicks", Tags.view, data))
        assert [event.user for event in found] == [7, 8, 9]
        assert [(e.ts, e.page, e.seq, e.stream) for e in found] == [(e.ts, e.page, e.seq, e.stream) for e in EXPECTED]
        assert all(type(event.user) is int and type(event.ts) is int for event in found)

    def test_events(self) -> None:
        (part,) = parts_of(Stream("clicks", Tags.view, view_columns()))
        assert list(part.batch) == EXPECTED
        assert (part.rank, part.number, part.batch.streams) == (1, 0, ("first", "clicks"))
        assert part.batch.rank.tolist() == [1, 1, 1]
        assert part.ts_type == pa.int64()

    def test_parts_are_numbered_and_positions_start_anew(self) -> None:
        table = pa.table(view_columns())
        parts = parts_of(Stream("clicks", Tags.view, [table.slice(0, 1), table.slice(1), table.slice(0, 0)]))
        assert [part.number for part in parts] == [0, 1, 2]
        assert [part.batch.seq.tolist() for part in parts] == [[0], [0, 1], []]

    @pytest.mark.parametrize(
        "data", [[], {"ts": [], "page": [], "user": [], "price": []}, pa.table(view_columns()).slice(3)]
    )
    def test_no_rows(self, data: object) -> None:
        (part,) = parts_of(Stream("clicks", Tags.view, data))
        assert len(part.batch) == 0
        (part,) = parts_of(
            Stream(
                "clicks",
                BOTH,
                pa.table(dict.fromkeys(("ts", "kind", "page", "user", "price", "info"), ())),
                tag_column="kind",
            )
        )
        assert len(part.batch) == 0

    def test_no_rows_of_several_tags(self) -> None:
        (part,) = parts_of(Stream("clicks", BOTH, [], tag_column="kind"))
        assert len(part.batch) == 0

    @pytest.mark.parametrize("data", [5, "text", None, [1, 2], [pa.table({}), {}], pd.Series([1]), iter([]), {1, 2}])
    def test_other_shapes(self, data: object) -> None:
        with pytest.raises(UsageError, match=r"STREAM_DATA.*'clicks': data is a"):
            Stream("clicks", Tags.view, data).parts()

    def test_rows_may_lack_what_may_be_null(self) -> None:
        rows: list[dict[str, object]] = [
            {"ts": 1, "page": "a", "user": 1},
            {"ts": 2, "page": "b", "user": 2, "price": 3},
        ]
        assert [event.price for event in events_of(Stream("clicks", Tags.view, rows))] == [None, 3.0]

    def test_python_numbers_take_the_declared_type(self) -> None:
        data = {"ts": [1], "k": [5], "n": [6], "b": [-7], "f": [1]}
        (event,) = events_of(Stream("clicks", Tags.small, data))
        assert (event.k, event.n, event.b, event.f) == (5, 6, -7, 1.0)
        (part,) = parts_of(Stream("clicks", Tags.small, data))
        assert part.batch.tables[0].schema == Tags.small.schema

    def test_a_tag_without_columns(self) -> None:
        assert [event.ts for event in events_of(Stream("clicks", Tags.tick, {"ts": [1, 2]}))] == [1, 2]
        rows = [{"ts": 1}, {"ts": 2}]
        assert [event.ts for event in events_of(Stream("clicks", Tags.tick, rows))] == [1, 2]

    def test_no_copy_of_columns_that_fit(self) -> None:
        table = pa.table(view_columns())
        (part,) = parts_of(Stream("clicks", Tags.view, table.select(["price", "ts", "user", "page"])))
        for name in ("page", "user", "price"):
            assert part.batch.arrow(name).buffers()[-1].address == table[name].chunk(0).buffers()[-1].address
        assert part.batch.ts.__array_interface__["data"][0] == table["ts"].chunk(0).buffers()[1].address


class TestTypes:
    @pytest.mark.parametrize(
        "page",
        [
            pa.array(["a", "b", "a"], pa.large_string()),
            pa.array(["a", "b", "a"], pa.string_view()),
            pa.array(["a", "b", "a"]).dictionary_encode(),
            pa.chunked_array([["a"], ["b", "a"]]).dictionary_encode(),
            pa.chunked_array([pa.array(["a"]).dictionary_encode(), pa.array(["b", "a"]).dictionary_encode()]),
            pa.array(["x", "a", "b", "a"])[1:],
            pd.Categorical(["a", "b", "a"]),
        ],
        ids=["large", "view", "dictionary", "chunked dictionary", "two dictionaries", "sliced", "categorical"],
    )
    def test_text(self, page: object) -> None:
        (part,) = parts_of(Stream("clicks", Tags.view, view_columns(page=page)))
        assert part.batch.keys.equals(pa.array(["a", "b", "a"]))

    @pytest.mark.parametrize("type_", [pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint32()])
    def test_narrower_integers(self, type_: pa.DataType) -> None:
        (part,) = parts_of(Stream("clicks", Tags.view, view_columns(user=pa.array([7, 8, 9], type_))))
        assert part.batch.arrow("user").equals(pa.array([7, 8, 9]))

    def test_other_types(self) -> None:
        moment = datetime(2020, 1, 2, 3, 4, 5, 6, UTC)
        data = {
            "ts": [1],
            "a": [[1, 2]],
            "d": pa.array([1], pa.decimal128(5, 1)),
            "t": pa.array([moment], pa.timestamp("us", tz="Europe/Berlin")),
            "day": [date(2020, 1, 2)],
            "raw": pa.array([b"xyz"], pa.binary(3)),
            "flag": [True],
        }
        (event,) = events_of(Stream("clicks", Tags.odd, data))
        assert (event.a, str(event.d), event.t, event.day, event.raw, event.flag) == (
            [1, 2],
            "1.00",
            moment,
            date(2020, 1, 2),
            b"xyz",
            True,
        )

    def test_a_column_of_nulls_fits_what_may_be_null(self) -> None:
        (part,) = parts_of(Stream("clicks", Tags.view, view_columns(price=pa.nulls(3))))
        assert part.batch.arrow("price").equals(pa.nulls(3, pa.float64()))


class TestTimestamps:
    @pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
    def test_units(self, unit: str) -> None:
        ts = pa.array([1, 2, 3], pa.timestamp("s")).cast(pa.timestamp(unit))
        (part,) = parts_of(Stream("clicks", Tags.tick, pa.table({"ts": ts})))
        assert part.batch.ts.tolist() == [1_000_000, 2_000_000, 3_000_000]
        assert part.ts_type == pa.timestamp("us")

    @pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York", "+05:30"])
    def test_zones_are_names_for_the_same_moments(self, zone: str) -> None:
        ts = pa.array([0, 10**9], pa.timestamp("ms", tz=zone))
        (part,) = parts_of(Stream("clicks", Tags.tick, pa.table({"ts": ts})))
        assert part.batch.ts.tolist() == [0, 10**12]
        assert part.ts_type == pa.timestamp("us", tz="UTC")

    @pytest.mark.parametrize("type_", [pa.date32(), pa.date64()])
    def test_dates(self, type_: pa.DataType) -> None:
        ts = pa.array([date(1970, 1, 1), date(1970, 1, 2)], type_)
        (part,) = parts_of(Stream("clicks", Tags.tick, pa.table({"ts": ts})))
        assert part.batch.ts.tolist() == [0, 86_400_000_000]

    def test_python_and_pandas(self) -> None:
        moments = [datetime(1970, 1, 1, 0, 0, s, tzinfo=UTC) for s in (1, 2)]
        for data in ({"ts": moments}, [{"ts": m} for m in moments], pd.DataFrame({"ts": pd.to_datetime(moments)})):
            (part,) = parts_of(Stream("clicks", Tags.tick, data))
            assert part.batch.ts.tolist() == [1_000_000, 2_000_000]

    @pytest.mark.parametrize("type_", [pa.int8(), pa.int32(), pa.uint64()])
    def test_integers(self, type_: pa.DataType) -> None:
        (part,) = parts_of(Stream("clicks", Tags.tick, pa.table({"ts": pa.array([1, 2], type_)})))
        assert part.batch.ts.tolist() == [1, 2]
        assert part.batch.ts.dtype == np.int64

    @pytest.mark.parametrize(
        ("ts", "expected"),
        [
            ([1, None, 3], ("NULL_TIMESTAMP", 0, 1, "ts")),
            ([None, None], ("NULL_TIMESTAMP", 0, 0, "ts")),
            (pa.array([1, 2, None]).dictionary_encode(), ("NULL_TIMESTAMP", 0, 2, "ts")),
            ([1, 3, 2, 1], ("DECREASING_TIMESTAMP", 0, 2, "ts")),
            ([1.5, 2.0], ("TIMESTAMP_TYPE", 0, None, "ts")),
            (["1", "2"], ("TIMESTAMP_TYPE", 0, None, "ts")),
            ([[1], [2]], ("TIMESTAMP_TYPE", 0, None, "ts")),
            ([1, 2, "x"], ("COLUMN_TYPE", 0, 2, "ts")),
            (pa.array([1, 2**63], pa.uint64()), ("COLUMN_TYPE", 0, 1, "ts")),
            (pa.array([0, 1], pa.timestamp("ns")), ("COLUMN_TYPE", 0, 1, "ts")),
            (pa.array([0, 2**62], pa.timestamp("s")), ("COLUMN_TYPE", 0, 1, "ts")),
            (..., ("MISSING_COLUMN", 0, None, "ts")),
        ],
    )
    def test_bad(self, ts: object, expected: tuple[str, int, int | None, str]) -> None:
        data = {} if ts is ... else {"ts": ts}
        assert place(refused(lambda: Stream("clicks", Tags.tick, data))) == expected

    def test_decreasing_says_between_what(self) -> None:
        error = refused(lambda: Stream("clicks", Tags.tick, {"ts": [5, 3]}))
        assert "the timestamp 3 comes after 5" in str(error)
        assert "sorted=False" in str(error.hint)

    def test_the_part_is_named(self) -> None:
        good, bad = pa.table({"ts": [9, 9]}), pa.table({"ts": [1, None]})
        assert place(refused(lambda: Stream("clicks", Tags.tick, [good, good, bad]))) == ("NULL_TIMESTAMP", 2, 1, "ts")

    def test_each_part_has_its_own_times(self) -> None:
        parts = parts_of(Stream("clicks", Tags.tick, [pa.table({"ts": [5, 6]}), pa.table({"ts": [1, 2]})]))
        assert [part.batch.ts.tolist() for part in parts] == [[5, 6], [1, 2]]


class TestSorting:
    def test_unsorted_parts_are_sorted_and_positions_are_those_of_the_input(self) -> None:
        data = view_columns(ts=[3, 1, 3])
        (part,) = parts_of(Stream("clicks", Tags.view, data, sorted=False))
        assert [(event.ts, event.seq, event.user) for event in part.batch] == [(1, 1, 8), (3, 0, 7), (3, 2, 9)]

    def test_of_several_tags(self) -> None:
        data = {
            "ts": [2, 1],
            "kind": ["v", "c"],
            "page": ["a", "b"],
            "user": [1, None],
            "price": [1, 2],
            "info": ["x", "y"],
        }
        (part,) = parts_of(Stream("clicks", BOTH, data, tag_column="kind", sorted=False))
        assert [(event.tag.name, event.ts) for event in part.batch] == [("change", 1), ("view", 2)]

    def test_seq_orders_equal_timestamps(self) -> None:
        data = view_columns(ts=[1, 1, 1], seq=[5, 4, 9])
        (part,) = parts_of(Stream("clicks", Tags.view, data, seq="seq", sorted=False))
        assert [(event.seq, event.user) for event in part.batch] == [(4, 8), (5, 7), (9, 9)]

    def test_a_sorted_part_is_sorted_by_seq_too(self) -> None:
        stream = Stream("clicks", Tags.view, view_columns(ts=[1, 2, 2], seq=[9, 5, 4]), seq="seq")
        error = refused(lambda: stream)
        assert place(error) == ("DECREASING_SEQ", 0, 2, "seq")
        assert "4 comes after 5 at the timestamp 2" in str(error)

    @pytest.mark.parametrize(
        ("seq", "expected"),
        [
            ([1, None, 3], ("NULL_SEQ", 0, 1, "seq")),
            ([1.5, 2, 3], ("COLUMN_TYPE", 0, None, "seq")),
            (["a", "b", "c"], ("COLUMN_TYPE", 0, None, "seq")),
            (pa.array([1, 2, 2**63], pa.uint64()), ("COLUMN_TYPE", 0, 2, "seq")),
            (..., ("MISSING_COLUMN", 0, None, "seq")),
        ],
    )
    def test_bad_seq(self, seq: object, expected: tuple[str, int, int | None, str]) -> None:
        assert place(refused(lambda: Stream("clicks", Tags.view, view_columns(seq=seq), seq="seq"))) == expected


class TestColumns:
    @pytest.mark.parametrize(
        ("changed", "expected"),
        [
            ({"page": ...}, ("MISSING_COLUMN", 0, None, "page")),
            ({"user": ...}, ("MISSING_COLUMN", 0, None, "user")),
            ({"page": ["a", None, "a"]}, ("NULL_KEY", 0, 1, "page")),
            ({"page": [None, None, None]}, ("NULL_KEY", 0, 0, "page")),
            ({"user": [1, 2, None]}, ("NULL_VALUE", 0, 2, "user")),
            ({"user": [1, "x", 3]}, ("COLUMN_TYPE", 0, 1, "user")),
            ({"user": [1, 2.5, 3]}, ("COLUMN_TYPE", 0, 1, "user")),
            ({"user": [1, 2, 2**63]}, ("COLUMN_TYPE", 0, 2, "user")),
            ({"page": ["a", b"b", "c"]}, ("COLUMN_TYPE", 0, 1, "page")),
            ({"page": [1, 2, 3]}, ("COLUMN_TYPE", 0, 0, "page")),
            ({"price": [1.0, "x", 2]}, ("COLUMN_TYPE", 0, 1, "price")),
            ({"user": [1, 2]}, ("COLUMN_LENGTH", 0, None, "user")),
            ({"user": 5}, ("COLUMN_TYPE", 0, None, "user")),
            ({"page": "abc"}, ("COLUMN_TYPE", 0, None, "page")),
            ({"user": None}, ("COLUMN_TYPE", 0, None, "user")),
            ({"user": np.array([1.0, 2.0, 3.0])}, ("COLUMN_TYPE", 0, None, "user")),
            ({"user": np.array([1, "x", 3], object)}, ("COLUMN_TYPE", 0, 1, "user")),
            ({"user": pa.array(["1", "2", "3"])}, ("COLUMN_TYPE", 0, None, "user")),
            ({"user": pa.array([1, 2, 2**63], pa.uint64())}, ("COLUMN_TYPE", 0, 2, "user")),
            ({"page": pa.array([b"a", b"b", b"c"])}, ("COLUMN_TYPE", 0, None, "page")),
            ({"page": pa.array([True, False, True])}, ("COLUMN_TYPE", 0, None, "page")),
            ({"page": pa.array([["a"], ["b"], ["c"]])}, ("COLUMN_TYPE", 0, None, "page")),
        ],
    )
    def test_bad(self, changed: dict[str, object], expected: tuple[str, int, int | None, str]) -> None:
        error = refused(lambda: Stream("clicks", Tags.view, view_columns(**changed)))
        assert place(error) == expected
        for named in (f"column {expected[3]!r}", *([f"row {expected[2]}"] if expected[2] is not None else [])):
            assert named in str(error)

    @pytest.mark.parametrize("shape", ["rows", "pandas", "table"])
    @pytest.mark.parametrize(
        ("changed", "condition", "column"),
        [
            ({"page": ...}, "MISSING_COLUMN", "page"),
            ({"page": ["a", None, "a"]}, "NULL_KEY", "page"),
            ({"ts": [1, 3, 2]}, "DECREASING_TIMESTAMP", "ts"),
            ({"page": [True, False, True]}, "COLUMN_TYPE", "page"),
        ],
    )
    def test_bad_in_other_shapes(self, shape: str, changed: dict[str, object], condition: str, column: str) -> None:
        columns = view_columns(**changed)
        shapes: dict[str, Callable[[], object]] = {
            "rows": lambda: [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)],
            "pandas": lambda: pd.DataFrame(columns),
            "table": lambda: pa.table(columns),
        }
        error = refused(lambda: Stream("clicks", Tags.view, shapes[shape]()))
        assert (error.condition, error.column, error.part) == (condition, column, 0)

    def test_pandas_of_mixed_values(self) -> None:
        error = refused(lambda: Stream("clicks", Tags.view, pd.DataFrame(view_columns(user=[1, "x", 3]))))
        assert place(error) == ("COLUMN_TYPE", 0, 1, "user")
        error = refused(lambda: Stream("clicks", Tags.view, pd.DataFrame(view_columns(user=[1.0, None, 3.0]))))
        assert place(error) == ("COLUMN_TYPE", 0, None, "user")

    @pytest.mark.parametrize("data", [pd.DataFrame([[1, 1]], columns=["ts", "ts"]), pa.table([[1], [1]], ["ts", "ts"])])
    def test_a_column_that_stands_twice(self, data: object) -> None:
        assert place(refused(lambda: Stream("clicks", Tags.tick, data))) == ("DUPLICATE_COLUMN", 0, None, "ts")

    def test_missing_says_what_is_there_even_if_nobody_asked_for_it(self) -> None:
        for data in (
            view_columns(page=..., pagee=[1, 2, 3]),
            pa.table(view_columns(page=..., pagee=[1, 2, 3])).to_pylist(),
        ):
            error = refused(lambda data=data: Stream("clicks", Tags.view, data))  # type: ignore[misc]
            assert "'page' of tag 'view'" in str(error)
            assert "pagee" in str(error)

    @pytest.mark.parametrize(
        ("column", "values", "row"),
        [
            ("n", pa.array([1], pa.int64()), None),
            ("n", [2**31], 0),
            ("b", [200], 0),
            ("k", pa.array([1], pa.int64()), None),
            ("f", pa.array([1.0], pa.float64()), None),
            ("f", ["x"], 0),
        ],
    )
    def test_wider_than_declared(self, column: str, values: object, row: int | None) -> None:
        data = {"ts": [1], "k": [5], "n": [6], "b": [-7], "f": [1], column: values}
        assert place(refused(lambda: Stream("clicks", Tags.small, data))) == ("COLUMN_TYPE", 0, row, column)

    @pytest.mark.parametrize(
        ("column", "values", "row"),
        [
            ("a", pa.array([["x"]]), 0),
            ("a", pa.array([5]), None),
            ("a", [["x"]], 0),
            ("d", pa.array([12345678901], pa.decimal128(12, 0)), 0),
            ("t", [5], 0),
            ("day", ["2020-01-01"], 0),
            ("raw", ["x"], 0),
            ("flag", [1], 0),
        ],
    )
    def test_other_types(self, column: str, values: object, row: int | None) -> None:
        data = {"ts": [1], **{name: [None] for name in Tags.odd.columns.names}, column: values}
        assert place(refused(lambda: Stream("clicks", Tags.odd, data))) == ("COLUMN_TYPE", 0, row, column)

    def test_keys_that_are_not_listed(self) -> None:
        error = refused(lambda: Stream("clicks", Tags.listed, {"ts": [1, 2, 3], "k": [1, 2, 3]}))
        assert place(error) == ("UNKNOWN_KEY", 0, 2, "k")
        assert len(events_of(Stream("clicks", Tags.listed, {"ts": [1, 2], "k": [1, 2]}))) == 2


class TestRename:
    def test_columns_of_other_names(self) -> None:
        data = {"t": [1], "page_id": ["a"], "user": [2], "price": [None], "n": [5], "page": [7]}
        stream = Stream("clicks", Tags.view, data, ts="t", seq="n", rename={"page": "page_id"})
        assert events_of(stream) == [Tags.view.event(ts=1, stream="clicks", seq=5, page="a", user=2, price=None)]

    def test_errors_name_the_column_of_the_data(self) -> None:
        stream = Stream("clicks", Tags.view, view_columns(page_id=["a", None, "b"]), rename={"page": "page_id"})
        assert place(refused(lambda: stream)) == ("NULL_KEY", 0, 1, "page_id")

    def test_of_nothing(self) -> None:
        with pytest.raises(UsageError, match=r"RENAME.*\['pages'\]"):
            Stream("clicks", Tags.view, [], rename={"pages": "x"})


class TestSeveralTags:
    data: dict[str, Sequence[object]] = {
        "ts": [1, 2, 3, 3],
        "kind": ["v", "c", "c", "v"],
        "page": ["a", "b", "a", "b"],
        "user": [7, None, None, 8],
        "price": [None, None, None, 2.0],
        "info": [None, "x", "y", None],
    }

    def test_each_tag_has_its_columns(self) -> None:
        found = events_of(Stream("clicks", BOTH, self.data, tag_column="kind"))
        assert found == [
            Tags.view.event(ts=1, stream="clicks", seq=0, page="a", user=7, price=None),
            Tags.change.event(ts=2, stream="clicks", seq=1, page="b", info="x"),
            Tags.change.event(ts=3, stream="clicks", seq=2, page="a", info="y"),
            Tags.view.event(ts=3, stream="clicks", seq=3, page="b", user=8, price=2.0),
        ]

    @pytest.mark.parametrize("kind", [[1, 2, 2, 1], pa.array([1, 2, 2, 1], pa.int8()), [True, False, False, True]])
    def test_values_that_tell_tags_apart(self, kind: Any) -> None:
        tags = {1: Tags.view, 2: Tags.change, False: Tags.change}
        found = events_of(Stream("clicks", tags, {**self.data, "kind": kind}, tag_column="kind"))
        assert [event.tag.name for event in found] == ["view", "change", "change", "view"]

    def test_several_values_may_mean_one_tag(self) -> None:
        tags = {"v": Tags.tick, "c": Tags.tick}
        found = events_of(Stream("clicks", tags, self.data, tag_column="kind"))
        assert [event.tag for event in found] == [Tags.tick] * 4

    @pytest.mark.parametrize(
        ("changed", "expected"),
        [
            ({"kind": ["v", "c", "x", "v"]}, ("UNKNOWN_TAG", 0, 2, "kind")),
            ({"kind": ["v", None, "c", "v"]}, ("NULL_TAG", 0, 1, "kind")),
            ({"kind": [1.0, float("nan"), 2.0, 3.0]}, ("UNKNOWN_TAG", 0, 0, "kind")),
            ({"kind": [["v"], ["c"], ["c"], ["v"]]}, ("COLUMN_TYPE", 0, None, "kind")),
            ({"kind": ["v", 1, "c", "v"]}, ("COLUMN_TYPE", 0, 1, "kind")),
            ({"user": [7, None, None, None]}, ("NULL_VALUE", 0, 3, "user")),
            ({"page": ["a", "b", None, "b"]}, ("NULL_KEY", 0, 2, "page")),
        ],
    )
    def test_bad(self, changed: dict[str, object], expected: tuple[str, int, int | None, str]) -> None:
        stream = Stream("clicks", BOTH, {**self.data, **changed}, tag_column="kind")
        assert place(refused(lambda: stream)) == expected

    def test_no_tag_column(self) -> None:
        data = {name: values for name, values in self.data.items() if name != "kind"}
        error = refused(lambda: Stream("clicks", BOTH, data, tag_column="kind"))
        assert place(error) == ("MISSING_COLUMN", 0, None, "kind")


@pytest.mark.parametrize(
    ("make", "condition"),
    [
        (lambda: Stream("", Tags.view, []), "STREAM_NAME"),
        (lambda: Stream(5, Tags.view, []), "STREAM_NAME"),  # type: ignore[arg-type]
        (lambda: Stream("s", BOTH, []), "STREAM_TAGS"),
        (lambda: Stream("s", Tags.view, [], tag_column="kind"), "STREAM_TAGS"),
        (lambda: Stream("s", "view", []), "STREAM_TAGS"),  # type: ignore[arg-type]
        (lambda: Stream("s", "view", [], tag_column="kind"), "STREAM_TAGS"),  # type: ignore[arg-type]
        (lambda: Stream("s", {}, [], tag_column="kind"), "STREAM_TAGS"),
        (lambda: Stream("s", {"v": "view"}, [], tag_column="kind"), "STREAM_TAGS"),  # type: ignore[dict-item]
    ],
)
def test_declarations_that_can_not_be_meant(make: Callable[[], Stream], condition: str) -> None:
    with pytest.raises(UsageError) as caught:
        make()
    assert caught.value.condition == condition


def test_where_it_was_declared() -> None:
    stream, here = Stream("s", Tags.tick, []), user_line(0)
    assert stream.where == here
    assert stream.tags == (Tags.tick,)


@pytest.mark.parametrize("options", [{"rename": None}, {"rename": {"user": 5}}, {"ts": 5}, {"ts": None}, {"seq": 5}])
def test_options_of_no_kind(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"{next(iter(options))}= is"):
        Stream("clicks", Tags.view, view_columns(), **options)


def test_timestamps_with_and_without_a_zone_do_not_mix() -> None:
    aware, naive = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2)  # noqa: DTZ001 -- that is the point
    for stamps in ([aware, aware, naive], [naive, naive, aware]):
        for data in ([{"ts": ts} for ts in stamps], pd.DataFrame({"ts": pd.Series(stamps, dtype=object)})):
            with pytest.raises(InputError, match="time zone") as caught:
                parts_of(Stream("clicks", Tags.tick, data))
            assert (caught.value.row, caught.value.column) == (2, "ts")


def test_data_frames_as_parts() -> None:
    frames = [pd.DataFrame(view_columns()), pd.DataFrame(view_columns())]
    parts = parts_of(Stream("clicks", Tags.view, frames))
    assert [len(part.batch) for part in parts] == [3, 3]
    with pytest.raises(UsageError, match="DataFrame"):
        Stream("clicks", Tags.view, [pd.DataFrame(view_columns()), 3]).parts()
