"""Structured Streaming from sources to sinks: outputs are those of the sequential program, each once."""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
import time
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import flumina as fl
from flumina.apps import Fraud, PageViews, ValueBarrier
from flumina.checkpoint.state_partitions import PartitionedState
from flumina.checkpoint.store.checkpoints import Checkpoints
from flumina.engine.message_codec import Codec
from flumina.model.order import LAST, Point
from flumina.plan.forest import Forest
from flumina.plan.render.json import from_json
from flumina.program.base import define
from flumina.state.compare import same
from flumina.streaming import batches
from flumina.streaming.batches import INLINE_STATE
from flumina.testing import assert_same_outputs
from tests.system.streaming import RULES, TRANSACTIONS, Files, assert_exactly_once, collected, start
from tests.system.strict import BROKEN, CONDITIONS, SHOPS, STRICT_DDL, Strict, strict_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files.make(tmp_path / "in")


def test_files_to_parquet(spark: SparkSession, files: Files, tmp_path: Path) -> None:
    query = start(spark, files.streams(spark), tmp_path)
    query.awaitTermination()
    expected = files.expected()
    assert_exactly_once(tmp_path / "out", expected)
    assert query.exception() is None
    assert not query.isActive
    by_spark = spark.read.parquet(str(tmp_path / "out" / "flagged"))
    assert set(by_spark.columns) == {*expected["flagged"].column_names, "batch"}, "the batch is a column"
    assert_same_outputs(collected(by_spark.drop("batch"), expected["flagged"]), expected["flagged"])
    batches = query.recentProgress
    assert [entry["batchId"] for entry in batches] == [0, 1, 2, 3, 4], "the last one is what was buffered"
    assert max(sum(entry["buffered"].values()) for entry in batches) > 10
    assert batches[-1]["buffered"] == {RULES: 0, TRANSACTIONS: 0}
    for entry in batches:
        assert entry["durationMs"].keys() >= {"ingest", "watermark", "stage", "sink", "commit", "total"}
        assert entry["stateBytes"] > 0 or not entry["totals"]["processed"]
    assert sum(entry["processed"] for entry in batches) == batches[-1]["totals"]["rows"] == 260
    assert all(entry["leaves"] > 1 and entry["joins"] > 0 for entry in batches if entry["processed"])


def test_every_state_is_the_fold_of_the_oracle(spark: SparkSession, files: Files, tmp_path: Path) -> None:
    """Of every snapshot that is kept, each up to the cut of its batch."""
    start(spark, files.streams(spark), tmp_path, drain=False).awaitTermination()
    codec = Codec(define(Fraud), [RULES, TRANSACTIONS])
    kept = Checkpoints(tmp_path / "checkpoint" / "state").all()
    assert len(kept) == 3
    for snapshot in kept:
        assert snapshot.end is not None
        expected = fl.spec(Fraud, files.whole(), until=Point(snapshot.end, LAST, LAST))
        assert 0 < expected.events == snapshot.manifest.events
        assert same(PartitionedState.of(snapshot).whole(define(Fraud), codec), expected.state)


def test_a_query_goes_on_where_it_stopped(spark: SparkSession, files: Files, tmp_path: Path) -> None:
    late = tmp_path / "later"
    late.mkdir()
    for name in (RULES, TRANSACTIONS):
        (late / name).mkdir()
        for number in (2, 3):
            (files.folder / name / f"00{number}.parquet").rename(late / name / f"00{number}.parquet")
    first = start(spark, files.streams(spark), tmp_path, drain=False)
    first.awaitTermination()
    buffered = first.status["buffered"]
    assert buffered > 0
    for name in (RULES, TRANSACTIONS):
        for path in (late / name).iterdir():
            path.rename(files.folder / name / path.name)
    second = start(spark, files.streams(spark), tmp_path)
    second.awaitTermination()
    assert [entry["batchId"] for entry in second.recentProgress] == [2, 3, 4]
    assert_exactly_once(tmp_path / "out", files.expected())
    again = start(spark, files.streams(spark), tmp_path)
    again.awaitTermination()
    assert again.lastProgress is None
    assert_exactly_once(tmp_path / "out", files.expected())


