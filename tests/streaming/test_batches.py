"""Batches are the sequential program, whatever fails, whatever is buffered, and however often they are tried."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import flumina as fl
from flumina.apps import Fraud, PageViews, ValueBarrier
from flumina.engine.driver import LostSlotsError
from flumina.engine.hooks import BATCH_STEPS as POINTS
from flumina.errors import GangError, OrderError
from flumina.input.validation import validate
from flumina.plan.forest import Forest
from flumina.plan.optimize import make_plan
from flumina.plan.render.json import from_json
from flumina.plan.tree import Plan
from flumina.streaming import batches as batches_module
from flumina.streaming.batch_engine import BatchRun
from flumina.testing import assert_same_outputs
from tests.streaming.support import Crash, Folding, Given, Query, crash_at

VALUES, BARRIERS = "values", "barriers"
FAR = pa.timestamp("us")


def streams() -> list[fl.Stream]:
    return [fl.Stream(VALUES, ValueBarrier.value, None), fl.Stream(BARRIERS, ValueBarrier.barrier, None)]


def values(*ts: int) -> pa.Table:
    return pa.table({"ts": pa.array(ts, pa.int64()), "v": pa.array([t * 7 + 1 for t in ts], pa.int64())})


nobody = pa.table({"ts": [77], "v": pa.nulls(1, pa.int64())})
"""A value that is not there."""


def barriers(*ts: int) -> pa.Table:
    return pa.table({"ts": pa.array(ts, pa.int64())})


def batch(of_values: pa.Table, of_barriers: pa.Table) -> Given:
    return {VALUES: [of_values.slice(0, 1), of_values.slice(1)], BARRIERS: [of_barriers]}


def oracle(given: Sequence[Given]) -> pa.Table:
    """The sequential program on all rows."""
    whole = [
        fl.Stream(VALUES, ValueBarrier.value, pa.concat_tables([t for g in given for t in g[VALUES]]), sorted=False),
        fl.Stream(BARRIERS, ValueBarrier.barrier, pa.concat_tables([t for g in given for t in g[BARRIERS]])),
    ]
    return fl.spec(ValueBarrier, whole).output


IN_ORDER = [
    batch(values(1, 2, 3, 5), barriers(3)),
    batch(values(6, 7, 9), barriers()),
    batch(values(), barriers(12)),
    batch(values(13, 14), barriers(14, 15)),
]
APART = [
    batch(values(1, 2, 30), barriers()),
    batch(values(31, 33), barriers(2)),
    batch(values(40), barriers(31, 32)),
    batch(values(41), barriers(39, 50)),
    batch(values(50, 60), barriers(70)),
]
"""Values run ahead of barriers, so that they wait for them."""


def test_batches_in_order_are_the_sequential_program(tmp_path: Path) -> None:
    query = Query(tmp_path, ValueBarrier, streams())
    for number, given in enumerate(IN_ORDER):
        query.feed(number, given)
        assert query.last["buffered"] == {VALUES: 0, BARRIERS: 0}
    assert_same_outputs(query.output(), oracle(IN_ORDER))
    assert query.last["totals"] == {"rows": 13, "heartbeats": 0, "late": 0, "bad": 0, "processed": 13}


def test_what_cannot_be_ordered_yet_is_buffered(tmp_path: Path) -> None:
    query = Query(tmp_path, ValueBarrier, streams(), watermarks=dict.fromkeys((VALUES, BARRIERS), fl.BoundedDelay()))
    for number, given in enumerate(APART):
        query.feed(number, given)
        done = query.last["batchWatermark"]
        rows = sum(len(table) for g in APART[: number + 1] for tables in g.values() for table in tables)
        assert query.last["totals"]["processed"] + sum(query.last["buffered"].values()) == rows
        assert done is None or query.last["totals"]["processed"] == sum(
            int((table.column("ts").to_numpy() <= done).sum())
            for g in APART[: number + 1]
            for tables in g.values()
            for table in tables
        )
    assert sum(query.last["buffered"].values()) == 2, "a value at 60 and a barrier at 70"
    query.feed(len(APART), batch(values(), barriers()), closed=True)
    assert_same_outputs(query.output(), oracle(APART))


def test_nothing_is_processed_after_the_end(tmp_path: Path) -> None:
    query = Query(tmp_path, ValueBarrier, streams())
    query.feed(0, IN_ORDER[0], closed=True)
    for number in (0, 1):  # the last batch was not one of Spark's, which therefore comes with its number again
        query.start()
        with pytest.raises(fl.CheckpointError, match="DRAINED"):
            query.feed(number, IN_ORDER[1])


def test_closed_batches_lead_the_order(tmp_path: Path) -> None:
    given = [batch(values(10, 20), barriers(20)), batch(values(1, 2), barriers(2)), batch(values(), barriers(1))]
    query = Query(tmp_path, ValueBarrier, streams(), watermarks=dict.fromkeys((VALUES, BARRIERS), fl.ClosedBatches()))
    for number, rows in enumerate(given):
        query.feed(number, rows)
    found = query.output()
    assert found.column(0).to_pylist() == [71 + 141, 8 + 15, 0], "the barrier at 1 comes after the values of batch 1"
    assert query.last["late"] == {VALUES: 0, BARRIERS: 0}


def test_heartbeats_say_how_far_a_stream_is(tmp_path: Path) -> None:
    tags = {"value": ValueBarrier.value, "barrier": ValueBarrier.barrier}
    stream = [fl.Stream("all", tags, None, tag_column="kind", seq="n")]
    rows = pa.table(
        {
            "ts": [1, 2, 2, 5, 5, 7],
            "n": [0, 1, None, 3, 4, 5],
            "kind": ["value", "barrier", "beat", "value", "barrier", "value"],
            "v": [1, None, None, 5, None, 7],
        }
    )
    query = Query(tmp_path, ValueBarrier, stream, watermarks={"all": fl.Heartbeats("kind", "beat")})
    query.feed(0, {"all": [rows]})
    assert (query.last["batchWatermark"], query.last["processed"], query.last["buffered"]) == (2, 2, {"all": 3})
    assert query.last["heartbeats"] == {"all": 1}
    assert query.last["heldUpBy"] == ["all"]
    beat = pa.table({"ts": [6], "n": pa.nulls(1, pa.int64()), "kind": ["beat"], "v": pa.nulls(1, pa.int64())})
    query.start()
    query.feed(1, {"all": [beat]})
    assert (query.last["processed"], query.last["buffered"]) == (2, {"all": 1})
    assert query.output().column(0).to_pylist() == [1, 5]
    assert query.last["totals"] == {"rows": 7, "heartbeats": 2, "late": 0, "bad": 0, "processed": 4}


def test_a_stream_that_holds_up_others_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    query = Query(tmp_path, ValueBarrier, streams(), watermarks={BARRIERS: fl.BoundedDelay()}, max_buffered_rows=9)
    with caplog.at_level(logging.WARNING, "flumina"):
        for number in range(4):
            query.feed(number, batch(values(2 * number, 2 * number + 1), barriers()))
    assert query.last["heldUpBy"] == query.last["silent"] == [BARRIERS]
    assert query.last["batchesWaiting"] == 4
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 3, "the first, second and fourth time"
    assert [record.getMessage().split(": ", 1)[1] for record in caplog.records] == [
        f"{rows} rows are buffered, and nothing could be processed for {batches}: waiting for 'barriers', which "
        "has no watermark yet"
        for rows, batches in ((2, "a batch"), (4, "2 batches"), (8, "4 batches"))
    ]
    with pytest.raises(fl.InputError, match=r"STALLED.*'barriers'.*it has no watermark yet") as caught:
        query.feed(4, batch(values(8, 9), barriers()))
    assert caught.value.stream == BARRIERS


def test_a_stream_that_lags_behind_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    query = Query(tmp_path, ValueBarrier, streams(), watermarks={BARRIERS: fl.BoundedDelay()}, max_buffered_rows=4)
    query.feed(0, batch(values(1, 2), barriers(2)))
    with caplog.at_level(logging.WARNING, "flumina"):
        query.feed(1, batch(values(3), barriers()))
    assert "waiting for 'barriers', which is at 1" in caplog.text
    with pytest.raises(fl.InputError, match=r"STALLED.*its watermark is 1"):
        query.feed(2, batch(values(4, 5), barriers()))


@pytest.mark.parametrize("way", ["policy", "more"])
def test_a_query_that_stalled_goes_on_as_its_hint_says(tmp_path: Path, way: str) -> None:
    waiting = {"watermarks": dict.fromkeys((VALUES, BARRIERS), fl.BoundedDelay()), "max_buffered_rows": 3}
    query = Query(tmp_path, ValueBarrier, streams(), **waiting)
    given = batch(values(1, 2, 3, 4), barriers())
    with pytest.raises(fl.InputError, match="STALLED"):
        query.feed(0, given)
    again = {"watermarks": {VALUES: fl.BoundedDelay()}} if way == "policy" else {**waiting, "max_buffered_rows": 4}
    query = Query(tmp_path, ValueBarrier, streams(), **again)
    query.feed(0, given)
    assert query.last["processed"] == (3 if way == "policy" else 0)
    query.feed(1, batch(values(5), barriers(4)))
    query.feed(2, batch(values(), barriers()), closed=True)
    assert_same_outputs(query.output(), oracle([given, batch(values(5), barriers(4))]))


def test_a_cut_that_is_logged_is_not_asked_again_whether_it_stalls(tmp_path: Path) -> None:
    waiting = dict.fromkeys((VALUES, BARRIERS), fl.BoundedDelay())
    query = Query(tmp_path, ValueBarrier, streams(), watermarks=waiting)
    crash_at(query, "after-watermark", 0)
    with pytest.raises(Crash):
        query.feed(0, APART[0])
    query = Query(tmp_path, ValueBarrier, streams(), watermarks=waiting, max_buffered_rows=1)
    query.feed(0, APART[0])
    assert query.last["buffered"] == {VALUES: 3, BARRIERS: 0}


def end(query: Query, point: str) -> None:
    """Die in the batch that was to be the last."""
    query.feed(0, batch(values(1, 2, 3), barriers(2, 3)))
    crash_at(query, point, 1)
    with pytest.raises(Crash):
        query.feed(1, batch(values(), barriers()), closed=True)
    query.start()


@pytest.mark.parametrize("point", ["after-ingest", "after-watermark", "before-state"])
def test_a_last_batch_of_which_nothing_was_seen_may_be_another(tmp_path: Path, point: str) -> None:
    query = Query(tmp_path, ValueBarrier, streams(), watermarks=dict.fromkeys((VALUES, BARRIERS), fl.BoundedDelay()))
    end(query, point)
    more = batch(values(9), barriers(9))
    query.feed(1, more)
    query.start()
    query.feed(1, more)  # committed: nothing happens
    query.feed(2, batch(values(), barriers()), closed=True)
    assert_same_outputs(query.output(), oracle([batch(values(1, 2, 3), barriers(2, 3)), more]))


@pytest.mark.parametrize("point", ["after-state", "before-sink", "after-sink"])
def test_a_last_batch_that_may_have_been_seen_stays_the_last(tmp_path: Path, point: str) -> None:
    query = Query(tmp_path, ValueBarrier, streams(), watermarks=dict.fromkeys((VALUES, BARRIERS), fl.BoundedDelay()))
    end(query, point)
    with pytest.raises(fl.CheckpointError, match="DRAINED"):
        query.feed(1, batch(values(9), barriers(9)))
    query.start()
    with pytest.raises(fl.CheckpointError, match=r"DRAINED(.|\n)*new checkpoint"):
        query.feed(1, batch(values(9), barriers(9)))
    assert_same_outputs(query.output(), oracle([batch(values(1, 2, 3), barriers(2, 3))]))


def test_how_late_a_row_is_and_what_to_do_is_told(tmp_path: Path) -> None:
    query = Query(tmp_path, ValueBarrier, streams())
    query.feed(0, LATE[0])
    with pytest.raises(fl.InputError, match=r"LATE.*before 5,.*lie up to 1 before it(.|\n)*with a new checkpoint"):
        query.feed(1, LATE[1])


LATE = [batch(values(1, 5), barriers(5)), batch(values(4, 6, 5, 7), barriers(8))]


@pytest.mark.parametrize("late", ["drop", "dead-letter"])
def test_late_rows(tmp_path: Path, late: str) -> None:
    query = Query(tmp_path, ValueBarrier, streams(), late=late)
    for number, given in enumerate(LATE):
        query.feed(number, given)
    assert query.last["late"] == {VALUES: 2, BARRIERS: 0}
    assert query.last["totals"] == {"rows": 8, "heartbeats": 0, "late": 2, "bad": 0, "processed": 6}
    assert query.last["deadLettered"] == (2 if late == "dead-letter" else 0)
    in_time = [LATE[0], batch(values(6, 7), barriers(8))]
    assert_same_outputs(query.output(), oracle(in_time))
    dead_letters = [(row["reason"], row["stream"], row["partition"], row["row"]) for row in query.dead()]
    assert dead_letters == ([("LATE", VALUES, 0, 0), ("LATE", VALUES, 1, 1)] if late == "dead-letter" else [])


def test_late_rows_are_an_error_unless_told_otherwise(tmp_path: Path) -> None:
    query = Query(tmp_path, ValueBarrier, streams())
    query.feed(0, LATE[0])
    with pytest.raises(fl.InputError, match="LATE") as caught:
        query.feed(1, LATE[1])
    assert (caught.value.stream, caught.value.part, caught.value.row) == (VALUES, 0, 0)
    assert "watermarks=" in str(caught.value)


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("where", [0, 3])
def test_a_crash_anywhere_changes_nothing(tmp_path: Path, point: str, where: int) -> None:
    rules: dict[str, Any] = {"watermarks": dict.fromkeys((VALUES, BARRIERS), fl.BoundedDelay())}
    query = Query(tmp_path, ValueBarrier, streams(), **rules)
    crash_at(query, point, where)
    for number in range(where):
        query.feed(number, APART[number])
    with pytest.raises(Crash):
        query.feed(where, APART[where])
    query.start()
    for number in range(where, len(APART)):  # the batch in which it happened is tried again
        query.feed(number, APART[number])
    query.feed(len(APART), batch(values(), barriers()), closed=True)
    assert_same_outputs(query.output(), oracle(APART))


SPOILT = [
    {VALUES: [values(1, 2, 30), nobody], BARRIERS: [barriers(2)]},
    {VALUES: [values(31, 1), nobody], BARRIERS: [barriers(31)]},
    {VALUES: [values(2, 33)], BARRIERS: [barriers(1, 40)]},
]
"""With rows that are bad, and rows that come too late."""


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("where", [0, 1, 2])
def test_a_crash_anywhere_loses_no_dead_letter(tmp_path: Path, point: str, where: int) -> None:
    rules: dict[str, Any] = {"watermarks": dict.fromkeys((VALUES, BARRIERS), fl.BoundedDelay())}
    query = Query(tmp_path, ValueBarrier, streams(), **rules, late="dead-letter", bad_rows="dead-letter")
    crash_at(query, point, where)
    for number, given in enumerate(SPOILT):
        if number == where:
            with pytest.raises(Crash):
                query.feed(number, given)
            query.start()
        query.feed(number, given)
    dead_letters = [
        (row["reason"], row["partition"], row["row"], json.loads(row["data"])["ts"]) for row in query.dead()
    ]
    null = ("NULL_VALUE", 1, 0, 77)
    assert dead_letters == [null, ("LATE", 0, 1, 1), null, ("LATE", 0, 0, 2), ("LATE", 0, 0, 1)]
    good = batch(values(1, 2, 30, 31, 33), barriers(2, 31, 40))
    query.feed(len(SPOILT), batch(values(), barriers()), closed=True)
    assert_same_outputs(query.output(), oracle([good]))


def test_a_batch_that_is_tried_again_under_another_policy_keeps_its_cut(tmp_path: Path) -> None:
    query = Query(tmp_path, ValueBarrier, streams(), watermarks=dict.fromkeys((VALUES, BARRIERS), fl.BoundedDelay(20)))
    rows = batch(values(1, 2, 30), barriers(10, 30))
    crash_at(query, "after-watermark", 0)
    with pytest.raises(Crash):
        query.feed(0, rows)
    query.rules = replace(query.rules, policies=dict.fromkeys((VALUES, BARRIERS), fl.InOrder()))
    query.start()
    query.feed(0, rows)
    assert (query.last["batchWatermark"], sum(query.last["buffered"].values())) == (9, 3), (
        "InOrder would have taken all of them"
    )
    query.feed(1, batch(values(31), barriers(31)))
    assert (query.last["batchWatermark"], sum(query.last["buffered"].values())) == (31, 0)
    assert_same_outputs(query.output(), oracle([rows, batch(values(31), barriers(31))]))


def test_large_states_stay_in_their_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches_module, "INLINE_STATE", 1)
    query = Query(tmp_path, ValueBarrier, streams())
    for number, given in enumerate(IN_ORDER):
        query.feed(number, given)
        if number == 1:
            query.start()
    assert_same_outputs(query.output(), oracle(IN_ORDER))


@pytest.mark.parametrize("inline", [0, batches_module.INLINE_STATE])
def test_a_state_in_shares_is_gone_on_with_under_any_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inline: int
) -> None:
    """Also after batches without rows, whose plan is not the one that has left the state."""
    monkeypatch.setattr(batches_module, "INLINE_STATE", inline)
    pages = [f"page {n}" for n in range(20)]

    def given(ts: int, count: int = 20) -> Given:
        times, some = pa.array(range(ts, ts + count), pa.int64()), pa.array(pages[:count], pa.string())
        changes = pa.table({"ts": times, "page": some, "info": pa.array([f"{ts}"] * count, pa.string())})
        views = pa.table({"ts": pa.array(range(ts + 50, ts + 50 + count), pa.int64()), "page": some, "user": times})
        return {"changes": [changes], "views": [views]}

    both = [fl.Stream("changes", PageViews.change, None), fl.Stream("views", PageViews.view, None)]
    query = Query(tmp_path, PageViews, both)
    query.feed(0, given(100))
    (forest,) = query.engine.plans
    assert len(Forest.of(forest.root).trees) == 4
    alone = make_plan(PageViews, query.planner.rates.sources(query.planner.shape), optimizer="sequential")
    batches, trees = [given(100)], []
    ways = [(None, 0), (alone, 0), (None, 20), (alone, 20), (alone, 0), (None, 0), (forest, 20)]
    for number, (plan, count) in enumerate(ways, 1):
        query.fixed = plan
        query.start()
        batches.append(given(100 + 100 * number, count))
        query.feed(number, batches[-1])
        latest = query.batches.store.latest()
        assert latest is not None
        files = [[tree for tree, _ in file.tree_sizes] for file in latest.manifest.state]
        divided = len(Forest.of(from_json(str(latest.manifest.plan)).root).trees)
        assert sum(map(len, files)) == divided
        assert len(files) == (1 if inline else divided), "small ones are written together"
        trees.append(divided)
    assert trees == [4, 4, 4, 1, 1, 1, 4], "of the plan that was run last"
    whole = [replace(s, data=pa.concat_tables([g[s.name][0] for g in batches])) for s in both]
    assert_same_outputs(query.output(), fl.spec(PageViews, whole).output)


def test_a_driver_that_was_replaced_writes_no_more(tmp_path: Path) -> None:
    old = Query(tmp_path, ValueBarrier, streams())
    old.feed(0, IN_ORDER[0])
    new = Query(tmp_path, ValueBarrier, streams())
    crash_at(new, "after-watermark", 1)
    with pytest.raises(Crash):
        new.feed(1, IN_ORDER[1])
    with pytest.raises(fl.CheckpointError, match="CHECKPOINT_IN_USE"):
        old.feed(1, IN_ORDER[1])
    new.start()
    for number in (1, 2, 3):
        new.feed(number, IN_ORDER[number])
    assert_same_outputs(new.output(), oracle(IN_ORDER))


def test_another_program_is_refused(tmp_path: Path) -> None:
    Query(tmp_path, ValueBarrier, streams()).feed(0, IN_ORDER[0])
    with pytest.raises(fl.CheckpointError, match="CHECKPOINT_PROGRAM"):
        Query(tmp_path, ValueBarrier, list(reversed(streams())))


def test_code_that_was_changed_is_told_and_may_go_on_if_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query(tmp_path, ValueBarrier, streams())
    query.feed(0, IN_ORDER[0])
    fingerprint = query.batches.fingerprint
    changed = {**fingerprint, "code": {**fingerprint["code"], "update": "another"}}
    monkeypatch.setattr(batches_module, "program_fingerprint", lambda *_: changed)
    with pytest.raises(fl.CheckpointError, match=r"CHECKPOINT_PROGRAM[\s\S]*update") as caught:
        query.start()
    assert "allow_code_change=True" in str(caught.value.hint)
    query.changed = True
    query.start()
    for number, given in enumerate(IN_ORDER[1:], 1):
        query.feed(number, given)
    assert_same_outputs(query.output(), oracle(IN_ORDER))


def test_a_state_that_other_code_has_divided_is_remembered_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until a batch has been run with it, through batches without rows and further starts."""
    query = Query(tmp_path, ValueBarrier, streams())
    query.feed(0, IN_ORDER[0])
    changed = {**query.batches.fingerprint, "code": {"update": "another"}}
    monkeypatch.setattr(batches_module, "program_fingerprint", lambda *_: changed)
    query.changed = True
    foreign = []
    nothing = batch(values(), barriers())
    for number, given in enumerate([nothing, nothing, IN_ORDER[1], nothing], 1):
        query.start()
        snapshot = query.batches.store.latest()
        assert snapshot is not None
        state = query.batches._restored(snapshot).state
        assert state is not None
        foreign.append(state.foreign)
        query.feed(number, given)
    assert foreign == [True, True, True, False]


