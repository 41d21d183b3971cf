"""The order of rows on Spark: what it comes from, and that it is the same whenever a batch is tried."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import flumina as fl
from flumina.errors import OrderError
from tests.system.streaming import start

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ONE_PARTITION = {"spark.sql.files.openCostInBytes": "0", "spark.sql.files.minPartitionNum": "1"}
"""All files, if they are small, in one partition."""


class Last(fl.Program):
    """Each event tells the one before, so that every order gives other outputs."""

    put = fl.Tag("v long")
    depends = fl.depends((put, put))
    output = "before long, v long"
    last = fl.Replicated("long")

    def update(self, state: Any, event: Any, emit: Any) -> None:
        emit(state.last, event.v)
        state.last = event.v


class Both(Last):
    """The same, with a stream beside it."""

    put = fl.Tag("v long")
    mark = fl.Tag()
    depends = fl.depends((put, put), (mark, put), (mark, mark))

    def update(self, state: Any, event: Any, emit: Any) -> None:
        if event.tag is self.mark:
            emit(state.last, None)
        else:
            emit(state.last, event.v)
            state.last = event.v


@contextmanager
def settings(spark: SparkSession, **values: str) -> Iterator[None]:
    """Settings of a session, for a while."""
    for name, value in values.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in values:
            spark.conf.unset(name)


def parquet(spark: SparkSession, folder: Path, *tables: dict[str, list[int]]) -> DataFrame:
    """A file for each table, as a stream."""
    folder.mkdir()
    for number, table in enumerate(tables):
        pq.write_table(pa.table(table), folder / f"{number}.parquet")
    return spark.readStream.schema("ts long, v long").parquet(str(folder))


class Keeping:
    """A sink that fails the first time, and keeps all that it was given."""

    def __init__(self) -> None:
        self.calls: list[list[Any]] = []

    def __call__(self, outputs: DataFrame, batch: int) -> None:
        self.calls.append([tuple(row) for row in outputs.collect()])
        if len(self.calls) == 1:
            raise RuntimeError("the database is down")


def last(spark: SparkSession, frame: DataFrame, folder: Path, **more: Any) -> None:
    options = {"program": Last, "watermarks": fl.InOrder(), "drain": False, **more}
    start(spark, [fl.Stream("puts", Last.put, frame, sorted=False)], folder, **options).awaitTermination()


@pytest.mark.parametrize("packed", [True, False])
def test_ties_in_two_files_are_refused_however_spark_packs_them(
    spark: SparkSession, tmp_path: Path, *, packed: bool
) -> None:
    tables = {"ts": [1, 5], "v": [1, 2]}, {"ts": [5, 7], "v": [3, 4]}
    frame = parquet(spark, tmp_path / "in", *tables)
    with settings(spark, **(ONE_PARTITION if packed else {})), pytest.raises(OrderError, match="AMBIGUOUS_ORDER"):
        last(spark, frame.filter("v > 0").selectExpr("ts", "v"), tmp_path)
    with pytest.raises(OrderError, match="AMBIGUOUS_ORDER"):
        fl.spec(Last, [fl.Stream("puts", Last.put, fl.Parquet(str(tmp_path / "in")))])


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("alone", [True, False])
def test_whole_runs_know_the_files_as_well(spark: SparkSession, tmp_path: Path, *, packed: bool, alone: bool) -> None:
    from flumina import spark as engine  # noqa: PLC0415 -- only where it is needed

    def streams(*tables: dict[str, list[int]]) -> list[fl.Stream]:
        folder = tmp_path / f"in{len(tables)}"
        parquet(spark, folder, *tables)
        puts = spark.read.parquet(str(folder)).filter("v > 0")
        marks = [] if alone else [fl.Stream("marks", Both.mark, spark.createDataFrame([(9,)], "ts long"))]
        return [fl.Stream("puts", Both.put, puts, sorted=False), *marks]

    with settings(spark, **(ONE_PARTITION if packed else {})):
        two = streams({"ts": [1, 5], "v": [1, 2]}, {"ts": [5, 7], "v": [3, 4]})
        with pytest.raises(OrderError, match="AMBIGUOUS_ORDER"):
            engine.run(Both, two, spark=spark, workers=1 if alone else 2, progress=False)
        one = streams({"ts": [1, *[5] * 50, 7], "v": [*range(1, 53)]})
        found = engine.run(Both, one, spark=spark, workers=1 if alone else 2, progress=False).output
        rows = sorted((row.v, row.before) for row in found.collect() if row.v)
        assert rows == [(v, v - 1 or None) for v in range(1, 53)]


def test_ties_in_one_file_are_in_its_order_however_spark_cuts_it(spark: SparkSession, tmp_path: Path) -> None:
    rows = [{"ts": 10 + n // 40, "v": n} for n in range(400)]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "rows.json").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    sink = Keeping()
    for watermark in ("1000", "100000", "700"):
        frame = spark.readStream.schema("ts long, v long").json(str(tmp_path / "in"))
        with settings(spark, **ONE_PARTITION, **{"spark.sql.files.maxPartitionBytes": watermark}):
            if not sink.calls:
                with pytest.raises(fl.UserCodeError, match="the database is down"):
                    last(spark, frame, tmp_path, sink=sink)
            else:
                last(spark, frame, tmp_path, sink=sink)
    expected = fl.spec(Last, [fl.Stream("puts", Last.put, rows)]).output
    wanted = [tuple(row.values()) for row in expected.to_pylist()]
    assert sink.calls == [wanted, wanted]


def test_another_order_is_noticed_where_nobody_knows_the_files(spark: SparkSession, tmp_path: Path) -> None:
    frame = parquet(spark, tmp_path / "in", {"ts": [5], "v": [1]}, {"ts": [5, 7], "v": [3, 4]})

    def same(pieces: Iterator[Any]) -> Iterator[Any]:
        yield from pieces

    sink = Keeping()
    with settings(spark, **ONE_PARTITION), pytest.raises(fl.UserCodeError, match="the database is down"):
        last(spark, frame.mapInPandas(same, frame.schema), tmp_path, sink=sink)
    apart = {"spark.sql.files.maxPartitionBytes": "1000"}
    with settings(spark, **apart), pytest.raises(fl.CheckpointError, match=r"NOT_REPLAYED.*in another order"):
        last(spark, frame.mapInPandas(same, frame.schema), tmp_path, sink=sink)
    with settings(spark, **ONE_PARTITION):
        last(spark, frame.mapInPandas(same, frame.schema), tmp_path, sink=sink)
    assert len(sink.calls) == 2
    assert sink.calls[0] == sink.calls[1]


class Free(fl.Program):
    """Events of which most do not depend on each other, so that a plan can spread them as it likes."""

    put = fl.Tag("v long")
    get = fl.Tag("v long")
    sync = fl.Tag("v long")
    depends = fl.depends((sync, put), (sync, sync))
    output = "what string, v long, n long"
    n = fl.Sum("long")

    def update(self, state: Any, event: Any, emit: Any) -> None:
        if event.tag is self.sync:
            emit("sync", event.v, state.n)
            return
        emit("first", event.v, event.seq)
        emit("second", event.v, event.seq)
        if event.tag is self.put:
            state.n += 1


def test_a_function_is_called_with_the_same_order_again_and_under_another_plan(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Again after it failed, by a query with another plan; and by a query that has only that plan."""
    kinds = {"p": Free.put, "g": Free.get}
    many = {"ts": [n // 20 for n in range(400)], "kind": ["ppg"[n % 3] for n in range(400)], "v": list(range(400))}
    syncs = {"ts": [0, 5, 10, 19], "v": [0, 1, 2, 3]}
    for name, table in (("many", many), ("syncs", syncs)):
        (tmp_path / name).mkdir()
        pq.write_table(pa.table(table), tmp_path / name / "0.parquet")
    sink, leaves = Keeping(), []
    for workers, name in ((1, "a"), (4, "a"), (4, "b")):
        (tmp_path / name).mkdir(exist_ok=True)
        read = {
            stream: spark.readStream.schema(ddl).parquet(str(tmp_path / stream))
            for stream, ddl in (("many", "ts long, kind string, v long"), ("syncs", "ts long, v long"))
        }
        streams = [
            fl.Stream("many", kinds, read["many"], tag_column="kind"),
            fl.Stream("syncs", Free.sync, read["syncs"]),
        ]
        options = {"program": Free, "sink": sink, "watermarks": fl.InOrder(), "drain": False}
        query = start(spark, streams, tmp_path / name, workers=workers, **options)
        if workers == 1:
            with pytest.raises(fl.UserCodeError, match="the database is down"):
                query.awaitTermination()
        else:
            query.awaitTermination()
        leaves.append(len(query.plan.leaves) if query.plan is not None else 0)
    assert leaves[0] < leaves[2], "the plans differ"
    assert not leaves[1], "the batch counts once its manifest is written, and is not run again"
    given = [fl.Stream("many", kinds, many, tag_column="kind"), fl.Stream("syncs", Free.sync, syncs)]
    wanted = [tuple(row.values()) for row in fl.spec(Free, given).output.to_pylist()]
    assert sink.calls == [wanted, wanted, wanted]


@pytest.mark.parametrize("column", ["batch", "Batch"])
def test_a_column_called_batch_needs_a_function(spark: SparkSession, tmp_path: Path, column: str) -> None:
    class Renamed(Last):
        output = f"{column} long, v long"

    frame = parquet(spark, tmp_path / "in", {"ts": [5, 7], "v": [1, 3]})
    with pytest.raises(fl.UsageError, match=rf"RESERVED_COLUMN.*'{column}'.*\n.*function as the sink"):
        last(spark, frame, tmp_path, program=Renamed)
    assert not (tmp_path / "out").exists()
    rows: list[Any] = []
    last(spark, frame, tmp_path, program=Renamed, sink=lambda outputs, _: rows.extend(outputs.collect()))
    assert [(row[column], row.v) for row in rows] == [(None, 1), (1, 3)]


def test_a_checkpoint_may_have_any_name(spark: SparkSession, tmp_path: Path) -> None:
    frame = parquet(spark, tmp_path / "in", {"ts": [5, 7], "v": [1, 3]})
    rows: list[Any] = []
    odd = tmp_path / "x[1]{2,3}\\4"
    odd.mkdir()
    last(spark, frame, odd, sink=lambda outputs, _: rows.extend(outputs.collect()))
    assert [(row.before, row.v) for row in rows] == [(None, 1), (1, 3)]


def test_files_that_a_stream_is_joined_with_order_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """All rows of the stream meet the one row of a file: which of them came first is not told by that."""
    pq.write_table(pa.table({"one": [1]}), tmp_path / "static.parquet")
    rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 4).option("numPartitions", 2).load()
    joined = rate.crossJoin(spark.read.parquet(str(tmp_path / "static.parquet")))
    with pytest.raises(OrderError, match="AMBIGUOUS_ORDER"):
        last(spark, joined.selectExpr("5L AS ts", "value AS v"), tmp_path, trigger=None)


def test_a_query_with_a_tie_goes_on_once_the_rows_are_repaired(spark: SparkSession, tmp_path: Path) -> None:
    """Also if the other one of them is buffered; both are named by their files, as long as Spark knows them."""

    def begin(**more: Any) -> Any:
        frame = spark.readStream.schema("ts timestamp, v long").parquet(str(tmp_path / "in"))
        stream = fl.Stream("puts", Last.put, frame, sorted=False)
        policy = {"watermarks": fl.BoundedDelay(5), "drain": False, **more}
        return start(spark, [stream], tmp_path, program=Last, **policy)

    def write(name: str, *seconds: int) -> None:
        (tmp_path / "in").mkdir(exist_ok=True)
        times = pa.array([1_000_000 * second for second in seconds]).cast(pa.timestamp("us", tz="UTC"))
        pq.write_table(pa.table({"ts": times, "v": list(seconds)}), tmp_path / "in" / f"{name}.parquet")

    write("a", 1, 10)
    begin().awaitTermination()
    write("b", 10)
    query = begin()
    with pytest.raises(OrderError, match=r"AMBIGUOUS_ORDER.*of batch 0 and .*/b\.parquet[\s\S]*repair the new rows"):
        query.awaitTermination()
    assert query.status["buffered"] == 1, "the row of the first batch, though no batch was done since the start"
    write("b", 11)
    begin(drain=True).awaitTermination()
    found = pq.read_table(tmp_path / "out", partitioning=None)
    rows = sorted((row["v"], row["before"]) for row in found.to_pylist())
    assert rows == [(1, None), (10, 1), (11, 10)]


def test_late_rows_are_told_in_seconds(spark: SparkSession, tmp_path: Path) -> None:
    def begin() -> Any:
        frame = spark.readStream.schema("ts timestamp, v long").parquet(str(tmp_path / "in"))
        return start(
            spark,
            [fl.Stream("puts", Last.put, frame, sorted=False)],
            tmp_path,
            program=Last,
            watermarks=None,
            drain=False,
        )

    for name, second in (("a", 90), ("b", 60)):
        (tmp_path / "in").mkdir(exist_ok=True)
        times = pa.array([1_000_000 * second]).cast(pa.timestamp("us", tz="UTC"))
        pq.write_table(pa.table({"ts": times, "v": [1]}), tmp_path / "in" / f"{name}.parquet")
        if name == "a":
            begin().awaitTermination()
    with pytest.raises(fl.InputError, match=r"LATE.*1970-01-01T00:01:30\+00:00.*up to 30\.000000 seconds before it"):
        begin().awaitTermination()