def test_a_function_gets_every_batch(spark: SparkSession, files: Files, tmp_path: Path) -> None:
    calls: dict[int, list[dict[str, list[dict[str, Any]]]]] = {}
    fail = {1}

    def collect(outputs: Any, batch: int) -> None:
        rows = {name: frame.toArrow().to_pylist() for name, frame in outputs.items()}
        calls.setdefault(batch, []).append(rows)
        if batch in fail:
            fail.remove(batch)
            raise RuntimeError("the database is down")

    query = start(spark, files.streams(spark), tmp_path, sink=collect)
    with pytest.raises(fl.UserCodeError, match="the database is down") as caught:
        query.awaitTermination()
    assert "test_streaming.py" in caught.value.where
    assert isinstance(query.exception(), fl.UserCodeError)
    start(spark, files.streams(spark), tmp_path, sink=collect).awaitTermination()
    assert sorted(calls) == [0, 1, 2, 3, 4]
    assert [len(calls[batch]) for batch in sorted(calls)] == [1, 2, 1, 1, 1]
    assert calls[1][0] == calls[1][1], "the same rows in the same order"
    expected = files.expected()
    for name, wanted in expected.items():
        rows = [row for batch in calls.values() for row in batch[-1][name]]
        assert_same_outputs(pa.Table.from_pylist(rows, wanted.schema), wanted)


def test_a_program_with_one_output_gives_one_frame(spark: SparkSession, tmp_path: Path) -> None:
    """Times rather than numbers, and the rate source, which never ends."""
    rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 20).option("numPartitions", 2).load()
    frame = rate.selectExpr("timestamp AS ts", "value AS n", "value AS v", "IF(value % 7 = 6, 'barrier', 'value') AS k")
    tags = {"value": ValueBarrier.value, "barrier": ValueBarrier.barrier}
    rows: list[dict[str, Any]] = []

    def keep(outputs: DataFrame, batch: int) -> None:
        rows.extend(outputs.toArrow().to_pylist())

    stream = fl.Stream("all", tags, frame, tag_column="k", seq="n")
    query = start(
        spark,
        [stream],
        tmp_path,
        program=ValueBarrier,
        sink=keep,
        trigger={"processingTime": "200 milliseconds"},
        drain=False,
        watermarks=fl.ClosedBatches(),
    )
    while len(query.recentProgress) < 3 and not query.awaitTermination(0.2):
        assert query.isActive
    assert query.status["isTriggerActive"] in (True, False)
    query.stop()
    assert not query.isActive
    done = query.lastProgress
    assert done is not None
    count = done["totals"]["processed"]
    given = [{"n": n, "ts": n, "v": n, "k": "barrier" if n % 7 == 6 else "value"} for n in range(count)]
    expected = fl.spec(ValueBarrier, [replace(stream, data=given)]).output
    names = [name for name in expected.column_names if name != "event_ts"]
    found = pa.Table.from_pylist(rows).select(names)
    assert count == 20 * (done["batchId"] + 1)
    assert_same_outputs(found, expected.select(names).cast(found.schema))


def test_times_are_the_same_in_every_zone(spark: SparkSession, tmp_path: Path) -> None:
    """Rows that were buffered in one zone meet rows that are read in another; a delay is seconds."""
    (tmp_path / "in").mkdir()
    second = 1_000_000
    tables = []
    for number in range(2):
        ts = pa.array((np.arange(20) + 20 * number) * second, pa.int64()).cast(pa.timestamp("us", tz="UTC"))
        kinds = ["barrier" if n % 4 == 3 else "value" for n in range(20)]
        tables.append(pa.table({"ts": ts, "n": np.arange(20) + 20 * number, "k": kinds, "v": np.arange(20)}))
    tags = {"value": ValueBarrier.value, "barrier": ValueBarrier.barrier}
    ddl = "ts timestamp, n long, k string, v long"
    for number, zone in enumerate(("UTC", "Asia/Tokyo")):
        spark.conf.set("spark.sql.session.timeZone", zone)
        try:
            pq.write_table(tables[number], tmp_path / "in" / f"{number}.parquet")
            frame = spark.readStream.schema(ddl).parquet(str(tmp_path / "in"))
            stream = fl.Stream("all", tags, frame, tag_column="k", seq="n")
            delay, last = fl.BoundedDelay(5), number == 1
            query = start(spark, [stream], tmp_path, program=ValueBarrier, watermarks=delay, drain=last)
            query.awaitTermination()
        finally:
            spark.conf.set("spark.sql.session.timeZone", "UTC")
        assert query.recentProgress[0]["buffered"] == {"all": 6}, "five seconds, and the latest timestamp"
    expected = fl.spec(ValueBarrier, [replace(stream, data=pa.concat_tables(tables))]).output
    assert_exactly_once(tmp_path / "out", {"output": expected})


VIEWS = 40_000
"""In a batch: so many that it is worth the while to share those of one page."""


