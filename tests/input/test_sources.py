import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flumina as fl
from flumina import local
from flumina.apps import ValueBarrier
from flumina.errors import InputError, UsageError, UserCodeError
from flumina.input.sources import InMemoryTables, Source
from flumina.input.stream import Stream
from flumina.model.tag import Tag


class Tags:
    view = Tag("user long")


def stream(data: Any, **options: Any) -> Stream:
    return Stream("clicks", Tags.view, data, **options)


def source(data: Any, **options: Any) -> Source:
    return stream(data, **options).source()


def ts_of(found: Source, part: int = 0) -> list[int]:
    ts: list[int] = found.read(part).column("ts").to_pylist()
    return ts


class TestTables:
    table = pa.table({"ts": range(10), "user": range(10), "extra": range(10)})

    def test_what_is_known(self) -> None:
        found = source([self.table, self.table.slice(0, 3)])
        assert (found.parts, found.rows(0), found.rows(1)) == (2, 10, 3)
        assert found.schema(1) == self.table.schema
        assert found.bounds(0, "ts") is None
        assert found.read(0) is self.table

    def test_chunks_are_views_of_the_columns_asked_for(self) -> None:
        chunks = list(source(self.table).chunks(0, ["user", "ts", "other"], 4))
        assert [chunk.num_rows for chunk in chunks] == [4, 4, 2]
        assert pa.Table.from_batches(chunks).equals(self.table.select(["ts", "user"]))
        address = self.table.column("ts").chunk(0).buffers()[1].address
        assert {chunk.column("ts").buffers()[1].address for chunk in chunks} == {address}

    @given(st.lists(st.integers(0, 5), max_size=10), st.integers(1, 7))
    def test_small_pieces_are_put_together(self, lengths: list[int], size: int) -> None:
        table = pa.concat_tables([self.table.slice(0, n) for n in lengths] or [self.table.slice(0, 0)])
        chunks = list(InMemoryTables([table]).chunks(0, ["ts"], size))
        assert pa.Table.from_batches(chunks, table.select(["ts"]).schema).equals(table.select(["ts"]))
        assert all(chunk.num_rows <= size for chunk in chunks)
        assert len(chunks) <= 2 * sum(lengths) // size + 2

    def test_many_pieces_are_few_chunks(self) -> None:
        table = pa.concat_tables([self.table] * 1000)
        assert len(list(InMemoryTables([table]).chunks(0, ["ts"]))) == 1


class TestGeneratorSource:
    def test_all_that_a_function_may_yield(self) -> None:
        table = pa.table({"ts": [3], "user": [3]})
        given_rows = [
            {"ts": [1], "user": [1]},
            {"ts": [], "user": []},
            table,
            *pa.table({"ts": [4], "user": [4]}).to_batches(),
        ]
        for function in (lambda _: given_rows, lambda _: iter(given_rows)):
            found = source(fl.GeneratorSource(function, parts=2))
            assert (found.parts, found.rows(0), found.bounds(0, "ts")) == (2, None, None)
            assert ts_of(found) == [1, 3, 4]
            assert ts_of(found) == [1, 3, 4], "the function is called anew"
            assert [chunk.num_rows for chunk in found.chunks(0, ["ts", "user"])] == [1, 1, 1]

    def test_parts(self) -> None:
        found = source(fl.GeneratorSource(lambda part: [{"ts": [part] * part, "user": [0] * part}], parts=3))
        assert [ts_of(found, part) for part in range(3)] == [[], [1], [2, 2]]

    def test_without_end(self) -> None:
        def forever(part: int) -> Iterator[dict[str, list[int]]]:
            n = part
            while True:
                yield {"ts": [n, n], "user": [n, n]}
                n += 1

        found = source(fl.GeneratorSource(forever))
        chunks = found.chunks(0, ["ts"])
        assert [next(chunks).column("ts").to_pylist() for _ in range(3)] == [[0, 0], [1, 1], [2, 2]]
        assert [(row, chunk.num_rows) for row, chunk in found.sample(0, ["ts"], 5)] == [(0, 2), (2, 2), (4, 1)]
        schema = found.schema(0)
        assert schema is not None
        assert schema.names == ["ts", "user"]

    def test_large_pieces_are_cut(self) -> None:
        found = source(fl.GeneratorSource(lambda _: [{"ts": range(10), "user": range(10)}]))
        assert [chunk.num_rows for chunk in found.chunks(0, ["ts"], 4)] == [4, 4, 2]

    def test_nothing(self) -> None:
        for rate in (None, 5):
            found = source(fl.GeneratorSource(lambda _: [], rate=rate))
            assert found.schema(0) is None
            assert found.read(0).num_rows == 0

    def test_errors_of_the_function_are_the_users(self) -> None:
        def fails(part: int) -> Iterator[dict[str, list[int]]]:
            yield {"ts": [part], "user": [1]}
            raise ValueError("no more")

        with pytest.raises(UserCodeError, match=r"fails raised ValueError: no more on part 0 of .*'clicks'\n.*test_so"):
            source(fl.GeneratorSource(fails)).read(0)
        with pytest.raises(UserCodeError, match="raised SystemExit: no rows today"):
            source(fl.GeneratorSource(lambda _: sys.exit("no rows today"))).read(0)
        with pytest.raises(UserCodeError, match="TypeError"):
            source(fl.GeneratorSource(lambda _: None)).read(0)  # type: ignore[arg-type, return-value]

    @pytest.mark.parametrize(
        ("second", "expected"),
        [
            ({"ts": [2, 3], "user": [1, "x"]}, ("COLUMN_TYPE", 2, "user")),
            ({"ts": [2, 3], "user": [1]}, ("COLUMN_LENGTH", None, "user")),
            ({"ts": pa.array([2.5]), "user": [1]}, ("CHUNK_TYPES", 1, "ts")),
            (5, ("GENERATED_ROWS", 1, None)),
        ],
    )
    def test_bad_rows(self, second: Any, expected: tuple[str, int | None, str | None]) -> None:
        found = source(fl.GeneratorSource(lambda _: [{"ts": [1], "user": [1]}, second], parts=2))
        for action in (found.read, lambda part: list(found.chunks(part, ["ts", "user"]))):
            with pytest.raises(InputError) as caught:
                action(1)
            error = caught.value
            assert (error.condition, error.row, error.column) == expected
            assert (error.stream, error.part) == ("clicks", 1)

    @pytest.mark.parametrize(
        ("options", "condition"),
        [
            ({"function": 5}, "GENERATED_FUNCTION"),
            ({"parts": 0}, "GENERATED_PARTS"),
            ({"parts": True}, "GENERATED_PARTS"),
            ({"parts": 1.5}, "GENERATED_PARTS"),
            ({"rate": 0}, "GENERATED_RATE"),
            ({"rate": float("nan")}, "GENERATED_RATE"),
            ({"rate": float("inf")}, "GENERATED_RATE"),
            ({"rate": "fast"}, "GENERATED_RATE"),
            ({"heartbeats": -1}, "GENERATED_RATE"),
            ({"heartbeats": None}, "GENERATED_RATE"),
        ],
    )
    def test_what_can_not_be_meant(self, options: dict[str, Any], condition: str) -> None:
        with pytest.raises(UsageError, match=condition):
            fl.GeneratorSource(**{"function": lambda _: [], **options})


