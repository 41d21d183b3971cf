from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, TypedDict

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    DateType,
    DecimalType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from flumina.errors import SchemaError
from flumina.model.columns import read_columns


class Place(TypedDict):
    city: str
    zip: int | None


@dataclass
class Order:
    ts: int
    seq: int
    stream: str
    id: int
    note: str | None
    price: Annotated[Decimal, "decimal(18,2)"]
    day: date
    placed: datetime
    local: Annotated[datetime | None, "timestamp_ntz"]
    tags: list[str]
    counts: dict[str, int]
    where: Place | None


DDL = """id long NOT NULL, note string, price decimal(18,2) NOT NULL, day date NOT NULL, placed timestamp NOT NULL,
    local timestamp_ntz, tags array<string> NOT NULL, counts map<string,long> NOT NULL,
    where struct<city:string NOT NULL, zip:long>"""

ARROW = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("note", pa.large_string()),
        pa.field("price", pa.decimal128(18, 2), nullable=False),
        pa.field("day", pa.date64(), nullable=False),
        pa.field("placed", pa.timestamp("ns", tz="Europe/Berlin"), nullable=False),
        pa.field("local", pa.timestamp("ms")),
        pa.field("tags", pa.large_list(pa.string_view()), nullable=False),
        pa.field("counts", pa.map_(pa.dictionary(pa.int8(), pa.string()), pa.int64()), nullable=False),
        pa.field("where", pa.struct([pa.field("city", pa.string(), nullable=False), pa.field("zip", pa.int64())])),
    ]
)

SPARK = StructType(
    [
        StructField("id", LongType(), nullable=False),
        StructField("note", StringType()),
        StructField("price", DecimalType(18, 2), nullable=False),
        StructField("day", DateType(), nullable=False),
        StructField("placed", TimestampType(), nullable=False),
        StructField("local", TimestampNTZType()),
        StructField("tags", ArrayType(StringType()), nullable=False),
        StructField("counts", MapType(StringType(), LongType()), nullable=False),
        StructField(
            "where", StructType([StructField("city", StringType(), nullable=False), StructField("zip", LongType())])
        ),
    ]
)


@pytest.mark.parametrize("given", [Order, ARROW, SPARK], ids=["dataclass", "Arrow", "Spark"])
def test_all_ways_to_give_columns_are_equal(given: object) -> None:
    assert read_columns(given).fields == read_columns(DDL).fields


@dataclass
class Odd:
    when: complex


@dataclass
class Late:
    ts: datetime


@dataclass
class Unknown:
    v: "Nowhere"  # type: ignore[name-defined] # noqa: F821 -- that is the mistake


class NoDataclass:
    v: int


@pytest.mark.parametrize(
    ("given", "message", "hint"),
    [
        (Odd, "'when' has the type complex, which is no type of a column", "int, float"),
        (Late, "expected ts: int in Late, got", "event.time"),
        (Unknown, "the annotations of Unknown need name 'Nowhere' is not defined", "in the module"),
        (NoDataclass, "got the class NoDataclass", "@dataclass"),
        (5, "got int: 5", "fl.Tag"),
        (pa.schema({"v": pa.uint8()}), "column 'v' is uint8, which Spark's DDL does not have", "cast it"),
        (pa.schema([("v", pa.int64()), ("v", pa.int64())]), "column 'v' stands twice", ""),
    ],
)
def test_mistakes_say_what_is_wrong_and_what_to_write(given: object, message: str, hint: str) -> None:
    with pytest.raises(SchemaError) as error:
        read_columns(given)
    assert message in error.value.message
    assert hint in (error.value.hint or "")