@pytest.mark.parametrize("inline", [0, INLINE_STATE])
def test_a_key_becomes_hot_on_the_way(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inline: int
) -> None:
    """The plan changes between two batches, state and all, and the outputs do not; wherever the state lies."""
    monkeypatch.setattr(batches, "INLINE_STATE", inline)
    rng = np.random.default_rng(7)
    tables: dict[str, list[pa.Table]] = {"changes": [], "views": []}
    for batch in range(4):
        ts = rng.permutation(VIEWS + 10) + batch * (VIEWS + 10)
        pages = np.array([f"page {n}" for n in rng.integers(0, 300, VIEWS)], object)
        pages[rng.random(VIEWS) < (0.9 if batch > 1 else 0.0)] = "home"
        tables["views"].append(pa.table({"ts": ts[10:], "page": pages.tolist(), "user": np.arange(VIEWS)}))
        changed = ["home", *(f"page {n}" for n in range(9))]
        tables["changes"].append(pa.table({"ts": ts[:10], "page": changed, "info": [f"{batch} {p}" for p in changed]}))
    ddl = {"changes": "ts long, page string, info string", "views": "ts long, page string, user long"}
    tags = {"changes": PageViews.change, "views": PageViews.view}
    streams = []
    for name, of_name in tables.items():
        (tmp_path / name).mkdir()
        for number, table in enumerate(of_name):
            pq.write_table(table, tmp_path / name / f"{number}.parquet")
            os.utime(tmp_path / name / f"{number}.parquet", (1e9 + number, 1e9 + number))
        read = spark.readStream.schema(ddl[name]).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / name))
        streams.append(fl.Stream(name, tags[name], read, sorted=False))
    query = start(spark, streams, tmp_path, program=PageViews, watermarks=None, drain=False, optimizer="cost")
    query.awaitTermination()
    changes = [entry["planChange"] for entry in query.recentProgress if entry["planChange"]]
    assert [entry["planChange"] is None for entry in query.recentProgress[:2]] == [True, True]
    assert changes
    assert "key 'home' has" in changes[0]["reason"]
    assert changes[0]["expectedSaving"] >= 0.2
    assert query.recentProgress[-1]["planChanges"] == len(changes)
    assert query.recentProgress[-1]["joins"] > 0, "the hot page is served by several leaves"
    whole = [replace(s, data=pa.concat_tables(tables[s.name])) for s in streams]
    expected = fl.spec(PageViews, whole)
    assert_exactly_once(tmp_path / "out", {"output": expected.output})
    latest = Checkpoints(tmp_path / "checkpoint" / "state").latest()
    assert latest is not None
    assert same(
        PartitionedState.of(latest).whole(define(PageViews), Codec(define(PageViews), list(tags))), expected.state
    )
    plan = from_json(str(latest.manifest.plan))
    homes = {plan[tree.id].place for tree in Forest.of(plan.root).trees}
    assert len(latest.manifest.state) == (1 if inline else len(homes)), "what is small goes through the driver"


