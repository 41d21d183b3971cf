import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import flumina as fl
from flumina.apps.registry import APPS
from flumina.apps.value_barrier import ValueBarrier, Values
from flumina.apps.workload import Workload, arguments, below, noise, parameter, share
from flumina.input.sources import CHUNK_ROWS

SMALL: dict[str, dict[str, Any]] = {
    "key-counter": {"events": 2_400, "ratio": 50},
    "value-barrier": {"events": 2_400, "ratio": 100},
    "page-views": {"events": 2_400, "pages": 50, "skew": 0.7, "gets": 20, "changes": 40},
    "fraud": {"events": 2_400, "ratio": 100},
    "outliers": {"events": 2_400, "ratio": 100},
    "smart-home": {"houses": 12, "households": 2, "plugs": 2, "hours": 3, "interval": 600},
}
every = pytest.mark.parametrize("name", SMALL)


def rows(stream: fl.Stream) -> list[tuple[object, ...]]:
    """All events of a stream, whatever part they are on."""
    return sorted((tuple(row.values()) for table in stream.parts() for row in table.to_pylist()), key=repr)


def test_every_app_is_tried() -> None:
    assert set(SMALL) == set(APPS)


@every
def test_the_same_seed_gives_the_same_events_and_another_one_others(name: str) -> None:
    one, same, other = (APPS[name].generate(**SMALL[name], seed=seed).streams() for seed in (1, 1, 2))
    assert [rows(stream) for stream in one] == [rows(stream) for stream in same]
    assert [rows(stream) for stream in one] != [rows(stream) for stream in other]


@every
def test_how_many_parts_there_are_decides_only_where_events_are(name: str) -> None:
    """What is one for so many *on each part* is adjusted, so that it is one for as many in all."""
    parameters = SMALL[name]
    rare = {key: parameters[key] for key in ("ratio", "gets", "changes") if key in parameters}
    streams = []
    for parts in (1, 2, 3):
        adjusted = {key: 6 * value // parts for key, value in rare.items()}
        streams.append(APPS[name].generate(**(parameters | adjusted), parts=parts).streams())
    assert [len(made[-1 if name == "smart-home" else 0].parts()) for made in streams] == [1, 2, 3]
    first = [rows(stream) for stream in streams[0]]
    assert [rows(stream) for stream in streams[1]] == first == [rows(stream) for stream in streams[2]]
    assert all(first), "no stream is empty"


@every
def test_streams_can_be_sent_and_are_sorted(name: str) -> None:
    for stream in APPS[name].generate(**SMALL[name]).streams():
        again = fl.Stream(stream.name, stream.tag, pickle.loads(pickle.dumps(stream.data)))  # noqa: S301 -- our own
        assert rows(again) == rows(stream)
        for part in stream.parts():
            assert bool((np.diff(part.column("ts").to_numpy()) >= 0).all())


@every
def test_in_memory_and_in_files_they_are_the_same(name: str, tmp_path: Path) -> None:
    workload = APPS[name].generate(**SMALL[name])
    made, held = workload.streams(), workload.tables()
    workload.write(tmp_path)
    opened = APPS[name].open(tmp_path)
    assert opened.left_out == ()
    for stream, table, file in zip(made, held, opened.streams, strict=True):
        assert stream.name == table.name == file.name
        assert stream.tag is table.tag is file.tag
        assert len(stream.parts()) == len(file.parts())
        assert rows(stream) == rows(table) == rows(file)


def test_parts_longer_than_a_chunk(tmp_path: Path) -> None:
    workload = Values(events=2 * CHUNK_ROWS + 1_001, parts=2)
    values = workload.streams()[0]
    assert [part.num_rows for part in values.parts()] == [CHUNK_ROWS + 501, CHUNK_ROWS + 500]
    alone = Values(events=2 * CHUNK_ROWS + 1_001, parts=1).streams()[0].parts()[0]
    assert pa.concat_tables(values.parts()).sort_by("ts").column("v").to_pylist() == alone.column("v").to_pylist()
    paths = workload.write(tmp_path)
    assert sum(pq.read_metadata(path).num_rows for path in paths if path.parent.name == "values") == workload.events


def test_timestamps_follow_the_rate() -> None:
    values, barriers = Values(events=1_000, rate=10_000, parts=2, ratio=100).streams()
    assert [part.column("ts").to_pylist()[:3] for part in values.parts()] == [[0, 200, 400], [100, 300, 500]]
    assert barriers.parts()[0].column("ts").to_pylist() == [19_900, 39_900, 59_900, 79_900, 99_900]


def test_a_barrier_comes_after_as_many_values_as_it_should() -> None:
    streams = Values(events=1_000, parts=2, ratio=100, rate=3_000_000).streams()  # three at the same time
    result = fl.spec(ValueBarrier, streams)
    values = sorted((ts, v) for part in streams[0].parts() for ts, v in zip(*part.to_pydict().values(), strict=True))
    assert result.output.num_rows == 5
    ends = streams[1].parts()[0].column("ts").to_pylist()
    assert result.output.column("total")[0].as_py() == sum(v for ts, v in values if ts <= ends[0])


def test_paced_streams_are_due_at_their_timestamps() -> None:
    values, barriers = Values(events=1_000, rate=10_000, parts=2, ratio=100).streams(paced=True, heartbeats=50)
    assert values.data.rate == 5_000
    assert values.data.heartbeats == barriers.data.heartbeats == 50
    assert barriers.data.rate == 50
    assert values.parts()[1].column("ts").to_pylist()[:2] == [100, 300]


def test_noise_is_even() -> None:
    numbers = np.arange(100_000)
    bits = noise(7, "x", numbers)
    assert len(np.unique(bits)) == len(numbers)
    assert abs(share(bits).mean() - 0.5) < 0.01
    assert (np.abs(np.bincount(below(10, bits)) - 10_000) < 500).all()
    assert abs(np.corrcoef(share(bits), share(noise(7, "y", numbers)))[0, 1]) < 0.02
    assert abs(np.corrcoef(share(bits), share(noise(8, "x", numbers)))[0, 1]) < 0.02


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"events": -1}, "events=-1 should be at least 0"),
        ({"parts": 0}, "parts=0 should be at least 1"),
        ({"ratio": "many"}, "expected ratio= as int, got 'many'"),
        ({"pace": 1}, "has no 'pace'"),
    ],
)
def test_bad_parameters(parameters: dict[str, object], says: str) -> None:
    with pytest.raises(fl.UsageError, match=says):
        APPS["value-barrier"].generate(**parameters)


def test_parameters_are_described() -> None:
    for app in APPS.values():
        for name, (default, about) in app.workload.parameters().items():
            assert isinstance(default, int | float), name
            assert about, name
    assert arguments("f", {"skew": float}, {"skew": "0.5"}) == {"skew": 0.5}


def test_a_workload_of_ones_own_needs_flows() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Nothing(Workload):
        many: int = parameter(3, "how many")

    with pytest.raises(NotImplementedError):
        Nothing(many=4).streams()
