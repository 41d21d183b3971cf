from collections.abc import Sequence
from datetime import date
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from flumina.errors import SchemaError
from flumina.model.schema import BadValueError, Schema, column, same_kind, timestamp_type, type_name


@pytest.mark.parametrize(
    ("ddl", "type_"),
    [
        ("boolean", pa.bool_()),
        ("byte", pa.int8()),
        ("tinyint", pa.int8()),
        ("short", pa.int16()),
        ("smallint", pa.int16()),
        ("int", pa.int32()),
        ("INTEGER", pa.int32()),
        ("Long", pa.int64()),
        ("bigint", pa.int64()),
        ("float", pa.float32()),
        ("real", pa.float32()),
        ("double", pa.float64()),
        ("string", pa.string()),
        ("binary", pa.binary()),
        ("date", pa.date32()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestamp_ntz", pa.timestamp("us")),
        ("decimal", pa.decimal128(10, 0)),
        ("dec(5)", pa.decimal128(5, 0)),
        ("numeric( 20 , 4 )", pa.decimal128(20, 4)),
        ("array<long>", pa.list_(pa.int64())),
        ("map<string, array<int>>", pa.map_(pa.string(), pa.list_(pa.int32()))),
        ("struct<a: int, b string>", pa.struct([("a", pa.int32()), ("b", pa.string())])),
    ],
)
def test_types(ddl: str, type_: pa.DataType) -> None:
    assert Schema.parse(f"x {ddl}").arrow == pa.schema([("x", type_)])


def test_columns_names_and_nullability() -> None:
    schema = Schema.parse("user long NOT NULL, `a b``c`: string,\n  n int not null")
    assert schema.names == ("user", "a b`c", "n")
    assert [field.nullable for field in schema.fields] == [False, True, False]
    assert len(schema) == 3
    assert str(schema) == "user long, a b`c string, n int"


def test_no_columns() -> None:
    assert Schema.parse("").names == ()
    assert len(Schema.parse("  \n ")) == 0


@pytest.mark.parametrize(
    ("ddl", "message", "at"),
    [
        ("user lng", "unknown type 'lng'", 5),
        ("user", "expected a word, found the end", 4),
        ("user long,", "expected a word, found the end", 10),
        ("user long page string", "expected ,", 10),
        ("a long, a int", "column 'a' stands twice", 8),
        ("a array<int", "expected >", 11),
        ("a map<int>", "expected ,", 9),
        ("a long NOT x", "expected NULL after NOT", 11),
        ("a decimal(x)", "not a decimal", 10),
        ("a decimal(99)", "not a decimal", 10),
        ("a long; b int", "unexpected character ';'", 6),
        ("a struct<>", "expected a word, found '>'", 9),
        (", a long", "expected a word, found ','", 0),
        ("a long `,` b long", "expected ,, found ','", 7),
    ],
)
def test_a_mistake_is_pointed_at(ddl: str, message: str, at: int) -> None:
    with pytest.raises(SchemaError) as caught:
        Schema.parse(ddl)
    assert caught.value.condition == "SCHEMA_SYNTAX"
    assert message in caught.value.message
    assert f"at character {at}\n    {ddl}\n    {' ' * at}^" in caught.value.message


def test_a_schema_is_text() -> None:
    with pytest.raises(SchemaError, match=r"SCHEMA_TYPE.*got int: 5"):
        Schema.parse(5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "ddl",
    [
        "boolean",
        "byte",
        "short",
        "int",
        "long",
        "float",
        "double",
        "string",
        "binary",
        "date",
        "timestamp",
        "timestamp_ntz",
        "decimal(12,3)",
        "array<array<long>>",
        "map<string,long>",
        "struct<a:int,b:array<string>>",
    ],
)
def test_type_name_is_what_the_user_would_write(ddl: str) -> None:
    assert type_name(Schema.parse(f"x {ddl}").fields[0].type) == ddl


def test_type_name_of_what_has_no_name() -> None:
    assert type_name(pa.large_string()) == "large_string"


class TestColumn:
    @pytest.mark.parametrize(
        ("values", "type_"),
        [
            ([1, None, np.int32(3)], pa.int64()),
            ([1.5, 2, None], pa.float64()),
            (["a", None], pa.string()),
            ([b"a", bytearray(b"b")], pa.binary()),
            ([Decimal("1.50"), 2], pa.decimal128(5, 2)),
            ([[1, 2], None, []], pa.list_(pa.int64())),
            ([{"a": 1}, {"a": None}], pa.struct([("a", pa.int64())])),
            ([{"a": 1}, None], pa.map_(pa.string(), pa.int64())),
            ([date(2020, 1, 1)], pa.date32()),
            ([True, None], pa.bool_()),
            ([1, 2], None),
            ([], None),
        ],
    )
    def test_values_of_their_type(self, values: Sequence[object], type_: pa.DataType | None) -> None:
        array = column(values, type_)
        assert len(array) == len(values)
        assert type_ is None or array.type == type_

    @pytest.mark.parametrize(
        ("values", "type_", "index"),
        [
            ([1, 3.5], pa.int64(), 1),  # Arrow makes it 3
            ([1, 3.0], pa.int64(), 1),
            ([1, Decimal(2)], pa.int64(), 1),
            ([1, True], pa.int64(), 1),
            ([1, "2"], pa.int64(), 1),
            ([0, 1, 2**31], pa.int32(), 2),
            ([2**63], pa.int64(), 0),
            (["a", 1], pa.string(), 1),
            (["a", b"b"], pa.string(), 1),  # Arrow makes it "b"
            ([b"a", "b"], pa.binary(), 1),
            ([[1], [2.5]], pa.list_(pa.int64()), 1),
            ([{"a": 1}, {"a": 1.5}], pa.struct([("a", pa.int64())]), 1),
            ([{"a": 1}, {"a": 1.5}], pa.map_(pa.string(), pa.int64()), 1),
            ([[], 5], pa.list_(pa.int64()), 1),
            ([1, 2, "x", 4, "y"], None, 2),
            ([object()], None, 0),
        ],
    )
    def test_the_first_value_of_another_type_is_named(
        self, values: Sequence[object], type_: pa.DataType | None, index: int
    ) -> None:
        with pytest.raises(BadValueError) as caught:
            column(values, type_)
        assert caught.value.index == index
        assert caught.value.value == values[index]


@pytest.mark.parametrize(
    ("one", "other", "yes"),
    [
        (pa.int8(), pa.int64(), True),
        (pa.float32(), pa.float64(), True),
        (pa.string(), pa.large_string(), True),
        (pa.binary(), pa.binary(4), True),
        (pa.timestamp("s"), pa.timestamp("us", tz="UTC"), True),
        (pa.int64(), pa.float64(), False),
        (pa.string(), pa.binary(), False),
        (pa.bool_(), pa.int8(), False),
    ],
)
def test_same_kind(one: pa.DataType, other: pa.DataType, *, yes: bool) -> None:
    assert same_kind(one, other) is yes
    assert same_kind(other, one) is yes


def test_fields_that_a_struct_does_not_have_are_left_out_or_an_error() -> None:
    kind = pa.struct([("a", pa.int64())])
    assert column([{"a": 1, "b": 2}], kind).to_pylist() == [{"a": 1}]
    with pytest.raises(BadValueError) as caught:
        column([{"a": 1}, {"a": 1, "b": 2}], kind, whole=True)
    assert (caught.value.index, caught.value.value) == (1, {"a": 1, "b": 2})


def test_not_null_inside_is_named_where_it_is_asked_for() -> None:
    (field,) = Schema.parse("o array<map<string,struct<b:long NOT NULL,c:int>>>").fields
    assert type_name(field.type) == "array<map<string,struct<b:long,c:int>>>"
    assert type_name(field.type, not_null=True) == "array<map<string,struct<b:long NOT NULL,c:int>>>"


def test_kinds_of_timestamps() -> None:
    kinds = {
        pa.int16(): pa.int64(),
        pa.null(): pa.int64(),
        pa.date32(): pa.timestamp("us"),
        pa.timestamp("ns"): pa.timestamp("us"),
        pa.timestamp("s", tz="Europe/Berlin"): pa.timestamp("us", tz="UTC"),
        pa.float64(): None,
        pa.string(): None,
    }
    assert {type_: timestamp_type(type_) for type_ in kinds} == kinds
