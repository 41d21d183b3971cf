"""The promise of the checker: every broken program is rejected with the right law, and no lawful one is."""

import pytest

import flumina as fl
from flumina import apps
from flumina.check import LAWS
from tests.check.broken import BROKEN, CounterCopiedOnFork, FloatSum
from tests.check.lawful import LAWFUL

APPS = [getattr(apps, name) for name in apps.__all__]


@pytest.mark.parametrize(("program", "law"), BROKEN.items(), ids=lambda x: getattr(x, "__name__", x))
def test_a_broken_program_is_rejected_with_the_law_named(program: type[fl.Program], law: str) -> None:
    named = None if law in ("symmetry", "defined") else [law]
    report = fl.check(program, examples=1000, laws=named)
    assert law in report.broken, str(report)
    found = next(v.counterexample for v in report.results if v.law == law)
    assert found is not None
    assert found.law == law
    shown = str(found)
    assert found.equation in shown
    if law != "defined":
        assert any(left != right for _, left, right in found.sides)


def test_there_are_at_least_twenty_broken_programs_and_every_law_has_one() -> None:
    assert len(BROKEN) >= 20
    assert {law.name for law in LAWS} | {"symmetry", "defined"} == set(BROKEN.values())


@pytest.mark.parametrize("program", [*APPS, *LAWFUL], ids=lambda p: p.__name__)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_lawful_program_raises_no_alarm(program: type[fl.Program], seed: int) -> None:
    report = fl.check(program, examples=200, seed=seed)
    assert report.ok, str(report)
    examples = {result.law: result.examples for result in report.results}
    for law in ("determinism", "fresh-init", "C1", "C2", "C3", "aliasing"):
        assert examples[law] == 200, f"{law} was tried {examples[law]} times"


def test_c1_as_printed_would_miss_the_counter_that_is_copied_on_fork() -> None:
    """Why C1 has a mirror image: with e on the left half only, this program passes."""
    report = fl.check(CounterCopiedOnFork, examples=300)
    assert report.broken == ("C1",), "everything but the mirror image of C1 holds"
    (found,) = [v.counterexample for v in report.results if v.law == "C1"]
    assert found is not None
    assert "update(s2, e)" in found.equation


def test_a_float_sum_is_told_how_to_give_a_tolerance() -> None:
    report = fl.check(FloatSum, examples=300)
    assert "tolerance = 1e-9" in str(report)
    small = {"v": (0.1, 0.2, 0.3)}
    assert fl.check(type("Tolerant", (FloatSum,), {"tolerance": 1e-9, "examples": small}), examples=100).ok


def test_counterexamples_are_small() -> None:
    report = fl.check(CounterCopiedOnFork, laws=["C1"])
    (result,) = report.results
    assert result.counterexample is not None
    assert len(result.counterexample.trace) == 1, "no step but init is needed to show it"
