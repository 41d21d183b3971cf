"""Describe a failure: how to repeat it, the case, the shortest schedule, the trace."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from flumina.runtime.build import workers as build
from flumina.sim.decisions import Decisions
from flumina.sim.scheduler import Build
from flumina.sim.shrink import Failing, Shrinker
from flumina.sim.trace import Trace, address
from flumina.sim.trial import Trial


@dataclass(frozen=True)
class Failure:
    """A failing run, and the shortest one that was made from it."""

    found: Failing
    shortest: Failing
    trace: str
    again: str
    """The command that repeats it."""

    def __str__(self) -> str:
        first, last = self.found, self.shortest
        case = last.trial.case
        program = case.definition
        actions = getattr(program.kinds[program.initial].update, "__self__", None)
        lines = [
            f"seed {first.trial.seed} fails: {_named(first.error)}",
            f"repeat with: {self.again}",
            "",
            f"program {program.name}",
            *(f"  {name}: {does}" for name, does in getattr(actions, "actions", {}).items()),
            f"  {program.depends}",
            "",
            case.plan.explain(),
            "",
            f"{last.trial.options}",
            f"{last.trial.conditions}",
            f"snapshots {[tuple(point) for point in last.trial.snapshots]}",
            f"crashes {[crash.after for crash in last.trial.crashes]}",
            *(
                f"{address(part)}: {', '.join(repr(event) for _, event in entries) or 'nothing'}"
                for part, entries in case.parts.items()
            ),
            "",
            f"shortest schedule: {list(last.choices)}",
            f"fails: {_named(last.error)}",
            self.trace,
        ]
        return "\n".join(lines)


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def examine(
    failing: Failing, build_workers: Build = build, budget: int = 3000, command: str = "flumina sim"
) -> Failure:
    """Shorten a failing run and write down what happens in it; ``command`` is what found it, but for the seed."""
    shortest = Shrinker(build_workers, budget).shrink(failing)
    trace = Trace()
    with suppress(Exception):  # it is expected, and known
        shortest.trial.run(Decisions(given=shortest.choices), build_workers, trace)
    return Failure(failing, shortest, str(trace), f"{command} --seed {failing.trial.seed}")


def find(trials: Sequence[Trial], build_workers: Build = build) -> Failing | None:
    """Return the first failing trial."""
    shrinker = Shrinker(build_workers)
    return next((failing for one in trials if (failing := shrinker.attempt(one))), None)
