"""Try every law on random scenarios, and shrink counterexamples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from flumina.check.choices import BLOCK, Choices
from flumina.check.laws import LAWS, Broken, Law
from flumina.check.report import CheckReport, Counterexample, LawResult
from flumina.check.scenario import SCENARIO_BLOCKS, Scenario, Undefined, Universe
from flumina.errors import FluminaError, UsageError
from flumina.model.depends import FunctionDependence
from flumina.program.base import AnyProgram, define
from flumina.program.definition import Definition

_VALUES = "values worth trying are given in the program: examples = {'column': [value, ...]}"


def check(
    program: AnyProgram,
    *,
    examples: int = 1000,
    seed: int = 0,
    tolerance: float | None = None,
    laws: Sequence[str] | None = None,
) -> CheckReport:
    """Try every law (or the named ones) on ``examples`` random reachable situations each.

    ``seed`` makes a run repeatable. ``tolerance`` replaces the program's own: the relative error within which floats
    count as equal.
    """
    if isinstance(examples, bool) or not isinstance(examples, int):
        raise UsageError("EXAMPLES", f"examples is how many situations to try, got {examples!r}", hint=_VALUES)
    if examples < 1:
        raise UsageError("EXAMPLES", f"examples must be at least 1, got {examples}")
    definition = define(program)
    if tolerance is not None:
        definition = replace(definition, tolerance=tolerance)
    if laws is not None and (isinstance(laws, str) or not laws):
        raise UsageError(
            "LAWS", f"laws= is a list of names of laws, at least one, got {laws!r}", hint="None is all laws"
        )
    known = ["symmetry", *(law.name for law in LAWS)]
    if unknown := sorted(set(laws or ()) - set(known)):
        raise UsageError(
            "UNKNOWN_LAW", f"there is no law {', '.join(unknown)}", hint=f"the laws are {', '.join(known)}"
        )
    results = [] if laws is not None and "symmetry" not in laws else [_symmetry(definition)]
    chosen = [law for law in LAWS if laws is None or law.name in laws]
    found = _find(chosen, Universe.all_of(definition), examples, seed)
    return CheckReport(definition.name, [*results, *found])


def _symmetry(definition: Definition) -> LawResult:
    """Check ``depends(a, b) = depends(b, a)``: holds for rules; all pairs are tried for a function."""
    relation = definition.depends
    if not isinstance(relation, FunctionDependence):
        return LawResult("symmetry", 0, note="by construction")
    pairs = relation.asymmetric()
    if not pairs:
        return LawResult("symmetry", len(relation.table))
    (tag, key), (other, other_key) = pairs[0]
    a, b = (t if k is None else f"{t}({k!r})" for t, k in ((tag, key), (other, other_key)))
    found = Counterexample(
        law="symmetry",
        equation="depends(a, b) = depends(b, a)",
        meaning="dependence is mutual",
        bindings=(("a", a), ("b", b)),
        sides=(("depends", "True", "False"),),
    )
    return LawResult("symmetry", len(relation.table), found)


def _find(laws: Sequence[Law], universes: Sequence[Universe], examples: int, seed: int) -> list[LawResult]:
    """Try all laws on the same situations; whenever one breaks, go on without it."""
    broken: dict[str, LawResult] = {}
    while True:
        left = [law for law in laws if law.name not in broken]
        tried = dict.fromkeys((law.name for law in left), 0)
        counterexample = _attempt(left, universes, examples, seed, tried)
        if counterexample is None:
            break
        name = counterexample.law
        broken[name] = LawResult(name, max(tried.values()), counterexample)
        if name == "defined":  # laws whose functions raise can't be tried
            return [broken[law.name] for law in laws if law.name in broken] + [broken["defined"]]
    return [broken.get(law.name) or _held(law, tried[law.name], universes[0]) for law in laws]


def _held(law: Law, tried: int, universe: Universe) -> LawResult:
    if tried:
        return LawResult(law.name, tried)
    if law.name == "batch" and all(kind.update_batch is None for kind in universe.definition.kinds.values()):
        return LawResult(law.name, 0, note="no update_batch")
    return LawResult(law.name, 0, note="no two events can run in parallel")


def _attempt(
    laws: Sequence[Law], universes: Sequence[Universe], examples: int, seed: int, tried: dict[str, int]
) -> Counterexample | None:
    """Return the smallest counterexample to one of the laws; ``tried`` counts situations."""
    import hypothesis  # noqa: PLC0415 -- a fifth of what importing flumina would take

    size = SCENARIO_BLOCKS * BLOCK

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
    @hypothesis.given(hypothesis.strategies.binary(min_size=size, max_size=size))
    def attempt(data: bytes) -> None:
        choices = Choices(data)
        special = choices.chance(2)
        scenario = Scenario(choices.pick(universes) if special else universes[0], choices)
        try:
            wires = scenario.reach()
            start = scenario.choices.start
            for law in laws:
                for wire in reversed(wires):  # the innermost wire to which the law applies
                    scenario.choices.rewind(start)
                    if law.holds(scenario, law, wire):
                        tried[law.name] += 1
                        break
        except Undefined as undefined:
            raise Broken(_undefined(undefined.what, undefined.trace)) from undefined
        except Broken:
            raise
        except FluminaError as error:
            raise Broken(_undefined(str(error), ())) from error
        except (Exception, SystemExit) as error:
            # Raised by copying, comparing or formatting the program's state.
            raise Broken(_undefined(f"the state can't be handled: {type(error).__name__}: {error}", ())) from error

    try:
        attempt()
    except Broken as broken:
        return broken.counterexample
    except hypothesis.errors.Flaky:  # the same situation, and another outcome
        return _RESTLESS
    return None


_RESTLESS = Counterexample(
    law="determinism",
    equation="update(s, e) = update(s, e)",
    meaning="the same event in the same state does the same",
    hint="a law was broken in one situation, and held when the same was tried again: the program remembers something "
    "outside its state, or uses a clock or random numbers",
)


_ODD = {
    "None": "null values are tried in columns that are not declared NOT NULL",
    "NaN": f"columns of floats hold NaN now and then; {_VALUES}",
    "infinity": f"columns of floats hold infinity now and then; {_VALUES}",
}
"""Words of a message, and the hint about values that may cause it."""


def _undefined(what: str, trace: tuple[object, ...]) -> Counterexample:
    return Counterexample(
        law="defined",
        equation=what,
        meaning="update, fork and join are defined in every reachable situation",
        trace=tuple(map(str, trace)),
        hint=next((hint for word, hint in _ODD.items() if word in what), None),
    )
