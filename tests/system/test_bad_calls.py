"""Calls and input that can't work: an error of ours says why, soon, and nothing is left behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import flumina as fl
from flumina import local
from flumina.apps import PageViews, ValueBarrier
from flumina.engine.options import EngineOptions
from flumina.errors import FluminaError, InputError, OrderError, OutputError, UsageError
from flumina.testing import assert_same_outputs
from tests.waiting import FOREVER

BARRIERS = pa.table({"ts": [5, 10]})


def values(data: Any, **more: Any) -> list[fl.Stream]:
    return [
        fl.Stream("values", ValueBarrier.value, data, **more),
        fl.Stream("barriers", ValueBarrier.barrier, BARRIERS),
    ]


def good(v: Any = (1, 2, 3)) -> pa.Table:
    return pa.table({"ts": list(range(len(v))), "v": list(v)})


def run(program: Any, streams: Any, **more: Any) -> Any:
    return local.run(program, streams, progress=False, **{"engine_options": EngineOptions(patience=FOREVER), **more})


BAD_INPUT = {
    "no timestamps": (pa.table({"v": [1]}), "MISSING_COLUMN"),
    "a column is missing": (pa.table({"ts": [1]}), "MISSING_COLUMN"),
    "text for numbers": (pa.table({"ts": [1], "v": ["x"]}), "COLUMN_TYPE"),
    "a null": (pa.table({"ts": [1, 2], "v": [1, None]}), "NULL_VALUE"),
    "a timestamp is null": (pa.table({"ts": [1, None], "v": [1, 2]}), "NULL_TIMESTAMP"),
    "timestamps are text": (pa.table({"ts": ["a"], "v": [1]}), "TIMESTAMP_TYPE"),
    "not sorted": (pa.table({"ts": [2, 1], "v": [1, 2]}), "DECREASING_TIMESTAMP"),
    "another kind of timestamp": (
        pa.table({"ts": pa.array([1], pa.timestamp("us")), "v": [1]}),
        "TIMESTAMP_TYPES",
    ),
    "parts of different types": ([good(), pa.table({"ts": [9], "v": ["nine"]})], "COLUMN_TYPE"),
    "parts of different columns": ([good(), pa.table({"ts": [9], "w": [9]})], "MISSING_COLUMN"),
    "a column twice": (pa.Table.from_arrays([pa.array([1])] * 3, names=["ts", "v", "v"]), "DUPLICATE_COLUMN"),
}


@pytest.mark.parametrize(("data", "condition"), BAD_INPUT.values(), ids=BAD_INPUT)
def test_bad_input_is_named(data: Any, condition: str, tmp_path: Path) -> None:
    for workers in (None, 2):
        with pytest.raises(InputError) as caught:
            run(ValueBarrier, values(data), workers=workers, optimizer="greedy", out=tmp_path / "out")
        assert caught.value.condition == condition
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("data", "condition"), BAD_INPUT.values(), ids=BAD_INPUT)
def test_bad_files_are_named(data: Any, condition: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number, table in enumerate(data if isinstance(data, list) else [data]):
        pq.write_table(table, tmp_path / "in" / f"{number}.parquet")
    with pytest.raises(InputError) as caught:
        run(ValueBarrier, values(fl.Parquet(tmp_path / "in")), out=tmp_path / "out")
    assert caught.value.condition == condition
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


CALLS: dict[str, tuple[Any, dict[str, Any]]] = {
    "no streams": ([], {}),
    "no list": (values(good())[0], {}),
    "two streams of one name": ([*values(good()), values(good())[0]], {}),
    "no workers": (values(good()), {"workers": 0}),
    "half a worker": (values(good()), {"workers": 1.5}),
    "too many workers": (values(good()), {"workers": 1000}),
    "no such optimizer": (values(good()), {"optimizer": "magic"}),
    "no such plan": (values(good()), {"plan": "nowhere.json"}),
    "a plan of another kind": (values(good()), {"plan": 7}),
    "an empty path": (values(good()), {"out": ""}),
    "no path": (values(good()), {"out": 7}),
    "no table": (values(7), {}),
    "no such file": (values(fl.Parquet("nowhere.parquet")), {}),
    "a stream of another program": ([fl.Stream("views", PageViews.view, {"ts": [], "page": [], "user": []})], {}),
}


@pytest.mark.parametrize(("streams", "more"), CALLS.values(), ids=CALLS)
def test_calls_that_cannot_be_meant(streams: Any, more: dict[str, Any]) -> None:
    with pytest.raises(FluminaError):
        run(ValueBarrier, streams, **more)


def test_results_are_not_overwritten_unless_that_is_wanted(tmp_path: Path) -> None:
    first = run(ValueBarrier, values(good()), out=tmp_path / "out")
    with pytest.raises(OutputError, match="OUT_EXISTS"):
        run(ValueBarrier, values(good((5, 6))), out=tmp_path / "out")
    assert first.output.num_rows == 2
    second = run(ValueBarrier, values(good((5, 6))), out=tmp_path / "out", overwrite=True)
    assert second.output.to_pylist()[0]["total"] == 11
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_what_is_read_is_not_overwritten(tmp_path: Path) -> None:
    """Not even where a run has written it, nor through a link."""
    run(ValueBarrier, values(good()), out=tmp_path / "first")
    (tmp_path / "link").symlink_to(tmp_path / "first")
    [file] = (tmp_path / "first").glob("*.parquet")
    before = file.read_bytes()
    for place in ("first", "link"):
        stream = fl.Stream(
            "values", ValueBarrier.value, fl.Parquet(tmp_path / "first"), ts="event_ts", rename={"v": "total"}
        )
        with pytest.raises(UsageError, match=r"OUT_IS_INPUT.*stream 'values'"):
            run(ValueBarrier, [stream], out=tmp_path / place, overwrite=True)
    assert file.read_bytes() == before


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for place in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/flumina")):
        with pytest.raises((OutputError, UsageError)) as caught:
            run(ValueBarrier, values(good()), out=place)
        assert place.name in str(caught.value)


def test_a_program_that_cannot_be_sent_is_named() -> None:
    lock = threading.Lock()

    class Locked(fl.Program):
        value = fl.Tag("v long NOT NULL")
        depends = fl.depends()
        output = "v long"
        total = fl.Sum()

        def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
            with lock:
                state.total += event.v

    with pytest.raises(UsageError) as caught:
        run(Locked, [fl.Stream("values", Locked.value, good())])
    assert caught.value.condition == "NOT_PICKLABLE"


def test_a_generator_that_cannot_be_sent_is_named() -> None:
    lock = threading.Lock()

    def locked(part: int) -> Iterator[Any]:
        with lock:
            yield good()

    with pytest.raises(UsageError) as caught:
        run(ValueBarrier, values(fl.GeneratorSource(locked)))
    assert caught.value.condition == "NOT_PICKLABLE"


def test_a_generator_may_be_a_closure() -> None:
    most = 5
    streams = values(fl.GeneratorSource(lambda part: iter([good(range(most))])))
    assert_same_outputs(run(ValueBarrier, streams).output, fl.spec(ValueBarrier, streams).output)


ODD = ["a.b", "with `ticks`", "mit Ümläut", "日本", "two words", "c0_0", "s", "task", "q", "t"]


def odd(name: str) -> list[fl.Stream]:
    """Columns with a name that SQL, or we ourselves, could take for something else."""
    table = pa.table({name: [1, 2, 3], f"{name} value": [4, 5, 6]})
    return [
        fl.Stream(name, ValueBarrier.value, [table, table], ts=name, rename={"v": f"{name} value"}, sorted=False),
        fl.Stream("barriers", ValueBarrier.barrier, pa.table({name: [2, 9]}), ts=name),
    ]


@pytest.mark.parametrize("name", ODD)
def test_columns_and_streams_may_be_called_anything(name: str) -> None:
    streams = odd(name)
    result = run(ValueBarrier, streams, workers=2, optimizer="greedy")
    assert_same_outputs(result.output, fl.spec(ValueBarrier, streams).output)


def test_keys_may_be_of_any_size(tmp_path: Path) -> None:
    keys = ["x" * 100_000, "", "\0", "\U0001f600", "y" * 100_000]
    views = pa.table({"ts": range(len(keys)), "page": keys, "user": range(len(keys))})
    changes = pa.table({"ts": range(len(keys)), "page": keys[::-1], "info": keys})
    streams = [fl.Stream("views", PageViews.view, [views, views]), fl.Stream("changes", PageViews.change, changes)]
    result = run(PageViews, streams, workers=2, optimizer="greedy")
    assert_same_outputs(result.output, fl.spec(PageViews, streams).output)


def test_dependent_events_that_tie_across_parts_are_an_error() -> None:
    tied = [
        fl.Stream("values", ValueBarrier.value, [good(), good()]),
        fl.Stream("barriers", ValueBarrier.barrier, [BARRIERS, BARRIERS]),
    ]
    for how in ({"workers": 2, "optimizer": "greedy"}, {"optimizer": "sequential"}):
        with pytest.raises(OrderError):
            run(ValueBarrier, tied, **how)
