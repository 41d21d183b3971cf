import json

from flumina.engine.job import TaskStats
from flumina.engine.results import RunStats
from flumina.report.figures import latency_figures, rate, run_figures, worker_figures
from flumina.runtime.histogram import Histogram
from flumina.runtime.stats import WorkerStats


def stats(latency: Histogram | None = None) -> RunStats:
    """Two tasks, made up."""
    workers = [
        {"w1": WorkerStats(events=10, joins=5, waited_for_children=0.5, buffered=3)},
        {"w2": WorkerStats(events=90, runs=7, waited_for_state=0.25, state_bytes=100)},
    ]
    tasks = {
        number: TaskStats(mine, 50, 20, 2.0 - number, 0.5, 1.0, 0.75, 1 << 20, 300, 4, latency or Histogram())
        for number, mine in enumerate(workers)
    }
    return RunStats({name: one for mine in workers for name, one in mine.items()}, tasks, 4096, 2)


def test_everything_is_plain_data() -> None:
    found = json.loads(json.dumps(run_figures(stats())))
    assert found["events"] == 100
    assert found["seconds"] == 2.0
    assert found["events_per_second"] == 50.0
    assert found["bytes_between"] == 600
    assert (found["joins"], found["state_bytes"], found["shuffled_bytes"], found["snapshots"]) == (5, 100, 4096, 2)
    assert found["latency"] is None
    assert found["tasks"]["1"]["workers"] == ["w2"]
    assert found["tasks"]["1"]["seconds"] == 1.0


def test_waits_are_by_cause() -> None:
    found = worker_figures(stats().workers["w1"])
    assert found["waited"] == {"state": 0.0, "children": 0.5, "events": 0.0, "parent": 0.0}
    assert found["buffered"] == 3
    assert not [name for name in found if name.startswith("waited_")]


def test_latency_has_percentiles_where_anybody_could_tell() -> None:
    found = latency_figures(Histogram.of({0.001: 98, 1.0: 2}))
    assert found is not None
    assert found["outputs"] == 100
    assert found["p50"] < 0.0011
    assert found["p99"] == found["p100"] > 0.9
    assert latency_figures(Histogram()) is None


def test_a_run_that_took_no_time_has_no_rate() -> None:
    assert rate(RunStats({}, {})) == 0.0