def unmark(folder: Path, batch: int) -> None:
    """Delete the marker of a batch, as if its driver had died before it wrote it."""
    (marker,) = (folder / "checkpoint" / "state").glob(f"snapshot-*-{batch + 1:010d}.done")
    marker.unlink()


def test_the_newest_commit_is_deleted(tmp_path: Path) -> None:
    query = Query(tmp_path, ValueBarrier, streams())
    for number in (0, 1):
        query.feed(number, IN_ORDER[number])
    unmark(tmp_path, 1)
    query.start()
    query.feed(1, IN_ORDER[1])  # tried again
    unmark(tmp_path, 1)
    query.start()
    for number in (2, 3):  # not tried again: what is in the sink stays
        query.feed(number, IN_ORDER[number])
    assert_same_outputs(query.output(), oracle(IN_ORDER))


def test_a_snapshot_is_missing_or_damaged(tmp_path: Path) -> None:
    query = Query(tmp_path, ValueBarrier, streams())
    query.feed(0, IN_ORDER[0])
    query.start()
    with pytest.raises(fl.CheckpointError, match="MISSING_SNAPSHOT"):
        query.feed(2, IN_ORDER[2])
    (state,) = (tmp_path / "checkpoint" / "state").glob("state-*")
    state.write_bytes(state.read_bytes()[:-1])
    query.start()
    with pytest.raises(fl.CheckpointError, match="DAMAGED"):
        query.feed(1, IN_ORDER[1])


