import itertools
import random
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import flumina as fl
from flumina import local
from flumina.apps import KeyCounter, PageViews, ValueBarrier
from flumina.errors import InputError, UsageError
from flumina.input import files
from flumina.input.conversion import Converter
from flumina.local.sample_request import SampleRequest
from flumina.plan import OPTIMIZERS, HeavyHitters, Inputs, Plan, bind, estimate, make_plan
from flumina.plan.survey import Survey


@given(st.lists(st.lists(st.integers(0, 12), max_size=40), max_size=8), st.integers(1, 6))
@example([[0, 1, 1], [0, 0]], 1)
@settings(max_examples=200, deadline=None)
def test_counts_are_within_the_bound_whatever_the_order(columns: list[list[int]], counters: int) -> None:
    summary = HeavyHitters(counters)
    for column in columns:
        summary.add(pa.array(column, pa.int64()))
    truth = Counter(key for column in columns for key in column)
    total = sum(truth.values())
    assert summary.seen == total
    assert len(summary.counts) <= counters
    for key, count in truth.items():
        given_count = summary.counts.get(key, 0)
        assert count - total / (counters + 1) <= given_count <= count
    for key, count in truth.items():
        if count >= 0.3 * total and count > total / (counters + 1):
            assert key in summary.heavy(0.3)


def test_heavy_hitters_of_a_skewed_column() -> None:
    keys = np.random.default_rng(1).zipf(1.5, 200_000).clip(0, 10**9)
    summary = HeavyHitters(256)
    for piece in np.array_split(keys, 7):
        summary.add(pa.array(piece))
    truth = Counter(keys.tolist())
    expected = [key for key, count in truth.most_common() if count >= 0.02 * len(keys)]
    assert list(summary.heavy(0.02))[: len(expected)] == expected


def test_rates_of_tags_are_exact_and_hot_keys_are_found() -> None:
    rng = random.Random(0)
    pages = ["home" if rng.random() < 0.5 else f"page{rng.randint(0, 10**6)}" for _ in range(4000)]
    table = pa.table({"ts": range(4000), "page": pages, "user": range(4000)})
    views = fl.Stream("views", PageViews.view, [table.slice(0, 3000), table.slice(3000)])
    changes = fl.Stream("changes", PageViews.change, {"ts": [0, 3999], "page": ["home", "about"], "info": ["x", "y"]})
    sources = estimate(PageViews, [views, changes])
    assert sources[0].tags == {"view": pytest.approx([3000 / 3999, 1000 / 3999])}
    assert set(sources[0].hot["view"]) == {"home"}
    assert sources[0].hot["view"]["home"] * 3999 == pytest.approx(pages.count("home"), abs=10)
    assert set(sources[1].hot["change"]) == {"home", "about"}
    assert bind(PageViews, sources).shapes[0].parts == 2
    few = estimate(PageViews, [views, changes], rows=500)
    assert few[0].hot["view"]["home"] * 3999 == pytest.approx(2000, rel=0.15)
    assert len(make_plan(PageViews, sources, workers=2)) >= 1


def test_several_tags_on_one_stream_and_real_timestamps() -> None:
    start = datetime(2024, 1, 1, tzinfo=UTC)
    rows = [{"ts": start + timedelta(seconds=n), "what": "r" if n % 10 == 0 else "i", "k": n % 5} for n in range(101)]
    stream = fl.Stream("s", {"i": KeyCounter.inc, "r": KeyCounter.read}, rows, tag_column="what")
    (source,) = estimate(KeyCounter, [stream])
    assert source.tags == {"inc": [pytest.approx(0.9)], "read": [pytest.approx(0.11)]}
    (slow,) = estimate(KeyCounter, [stream], seconds=10)
    assert slow.tags == {"inc": [pytest.approx(9.0)], "read": [pytest.approx(1.1)]}


def test_empty_data_has_no_rate_but_no_error() -> None:
    empty = fl.Stream("b", ValueBarrier.barrier, {"ts": pa.array([], pa.int64())})
    (source,) = estimate(ValueBarrier, [empty])
    assert source.tags == {"barrier": [0.0]}


def test_bad_requests() -> None:
    stream = fl.Stream("b", ValueBarrier.barrier, {"ts": [1]})
    with pytest.raises(UsageError, match="NO_STREAMS"):
        estimate(ValueBarrier, [])
    with pytest.raises(UsageError, match="UNKNOWN_TAG"):
        estimate(PageViews, [stream])
    with pytest.raises(UsageError, match="HOT_SHARE"):
        estimate(ValueBarrier, [stream], hot=0)
    with pytest.raises(UsageError, match="SECONDS"):
        estimate(ValueBarrier, [stream], seconds=-1)
    with pytest.raises(UsageError, match="COUNTERS"):
        HeavyHitters(0)


