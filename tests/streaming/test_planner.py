"""Plans follow what is observed, at the boundaries of batches, and outputs do not."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import flumina as fl
from flumina.apps import PageViews, ValueBarrier
from flumina.errors import PlanError
from flumina.plan import make_plan
from flumina.plan.cost_model import evaluate
from flumina.plan.sources import bind
from flumina.program.base import define
from flumina.streaming import planner as planner_module
from flumina.streaming.planner import WORTH, Planner
from flumina.streaming.recent_rates import RecentRates
from flumina.testing import assert_same_outputs
from tests.streaming.support import Query


def streams() -> list[fl.Stream]:
    return [fl.Stream("changes", PageViews.change, None), fl.Stream("views", PageViews.view, None)]


def rows(first: int, views: int, changes: int, hot: str | None = None, seed: int = 0) -> dict[str, pa.Table]:
    """Views of a thousand pages, or most of them of one."""
    rng = np.random.default_rng(seed)
    pages = [f"page {n}" for n in rng.integers(0, 1000, views)]
    if hot is not None:
        pages = [hot if n < 0.8 else page for n, page in zip(rng.random(views), pages, strict=True)]
    ts = np.sort(rng.choice(4 * (views + changes), changes, replace=False)) + first
    return {
        "changes": pa.table({"ts": ts, "page": [f"page {n}" for n in range(changes)], "info": ["x"] * changes}),
        "views": pa.table(
            {
                "ts": np.sort(rng.integers(first, first + 4 * views, views)),
                "page": pages,
                "user": rng.integers(0, 9, views),
            }
        ),
    }


def planner(**more: Any) -> Planner:
    return Planner(define(PageViews), streams(), 4, **more)


def test_a_key_that_becomes_hot_gets_a_subtree_of_its_own() -> None:
    chosen = planner()
    for batch in range(3):
        chosen.observe(rows(batch * 10_000, 2000, 100, seed=batch))
        plan, change = chosen.choose(4)
        assert change is None
    named = {key for worker in plan.workers for itag in worker.itags for _, keys in itag.tags for key in keys.flips}
    assert "home" not in named
    changes = []
    for batch in range(3, 8):
        chosen.observe(rows(batch * 10_000, 2000, 100, hot="home", seed=batch))
        plan, change = chosen.choose(4)
        changes += [] if change is None else [change]
    assert changes, "the plan has changed"
    assert "key 'home' has" in changes[0].reason
    assert changes[0].saving >= WORTH
    served = [
        worker.id
        for worker in plan.leaves
        if any("home" in keys for itag in worker.itags if itag.stream == "views" for _, keys in itag.tags)
    ]
    assert len(served) > 1, "views of the hot page are shared by leaves"
    assert chosen.changes == len(changes)


def test_a_plan_that_promises_less_is_not_taken() -> None:
    chosen = planner()
    chosen.observe(rows(0, 2000, 100))
    before, _ = chosen.choose(4)
    chosen.observe(rows(10_000, 2000, 120, seed=1))
    after, change = chosen.choose(4)
    assert (after, change) == (before, None)
    inputs = bind(define(PageViews), chosen.rates.sources(chosen.shape))
    best = make_plan(PageViews, chosen.rates.sources(chosen.shape), slots=4)
    assert evaluate(best, inputs).load > (1 - WORTH) * evaluate(before, inputs).load


@pytest.mark.parametrize(("load", "taken"), [(100.0, False), (81.0, False), (80.0, True), (79.0, True)])
def test_a_fifth_is_enough(monkeypatch: pytest.MonkeyPatch, load: float, *, taken: bool) -> None:
    chosen = planner()
    chosen.observe(rows(0, 2000, 100))
    before, _ = chosen.choose(4)
    say_loads(monkeypatch, 100.0, load)
    chosen.observe(rows(10_000, 2000, 100, hot="home", seed=1))
    after, change = chosen.choose(4)
    assert (change is not None, after is not before) == (taken, taken)
    assert change is None or change.saving == pytest.approx(1 - load / 100)


@pytest.mark.parametrize("adaptive", [True, False])
def test_a_query_that_is_started_again_with_fewer_workers_has_no_more(*, adaptive: bool) -> None:
    first = planner(optimizer="greedy")
    first.observe(rows(0, 2000, 100))
    plan, _ = first.choose(4)
    assert len(plan.leaves) > 2
    second = planner(workers=2, adaptive=adaptive, optimizer="greedy")
    second.resume(plan)
    second.observe(rows(10_000, 2000, 100))
    found, change = second.choose(4)
    assert len(found.leaves) == 2
    assert change is not None
    assert change.reason == "at most 2 workers may run in parallel now"
    assert second.choose(4) == (found, None)


def say_loads(monkeypatch: pytest.MonkeyPatch, *loads: float) -> None:
    """Have the model say this of the plan that there is, and of another one."""
    left = iter(loads)
    monkeypatch.setattr(planner_module, "evaluate", lambda *_: SimpleNamespace(load=next(left)))


def test_what_a_plan_was_made_for_is_not_known_after_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    first = planner()
    first.observe(rows(0, 2000, 100, hot="home"))
    second = planner()
    second.resume(first.choose(4)[0])
    second.observe(rows(0, 100, 2000))
    say_loads(monkeypatch, 100.0, 50.0)
    _, change = second.choose(4)
    assert change is not None
    assert change.reason == "rates have changed since the query was restarted"


def test_fewer_slots_make_another_plan() -> None:
    chosen = planner(optimizer="greedy")
    chosen.observe(rows(0, 2000, 100))
    plan, _ = chosen.choose(4)
    assert len({worker.place for worker in plan.workers}) > 1
    plan, change = chosen.choose(1)
    assert change is not None
    assert change.reason == "there are 1 slots now"
    assert len({worker.place for worker in plan.workers}) == 1


def test_a_plan_that_was_given_stays() -> None:
    given = make_plan(
        PageViews, RecentRates(streams()).sources({"changes": 1, "views": 3}), workers=2, optimizer="greedy"
    )
    chosen = planner(fixed=given)
    assert chosen.shape == {"changes": 1, "views": 3}
    chosen.observe(rows(0, 2000, 100, hot="home"))
    assert chosen.choose(1) == (given, None)
    wrong = make_plan(PageViews, RecentRates(streams()).sources({"changes": 2, "views": 3}), optimizer="greedy")
    with pytest.raises(PlanError, match="expected one part of stream 'changes', which has no seq= column, got 2"):
        planner(fixed=wrong)
    with pytest.raises(PlanError):
        Planner(define(ValueBarrier), [fl.Stream("v", ValueBarrier.value, None)], 2, fixed=given)


def test_a_plan_is_gone_on_with_where_it_fits() -> None:
    first = planner(optimizer="greedy")
    first.observe(rows(0, 2000, 100))
    plan, _ = first.choose(4)
    second = planner(optimizer="greedy")
    second.resume(plan)
    assert second.plan == plan
    third = Planner(define(PageViews), streams(), 7)
    third.resume(plan)
    assert third.plan is None, "views are dealt into seven parts now"


def test_counts_fade_and_zero_rates_can_be_planned_for() -> None:
    rates = RecentRates(streams())
    empty = {name: table.slice(0, 0) for name, table in rows(0, 10, 1).items()}
    rates.add(rows(0, 1000, 10, hot="home"))
    before = rates.counts["views", "view"]
    assert rates.hot("views", "view")["home"] > 0.7
    rates.add(empty)
    assert rates.counts["views", "view"] == before / 2
    for _ in range(40):
        rates.add(empty)
    assert rates.hot("views", "view") == {}
    assert make_plan(PageViews, rates.sources({"changes": 1, "views": 2}), slots=2).leaves


def test_outputs_do_not_depend_on_the_plan(tmp_path: Path) -> None:
    query = Query(tmp_path, PageViews, streams())
    given = [rows(batch * 10_000, 500, 20, hot="home" if batch > 1 else None, seed=batch) for batch in range(5)]
    query.planner.optimizer = "cost"
    for number, tables in enumerate(given):
        query.feed(number, {name: [table] for name, table in tables.items()})
    whole = [
        fl.Stream(s.name, s.tag, pa.concat_tables([tables[s.name] for tables in given]), sorted=False)
        for s in streams()
    ]
    assert_same_outputs(query.output(), fl.spec(PageViews, whole).output)
    changed = [entry["planChange"] for entry in query.progress.recent if entry["planChange"]]
    assert changed
    assert changed[0]["expectedSaving"] >= WORTH
    assert len(set(map(str, query.engine.plans))) > 1


def test_keys_that_add_up_over_batches_end_a_plan_whose_joins_move_them_all() -> None:
    """Rates and hot keys stay as they are: the state alone grows."""
    given = [fl.Stream("sales", Shop.sale, []), fl.Stream("reports", Shop.report, [])]
    chooses = Planner(define(Shop), given, parts=2, workers=2)

    def observe(first: int) -> bool:
        """A batch of 20 x 50 events with keys of its own; whether states are joined under its plan."""
        sales = pa.table({"ts": range(1000), "k": first + np.arange(1000) % 20})
        chooses.observe({"sales": sales, "reports": pa.table({"ts": [1000]})})
        return any(worker.children and worker.itags for worker in chooses.choose(2)[0].workers)

    few = [observe(0) for _ in range(8)]
    assert few[-1]
    chooses.changes = 0
    many = [observe(20 * number) for number in range(1, 60)]
    assert not many[-1]
    assert chooses.changes >= 1


class Shop(fl.KeyedProgram):
    """Sales by key, and a report of all keys."""

    sale = fl.Tag(key="k long")
    report = fl.Tag()
    depends = fl.depends((report, report), (report, sale), (sale, sale))
    output = "total long"
    total = fl.Count()

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        state.total += 1

    def update_all(self, states: dict[int, fl.State], event: fl.Event, emit: fl.Emit) -> None:
        emit(sum(state.total for state in states.values()))