def test_outputs_of_a_batch_that_is_not_tried_again_are_missing(tmp_path: Path) -> None:
    query = Query(tmp_path, ValueBarrier, streams())
    query.feed(0, IN_ORDER[0])
    unmark(tmp_path, 0)
    (tmp_path / "out" / "batch=0").rename(tmp_path / "elsewhere")
    query.start()
    with pytest.raises(fl.CheckpointError, match="NOT_COMMITTED"):
        query.feed(1, IN_ORDER[1])


def test_a_batch_that_holds_other_rows_than_before(tmp_path: Path) -> None:
    query = Query(tmp_path, ValueBarrier, streams())
    crash_at(query, "after-watermark", 0)
    with pytest.raises(Crash):
        query.feed(0, IN_ORDER[0])
    query.start()
    with pytest.raises(fl.CheckpointError, match="NOT_REPLAYED"):
        query.feed(0, IN_ORDER[1])
    query.start()
    with pytest.raises(fl.CheckpointError, match="as many now, but not the same"):
        query.feed(0, batch(values(1, 2, 4, 5), barriers(3)))
    query.start()
    query.feed(0, batch(values(5, 3, 2, 1), barriers(3)))  # their order is none of the source's promises
    query.start()
    query.feed(0, IN_ORDER[0])  # again, though it is committed: nothing happens
    with pytest.raises(fl.CheckpointError, match="NOT_REPLAYED"):
        query.feed(0, IN_ORDER[1])  # what Spark takes for batch 0 was never seen
    assert_same_outputs(query.output(), oracle(IN_ORDER[:1]))


