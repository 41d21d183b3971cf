import pytest

import flumina as fl
from flumina.apps import KeyCounter
from tests.check.broken import MissingAfterFork, StaleInfoWins


class Chain(fl.Program):
    """Every event depends on every other: nothing can be forked."""

    step = fl.Tag()
    depends = fl.depends((step, step))
    output = "n long"
    count = fl.Count()

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        state.count += 1
        emit(state.count)


def test_the_same_seed_finds_the_same_counterexample() -> None:
    first, second = (str(fl.check(StaleInfoWins, examples=500, seed=5, laws=["C1"])) for _ in range(2))
    assert first == second
    assert "C1" in first


def test_only_the_named_laws_are_tried() -> None:
    report = fl.check(KeyCounter, examples=5, laws=["C2", "symmetry"])
    assert [result.law for result in report.results] == ["symmetry", "C2"]


def test_an_unknown_law_is_refused_with_those_there_are() -> None:
    with pytest.raises(fl.UsageError, match=r"C9[\s\S]*C1"):
        fl.check(KeyCounter, laws=["C9"])


@pytest.mark.parametrize("examples", [0, -3])
def test_no_examples_is_no_check(examples: int) -> None:
    with pytest.raises(fl.UsageError, match="at least 1"):
        fl.check(KeyCounter, examples=examples)


def test_laws_about_forks_say_so_where_nothing_can_run_in_parallel() -> None:
    report = fl.check(Chain, examples=20)
    notes = {result.law: result.note for result in report.results}
    assert report.ok
    assert notes["C1"] == notes["C2"] == notes["C3"] == notes["aliasing"] == "no two events can run in parallel"
    assert notes["batch"] == "no update_batch"


def test_an_exception_in_user_code_is_a_finding_with_its_line() -> None:
    report = fl.check(MissingAfterFork, examples=300)
    assert report.broken == ("defined",)
    assert "KeyError" in str(report)
    assert "broken.py:" in str(report)


def test_a_program_instance_is_checked_with_its_own_arguments() -> None:
    class Modulo(fl.Program):
        value = fl.Tag("v long NOT NULL")
        barrier = fl.Tag()
        depends = fl.depends((barrier, barrier), (barrier, value))
        output = "total long"
        total = fl.Sum("long")

        def __init__(self, keep: int) -> None:
            self.keep = keep

        def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
            if event.tag is self.value:
                state.total += event.v
            else:
                emit(state.total)
                state.total = self.keep

    assert fl.check(Modulo(0), examples=50).ok
    with pytest.raises(fl.UsageError, match="pass an instance"):
        fl.check(Modulo)


def test_calls_that_cannot_be_meant() -> None:
    with pytest.raises(fl.UsageError, match="how many situations"):
        fl.check(KeyCounter, examples="a")  # type: ignore[arg-type]
    with pytest.raises(fl.UsageError, match="at least one"):
        fl.check(KeyCounter, laws=[])
    with pytest.raises(fl.UsageError, match="at least one"):
        fl.check(KeyCounter, laws="C1")


def test_whoever_trips_over_nan_is_told_where_it_comes_from() -> None:
    class Rounded(fl.Program):
        value = fl.Tag("v double NOT NULL")
        depends = fl.depends()
        output = "v long"
        n = fl.Count()

        def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
            emit(round(event.v / 1e16))

    report = fl.check(Rounded, examples=500)
    assert report.broken == ("defined",)
    assert "now and then; values worth trying are given in the program" in str(report)
    assert fl.check(type("Given", (Rounded,), {"examples": {"v": [0.5, 2.5]}}), examples=100).ok
