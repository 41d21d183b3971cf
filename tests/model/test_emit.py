from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from flumina.errors import OutputError
from flumina.model import emit as emitting
from flumina.model.batch import Batch
from flumina.model.emit import EVENT_COLUMNS, Chunk, Emit
from flumina.model.event import Event
from flumina.model.schema import Schema
from flumina.model.tag import Tag


class Tags:
    view = Tag("user long", key="page string")


def view(ts: int = 3) -> Event:
    return Tags.view.event(ts=ts, stream="views", seq=ts, page="a", user=ts * 10)


def emitter(**outputs: str) -> Emit:
    return Emit({name: Schema.parse(ddl) for name, ddl in outputs.items()})


def on_event(ddl: str) -> Emit:
    emit = emitter(output=ddl)
    emit.event = view()
    return emit


def on_batch(ddl: str, count: int = 3) -> Emit:
    emit = emitter(output=ddl)
    emit.batch = Batch.of_events([view(ts) for ts in range(count)])
    return emit


def table(emit: Emit, ddl: str) -> pa.Table:
    return emitting.table(Schema.parse(ddl), emit.drain())


class TestRows:
    def test_by_position_and_by_name(self) -> None:
        emit = on_event("page string, n long")
        emit("a", 1)
        emit(n=2, page="b")
        rows = emitting.rows(emit.drain())
        assert [row.values for row in rows] == [("a", 1), ("b", 2)]
        assert {(row.output, row.event) for row in rows} == {("output", view())}
        assert repr(rows[0]) == "output('a', 1) by view(page='a', user=30)@3 views#3"
        assert emit.drain() == []

    def test_named_outputs(self) -> None:
        emit = emitter(flagged="v long", total="n long, m long")
        emit.event = view()
        emit.flagged(5)
        emit.total(1, 2)
        assert [(row.output, row.values) for row in emitting.rows(emit.drain())] == [
            ("flagged", (5,)),
            ("total", (1, 2)),
        ]

    def test_as_a_table(self) -> None:
        emit = on_event("page string, n long NOT NULL")
        emit("a", 1)
        emit(None, 2)
        made = table(emit, "page string, n long NOT NULL")
        assert made.schema == pa.schema(
            [("page", pa.string()), pa.field("n", pa.int64(), nullable=False), *EVENT_COLUMNS]
        )
        assert made.to_pylist() == [
            {"page": "a", "n": 1, "event_ts": 3, "event_stream": "views"},
            {"page": None, "n": 2, "event_ts": 3, "event_stream": "views"},
        ]

    @pytest.mark.parametrize(
        ("call", "says"),
        [
            (lambda emit: emit("a"), "takes 2 values (page string, n long), got 1: ('a',)"),
            (lambda emit: emit("a", 1, 2), "got 3"),
            (lambda emit: emit(), "got 0"),
            (lambda emit: emit(page="a"), "takes the columns page string, n long, got ['page']"),
            (lambda emit: emit("a", n=1), "got ['n']"),
            (lambda emit: emit(page="a", n=1, m=2), "got ['m', 'n', 'page']"),
            (lambda emit: emit.columns(["a"], [1]), "columns can be emitted from update_batch only"),
        ],
    )
    def test_wrong_arity(self, call: Callable[[Emit], None], says: str) -> None:
        with pytest.raises(OutputError) as caught:
            call(on_event("page string, n long"))
        assert str(caught.value).startswith("[OUTPUT] output 'output' ")
        assert says in str(caught.value)

    def test_which_output(self) -> None:
        emit = emitter(flagged="v long", total="n long")
        with pytest.raises(OutputError, match=r"this one has emit\.flagged\(\.\.\.\), emit\.total\(\.\.\.\)"):
            emit(1)
        with pytest.raises(AttributeError, match=r"no output is called 'flaged'; declared: \['flagged', 'total'\]"):
            emit.flaged(1)
        with pytest.raises(OutputError, match="no output is declared"):
            emitter()(1)

    @pytest.mark.parametrize(
        ("ddl", "value", "wanted"),
        [
            ("long", "x", "long"),
            ("long", 3.5, "long"),
            ("long", 2**63, "long"),
            ("long", True, "long"),
            ("int", 2**31, "int"),
            ("string", 5, "string"),
            ("string", b"x", "string"),
            ("binary", "x", "binary"),
            ("date", 1.5, "date"),
            ("timestamp", 1, "timestamp"),
            ("boolean", 1, "boolean"),
            ("array<long>", [1, "x"], "array<long>"),
            ("array<long>", [1.5], "array<long>"),
            ("struct<a:long>", {"a": "x"}, "struct<a:long>"),
            ("long NOT NULL", None, "long NOT NULL"),
        ],
    )
    def test_a_wrong_type_names_output_column_value_and_event(self, ddl: str, value: object, wanted: str) -> None:
        ddl = f"page string, v {ddl}"
        emit = on_event(ddl)
        emit("fine", None if "NOT NULL" not in ddl else 1)
        emit.event = view(7)
        emit("wrong", value)
        with pytest.raises(OutputError) as caught:
            table(emit, ddl)
        assert caught.value.condition == "OUTPUT_TYPE"
        assert caught.value.message == (
            f"output 'output', column 'v': expected {wanted}, got {value!r}, "
            "emitted by view(page='a', user=70)@7 views#7"
        )

    @pytest.mark.parametrize(
        ("ddl", "value"),
        [
            ("double", 1),
            ("byte", -128),
            ("decimal(5,2)", Decimal("1.25")),
            ("date", date(2020, 1, 1)),
            ("array<array<long>>", [[1], []]),
            ("map<string,long>", {"a": 1}),
            ("boolean", True),
            ("long", np.int64(4)),
            ("double", np.float64(4.5)),
        ],
    )
    def test_right_types(self, ddl: str, value: object) -> None:
        emit = on_event(f"v {ddl}")
        emit(value)
        assert table(emit, f"v {ddl}").num_rows == 1

    def test_mutable_values_are_copied_when_emitted(self) -> None:
        inner = [1]
        values: list[Any] = [[inner], {"k": inner}, (inner, 2), np.array([1])]
        emit = on_event("a array<array<long>>, b map<string,array<long>>, c string, d array<long>")
        emit(*values)
        inner.append(2)
        values[0].append([3])
        values[3][0] = 9
        row = emitting.rows(emit.drain())[0].values
        assert row[:3] == ([[1]], {"k": [1]}, ([1], 2))
        assert row[3].tolist() == [1]

    def test_sets_have_one_order(self) -> None:
        """The order of a Python set depends on its history, which a fork or a join would show."""
        up, down = set(range(100, 0, -7)), set(range(2, 101, 7))
        emit = on_event("v array<long>")
        emit(up | down)
        emit(down | up)
        emit(frozenset({2, None, 1}))
        first, second, mixed = (row.values[0] for row in emitting.rows(emit.drain()))
        assert first == second == sorted(up | down)
        assert sorted(map(repr, mixed)) == ["1", "2", "None"]