def test_a_query_with_dead_letters_is_started_again(tmp_path: Path) -> None:
    query = Query(tmp_path, ValueBarrier, streams(), bad_rows="dead-letter")
    bad = pa.table({"ts": pa.array([4, None], pa.int64()), "v": pa.array([None, 3], pa.int64())})
    query.feed(0, batch(values(1), barriers(3)))
    assert (query.dead(), len(list((tmp_path / "dead").glob("batch=0/*.parquet")))) == ([], 1), "columns can be read"
    for number in (1, 2):
        query.start()
        query.feed(number, batch(bad, barriers()))
    assert [letter["reason"] for letter in query.dead()] == ["NULL_VALUE", "NULL_TIMESTAMP"] * 2


def test_a_dead_letter_may_have_any_time(tmp_path: Path) -> None:
    stream = [fl.Stream(VALUES, ValueBarrier.value, None), fl.Stream(BARRIERS, ValueBarrier.barrier, None)]
    query = Query(tmp_path, ValueBarrier, stream, bad_rows="dead-letter")
    far = pa.table({"ts": pa.array([1 << 58], pa.timestamp("us")), "v": pa.nulls(1, pa.int64())})
    near = pa.table({"ts": pa.array([7], pa.timestamp("us"))})
    query.feed(0, {VALUES: [far], BARRIERS: [near]})
    (letter,) = query.dead()
    assert letter["reason"] == "NULL_VALUE"
    assert json.loads(letter["data"]) == {"ts": 1 << 58, "v": None}


