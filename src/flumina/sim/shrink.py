"""Shorten a failing run: fewer faults, events and choices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from random import Random
from typing import TypeVar

from flumina.model.order import Point
from flumina.runtime.build import workers as build
from flumina.runtime.messages import PartId
from flumina.runtime.topology import ProtocolOptions
from flumina.sim.conditions import UNDISTURBED
from flumina.sim.decisions import Decisions
from flumina.sim.scheduler import Build
from flumina.sim.trial import Trial

Item = TypeVar("Item")

_SCHEDULES = 12
"""With other events the old choices mean something else, so that some random schedules are tried too."""

_SIMPLER: tuple[Callable[[Trial], Trial], ...] = (
    lambda trial: replace(trial, crashes=()),
    lambda trial: replace(trial, crashes=trial.crashes[:1]),
    lambda trial: replace(trial, snapshots=(), crashes=()),
    lambda trial: replace(trial, conditions=UNDISTURBED),
    lambda trial: replace(trial, conditions=replace(trial.conditions, slow=frozenset())),
    lambda trial: replace(trial, options=ProtocolOptions(coalesce=False, pipeline=False, hand_over=False)),
    lambda trial: replace(trial, options=replace(trial.options, hand_over=False)),
    lambda trial: replace(trial, options=replace(trial.options, pipeline=False)),
    lambda trial: replace(trial, options=replace(trial.options, coalesce=False)),
)


@dataclass(frozen=True)
class Failing:
    """A trial, the choices under which it fails, and how."""

    trial: Trial
    choices: tuple[int, ...]
    error: Exception


class Shrinker:
    """Tries simpler runs as long as the budget lasts."""

    def __init__(self, build_workers: Build = build, budget: int = 3000) -> None:
        self.build, self.budget = build_workers, budget

    def attempt(self, trial: Trial, decisions: Decisions | None = None) -> Failing | None:
        """Run a trial; return its failure, if it fails."""
        self.budget -= 1
        chosen = trial.decisions() if decisions is None else decisions
        try:
            trial.run(chosen, self.build)
        except Exception as error:  # noqa: BLE001 -- whatever goes wrong is what we look for
            return Failing(trial, tuple(chosen.made), error)
        return None

    def shrink(self, failing: Failing) -> Failing:
        """Return the shortest failing run that is found."""
        failing = self._simpler_trial(failing)
        failing = self._fewer_events(failing)
        return self._fewer_choices(failing)

    def _any_schedule(self, trial: Trial, choices: Sequence[int]) -> Failing | None:
        all_decisions = [Decisions(Random(0), choices), *(Decisions(Random(seed)) for seed in range(_SCHEDULES))]
        return next((found for decisions in all_decisions if (found := self.attempt(trial, decisions))), None)

    def _simpler_trial(self, failing: Failing) -> Failing:
        for simplify in _SIMPLER:
            simple = simplify(failing.trial)
            if simple != failing.trial:
                failing = self._any_schedule(simple, failing.choices) or failing
        return failing

    def _fewer_events(self, failing: Failing) -> Failing:
        parts = failing.trial.case.parts
        places = sorted(((p, entry[0]) for p, entries in parts.items() for entry in entries), key=itemgetter(1))

        def fails(remaining: Sequence[tuple[PartId, Point]]) -> bool:
            nonlocal failing
            case = failing.trial.case.only(set(remaining))
            found = self._any_schedule(replace(failing.trial, case=case), failing.choices)
            failing = found or failing
            return found is not None

        self._minimize(places, fails)
        return failing

    def _fewer_choices(self, failing: Failing) -> Failing:
        def fails(remaining: Sequence[int]) -> bool:
            nonlocal failing
            found = self.attempt(failing.trial, Decisions(given=remaining))
            if found is not None and len(found.choices) <= len(failing.choices):
                failing = found
            return found is not None

        self._minimize(list(failing.choices), fails)
        return failing

    def _minimize(self, items: Sequence[Item], fails: Callable[[Sequence[Item]], bool]) -> None:
        """Delta debugging: leave out ever smaller pieces as long as it still fails."""
        size = max(1, len(items) // 2)
        remaining = list(items)
        while self.budget > 0:
            for start in _starts(len(remaining), size):
                fewer = remaining[:start] + remaining[start + size :]
                if len(fewer) < len(remaining) and self.budget > 0 and fails(fewer):
                    remaining = fewer
            if size == 1:
                return
            size //= 2


def _starts(length: int, size: int) -> Iterator[int]:
    """From the end to the start, so that what was left out does not move what is still to try."""
    return iter(range((length - 1) // size * size, -1, -size))
