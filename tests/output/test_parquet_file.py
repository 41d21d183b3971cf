"""Files of results read back as declared, by whoever reads them."""

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from flumina.errors import OutputError
from flumina.model.emit import Emit
from flumina.model.schema import Schema
from flumina.output.commit import commit_outputs
from flumina.output.parquet_file import ParquetFile
from tests.engine.writing import batch, make, run_task

DDL = (
    "a boolean, b byte, c short, d int, e long NOT NULL, f float, g double, h string NOT NULL, i binary, j date, "
    "k timestamp, l timestamp_ntz, m decimal(12,3), n array<string>, o map<string,long>, "
    "p struct<q:int,r:array<string>>"
)
VALUES = (
    *(True, 1, 2, 3, 4, 0.5, 0.25, "h", b"i", date(2024, 1, 2)),
    *(datetime(2024, 1, 2, 3, 4, 5, 6, UTC), datetime(2024, 1, 2, 3, 4, 5, 6), Decimal("1.250")),  # noqa: DTZ001
    *(["n", None], {"o": 1}, {"q": 1, "r": ["s"]}),
)


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("ts_type", [pa.int64(), pa.timestamp("us"), pa.timestamp("us", tz="UTC")])
@pytest.mark.parametrize("inline", [False, True], ids=["files", "inline"])
def test_every_type_comes_back_exactly(tmp_path: Path, *, ordered: bool, ts_type: pa.DataType, inline: bool) -> None:
    outputs = make(
        None if inline else tmp_path / "out", {"output": Schema.parse(DDL)}, ordered=ordered, ts_type=ts_type
    )
    outputs.prepare()
    emit = Emit(outputs.schemas)
    nothing = tuple(None if field.nullable else value for field, value in zip(outputs.final("output"), VALUES))  # noqa: B905
    for emit.event in batch([-7, 5], 1, [0, 1]):
        emit(*VALUES)
        emit(*nothing)
    result = commit_outputs(outputs, [run_task(outputs, 0, emit.drain())])["output"]
    tables = [result.table(), result.dataset().to_table()] + ([] if inline else [pq.read_table(tmp_path / "out")])
    for table in tables:
        assert table.schema.equals(outputs.final("output"))
        rows = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
        values = tuple(list(v.items()) if isinstance(v, dict) and "o" in v else v for v in VALUES)
        first = pa.scalar(-7, pa.int64()).cast(ts_type).as_py()
        assert rows[0] == (*values, first, "right")
        assert rows[1] == (*nothing, first, "right")
        assert len(rows) == 4


def test_a_place_that_takes_nothing_is_named(tmp_path: Path) -> None:
    schema = pa.schema([("x", pa.int64())])
    with pytest.raises(OutputError, match=r"OUT_FAILED.*gone/x\.parquet"):
        ParquetFile(fs.LocalFileSystem(), f"{tmp_path}/gone/x.parquet", schema, schema, "none")


def test_a_row_group_a_table(tmp_path: Path) -> None:
    schema = pa.schema([("x", pa.int64())])
    file = ParquetFile(fs.LocalFileSystem(), f"{tmp_path}/x.parquet", schema, schema, "none")
    for rows in (3, 1_100_000):
        file.write(pa.table([range(rows)], schema=schema))
    file.close()
    meta = pq.read_metadata(f"{tmp_path}/x.parquet")
    assert [meta.row_group(i).num_rows for i in range(meta.num_row_groups)] == [3, 1_100_000]
    assert file.size == (tmp_path / "x.parquet").stat().st_size