class TestColumns:
    def test_one_row_for_each_event(self) -> None:
        emit = on_batch("page string, n long")
        emit.columns(["a", "b", "c"], np.array([1, 2, 3]))
        emit.columns(n=pa.array([4, 5, 6]), page=pa.array(["d", None, "f"]))
        items = emit.drain()
        rows = emitting.rows(items)
        assert [row.values for row in rows] == [("a", 1), ("b", 2), ("c", 3), ("d", 4), (None, 5), ("f", 6)]
        assert [row.event.ts for row in rows] == [0, 1, 2, 0, 1, 2]
        made = emitting.table(Schema.parse("page string, n long"), items)
        assert made.column("event_ts").to_pylist() == [0, 1, 2, 0, 1, 2]
        assert made.column("event_stream").to_pylist() == ["views"] * 6
        assert made.column("n").to_pylist() == [1, 2, 3, 4, 5, 6]

    def test_causing_events_by_index_and_by_mask(self) -> None:
        emit = on_batch("n long")
        emit.columns([7, 8], at=[2, 0])
        emit.columns([9], at=np.array([False, True, False]))
        emit.columns([], at=[])
        emit.columns([1], at=pa.array([True, False, False]))
        items = emit.drain()
        expected = [(7, 2), (8, 0), (9, 1), (1, 0)]
        assert [(row.values[0], row.event.ts) for row in emitting.rows(items)] == expected
        made = emitting.table(Schema.parse("n long"), items)
        assert list(zip(made["n"].to_pylist(), made["event_ts"].to_pylist(), strict=True)) == expected

    @pytest.mark.parametrize(
        "column",
        [
            [1, 2, 3],
            (1, 2, 3),
            np.array([1, 2, 3], np.int16),
            np.array([1, 2, 3], object),
            pa.array([1, 2, 3], pa.int8()),
            pa.chunked_array([[1], [2, 3]]),
            pa.array([1, 2, 3]).dictionary_encode(),
        ],
        ids=lambda column: type(column).__name__,
    )
    def test_kinds_of_columns(self, column: object) -> None:
        emit = on_batch("n long")
        emit.columns(column)
        assert table(emit, "n long")["n"].to_pylist() == [1, 2, 3]

    def test_numpy_columns_that_can_change_are_copied(self) -> None:
        emit = on_batch("n long")
        values = np.array([1, 2, 3])
        emit.columns(values)
        values[0] = 9
        assert table(emit, "n long")["n"].to_pylist() == [1, 2, 3]

    def test_columns_that_can_not_change_are_not(self) -> None:
        emit = on_batch("user long")
        assert emit.batch is not None
        emit.columns(emit.batch["user"])
        address = emit.batch.arrow("user").buffers()[1].address
        (chunk,) = emit.drain()
        assert isinstance(chunk, Chunk)
        assert chunk.columns.column(0).buffers()[1].address == address

    @pytest.mark.parametrize(
        ("call", "says"),
        [
            (lambda emit: emit.columns([1, 2, 3], [1, 2, 3]), "takes 1 columns (n long), got 2"),
            (lambda emit: emit.columns([1, 2]), "one row for each of 3 causing events, got n: 2"),
            (lambda emit: emit.columns([1, 2], at=[0]), "one row for each of 1 causing events, got n: 2"),
            (lambda emit: emit.columns([1], at=[3]), "at= names events outside the batch of 3"),
            (lambda emit: emit.columns([1], at=[-1]), "at= names events outside the batch of 3"),
            (lambda emit: emit.columns([1], at=[0.5]), "at= is a mask or a column of indices, got float64"),
            (lambda emit: emit.columns([1], at=[True]), "at= is a mask of 1 over a batch of 3 events"),
            (lambda emit: emit.columns(m=[1, 2, 3]), "takes the columns n long, got ['m']"),
            (lambda emit: emit.columns("abc"), "column 'n' takes a column, got 'abc'"),
            (lambda emit: emit.columns(5), "column 'n' takes a column, got 5"),
            (lambda emit: emit(1), "single rows can't be emitted from update_batch"),
        ],
    )
    def test_mistakes(self, call: Callable[[Emit], None], says: str) -> None:
        with pytest.raises(OutputError) as caught:
            call(on_batch("n long"))
        assert "[OUTPUT] output 'output' " in str(caught.value)
        assert says in str(caught.value)

    @pytest.mark.parametrize(
        ("ddl", "column", "value"),
        [
            ("long", [1, "x", 3], "x"),
            ("long", np.array([1.0, 2.5, 3.0]), 1.0),
            ("long", pa.array(["1", "2", "3"]), "1"),
            ("int", np.array([1, 2**40, 3]), 2**40),
            ("string", np.array([1, 2, 3]), 1),
            ("boolean", [True, 1, False], 1),
            ("long NOT NULL", [1, None, 3], None),
            ("long NOT NULL", pa.array([1, None, 3]), None),
        ],
    )
    def test_a_wrong_type_names_output_column_value_and_event(self, ddl: str, column: object, value: object) -> None:
        """The rules are those of single rows, so that update and update_batch can agree."""
        emit = on_batch(f"v {ddl}")
        with pytest.raises(OutputError) as caught:
            emit.columns(column)
        assert caught.value.condition == "OUTPUT_TYPE"
        event = view(0 if value in (1, 1.0, "1") and ddl != "boolean" else 1)
        assert (
            caught.value.message == f"output 'output', column 'v': expected {ddl}, got {value!r}, emitted by {event!r}"
        )

    def test_with_rows_between(self) -> None:
        emit = on_batch("n long")
        emit.columns([1, 2, 3])
        emit.event = view(9)
        emit(4)
        emit.columns([5, 6, 7])
        assert table(emit, "n long")["n"].to_pylist() == [1, 2, 3, 4, 5, 6, 7]