class TestPaced:
    def test_timestamps_are_when_events_are_due(self) -> None:
        rows = [{"user": [0, 1]}, {"user": [2, 3, 4]}]
        assert ts_of(source(fl.GeneratorSource(lambda _: rows, rate=3))) == [0, 333_333, 666_666, 1_000_000, 1_333_333]
        assert ts_of(source(fl.GeneratorSource(lambda _: rows, rate=0.5))) == [
            0,
            2_000_000,
            4_000_000,
            6_000_000,
            8_000_000,
        ]
        assert ts_of(source(fl.GeneratorSource(lambda _: rows, rate=2_000_000))) == [0, 0, 1, 1, 2]

    def test_its_own_timestamps_are_kept(self) -> None:
        assert ts_of(source(fl.GeneratorSource(lambda _: [{"ts": [5, 7], "user": [1, 2]}], rate=3))) == [5, 7]

    @pytest.mark.parametrize(
        ("ts", "row"), [([5, -1], 3), (pa.array([1.5, 2.5]), None), (pa.array([0, 1], pa.timestamp("us")), None)]
    )
    def test_its_own_timestamps_are_microseconds_since_the_start(self, ts: Any, row: int | None) -> None:
        pieces = [{"ts": [0, 1], "user": [0, 0]}, {"ts": ts, "user": [1, 2]}]
        with pytest.raises(InputError, match="PACED_TIMESTAMP") as caught:
            source(fl.GeneratorSource(lambda _: pieces, rate=3)).read(0)
        assert (caught.value.row, caught.value.column) == (row, "ts")

    def test_a_heartbeats_worth_is_handed_over_at_once(self) -> None:
        generated = fl.GeneratorSource(lambda _: ({"user": [n]} for n in range(95)), rate=1000, heartbeats=100)
        chunks = list(source(generated).chunks(0, ["ts", "user"]))
        assert [chunk.num_rows for chunk in chunks] == [10] * 9 + [5]
        assert pa.Table.from_batches(chunks).column("user").to_pylist() == list(range(95))

    def test_they_are_sorted(self) -> None:
        with pytest.raises(UsageError, match="PACED_UNSORTED"):
            stream(fl.GeneratorSource(lambda _: [], rate=1), sorted=False)
        stream(fl.GeneratorSource(lambda _: []), sorted=False)


def test_a_generators_chunks_may_hold_nothing_but_nulls() -> None:
    """Also paced ones, which are put together."""
    pieces = [{"ts": [None, None], "v": [1, 2]}, {"ts": [3, 4], "v": [None, None]}, {"ts": [5], "v": [6]}]
    stream = fl.Stream("values", ValueBarrier.value, fl.GeneratorSource(lambda _: iter(pieces)))
    for result in (
        fl.spec(ValueBarrier, [stream], bad_rows="dead-letter"),
        local.run(ValueBarrier, [stream], bad_rows="dead-letter", progress=False),
    ):
        reasons = sorted(result.dead_letters.column("reason").to_pylist())
        assert reasons == ["NULL_TIMESTAMP", "NULL_TIMESTAMP", "NULL_VALUE", "NULL_VALUE"]
