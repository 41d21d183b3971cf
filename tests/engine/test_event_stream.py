import threading
import time
from collections.abc import Iterator
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import flumina as fl
from flumina.engine.event_stream import EventBatch, Heartbeat, event_stream
from flumina.errors import InputError, OrderError
from flumina.input.sources import InMemoryTables
from flumina.model.order import END, Point, heartbeat
from flumina.program.base import define


class Tags:
    view = fl.Tag("user long")


NAMES = ["first", "s"]
ROWS = pa.table({"ts": [1, 2, 2, 5, 9], "user": [0, 1, 2, 3, 4]})


def stream(data: Any, **options: Any) -> fl.Stream:
    return fl.Stream("s", Tags.view, data, **options)


def users(found: list[EventBatch]) -> list[list[int]]:
    return [[event.user for event in arrival.batch] for arrival in found if arrival.batch is not None]


def all_users(found: list[EventBatch]) -> list[int]:
    return list(chain.from_iterable(users(found)))


def check_frontiers(found: list[EventBatch]) -> None:
    """Frontiers never fall, cover what they come with, and keep what they promise."""
    for before, after in pairwise(found):
        assert before.frontier <= after.frontier
        assert after.batch is None or after.batch.point(0) > before.frontier
    assert all(arrival.batch is None or arrival.batch.point(-1) <= arrival.frontier for arrival in found)


@pytest.mark.parametrize("kind", ["table", "parquet", "arrow", "generator"])
def test_all_kinds_of_data_arrive_alike(kind: str, tmp_path: Path) -> None:
    pq.write_table(ROWS, tmp_path / "x.parquet", row_group_size=4)
    with pa.OSFile(str(tmp_path / "x.arrow"), "wb") as file, pa.ipc.new_file(file, ROWS.schema) as writer:
        writer.write_table(ROWS, max_chunksize=4)
    data = {
        "table": ROWS,
        "parquet": fl.Parquet(tmp_path / "x.parquet"),
        "arrow": fl.Parquet(tmp_path / "x.arrow"),
        "generator": fl.GeneratorSource(lambda _: [ROWS.slice(0, 4), ROWS.slice(4)]),
    }[kind]
    found = list(event_stream(stream(data), 1, 0, NAMES, chunk_rows=2))
    assert [event.user for a in found if a.batch is not None for event in a.batch] == [0, 1, 2, 3, 4]
    assert all(arrival.batch is None or 0 < len(arrival.batch) <= 2 for arrival in found)
    check_frontiers(found)
    assert found[0].frontier == Point(2, 1, 1)
    assert found[-2].frontier == Point(9, 1, 4)
    assert found[-1] == EventBatch(None, END)


def test_nothing() -> None:
    empty: tuple[Any, ...] = (
        [],
        ROWS.slice(0, 0),
        fl.GeneratorSource(lambda _: []),
        fl.GeneratorSource(lambda _: [], rate=5),
    )
    for data in empty:
        assert list(event_stream(stream(data), 1, 0, NAMES)) == [EventBatch(None, END)]


def test_unsorted_parts_arrive_sorted() -> None:
    table = pa.table({"ts": [9, 1, 8], "user": [0, 1, 2]})
    found = list(event_stream(stream(table, sorted=False), 1, 0, NAMES, chunk_rows=2))
    assert users(found) == [[1, 2], [0]]
    assert [arrival.frontier for arrival in found] == [Point(8, 1, 2), Point(9, 1, 0), END]


def test_data_are_validated() -> None:
    table = pa.table({"ts": [1, 2, 1], "user": [0, 1, 2]})
    for data in (table, fl.GeneratorSource(lambda _: [table.slice(n, 1) for n in range(3)])):
        with pytest.raises(InputError, match=r"DECREASING_TIMESTAMP.*part 0, row 2") as caught:
            list(event_stream(stream(data), 1, 0, NAMES, chunk_rows=1))
        assert caught.value.row == 2
    empty = pa.table({"ts": pa.array([], pa.float64()), "user": pa.array([], pa.int64())})
    with pytest.raises(InputError, match="TIMESTAMP_TYPE"):
        list(event_stream(stream(empty), 1, 0, NAMES))


def test_stop_ends_it_without_a_last_word() -> None:
    stop = threading.Event()
    found = event_stream(stream(ROWS), 1, 0, NAMES, stop=stop, chunk_rows=2)
    next(found)
    stop.set()
    assert list(found) == []


