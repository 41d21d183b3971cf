"""Derive a run from a seed: case, options, conditions, faults and schedule.

Neighboring seeds share what is slow to make: 32 of them a program, 4 of them a plan and its input.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from functools import lru_cache
from random import Random

from flumina.model.order import Point, heartbeat
from flumina.model.tag_set import Key
from flumina.plan.tree import Plan
from flumina.program.base import define
from flumina.program.definition import Definition
from flumina.runtime.build import workers as build
from flumina.runtime.topology import ProtocolOptions
from flumina.sim.case import Case
from flumina.sim.conditions import Conditions, random_conditions
from flumina.sim.crashes import Crash, run
from flumina.sim.decisions import Decisions
from flumina.sim.inputs import random_input
from flumina.sim.plans import random_case, random_plan
from flumina.sim.programs import random_keyed_program, random_program
from flumina.sim.scheduler import Build, Outcome, Witness

_SEEDS_A_PROGRAM = 32
_SEEDS_A_CASE = 4
_APPS = "flumina.apps"
_SLOW = "Outliers"
"""The app whose update takes a hundred times as long as the others': it has its turn only where it is asked for."""


@dataclass(frozen=True, eq=False)
class Setting:
    """Settings of all trials: program (None for random ones and the apps), input, fixed options."""

    program: Definition | None = None
    events: int = 60
    options: ProtocolOptions | None = None
    faults: bool = True
    """Whether some runs crash."""
    truncations: bool = True
    """Whether some runs are truncated."""
    plan: Plan | None = None
    """The plan of all runs, for ``program``; None for random ones."""


DEFAULT = Setting()


@dataclass(frozen=True)
class Trial:
    """One run that can be repeated."""

    seed: int
    case: Case
    options: ProtocolOptions
    conditions: Conditions
    snapshots: tuple[Point, ...] = ()
    crashes: tuple[Crash, ...] = ()
    truncations: tuple[int, ...] = ()

    def decisions(self) -> Decisions:
        """Return the decisions of the seed."""
        return Decisions(Random(f"schedule {self.seed}"))

    def run(
        self, decisions: Decisions | None = None, build_workers: Build = build, witness: Witness | None = None
    ) -> Outcome:
        """Run and judge; whatever goes wrong is raised."""
        return run(
            self.case,
            self.decisions() if decisions is None else decisions,
            self.crashes,
            options=self.options,
            conditions=self.conditions,
            snapshots=self.snapshots,
            truncations=self.truncations,
            build_workers=build_workers,
            witness=witness,
        )


def trial(seed: int, setting: Setting = DEFAULT) -> Trial:
    """Return the trial of a seed."""
    case = _case(seed // _SEEDS_A_CASE, setting)
    random = Random(f"trial {seed}")
    options = setting.options or _options(random)
    conditions = random_conditions(random, [worker.id for worker in case.plan.workers])
    snapshots = _snapshots(random, case)
    crashes: tuple[Crash, ...] = ()
    if setting.faults and snapshots and random.random() < 0.4:
        crashes = tuple(_crash(random, case) for _ in range(random.randint(1, 2)))
    truncations = _truncations(Random(f"cuts {seed}"), case) if setting.truncations else ()
    return Trial(seed, case, options, conditions, () if truncations else snapshots, crashes, truncations)


@lru_cache(maxsize=16)
def _case(number: int, setting: Setting) -> Case:
    group = number * _SEEDS_A_CASE // _SEEDS_A_PROGRAM
    definition = _definition(group) if setting.program is None else setting.program
    random = Random(f"case {number}")
    if setting.plan is None:
        return random_case(random, definition, setting.events)
    named: dict[str, list[Key]] = {}
    for worker in setting.plan.workers:
        for tag, keys in worker.tags:
            named.setdefault(tag, []).extend(sorted(keys.flips, key=repr))
    return Case(definition, setting.plan, random_input(random, definition, setting.plan.streams, setting.events, named))


@lru_cache(maxsize=16)
def _definition(group: int) -> Definition:
    """Two random programs, one for single keys, one of the apps, and so on."""
    random = Random(f"program {group}")
    if group % 4 < 2:
        return define(random_program(random))
    if group % 4 == 2:
        return define(random_keyed_program(random))
    apps = importlib.import_module(_APPS)  # by name: they stand above the simulator
    names = sorted(set(apps.__all__) - {_SLOW})
    return define(getattr(apps, names[group // 4 % len(names)]))


def _options(random: Random) -> ProtocolOptions:
    """Everything on in half of the runs, else any switches."""
    if random.random() < 0.5:
        return ProtocolOptions()
    coalesce, pipeline, hand_over, by_key = (random.random() < 0.5 for _ in range(4))
    return ProtocolOptions(coalesce, pipeline, hand_over, by_key)


def _snapshots(random: Random, case: Case) -> tuple[Point, ...]:
    """In half of the runs up to three points: at an event, or after all of a timestamp (of all streams, or some)."""
    entries = case.in_order
    if not entries or random.random() < 0.5:
        return ()
    chosen = [random.choice(entries)[0] for _ in range(random.randint(1, 3))]
    # Not after ticks at the end, which have no timestamp of their own.
    last = sum(not shape.ticks for shape in case.plan.streams) - (case.definition.ticking is not None)
    return tuple(sorted({p if random.random() < 0.5 else heartbeat(p.ts, random.randint(0, last)) for p in chosen}))


def _truncations(random: Random, case: Case) -> tuple[int, ...]:
    """Return in a third of the runs up to four numbers of steps to truncate after."""
    if random.random() < 0.67:
        return ()
    steps = 3 * sum(map(len, case.parts.values())) + 10
    return tuple(sorted(random.randint(1, steps) for _ in range(random.randint(1, 4))))


def _crash(random: Random, case: Case) -> Crash:
    """At any moment of a run of usual length; on with the same plan or another."""
    after = random.randint(1, 3 * sum(map(len, case.parts.values())) + 10)
    if random.random() < 0.5:
        return Crash(after, case.plan)
    return Crash(after, random_plan(random, case.definition, case.plan.streams))