def test_no_outputs_make_an_empty_table() -> None:
    made = emitting.table(Schema.parse("n long"), [])
    assert (made.num_rows, made.column_names) == (0, ["n", "event_ts", "event_stream"])


def test_sets_within_values_are_in_an_order_that_is_always_the_same() -> None:
    emit = Emit({"output": Schema.parse("m map<string, array<string>>, s array<array<long>>")})
    emit.event = view()
    letters = [chr(ord("a") + n) for n in range(20)]
    emit({"x": set(letters)}, [frozenset({3, 1}), {2}])
    (row,) = emitting.rows(emit.drain())
    assert row.values == ({"x": letters}, [[1, 3], [2]])


BAD_INSIDE = [
    ("o struct<b:long NOT NULL>", {"b": 1}, {"b": None}),
    ("o struct<b:long NOT NULL>", {"b": 1}, {}),
    ("o struct<a:struct<b:long NOT NULL>>", {"a": None}, {"a": {"b": None}}),
    ("o array<struct<b:long NOT NULL>>", [], [{"b": 1}, {"b": None}]),
    ("o map<string,struct<b:long NOT NULL>>", {"q": None}, {"q": {"b": None}}),
    ("o array<string>", ["abc"], "abc"),
    ("o array<binary>", [b"abc"], b"abc"),
    ("o array<array<string>>", [["abc"]], ["abc"]),
    ("o array<short>", [1], bytearray(b"abc")),
    ("o struct<a:long,b:string>", {"a": 1}, {"a": 1, "c": 2}),
    ("o array<struct<a:long>>", [{"a": 1}], [{"b": 1}]),
    ("o float", float("inf"), 1e300),
    ("o float", float("nan"), -1e300),
    ("o float", 3.4028235e38, 10**39),
    ("o array<float>", [float("inf"), 1.5], [float("inf"), 1e39]),
]


