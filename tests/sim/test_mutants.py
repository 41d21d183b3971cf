"""Every deliberate bug is found: by random schedules, or by a schedule that is written down."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from flumina.plan.tree import PlanWorker
from flumina.program.base import define
from flumina.runtime.topology import ProtocolOptions
from flumina.sim.case import Case
from flumina.sim.scheduler import judge
from flumina.sim.trial import Setting, trial
from tests.runtime.support import Chain, Scripted, Till, chain_plan, itag, leaf, one_event, plan_of, streams
from tests.sim.mutants import MUTANTS, Mutant

BUDGET = 5_000
"""A bug that this many random schedules do not find needs a written one."""

NEARBY = [33 * n for n in range(80)]
"""Where the quick test looks besides the recorded seed, each with another program: when the generator changes, other
seeds find a bug."""


SETTINGS = list(dict.fromkeys((m.options, m.truncations) for m in MUTANTS.values()))


def run(seed: int, options: ProtocolOptions, *, truncations: bool) -> None:
    """The run of a seed as ``flumina sim`` makes it, with fewer events."""
    trial(seed, Setting(events=30, options=options, truncations=truncations)).run()


def finds(attempt: Callable[[], None]) -> str | None:
    """What a run complains about, whatever it is."""
    try:
        attempt()
    except Exception as found:  # noqa: BLE001
        return str(found) or type(found).__name__
    return None


def search(mutant: Mutant, seeds: Iterable[int]) -> int | None:
    """The first of these seeds that finds a bug."""
    with mutant.alive():
        for seed in seeds:
            if finds(lambda at=seed: run(at, mutant.options, truncations=mutant.truncations)):  # type: ignore[misc]
                return seed
    return None


def independent_event_in_a_subtree_that_could_answer() -> None:
    """The event x of the left subtree must not wait for y of the right one, on which a depends and x does not.

    The left subtree is joined for c when a's request is known. Nothing in it depends on a, but its answer would take
    the state away from x until y has come so far.
    """
    definition = define(Chain)
    plan = chain_plan()
    at = {"a": 50, "c": 40, "x": 45}
    events = {(tag, 0): [one_event(definition, plan, tag, ts)] for tag, ts in at.items()}
    case = Case(definition, plan, events | {("y", 0): [], ("z", 0): []})
    written = Scripted(case, options=ProtocolOptions(hand_over=False))
    written.send(("a", 0), 1, 60)
    written.send(("z", 0), 0, 60)
    written.send(("x", 0), 0, 42)
    written.send(("y", 0), 0, 48)
    written.send(("c", 0), 1, 60)
    written.send(("x", 0), 1, 49)
    written.finish()
    judge(case, written.run())


def contribution_to_a_request_for_all_keys_that_was_coalesced() -> None:
    """The sale at 5 does not depend on reports, so the report at 7 is served with the states of the report at 3.

    What the leaf then hands over for the report at 7 has the sale, which the price at 9 must see.
    """
    definition = define(Till)
    leaves = tuple(leaf(f"l{n}", definition, itag(definition, "sale", "sale", parts=[n])) for n in (0, 1))
    own = (itag(definition, "price", "price"), itag(definition, "report", "report"))
    plan = plan_of(Till, streams(Till, price=1, sale=2, report=1), PlanWorker("root", definition.initial, own, leaves))
    events = {
        ("price", 0): [one_event(definition, plan, "price", 9, item=7, amount=1)],
        ("report", 0): [one_event(definition, plan, "report", ts) for ts in (3, 7)],
        ("sale", 0): [one_event(definition, plan, "sale", 5, item=7)],
        ("sale", 1): [],
    }
    case = Case(definition, plan, events)
    written = Scripted(case)
    written.send(("sale", 1), 0, 60)
    written.send(("price", 0), 1, 60)
    written.send(("report", 0), 2, 60)
    written.send(("sale", 0), 0, 4)
    assert written.workers["root"].stats.coalesced == 1
    written.send(("sale", 0), 1, 8)
    written.finish()
    judge(case, written.run())


RANDOM = [m for m in MUTANTS.values() if m.seed is not None]
DIRECTED = {
    "answers_without_everything": independent_event_in_a_subtree_that_could_answer,
    "late_contributions_of_all_keys_forgotten": contribution_to_a_request_for_all_keys_that_was_coalesced,
}


def test_there_are_enough_of_them() -> None:
    assert len(MUTANTS) >= 20
    assert DIRECTED.keys() >= {m.name for m in MUTANTS.values() if m.seed is None}


@pytest.mark.parametrize("mutant", RANDOM, ids=lambda m: m.name)
def test_random_schedules_find_it(mutant: Mutant) -> None:
    assert mutant.seed is not None
    assert search(mutant, [mutant.seed, *NEARBY]) is not None, mutant.why


@pytest.mark.parametrize("name", DIRECTED)
def test_a_written_schedule_finds_it(name: str) -> None:
    with MUTANTS[name].alive():
        assert finds(DIRECTED[name]) is not None


@pytest.mark.parametrize("name", DIRECTED)
def test_the_written_schedules_pass(name: str) -> None:
    DIRECTED[name]()


def test_the_runtime_itself_passes_all_these_cases() -> None:
    """Otherwise finding a mutant would mean nothing."""
    for seed, options, truncations in sorted(
        {(m.seed, m.options, m.truncations) for m in RANDOM if m.seed is not None}, key=repr
    ):
        run(seed, options, truncations=truncations)
    for number, seed in enumerate(NEARBY):
        options, truncations = SETTINGS[number % len(SETTINGS)]
        run(seed, options, truncations=truncations)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("mutant", RANDOM, ids=lambda m: m.name)
def test_a_search_from_the_start_finds_it(mutant: Mutant) -> None:
    assert search(mutant, range(BUDGET)) is not None, mutant.why


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_the_runtime_itself_passes_the_whole_search() -> None:
    for seed in range(BUDGET):
        options, truncations = SETTINGS[seed % len(SETTINGS)]
        run(seed, options, truncations=truncations)