class Doubles(fl.Program):
    put = fl.Tag("v double, w long NOT NULL")
    depends = fl.depends((put, put))
    output = "v double"
    n = fl.Replicated("long", 0)

    def update(self, state: Any, event: Any, emit: Any) -> None:
        emit(event.v)


def test_a_dead_letter_is_json_whatever_its_numbers(tmp_path: Path) -> None:
    query = Query(tmp_path, Doubles, [fl.Stream("put", Doubles.put, None)], bad_rows="dead-letter")
    numbers = [float("nan"), float("inf"), float("-inf"), 1.5]
    query.feed(0, {"put": [pa.table({"ts": [1, 2, 3, 4], "v": numbers, "w": pa.nulls(4, pa.int64())})]})

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    told = [json.loads(letter["data"], parse_constant=refuse) for letter in query.dead()]
    texts = ["NaN", "Infinity", "-Infinity", 1.5]
    assert [row["v"] for row in told] == texts


@pytest.mark.parametrize("what", ["snapshot-*.json", "state-*"])
def test_damage_is_told_with_what_helps_a_query(tmp_path: Path, what: str) -> None:
    query = Query(tmp_path, ValueBarrier, streams())
    query.feed(0, IN_ORDER[0])
    for file in (tmp_path / "checkpoint" / "state").glob(what):
        file.write_bytes(file.read_bytes()[:-3])

    def again() -> None:
        query.start()
        query.feed(1, IN_ORDER[1])

    with pytest.raises(fl.CheckpointError, match="CHECKPOINT_DAMAGED") as caught:
        again()
    assert caught.value.file is not None
    assert "as a whole from a copy" in str(caught.value)
    assert "allow_older=True" not in str(caught.value)


