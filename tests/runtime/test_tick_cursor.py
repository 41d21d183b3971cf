"""Programs with ticks give what the oracle gives under every schedule, and every deliberate bug of ticks is found."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from flumina.model.order import Point
from flumina.program.base import define
from flumina.sim.case import Entry
from flumina.sim.invariants import SimulationError
from flumina.sim.trial import Setting, trial
from tests.program.tick_programs import PROGRAMS
from tests.sim.mutant import Mutant
from tests.sim.mutants_ticks import TICK_MUTANTS

SETTINGS = {program.__name__: Setting(program=define(program), events=30) for program in PROGRAMS}
SCHEDULES = 250
SEARCHED = 120


@pytest.mark.parametrize("name", SETTINGS)
def test_every_schedule_gives_what_the_oracle_gives(name: str) -> None:
    fired = joined = 0
    for seed in range(SCHEDULES):
        stats = trial(seed, SETTINGS[name]).run().stats.values()
        fired += sum(one.ticks for one in stats)
        joined += sum(one.joins for one in stats)
    assert fired > SCHEDULES
    assert joined > SCHEDULES


def found_by(mutant: Mutant, seeds: Iterable[int]) -> tuple[str, int] | None:
    """Return the program and seed that find a bug."""
    with mutant.alive():
        for seed in seeds:
            for name, setting in SETTINGS.items():
                try:
                    trial(seed, setting).run()
                except (SimulationError, AssertionError, KeyError, IndexError):
                    return name, seed
    return None


@pytest.mark.parametrize("mutant", TICK_MUTANTS.values(), ids=lambda m: m.name)
def test_schedules_find_every_bug(mutant: Mutant) -> None:
    assert found_by(mutant, range(SEARCHED)) is not None, mutant.why


def test_a_long_silence_costs_few_steps() -> None:
    """A year of seconds in which ticks do nothing is left out, by leaves and by inner workers."""
    for name in ("Tumbling", "Everything", "Chained"):
        setting = SETTINGS[name]
        for seed in range(0, 80, 4):
            one = trial(seed, setting)
            far = {
                part: [later(entry, 10**15) if entry[0].ts > 8 else entry for entry in entries]
                for part, entries in one.case.parts.items()
            }
            long = replace(one, case=replace(one.case, parts=far), snapshots=(), crashes=(), truncations=())
            assert long.run().steps < 3_000


def later(entry: Entry, by: int) -> Entry:
    """Return an event that comes so much later."""
    point, event = entry
    ts, *rest = event
    return Point(point.ts + by, point.rank, point.seq), event.tag.make_event((ts + by, *rest))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", SETTINGS)
def test_many_schedules_give_what_the_oracle_gives(name: str) -> None:
    for seed in range(SCHEDULES, 20_000):
        trial(seed, SETTINGS[name]).run()