class TestFilesAndGenerators:
    def views(self, count: int) -> pa.Table:
        rng = np.random.default_rng(0)
        pages = np.where(rng.random(count) < 0.5, "home", rng.integers(0, 10**6, count).astype(str))
        return pa.table({"ts": np.arange(count), "page": pages, "user": np.arange(count)})

    def test_of_a_file_some_row_groups_are_looked_at(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        table = self.views(40_000)
        pq.write_table(table, tmp_path / "a.parquet", row_group_size=1000)
        pq.write_table(table.slice(0, 10_000), tmp_path / "b.parquet", row_group_size=1000)
        monkeypatch.setattr("flumina.plan.survey.SAMPLE_ROWS", 4000)
        (source,) = estimate(PageViews, [fl.Stream("views", PageViews.view, fl.Parquet(tmp_path))])
        assert source.tags == {"view": pytest.approx([40_000 / 39_999, 10_000 / 39_999])}
        assert source.hot["view"]["home"] == pytest.approx(0.5 * 50_000 / 39_999, rel=0.05)

    def test_tags_of_a_sample_are_scaled(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        count = 20_000
        what = np.where(np.arange(count) % 10 == 0, "r", "i")
        start = np.datetime64("2026-01-01T00:00:00", "us")
        ts = start + np.arange(count).astype("timedelta64[s]")
        pq.write_table(
            pa.table({"ts": ts, "what": what, "k": np.arange(count) % 5}), tmp_path / "x", row_group_size=500
        )
        monkeypatch.setattr("flumina.plan.survey.SAMPLE_ROWS", 1600)
        tags = {"i": KeyCounter.inc, "r": KeyCounter.read}
        (source,) = estimate(KeyCounter, [fl.Stream("s", tags, fl.Parquet(tmp_path / "x"), tag_column="what")])
        assert source.tags == {"inc": [pytest.approx(0.9, rel=1e-3)], "read": [pytest.approx(0.1, rel=1e-3)]}

    def test_rows_are_counted_but_not_validated(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def never(*_: object) -> None:
            raise AssertionError("the run validates rows")

        monkeypatch.setattr("flumina.input.decode.validate", never)
        table = pa.table({"ts": [0, None, 10], "what": ["i", "?", "r"], "k": pa.array([1, 2, None], pa.int64())})
        tags = {"i": KeyCounter.inc, "r": KeyCounter.read}
        (source,) = estimate(KeyCounter, [fl.Stream("s", tags, table, tag_column="what")])
        assert source.tags == {"inc": [0.1], "read": [0.1]}
        assert source.hot == {"inc": {1: pytest.approx(0.1)}}

    def test_keys_that_are_not_declared_do_not_count(self) -> None:
        class Listed(fl.KeyedProgram):
            one = fl.Tag(key="k string", keys=["a", "b"])
            depends = fl.depends((one, one))
            output = "k string"
            count = fl.Sum()

            def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
                state.count += 1

        table = pa.table({"ts": [1, 2, 3, 4], "k": ["a", "z", "z", "b"]})
        (source,) = estimate(Listed, [fl.Stream("s", Listed.one, table)])
        assert set(source.hot["one"]) == {"a", "b"}

    def test_columns_that_do_not_fit_are_an_error(self) -> None:
        table = pa.table({"ts": [0], "k": ["text"]})
        with pytest.raises(InputError, match="COLUMN_TYPE"):
            estimate(KeyCounter, [fl.Stream("s", KeyCounter.inc, table)])

    def test_of_a_generator_the_first_rows_and_how_long_they_last(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("flumina.plan.survey.SAMPLE_ROWS", 1000)

        def forever(part: int) -> Iterator[dict[str, range]]:
            for start in itertools.count(0, 100):  # part 0: two events a second, part 1: one
                yield {
                    "ts": range(start * (part + 1), (start + 100) * (part + 1), part + 1),
                    "k": range(start, start + 100),
                }

        changes = fl.Stream("few", KeyCounter.read, {"ts": [0, 10**6], "k": [1, 1]})
        endless = fl.Stream("many", KeyCounter.inc, fl.GeneratorSource(forever, parts=2))
        few, many = estimate(KeyCounter, [changes, endless])
        assert few.tags == {"read": [pytest.approx(2e-6)]}
        assert many.tags == {"inc": pytest.approx([1.0, 0.5], rel=0.01)}

    def test_a_generator_that_ends_is_counted(self) -> None:
        generated = fl.GeneratorSource(lambda _: [{"ts": range(100), "k": range(100)}, {"ts": [200], "k": [1]}])
        (source,) = estimate(KeyCounter, [fl.Stream("s", KeyCounter.inc, generated)])
        assert source.tags == {"inc": [pytest.approx(101 / 200)]}

    def test_a_paced_one_has_its_rate(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("flumina.plan.survey.SAMPLE_ROWS", 1000)
        generated = fl.GeneratorSource(lambda _: ({"k": [n % 2] * 10} for n in itertools.count()), parts=2, rate=5000)
        paced = fl.Stream("paced", KeyCounter.inc, generated)
        table = fl.Stream("table", KeyCounter.read, {"ts": [0, 1_000_000, 2_000_000], "k": [1, 1, 1]})
        one, other = estimate(KeyCounter, [paced, table])
        assert one.tags == {"inc": [5000, 5000]}
        assert one.hot["inc"] == {0: pytest.approx(5000), 1: pytest.approx(5000)}
        assert other.tags == {"read": [pytest.approx(1.5)]}, "a whole number is a microsecond here"


def test_different_keys_are_counted_over_parts_and_extrapolated_to_rows_that_were_not_read() -> None:
    rng = np.random.default_rng(3)
    keys = rng.integers(0, 3000, 20_000)
    table = pa.table({"ts": range(20_000), "k": keys})
    (source,) = estimate(KeyCounter, [fl.Stream("s", KeyCounter.inc, [table.slice(0, 9000), table.slice(9000)])])
    assert source.distinct == {"inc": len(np.unique(keys))}
    assert bind(KeyCounter, [source]).distinct == len(np.unique(keys))
    (few,) = estimate(KeyCounter, [fl.Stream("s", KeyCounter.inc, table)], rows=2000)
    assert few.distinct["inc"] == pytest.approx(len(np.unique(keys)), rel=0.2)
    fresh = pa.table({"ts": range(20_000), "k": range(20_000)})
    (every,) = estimate(KeyCounter, [fl.Stream("s", KeyCounter.inc, fresh)], rows=2000)
    assert every.distinct["inc"] == pytest.approx(20_000, rel=0.05)


ROWS = pa.table({"ts": [1, 2], "user": [3, 4], "page": ["a", "b"]})
MOMENTS = ROWS.slice(0, 1).set_column(0, "ts", pa.array([datetime(2026, 1, 1, tzinfo=UTC)]))
UTC_TYPE = pa.timestamp("us", tz="UTC")


def views(data: Any, name: str = "s") -> fl.Stream:
    return fl.Stream(name, PageViews.view, data)


def survey(*streams: fl.Stream) -> Survey:
    return Survey.of(PageViews, streams)


def rows_of(found: Survey) -> list[int | None]:
    return [part.rows for part in found.streams[0].parts]


class TestOfTypesAndRows:
    def test_tables(self) -> None:
        found = survey(views([ROWS, ROWS.slice(0, 0), MOMENTS.slice(0, 0)]))
        assert (found.ts_type, rows_of(found)) == (pa.int64(), [2, 0, 0])
        assert survey(views(MOMENTS)).ts_type == UTC_TYPE
        nothing = survey(views([]))
        assert (nothing.streams[0].ts_type, nothing.ts_type, nothing.heads) == (None, pa.int64(), [])

    def test_files(self, tmp_path: Path) -> None:
        for name in ("a", "b"):
            pq.write_table(ROWS, tmp_path / f"{name}.parquet")
        found = survey(views(fl.Parquet(tmp_path)))
        assert (found.ts_type, rows_of(found), found.rows(unknown=100)) == (pa.int64(), [2, 2], 4)

    def test_files_of_different_schemas(self, tmp_path: Path) -> None:
        pq.write_table(ROWS, tmp_path / "a.parquet")
        other = ROWS.set_column(1, "user", pa.array([1, 2], pa.int32()))
        pq.write_table(other, tmp_path / "b.parquet")
        with pytest.raises(InputError, match=r"FILE_SCHEMAS.*'user'.*int32 in .*b\.parquet, but int64 in .*a\.parquet"):
            survey(views(fl.Parquet(tmp_path)))
        pq.write_table(ROWS.drop_columns(["user"]), tmp_path / "b.parquet")
        with pytest.raises(InputError, match=r"MISSING_COLUMN.*part 1.*'user'"):
            survey(views(fl.Parquet(tmp_path)))

    def test_generators(self) -> None:
        found = survey(views(fl.GeneratorSource(lambda _: [ROWS], parts=3)))
        assert (found.ts_type, rows_of(found), found.rows(unknown=100)) == (pa.int64(), [None] * 3, 300)
        assert survey(views(fl.GeneratorSource(lambda _: [], parts=2))).streams[0].ts_type is None
        paced = fl.GeneratorSource(lambda _: [ROWS.drop_columns(["ts"])], rate=5)
        assert survey(views(paced)).ts_type == pa.int64()

    def test_columns_that_do_not_fit_are_refused(self, tmp_path: Path) -> None:
        bad = ROWS.set_column(1, "user", pa.array(["x", "y"]))
        pq.write_table(bad, tmp_path / "a.parquet")
        for data in (bad, fl.Parquet(tmp_path), fl.GeneratorSource(lambda _: [bad])):
            with pytest.raises(InputError, match=r"COLUMN_TYPE.*'user'"):
                survey(views(data))

    def test_all_timestamps_are_of_one_kind(self) -> None:
        with pytest.raises(InputError, match="TIMESTAMP_TYPES"):
            survey(views([ROWS, MOMENTS]))
        with pytest.raises(InputError, match=r"TIMESTAMP_TYPES.*'other'.*but int64 in stream 's'"):
            _ = survey(views(ROWS), views(MOMENTS, "other")).ts_type


def test_heads_are_the_first_rows_of_each_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flumina.plan.survey.EVENTS", 5)
    table = pa.table({"ts": range(40), "user": range(40), "page": ["a"] * 40})
    pq.write_table(table, tmp_path / "one.parquet", row_group_size=3)
    pq.write_table(table, tmp_path / "two.parquet", row_group_size=2)  # of which not all row groups are read
    with pa.ipc.new_file(tmp_path / "three.arrow", table.schema) as file:
        file.write_table(table, max_chunksize=2)
    generated = fl.GeneratorSource(lambda _: (table.slice(start, 3) for start in range(0, 40, 3)))
    for data in ([table], [table.slice(0, 3)], fl.Parquet(tmp_path), generated):
        (head,) = survey(views(data)).heads
        for part in head.parts():
            assert part == table.select(part.column_names).slice(0, part.num_rows)
            assert 2 <= part.num_rows <= 5


def test_the_driver_opens_every_source_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the tasks run, in processes of their own: for rates, types, the plan and the size of states."""
    count = 3000
    table = pa.table({"ts": range(count), "v": range(count)})
    for name in ("one", "two"):
        pq.write_table(table, tmp_path / f"{name}.parquet", row_group_size=1000)
    started, opened, converted = Counter[int](), Counter[str](), Counter[str]()

    def generate(part: int) -> Iterator[pa.Table]:
        started[part] += 1
        yield table

    read, tables = files.File.open, Converter.tables

    def counted_open(self: files.File, *, mapped: bool) -> pa.NativeFile:
        opened[Path(self.path).stem] += mapped  # not for the metadata alone
        return read(self, mapped=mapped)

    def counted_tables(self: Converter, data: Any) -> Any:
        converted[self.stream] += 1
        return tables(self, data)

    monkeypatch.setattr(files.File, "open", counted_open)
    monkeypatch.setattr(Converter, "tables", counted_tables)
    streams = [
        fl.Stream("files", ValueBarrier.value, fl.Parquet(tmp_path)),
        fl.Stream("generated", ValueBarrier.value, fl.GeneratorSource(generate, parts=2)),
        fl.Stream("in memory", ValueBarrier.value, [table, table]),
        fl.Stream("barriers", ValueBarrier.barrier, {"ts": [5]}),
    ]
    sampled: list[Path] = []
    original = SampleRequest.of

    def counted_request(*given: Any) -> SampleRequest:
        sampled.append(given[-1])
        return original(*given)

    monkeypatch.setattr(SampleRequest, "of", staticmethod(counted_request))
    result = local.run(ValueBarrier, streams, workers=2, optimizer=joining, progress=False, out=fl.DISCARD)
    assert result.stats.events == 6 * count + 1
    assert sampled, "states were sampled"
    assert started == {0: 1, 1: 1}
    assert opened == {"one": 1, "two": 1}
    assert converted == {"in memory": 1, "barriers": 1}


def joining(inputs: Inputs, slots: int | None, /) -> Plan:
    """Plan as the greedy optimizer does, for which by its name no states are sampled."""
    return OPTIMIZERS["greedy"](inputs, slots)
