"""Failures that were found, kept as files, so that they stay fixed.

A file has either ``seed`` and ``events`` (and the switches, if they were fixed) or a case of its own: ``program`` (a
file beside it, and a name), ``plan``, ``input`` (stream, part, timestamp, number, tag, columns). Such a case is small:
all its schedules are explored, and some random ones are run with everything checked at each step. What a seed stands
for changes with the generators, so a case of its own lasts longer.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from flumina.model.order import Point
from flumina.plan.render.json import from_json
from flumina.plan.validity import check_valid
from flumina.program.base import define
from flumina.program.loading import load_program
from flumina.runtime.build import workers as build
from flumina.runtime.messages import PartId
from flumina.runtime.topology import ProtocolOptions
from flumina.sim.case import Case, Entry
from flumina.sim.conditions import Conditions
from flumina.sim.explore import Explored, explore
from flumina.sim.network import UNLIMITED
from flumina.sim.scheduler import Build
from flumina.sim.trial import Setting, Trial, trial

SCHEDULES = 50
"""Random schedules for each kept case, besides all of them."""


@dataclass(frozen=True)
class Regression:
    """What a file says; ``about`` tells what went wrong."""

    about: str
    trials: tuple[Trial, ...]
    small: bool
    """Whether all schedules can be explored."""

    def replay(self, build_workers: Build = build) -> Explored | None:
        """Run everything again; whatever goes wrong is raised."""
        for one in self.trials:
            one.run(build_workers=build_workers)
        if not self.small:
            return None
        one = self.trials[0]
        return explore(
            one.case,
            options=one.options,
            credits_=one.conditions.credits,
            snapshots=one.snapshots,
            build_workers=build_workers,
        )


def load(path: Path) -> Regression:
    """Read a kept failure."""
    found = json.loads(path.read_text(encoding="utf-8"))
    options = ProtocolOptions(**found["options"]) if "options" in found else None
    if "seed" in found:
        setting = Setting(events=found.get("events", 60), options=options, truncations=found.get("truncations", False))
        return Regression(found["about"], (trial(found["seed"], setting),), small=False)
    case = _case(found, path.parent)
    snapshots = tuple(Point(*point) for point in found.get("snapshots", ()))
    conditions = Conditions(credits=found.get("credits", UNLIMITED))
    one = Trial(0, case, options or ProtocolOptions(), conditions, snapshots)
    return Regression(found["about"], tuple(replace(one, seed=seed) for seed in range(SCHEDULES)), small=True)


def _case(found: dict[str, Any], folder: Path) -> Case:
    definition = define(load_program(f"{folder / found['program'][0]}:{found['program'][1]}"))
    plan = from_json(json.dumps(found["plan"]), "the kept plan")
    check_valid(plan, definition)
    ranks = {stream.name: rank for rank, stream in enumerate(plan.streams)}
    parts: dict[PartId, list[Entry]] = {(s.name, part): [] for s in plan.streams for part in range(s.parts)}
    for stream, part, ts, seq, tag, columns in found["input"]:
        event = definition.tags[tag].event(ts=ts, stream=stream, seq=seq, **columns)
        parts[stream, part].append((Point(ts, ranks[stream], seq), event))
    return Case(definition, plan, parts)
