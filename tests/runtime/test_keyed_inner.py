"""Inner workers of keyed programs: one small protocol for each key, and only the children that have it are asked."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from flumina.apps import KeyCounter, PageViews
from flumina.keymap import KeyMap
from flumina.order import Point
from flumina.plan.tree import Itag, Worker
from flumina.program import define
from flumina.runtime.keyed_inner import KeyedInner
from flumina.runtime.messages import Handback, Message, Request, Response
from flumina.runtime.topology import Options
from flumina.runtime.worker import Address
from flumina.sim.case import Case
from flumina.sim.plans import random_case
from flumina.sim.scheduler import Simulation, Weather, judge
from flumina.tagsets import KeySet, TagSet
from tests.runtime.support import ColumnSimulation, Scripted, leaf, one_event, plan_of, streams

PAGES = define(PageViews)


class Watched(Scripted):
    """Remembers every message between workers."""

    def deliver(self, which: int) -> None:
        link = self.network.busy[which]
        self.seen.append((*link, self.network.links[link][0]))
        super().deliver(which)

    @property
    def seen(self) -> list[tuple[Address, Address, Message]]:
        return self.__dict__.setdefault("messages", [])  # type: ignore[no-any-return]


def hot_and_cold() -> Case:
    """Page a is hot: its views come on two parts. Page b lives on the left leaf alone, c belongs to the root alone."""

    def some(stream: str, part: int, tag: str, *keys: str) -> Itag:
        return Itag(stream, frozenset({part}), TagSet({tag: KeySet.of(*keys)}))

    others = KeySet.everything() - KeySet.of("a", "b")
    own = [some("change", 0, "change", "a"), Itag("change", frozenset({0}), TagSet({"change": others}))]
    own.append(Itag("view", frozenset({0, 1}), TagSet({"view": others})))
    of_b = [some("view", 1, "view", "b"), some("change", 0, "change", "b")]
    left = leaf("left", PAGES, some("view", 0, "view", "a", "b"), *of_b)
    right = leaf("right", PAGES, some("view", 1, "view", "a"))
    root = Worker("root", PAGES.initial, tuple(own), (left, right))
    plan = plan_of(PageViews, streams(PageViews, change=1, view=2), root)
    pages = {0: "aabbcab", 1: "abcacab"}
    parts: dict[Any, Any] = {
        ("view", part): [
            one_event(PAGES, plan, "view", 2 * n + part, n, page=page, user=n) for n, page in enumerate(pages[part])
        ]
        for part in (0, 1)
    }
    parts["change", 0] = [
        one_event(PAGES, plan, "change", ts, page=page, info=f"{page}{ts}")
        for ts, page in ((1, "a"), (3, "b"), (5, "c"), (7, "a"))
    ]
    return Case(PAGES, plan, parts)


def test_a_change_of_a_hot_page_moves_that_page_only() -> None:
    case = hot_and_cold()
    run = Watched(case, options=Options(coalesce=False))
    run.finish()
    assert run.coordinator.finished
    asked = Counter(
        (to, i.key) for _, to, m in run.seen if isinstance(m, Request) for i in m.items if i.key is not None
    )
    assert asked == {("left", "a"): 2, ("right", "a"): 2}, "b is the left leaf's own, and c the root's"
    moved = [m.state for _, _, m in run.seen if isinstance(m, Response | Handback) and m.key is not None]
    assert moved
    assert not any(isinstance(state, KeyMap) for state in moved), "never a map"
    whole = [m for _, _, m in run.seen if isinstance(m, Handback) and m.key is None]
    assert len(whole) == 3, "each worker gets all its states once, at the start"


def test_a_key_of_nobody_below_is_kept_here() -> None:
    case = hot_and_cold()
    run = Watched(case)
    root = run.workers["root"]
    assert isinstance(root, KeyedInner)
    run.send(("view", 0), 7, 90)
    run.send(("view", 1), 7, 90)
    run.send(("change", 0), 4, 90)
    assert root.local.pruned().keys() == {"c"}
    assert not root.busy
    run.finish()
    assert run.coordinator.final.pruned().keys() == {"a", "b", "c"}


@pytest.mark.parametrize("coalesce", [True, False])
@pytest.mark.parametrize("pipeline", [True, False])
def test_every_schedule_of_the_small_case_agrees_with_the_oracle(coalesce: bool, pipeline: bool) -> None:  # noqa: FBT001
    case = hot_and_cold()
    for seed in range(40):
        options = Options(coalesce=coalesce, pipeline=pipeline)
        snapshots = [Point(4, 9, 0), Point(8, 9, 0)] if seed % 2 else []
        judge(case, Simulation(case, Random(seed), options=options, snapshots=snapshots).run())


@pytest.mark.parametrize("program", [PageViews, KeyCounter], ids=lambda p: p.__name__)
@pytest.mark.parametrize("simulation", [Simulation, ColumnSimulation], ids=lambda s: s.__name__)
def test_random_cases_with_ties_snapshots_and_all_switches(program: Any, simulation: Any) -> None:
    definition = define(program)
    joins = moved = 0
    for seed in range(60):
        random = Random(seed)
        case = random_case(random, definition, 40)
        points = [point for point, _ in case.in_order]
        options = Options(*(random.random() < 0.7 for _ in range(3)))
        weather = Weather(credits=random.choice((1, 3, 10**6)), heartbeats=random.choice((0.0, 0.5)))
        snapshots = sorted(set(random.sample(points, random.choice((0, 2)))))
        outcome = simulation(case, random, options=options, weather=weather, snapshots=snapshots).run()
        judge(case, outcome)
        joins += sum(stats.joins for stats in outcome.stats.values())
        moved += sum(stats.blocked + stats.handed for stats in outcome.stats.values())
    assert joins > 300
    assert moved > 300