class TestPaced:
    def timed(self, generated: fl.GeneratorSource, **options: Any) -> list[tuple[float, EventBatch]]:
        start = time.time()
        source = event_stream(stream(generated), 1, 0, NAMES, started=lambda: start, **options)
        return [(time.time() - start, arrival) for arrival in source]

    def test_events_come_when_they_are_due(self) -> None:
        generated = fl.GeneratorSource(lambda _: [{"user": range(n, n + 10)} for n in range(0, 100, 10)], rate=500)
        found = self.timed(generated)
        check_frontiers([arrival for _, arrival in found])
        assert all_users([arrival for _, arrival in found]) == list(range(100))
        for at, arrival in found:
            if arrival.batch is not None:
                assert int(arrival.batch.ts[-1]) / 1e6 < at
                assert arrival.frontier.seq == heartbeat(0, 1).seq
        assert found[-1][0] > 0.19
        assert [int(e.ts) for _, a in found if a.batch is not None for e in a.batch] == list(range(0, 200_000, 2000))

    def test_an_event_due_at_the_moment_of_a_heartbeat_lies_behind_its_frontier(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Clock(threading.Event):
            now = 1000.0

            def wait(self, timeout: float | None = None) -> bool:
                self.now += timeout or 0.0
                return False

        clock = Clock()
        for name in ("time", "monotonic"):
            monkeypatch.setattr(f"flumina.engine.event_stream.time.{name}", lambda: clock.now)
        generated = fl.GeneratorSource(
            lambda _: [{"user": range(50)}], rate=64, heartbeats=64
        )  # binary fractions are exact
        found = list(event_stream(stream(generated), 1, 0, NAMES, stop=clock))
        check_frontiers(found)
        assert found[0] == EventBatch(None, heartbeat(-1, 1))
        assert found[1].frontier == heartbeat(15_624, 1)
        assert users(found) == [[n] for n in range(50)]

    def test_without_events_there_are_heartbeats(self) -> None:
        generated = fl.GeneratorSource(lambda _: [{"ts": [0, 200_000], "user": [1, 2]}], rate=1, heartbeats=50)
        found = self.timed(generated)
        empty = [(at, arrival.frontier) for at, arrival in found[:-1] if arrival.batch is None]
        assert 1 <= len(empty) <= 11
        for at, frontier in empty:
            assert frontier.rank == 1
            assert frontier.seq == heartbeat(0, 1).seq
            assert frontier.ts / 1e6 < at
        assert found[-1][1] == EventBatch(None, END)
        assert found[-1][0] >= 0.2

    def test_tiny_pieces_are_put_together(self) -> None:
        generated = fl.GeneratorSource(lambda _: ({"user": [n]} for n in range(2000)), rate=10_000, heartbeats=20)
        found = [arrival for _, arrival in self.timed(generated)]
        assert all_users(found) == list(range(2000))
        assert len(found) < 20

    def test_what_is_late_comes_at_once_in_pieces_of_bounded_size(self) -> None:
        generated = fl.GeneratorSource(lambda _: [{"user": range(n, n + 10)} for n in range(0, 1000, 10)], rate=1)
        start = time.time()
        found = list(event_stream(stream(generated), 1, 0, NAMES, started=lambda: start - 10_000, chunk_rows=30))
        check_frontiers(found)
        assert all_users(found) == list(range(1000))
        assert max(map(len, users(found))) <= 60

    def test_stop_wakes_it(self) -> None:
        def forever(part: int) -> Iterator[dict[str, list[int]]]:
            yield {"ts": [0, 10**12], "user": [part, part]}

        stop = threading.Event()
        source = event_stream(stream(fl.GeneratorSource(forever, rate=1, heartbeats=0.0001)), 1, 0, NAMES, stop=stop)
        next(source)
        threading.Timer(0.1, stop.set).start()
        assert list(source) == []

    def test_the_start_may_lie_ahead(self) -> None:
        start = time.time() + 0.2
        generated = fl.GeneratorSource(lambda _: [{"user": [1, 2]}], rate=1000)
        source = event_stream(stream(generated), 1, 0, NAMES, started=lambda: start)
        found = [(time.time(), arrival) for arrival in source]
        check_frontiers([arrival for _, arrival in found])
        assert all(at >= start - 0.01 for at, arrival in found if arrival.batch is not None)

    @pytest.mark.parametrize(
        ("ts", "condition"),
        [
            ([2, 1], "DECREASING_TIMESTAMP"),
            ([-5, 1], "PACED_TIMESTAMP"),
            ([1.5, 2.5], "PACED_TIMESTAMP"),
            ([1, None], "NULL_TIMESTAMP"),
        ],
    )
    def test_bad_rows(self, ts: list[Any], condition: str) -> None:
        with pytest.raises(InputError, match=condition):
            self.timed(fl.GeneratorSource(lambda _: [{"ts": ts, "user": [1, 2]}], rate=1))


class Notes(fl.Program):
    note = fl.Tag(key="k long")
    depends = fl.depends((note, note))
    count = fl.PerKey(fl.Replicated("long"), read_by=[note], set_by=[note])

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        """Only its dependence matters."""


class Gathered(InMemoryTables):
    """Rows of which each says where it lay."""

    gathered = "place"

    def pieces(self) -> Iterator[pa.RecordBatch | Heartbeat]:
        for batch in self.tables[0].to_batches(max_chunksize=25):
            yield batch
            yield Heartbeat(batch.column("ts")[-1].as_py() - 1)


@pytest.mark.parametrize(
    ("keys", "places", "tie"),
    [
        ([1, 2, 1, 2], [0, 0, 1, 1], True),
        ([1, 1, 2, 2], [0, 0, 1, 1], False),
        ([1, 1, 1, 1], [3, 3, 3, 3], False),
        ([1, 2, 3, 1], [0, 0, 0, 2], True),
    ],
)
@pytest.mark.parametrize("at", [0, 10, 23, 24, 46])
def test_gathered_rows_may_not_tie(keys: list[int], places: list[int], at: int, *, tie: bool) -> None:
    """Four rows at one time among fifty others, within a piece or across the border of two."""
    rows = [(2 * n, n, n % 3) for n in range(50)]
    rows[at:at] = [(2 * at, 100 + key, place) for key, place in zip(keys, places, strict=True)]
    columns = zip(*rows, strict=True)
    table = pa.table(dict(zip(("ts", "k", "place"), (pa.array(c, pa.int64()) for c in columns), strict=True)))
    stream = fl.Stream("notes", Notes.note, Gathered([table]))
    depends = define(Notes).depends
    if tie:
        with pytest.raises(OrderError, match=rf"timestamp {2 * at} .* in part {places[0]} and .* in part {places[-1]}"):
            list(event_stream(stream, 0, 0, ["notes"], depends=depends))
    else:
        found = list(event_stream(stream, 0, 0, ["notes"], depends=depends))
        assert sum(len(arrival.batch) for arrival in found if arrival.batch is not None) == 54
        assert [a.frontier for a in found] == sorted(a.frontier for a in found)