def test_every_bad_row_is_accounted_for(spark: SparkSession, tmp_path: Path) -> None:
    table, ways = strict_rows(10 * BROKEN, far=True)
    (tmp_path / "in").mkdir()
    for number in range(4):
        path = tmp_path / "in" / f"{number}.parquet"
        pq.write_table(table.slice(number * len(table) // 4, len(table) // 4), path)
        os.utime(path, (1e9 + number, 1e9 + number))
    frame = spark.readStream.schema(STRICT_DDL).option("maxFilesPerTrigger", 2).parquet(str(tmp_path / "in"))
    stream = replace(SHOPS, data=frame)
    more: dict[str, Any] = {"program": Strict, "watermarks": fl.BoundedDelay()}
    with pytest.raises(fl.InputError) as caught:
        start(spark, [stream], tmp_path, **more).awaitTermination()
    assert caught.value.row is not None
    (named,) = re.findall(r"\(in \S*/(\d)\.parquet\)", str(caught.value))
    assert ways[caught.value.row + int(named) * len(table) // 4] >= 0, "this row of this file is bad"
    query = start(spark, [stream], tmp_path, **more, bad_rows="dead-letter", dead_letters=tmp_path / "dead")
    query.awaitTermination()
    assert query.lastProgress is not None
    totals = query.lastProgress["totals"]
    assert totals == {"rows": 10 * BROKEN, "heartbeats": 0, "late": 0, "bad": BROKEN, "processed": 9 * BROKEN}
    good = table.filter(pa.array(ways < 0))
    expected = fl.spec(Strict, [replace(stream, data=good)]).output
    assert_exactly_once(tmp_path / "out", {"output": expected})
    dead = spark.read.parquet(str(tmp_path / "dead")).toArrow()
    conditions = [*CONDITIONS, "TIMESTAMP_RANGE"]
    broken = zip(table.filter(pa.array(ways >= 0)).to_pylist(), ways[ways >= 0].tolist(), strict=True)
    wanted = Counter((conditions[way], frozenset(row.items())) for row, way in broken)
    dead_letters = [(row["reason"], json.loads(row["data"])) for row in dead.to_pylist()]
    found = Counter((why, frozenset({**row, "price": Decimal(row["price"])}.items())) for why, row in dead_letters)
    assert found == wanted
    at = [int(Path(row["file"]).stem) * len(table) // 4 + row["row"] for row in dead.to_pylist()]
    assert sorted(at) == np.flatnonzero(ways >= 0).tolist(), "file and row say which one it is"
    assert [conditions[way] for way in ways[at]] == dead.column("reason").to_pylist()
    assert set(dead.column("stream").to_pylist()) == {"shops"}


@pytest.mark.parametrize(
    ("options", "condition"),
    [
        ({"watermarks": 3}, "WATERMARKS"),
        ({"watermarks": {"nobody": fl.InOrder()}}, "WATERMARKS"),
        ({"watermarks": {RULES: "late"}}, "WATERMARKS"),
        ({"watermarks": fl.BoundedDelay(0.5)}, "DELAY"),
        ({"watermarks": fl.Heartbeats("beat")}, "MISSING_COLUMN"),
        ({"watermarks": fl.Heartbeats("ts", "beat")}, "COLUMN_TYPE"),
        ({"late": "ignore"}, "LATE"),
        ({"bad_rows": "drop"}, "BAD_ROWS"),
        ({"max_buffered_rows": 0}, "MAX_BUFFERED_ROWS"),
        ({"trigger": "now"}, "TRIGGER"),
        ({"trigger": {"once": True}}, "TRIGGER"),
        ({"trigger": None}, "DRAIN"),
        ({"sink": 3}, "SINK"),
        ({"workers": 2, "plan": "plan.json"}, "WORKERS"),
        ({"workers": 50}, "TOO_FEW_SLOTS"),
        ({"workers": "2"}, "WORKERS"),
        ({"workers": 0}, "WORKERS"),
        ({"optimizer": "magic"}, "OPTIMIZER"),
        ({"engine_options": {"window": 3}}, "ENGINE_OPTIONS"),
        ({"trigger": {"availableNow": False}, "drain": False}, "TRIGGER"),
        ({"trigger": {"processingTime": 5}, "drain": False}, "TRIGGER"),
        ({"trigger": {"processingTime": "banana"}, "drain": False}, "TRIGGER"),
        ({"name": 5}, "NAME"),
        ({"drain": "no"}, "DRAIN"),
        ({"adaptive": 1}, "ADAPTIVE"),
        ({"allow_code_change": "no"}, "ALLOW_CODE_CHANGE"),
        ({"tls": None}, "TLS"),
    ],
)
def test_what_cannot_be_meant(
    spark: SparkSession, files: Files, tmp_path: Path, options: dict[str, Any], condition: str
) -> None:
    with pytest.raises(fl.FluminaError) as caught:
        start(spark, files.streams(spark), tmp_path, **options)
    assert caught.value.condition == condition
    assert not (tmp_path / "out").exists()


def test_folders_are_apart(spark: SparkSession, files: Files, tmp_path: Path) -> None:
    for options in (
        {"dead_letters": tmp_path / "out"},
        {"dead_letters": tmp_path / "out" / "flagged"},
        {"dead_letters": tmp_path / "checkpoint" / "log"},
        {"sink": tmp_path / "checkpoint" / "spark"},
        {"sink": tmp_path},
    ):
        with pytest.raises(fl.UsageError, match=r"PATH.*expected separate folders"):
            start(spark, files.streams(spark), tmp_path, **options)
    assert not (tmp_path / "checkpoint").exists()


def test_a_query_that_is_stopped_leaves_the_rest_for_the_next_start(
    spark: SparkSession, files: Files, tmp_path: Path
) -> None:
    """With drain=True, too: that it has ended does not mean that everything was there."""
    calls: dict[int, dict[str, list[dict[str, Any]]]] = {}
    stopping: list[threading.Thread] = []

    def collect(outputs: Any, batch: int) -> None:
        calls[batch] = {name: frame.toArrow().to_pylist() for name, frame in outputs.items()}
        if not stopping:
            stopping.append(threading.Thread(target=query.stop))
            stopping[0].start()
            time.sleep(1)

    query = start(spark, files.streams(spark), tmp_path, sink=collect)
    with pytest.raises(fl.UsageError, match=r"NAME.*is running already"):
        start(spark, files.streams(spark), tmp_path / "other")
    assert query.awaitTermination()
    stopping[0].join()
    assert query.exception() is None
    assert list(calls) == [0], "it was stopped, once this batch was done"
    assert [entry["batchId"] for entry in query.recentProgress] == [0]
    start(spark, files.streams(spark), tmp_path, sink=collect).awaitTermination()
    assert sorted(calls) == [0, 1, 2, 3, 4]
    for name, wanted in files.expected().items():
        rows = [row for batch in calls.values() for row in batch[name]]
        assert_same_outputs(pa.Table.from_pylist(rows, wanted.schema), wanted)


class Slow(fl.Program):
    """A batch of it takes long."""

    put = fl.Tag("v long")
    depends = fl.depends((put, put))
    output = "v long, n long"
    n = fl.Replicated("long", 0)

    def update(self, state: Any, event: Any, emit: Any) -> None:
        time.sleep(0.05)
        state.n += 1
        emit(event.v, state.n)


@pytest.mark.parametrize("within", ["run", "sink"])
def test_a_batch_under_way_is_done_before_a_query_stops(spark: SparkSession, tmp_path: Path, within: str) -> None:
    given = {"ts": list(range(60)), "v": list(range(60))}
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table(given), tmp_path / "in" / "0.parquet")
    stream = fl.Stream("puts", Slow.put, spark.readStream.schema("ts long, v long").parquet(str(tmp_path / "in")))
    rows: list[dict[str, Any]] = []

    def keep(outputs: DataFrame, batch: int) -> None:
        if within == "sink":
            query.stop()
        rows.extend(outputs.toArrow().to_pylist())

    query = start(
        spark, [stream], tmp_path, program=Slow, sink=keep, trigger=None, drain=False, watermarks=fl.InOrder()
    )
    if within == "run":
        while not list((tmp_path / "checkpoint" / "log" / "watermarks").glob("*.json")):
            time.sleep(0.05)
        time.sleep(1)
        query.stop()
        assert not query.isActive
    assert query.awaitTermination(60)
    assert query.exception() is None
    expected = fl.spec(Slow, [replace(stream, data=given)]).output
    assert_same_outputs(pa.Table.from_pylist(rows, expected.schema), expected)
    assert query.lastProgress is not None


def test_a_file_that_was_changed_is_noticed(spark: SparkSession, files: Files, tmp_path: Path) -> None:
    fail = {1}

    def fails(outputs: Any, batch: int) -> None:
        if batch in fail:
            raise RuntimeError("the database is down")

    with pytest.raises(fl.UserCodeError):
        start(spark, files.streams(spark), tmp_path, sink=fails).awaitTermination()
    fail.clear()
    path = files.folder / TRANSACTIONS / "001.parquet"
    table = pq.read_table(path)
    values = table.column("v").to_numpy().copy()
    values[7] += 250
    pq.write_table(table.set_column(1, "v", pa.array(values)), path)
    with pytest.raises(fl.CheckpointError, match=r"NOT_REPLAYED.*as many now, but not the same"):
        start(spark, files.streams(spark), tmp_path, sink=fails).awaitTermination()
    pq.write_table(table.take(pa.array(np.arange(len(table))[::-1])), path)  # the same in another order
    start(spark, files.streams(spark), tmp_path, sink=fails).awaitTermination()


def test_what_is_no_streaming_frame(spark: SparkSession, files: Files, tmp_path: Path) -> None:
    still = spark.createDataFrame([(1, 2)], "ts long, v long")
    for data in (still, files.tables[TRANSACTIONS]):
        given = [replace(s, data=data) if s.name == TRANSACTIONS else s for s in files.streams(spark)]
        with pytest.raises(fl.UsageError, match="NOT_STREAMING"):
            start(spark, given, tmp_path)


def test_a_checkpoint_whose_halves_do_not_belong_together(spark: SparkSession, files: Files, tmp_path: Path) -> None:
    start(spark, files.streams(spark), tmp_path, drain=False).awaitTermination()
    shutil.rmtree(tmp_path / "checkpoint" / "spark")
    with pytest.raises(fl.CheckpointError, match="of Spark's query"):
        start(spark, files.streams(spark), tmp_path).awaitTermination()