def test_files_of_others_in_a_sink_stay(tmp_path: Path) -> None:
    (tmp_path / "out" / ".git").mkdir(parents=True)
    for name in (".env", "important.txt"):
        (tmp_path / "out" / name).touch()
    with pytest.raises(fl.OutputError, match=r"OUT_EXISTS.*important.txt"):
        Query(tmp_path, ValueBarrier, streams())
    (tmp_path / "out" / "important.txt").unlink()
    Query(tmp_path, ValueBarrier, streams()).feed(0, IN_ORDER[0])
    assert (tmp_path / "out" / ".git").exists()
    assert (tmp_path / "out" / ".env").exists()


def test_ties_across_batches_are_an_error_where_they_matter(tmp_path: Path) -> None:
    rules = {"watermarks": dict.fromkeys((VALUES, BARRIERS), fl.BoundedDelay(5))}
    query = Query(tmp_path, ValueBarrier, streams(), **rules)
    query.feed(0, batch(values(20), barriers(20)))
    where = "in partition 0 of batch 0 and .* in partition 0 of batch 1"
    with pytest.raises(OrderError, match=rf"AMBIGUOUS_ORDER.*{where}[\s\S]*repair the new rows"):
        query.feed(1, batch(values(20), barriers(20)))
    assert query.last["totals"]["processed"] == 0
    assert query.last["batchId"] == 0, "found when the second comes, not when they are processed"
    query.start()
    given = [batch(values(20), barriers(20)), batch(values(20), barriers(21)), batch(values(40), barriers(40))]
    for number, rows in enumerate(given):  # repaired: two values at one time are fine
        query.feed(number, rows)
    query.feed(len(given), batch(values(), barriers()), closed=True)
    assert_same_outputs(query.output(), oracle(given))