@pytest.mark.parametrize(("ddl", "good", "bad"), BAD_INSIDE)
def test_values_that_would_be_written_as_others_are_refused(ddl: str, good: Any, bad: Any) -> None:
    emit = on_event(ddl)
    emit(good)
    emit(None)
    assert len(table(emit, ddl)) == 2
    emit(good)
    emit(bad)
    wanted = ddl.removeprefix("o ")
    with pytest.raises(OutputError, match="OUTPUT_TYPE") as caught:
        table(emit, ddl)
    assert f"output 'output', column 'o': expected {wanted}, got {bad!r}, emitted by view(page='a'" in str(caught.value)


@pytest.mark.parametrize(("ddl", "good", "bad"), BAD_INSIDE)
def test_columns_of_them_are_refused_too(ddl: str, good: Any, bad: Any) -> None:
    on_batch(ddl).columns([good, None, good])
    with pytest.raises(OutputError, match=r"OUTPUT_TYPE(.|\n)*column 'o'(.|\n)*emitted by view\(page='a', user=10\)"):
        on_batch(ddl).columns([good, bad, good])


@pytest.mark.parametrize("wrap", [np.array, pa.array])
def test_columns_of_numbers_too_large_for_a_float(wrap: Callable[[list[float]], Any]) -> None:
    emit = on_batch("o float")
    emit.columns(wrap([1.5, float("inf"), float("nan")]))
    assert repr(table(emit, "o float").column("o").to_pylist()) == "[1.5, inf, nan]"
    with pytest.raises(OutputError, match=r"expected float, got 1e\+300, emitted by view\(page='a', user=20\)"):
        emit.columns(wrap([1.5, float("inf"), 1e300]))


def test_arrow_columns_with_null_inside() -> None:
    loose = pa.array([{"b": 1}, None, {"b": None}], pa.struct([("b", pa.int64())]))
    with pytest.raises(OutputError, match=r"expected struct<b:long NOT NULL>, got \{'b': None\}, emitted by .*user=20"):
        on_batch("o struct<b:long NOT NULL>").columns(loose)
