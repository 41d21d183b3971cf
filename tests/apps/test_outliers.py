import gzip
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import flumina as fl
from flumina.apps.outliers import APP, CATEGORIES, COLUMNS, RATES, SIZES, Connections, Knowledge, Outliers
from flumina.apps.reloaded import THRESHOLD, Model, Summary
from flumina.model.batch import Batch
from flumina.model.emit import Emit, rows
from flumina.model.tag_set import UNKEYED, TagSet
from flumina.program.base import define
from flumina.program.definition import fold, fold_batch
from flumina.spec import read
from flumina.state.compare import same
from tests.apps.agreement import assert_empty_batches_do_nothing

WORKLOAD = Connections(events=1_500, ratio=100, unusual=0.03)


def test_the_columns_of_the_kdd_cup() -> None:
    assert (len(COLUMNS), len(CATEGORIES), len(SIZES) + len(RATES)) == (41, 7, 34)


def test_unusual_connections_are_flagged_and_hardly_any_others() -> None:
    workload = Connections(events=3_000, ratio=500, unusual=0.02)
    result = fl.spec(Outliers, workload.streams())
    flagged = result.outputs["outlier"].column("event_ts").to_numpy()
    unusual = np.flatnonzero(workload.is_unusual(np.arange(3_000)))
    late = unusual[unusual > 1_000]
    assert len(late) > 40
    assert len(np.intersect1d(flagged, late)) > 0.9 * len(late)
    assert len(np.setdiff1d(flagged, unusual)) < 10
    assert result.outputs["model"].column("connections").to_pylist() == [1_000, 2_000, 3_000]


def test_nothing_is_flagged_before_the_first_query() -> None:
    result = fl.spec(Outliers, WORKLOAD.streams())
    first = result.outputs["model"].column("event_ts")[0].as_py()
    assert result.outputs["outlier"].num_rows > 10
    assert min(result.outputs["outlier"].column("event_ts").to_pylist()) > first
    assert min(result.outputs["outlier"].column("score").to_pylist()) > THRESHOLD


@pytest.mark.parametrize("seed", range(3))
def test_batches(seed: int) -> None:
    definition = define(Outliers)
    kind = definition.kinds[definition.initial]
    streams = Connections(events=600, ratio=30, unusual=0.05, seed=seed).streams()
    merged = Batch.merge([part.batch for part in read(definition, streams)])
    one, other = Emit(definition.outputs), Emit(definition.outputs)
    expected = fold(kind, definition.init(), merged, one)
    rng, state, start = random.Random(seed), definition.init(), 0
    while start < len(merged):
        stop = start + rng.randrange(1, 90)
        state = fold_batch(kind, state, merged.slice(start, stop), other)
        start = stop
    assert same(state, expected)
    found, wanted = (Counter(map(repr, rows(emit.drain()))) for emit in (other, one))
    assert found == wanted
    assert any("outlier" in row for row in wanted)


def test_queries_one_after_the_other() -> None:
    definition = define(Outliers)
    kind = definition.kinds[definition.initial]
    streams = WORKLOAD.streams()
    connections = read(definition, streams)[0].batch.slice(0, 50)
    queries = Batch.of_events([Outliers.query.event(ts=100 + n, stream="queries", seq=n) for n in range(3)])
    emit = Emit(definition.outputs)
    state = fold_batch(kind, fold_batch(kind, definition.init(), connections, emit), queries, emit)
    assert [row.values[0] for row in rows(emit.drain())] == [50, 50, 50]
    assert state.model is not None


def test_empty_batches() -> None:
    assert_empty_batches_do_nothing(Outliers, [Outliers.connection, Outliers.query])


def test_the_summary_goes_to_the_queries_and_the_model_to_both() -> None:
    program = Outliers()
    connections, queries = TagSet({"connection": UNKEYED}), TagSet({"query": UNKEYED})
    model = Model.train(Summary())
    seen = Summary()
    seen.add(("a",), np.array([[1, 2]]))
    state = Knowledge(seen, model)
    for left, right, learns in ((connections, connections, 1), (connections, queries, 0)):
        halves = program.fork(state, left, right)
        assert same(halves[learns], Knowledge(Summary(), model))
        assert same(halves[1 - learns], state)
    assert program.join(Knowledge(seen, model), Knowledge(Summary(), model)).summary.records == 1


class Hasty(Outliers):
    """Flags by what the worker itself has seen so far."""

    def update(self, state: Knowledge, event: fl.Event, emit: fl.Emit) -> None:
        state.model = Model.train(state.summary)
        super().update(state, event, emit)

    update_batch = None  # type: ignore[assignment]


def test_flagging_by_the_local_model_breaks_the_laws() -> None:
    """What the last *global* model is for."""
    report = fl.check(Hasty, examples=60)
    assert not report.ok
    assert {verdict.law for verdict in report.results if not verdict.ok} & {"C1", "C2", "C3"}


def lines(count: int) -> list[str]:
    table = Connections(events=count, parts=1).streams()[0].parts()[0]
    columns = [[str(value) for value in table.column(name).to_pylist()] for name in COLUMNS]
    return [",".join((*row, "normal.")) for row in zip(*columns, strict=True)]


def test_files_of_the_kdd_cup(tmp_path: Path) -> None:
    path = tmp_path / "kdd.gz"
    path.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines(250)).encode()))
    opened = APP.open(path, every="100")
    connections, queries = opened.streams
    assert [part.num_rows for part in connections.parts()] == [250]
    assert queries.parts()[0].column("ts").to_pylist() == [99, 199]
    one = fl.spec(Outliers, opened.streams)
    assert one.events == 252
    several = APP.open(path, parts=3, every=100)
    assert [part.column("ts").to_pylist()[:2] for part in several.streams[0].parts()] == [[0, 3], [1, 4], [2, 5]]
    assert fl.spec(Outliers, several.streams).outputs["model"].equals(one.outputs["model"])


@pytest.mark.parametrize("every", ["0", "-3"])
def test_a_query_is_for_some_lines(every: str, tmp_path: Path) -> None:
    path = tmp_path / "kdd"
    path.write_text("".join(f"{line}\n" for line in lines(3)))
    with pytest.raises(fl.UsageError, match=rf"PARAMETER.*outliers: every={every} should be at least 1"):
        APP.open(path, every=every)
    assert APP.open(path, every=1).streams[1].parts()[0].num_rows == 3


def test_bad_lines_of_the_kdd_cup(tmp_path: Path) -> None:
    path = tmp_path / "kdd"
    good = lines(30)
    path.write_text("\n".join([*good[:10], "1,tcp", *good[10:]]) + "\n")
    with pytest.raises(fl.InputError, match=r"kdd:11: 2 columns instead of 42"):
        APP.open(path)
    opened = APP.open(path, lenient=True, every=10)
    assert len(opened.left_out) == 1
    assert fl.spec(Outliers, opened.streams).events == 30 + 3