def test_a_folder_with_other_batches_is_refused(tmp_path: Path) -> None:
    Query(tmp_path / "a", ValueBarrier, streams()).feed(0, IN_ORDER[0])
    (tmp_path / "b").mkdir()
    (tmp_path / "a" / "out").rename(tmp_path / "b" / "out")
    with pytest.raises(fl.OutputError, match="OUT_TAKEN"):
        Query(tmp_path / "b", ValueBarrier, streams())
    (tmp_path / "c" / "out" / "mine").mkdir(parents=True)
    with pytest.raises(fl.OutputError, match="OUT_EXISTS"):
        Query(tmp_path / "c", ValueBarrier, streams())


def test_named_outputs_have_a_folder_each(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    given, whole = [], {"rules": [], "transactions": []}  # type: ignore[var-annotated]
    for number in range(3):
        ts = np.sort(rng.choice(100, 30, replace=False)) + 100 * number
        rows = {
            "transactions": pa.table({"ts": ts[:28], "v": rng.integers(0, 3, 28) * 1000}),
            "rules": pa.table({"ts": ts[28:], "r": rng.integers(0, 1, 2)}),
        }
        given.append(rows)
        for name, table in rows.items():
            whole[name].append(table)
    made = [fl.Stream("rules", Fraud.rule, None), fl.Stream("transactions", Fraud.transaction, None)]
    query = Query(tmp_path, Fraud, made)
    for number, rows in enumerate(given):
        query.feed(number, {name: [table] for name, table in rows.items()})
    expected = fl.spec(Fraud, [fl.Stream(s.name, s.tag, pa.concat_tables(whole[s.name])) for s in made])
    found = {name: query.output(name) for name in expected.outputs}
    assert all(map(len, found.values()))
    assert_same_outputs(found, dict(expected.outputs))


def test_a_row_is_validated_when_it_comes_and_not_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for the order of its batch, not in the tasks, and not in the later batch for which it is buffered."""
    seen: list[int] = []

    def counted(stream: fl.Stream, chunk: pa.RecordBatch, screen: Any = None) -> Any:
        seen.extend(chunk.column(stream.ts).to_pylist() if stream.name == VALUES else [])
        return validate(stream, chunk, screen)

    monkeypatch.setattr("flumina.streaming.validation.validate", counted)
    monkeypatch.setattr("flumina.input.decode.validate", counted)
    query = Query(tmp_path, ValueBarrier, streams(), watermarks=dict.fromkeys((VALUES, BARRIERS), fl.BoundedDelay(0)))
    for number, given in enumerate(APART):
        query.feed(number, given)
    assert query.last["buffered"][VALUES], "rows are buffered"
    assert sorted(seen) == sorted(ts for given in APART for table in given[VALUES] for ts in table["ts"].to_pylist())


class Losing(Folding):
    """Has four slots, until the second batch runs: then two of them are gone."""

    now = 4

    def slots(self) -> int:
        return self.now

    def run(self, number: int, given: Sequence[fl.Stream], plan: Plan, *more: Any) -> BatchRun:
        if number == 1 and self.now == 4:
            self.plans.append(plan)
            self.now = 2
            raise LostSlotsError(GangError("2 of 4 came", missing=[1, 3]), 4, 2)
        return super().run(number, given, plan, *more)


def losing(folder: Path, *, shrinks: bool, workers: int | None) -> tuple[Query, Losing]:
    """A query whose engine loses slots."""
    query, engine = Query(folder, ValueBarrier, streams()), Losing(ValueBarrier)
    query.batches.engine, query.planner.shrinks, query.planner.workers = engine, shrinks, workers
    query.planner.shape[VALUES] = 4
    return query, engine


@pytest.mark.parametrize("workers", [None, 4])
def test_a_batch_that_loses_slots_is_processed_with_those_that_are_left(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, workers: int | None
) -> None:
    query, engine = losing(tmp_path, shrinks=True, workers=workers)
    for number, given in enumerate(IN_ORDER):
        query.feed(number, given)
    assert_same_outputs(query.output(), oracle(IN_ORDER))
    assert [len(plan.leaves) for plan in engine.plans[:3]] == [4, 4, 2]
    assert max(len(plan.leaves) for plan in engine.plans[3:]) <= 2
    assert "batch 1: 2 of 4 slots were lost: it is processed with 2, under a new plan" in caplog.text


def test_a_batch_that_loses_slots_is_an_error_unless_it_may_shrink(tmp_path: Path) -> None:
    query, _ = losing(tmp_path, shrinks=False, workers=None)
    query.feed(0, IN_ORDER[0])
    with pytest.raises(GangError, match="2 of 4 came"):
        query.feed(1, IN_ORDER[1])
