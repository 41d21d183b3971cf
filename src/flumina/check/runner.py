"""Trying every law on many random scenarios, and shrinking what breaks one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import hypothesis
from hypothesis import strategies

from flumina.check.choices import Choices
from flumina.check.laws import LAWS, Broken, Law
from flumina.check.report import Counterexample, Report, Verdict
from flumina.check.scenario import Scenario, Undefined, Universe
from flumina.definition import Definition
from flumina.depends import FunctionDependence
from flumina.errors import FluminaError, UsageError
from flumina.program import AnyProgram, define

_BLOCKS = strategies.lists(strategies.binary(min_size=10, max_size=10), min_size=5, max_size=16)


def check(
    program: AnyProgram,
    *,
    examples: int = 1000,
    seed: int = 0,
    tolerance: float | None = None,
    laws: Sequence[str] | None = None,
) -> Report:
    """Try every law (or those named) on ``examples`` random reachable situations each.

    ``seed`` makes a run repeatable. ``tolerance`` replaces the program's own: the relative error within which floats
    count as equal.
    """
    if examples < 1:
        raise UsageError("EXAMPLES", f"examples must be at least 1, got {examples}")
    definition = define(program)
    if tolerance is not None:
        definition = replace(definition, tolerance=tolerance)
    known = ["symmetry", *(law.name for law in LAWS)]
    if unknown := sorted(set(laws or ()) - set(known)):
        raise UsageError("UNKNOWN_LAW", f"there is no law {', '.join(unknown)}", hint=f"the laws are {', '.join(known)}")
    universe = Universe(definition)
    verdicts = [_symmetry(definition)] if laws is None or "symmetry" in laws else []
    for law in LAWS:
        if laws is not None and law.name not in laws:
            continue
        verdict = _try(law, universe, examples, seed)
        if verdict.law not in {v.law for v in verdicts}:  # one way of being undefined is enough
            verdicts.append(verdict)
    return Report(definition.name, verdicts)


def _symmetry(definition: Definition) -> Verdict:
    """``depends(a, b) = depends(b, a)``: by construction for rules, by looking at all pairs for a function."""
    relation = definition.depends
    if not isinstance(relation, FunctionDependence):
        return Verdict("symmetry", 0, note="by construction")
    pairs = relation.asymmetric()
    if not pairs:
        return Verdict("symmetry", len(relation.table))
    (tag, key), (other, other_key) = pairs[0]
    a, b = (t if k is None else f"{t}({k!r})" for t, k in ((tag, key), (other, other_key)))
    found = Counterexample(
        law="symmetry",
        equation="depends(a, b) = depends(b, a)",
        meaning="dependence is mutual",
        bindings=(("a", a), ("b", b)),
        sides=(("depends", "True", "False"),),
    )
    return Verdict("symmetry", len(relation.table), found)


def _try(law: Law, universe: Universe, examples: int, seed: int) -> Verdict:
    if law.name == "batch" and all(kind.update_batch is None for kind in universe.definition.kinds.values()):
        return Verdict(law.name, 0, note="no update_batch")
    tried = 0

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
        suppress_health_check=tuple(hypothesis.HealthCheck),
        report_multiple_bugs=False,
        print_blob=False,
    )
    @hypothesis.given(_BLOCKS)
    def attempt(blocks: list[bytes]) -> None:
        nonlocal tried
        scenario = Scenario(universe, Choices(blocks))
        try:
            held = law.holds(scenario, law)
        except Undefined as undefined:
            raise Broken(_undefined(law, undefined.what, undefined.trace)) from undefined
        except FluminaError as error:
            raise Broken(_undefined(law, error.message, ())) from error
        if held is None:
            hypothesis.reject()
        tried += 1

    try:
        attempt()
    except hypothesis.errors.Unsatisfiable:
        return Verdict(law.name, 0, note="no two events can run in parallel")
    except Broken as broken:
        broken.__notes__ = []
        return Verdict(law.name if broken.counterexample.law == law.name else "defined", tried, broken.counterexample)
    return Verdict(law.name, tried)


def _undefined(law: Law, what: str, trace: tuple[str, ...]) -> Counterexample:
    return Counterexample(
        law="defined",
        equation=f"{what}",
        meaning=f"update, fork and join are defined in every reachable situation (met while trying {law.name})",
        trace=trace,
        hint="null values are tried in columns that are not declared NOT NULL",
    )
