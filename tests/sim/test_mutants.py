"""Every deliberate bug is found: by random schedules, or by a schedule that is written down."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from random import Random

import pytest

from flumina.order import heartbeat
from flumina.program import define
from flumina.runtime.topology import Options
from flumina.sim.case import Case
from flumina.sim.plans import random_case
from flumina.sim.programs import random_program
from flumina.sim.scheduler import Simulation, SimulationError, Weather, judge
from tests.runtime.support import Chain, Scripted, chain_plan, one_event, with_ties
from tests.sim.mutants import MUTANTS, Mutant

BUDGET = 5_000
"""A bug that this many random schedules do not find needs a written one."""

NEARBY = 60
"""How far from the recorded seed the quick test looks: other seeds find a bug when the generator changes."""


OPTIONS = list(dict.fromkeys(m.options for m in MUTANTS.values()))


@cache
def case_of(seed: int) -> Case:
    """A random case; in two of three, events of several parts share points."""
    random = Random(seed)
    case = random_case(random, define(random_program(random)), 30)
    return with_ties(case) if seed % 3 else case


def trial(seed: int, options: Options) -> None:
    """One random schedule of one random case, judged."""
    case = case_of(seed)
    random = Random(-1 - seed)
    points = random.sample([point for point, _ in case.in_order], random.choice((0, 1, 2)))
    snapshots = {heartbeat(p.ts, p.rank) if random.random() < 0.5 else p for p in points}
    weather = Weather(random.choice((1, 4, 12)), random.random(), random.choice((1, 2, 5, 10**6)))
    simulation = Simulation(case, random, options=options, weather=weather, snapshots=sorted(snapshots))
    judge(case, simulation.run())
    for part, source in simulation.sources.items():
        assert set(source.credits.values()) <= {weather.credits}, f"credits of {part} are missing: {source.credits}"


def finds(run: Callable[[], None]) -> str | None:
    """What a run complains about."""
    try:
        run()
    except (SimulationError, AssertionError) as found:
        return str(found) or "an assertion"
    return None


def search(mutant: Mutant, seeds: Iterable[int]) -> int | None:
    """The first of these seeds that finds a bug."""
    with mutant.alive():
        for seed in seeds:
            if finds(lambda at=seed: trial(at, mutant.options)):  # type: ignore[misc]
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
    run = Scripted(case, options=Options(hand_over=False))
    run.send(("a", 0), 1, 60)
    run.send(("z", 0), 0, 60)
    run.send(("x", 0), 0, 42)
    run.send(("y", 0), 0, 48)
    run.send(("c", 0), 1, 60)
    run.send(("x", 0), 1, 49)
    run.finish()
    judge(case, run.run())


RANDOM = [m for m in MUTANTS.values() if m.seed is not None]
DIRECTED = {"answers_without_everything": independent_event_in_a_subtree_that_could_answer}


def test_there_are_enough_of_them() -> None:
    assert len(MUTANTS) >= 20
    assert DIRECTED.keys() >= {m.name for m in MUTANTS.values() if m.seed is None}


@pytest.mark.parametrize("mutant", RANDOM, ids=lambda m: m.name)
def test_random_schedules_find_it(mutant: Mutant) -> None:
    assert mutant.seed is not None
    assert search(mutant, [mutant.seed, *range(NEARBY)]) is not None, mutant.why


@pytest.mark.parametrize("name", DIRECTED)
def test_a_written_schedule_finds_it(name: str) -> None:
    with MUTANTS[name].alive():
        assert finds(DIRECTED[name]) is not None


@pytest.mark.parametrize("name", DIRECTED)
def test_the_written_schedules_pass(name: str) -> None:
    DIRECTED[name]()


def test_the_runtime_itself_passes_all_these_cases() -> None:
    """Otherwise finding a mutant would mean nothing."""
    for seed, options in sorted({(m.seed, m.options) for m in RANDOM if m.seed is not None}, key=repr):
        trial(seed, options)
    for seed in range(NEARBY):
        trial(seed, OPTIONS[seed % len(OPTIONS)])


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("mutant", RANDOM, ids=lambda m: m.name)
def test_a_search_from_the_start_finds_it(mutant: Mutant) -> None:
    assert search(mutant, range(BUDGET)) is not None, mutant.why


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_the_runtime_itself_passes_the_whole_search() -> None:
    for seed in range(BUDGET):
        trial(seed, OPTIONS[seed % len(OPTIONS)])
        case_of.cache_clear()
