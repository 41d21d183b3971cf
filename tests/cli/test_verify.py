from pathlib import Path
from typing import Any

import flumina as fl
from flumina import local
from flumina.apps import ValueBarrier
from flumina.cli.inputs import InputOptions, Named
from flumina.cli.verify import judge
from tests.cli.jobs import FORGETFUL, write

VALUES = fl.Stream("values", ValueBarrier.value, {"ts": [1, 2, 3], "v": [1, 2, 3]})
BARRIERS = fl.Stream("barriers", ValueBarrier.barrier, {"ts": [2, 9]})


def test_the_oracle_agrees() -> None:
    result = local.run(ValueBarrier, [VALUES, BARRIERS], workers=1, progress=False)
    verification = judge(ValueBarrier, [VALUES, BARRIERS], result.committed)
    assert verification.right
    assert str(verification) == "verified: the sequential program gives the same 2 rows"


def test_outputs_of_other_input_are_told_side_by_side() -> None:
    result = local.run(ValueBarrier, [VALUES, BARRIERS], workers=1, progress=False)
    more = fl.Stream("barriers", ValueBarrier.barrier, {"ts": [2, 9, 10]})
    less = fl.Stream("barriers", ValueBarrier.barrier, {"ts": [2]})
    assert "1 rows missing, 0 surplus" in str(judge(ValueBarrier, [VALUES, more], result.committed))
    wrong = judge(ValueBarrier, [VALUES, less], result.committed)
    assert not wrong.right
    assert "0 rows missing, 1 surplus" in str(wrong)
    assert "(3, 9, 'barriers')" in str(wrong)


def test_an_unlawful_program_is_found_out(tmp_path: Path) -> None:
    path = write(tmp_path, "forgetful_verdict.py", FORGETFUL)
    work = Named.find(f"{path}:Forgetful").work(InputOptions(streams=f"{path}:streams"))
    result = local.run(work.program, work.streams, workers=2, optimizer="greedy", progress=False)
    assert not judge(work.program, work.streams, result.committed).right


def test_floats_may_differ_as_the_program_says() -> None:
    result = local.run(Averages, [REALS], workers=1, progress=False)
    close = fl.Stream("reals", Averages.real, {"ts": [1, 2], "x": [0.1, 0.2 + 1e-12]})
    far = fl.Stream("reals", Averages.real, {"ts": [1, 2], "x": [0.1, 0.3]})
    assert judge(Averages, [close], result.committed).right
    assert not judge(Averages, [far], result.committed).right


def test_what_spark_holds_is_fetched() -> None:
    class Frame:
        """What the oracle sees of a DataFrame."""

        def toArrow(self) -> Any:  # noqa: N802
            return VALUES.parts()[0]

    result = local.run(ValueBarrier, [VALUES, BARRIERS], workers=1, progress=False)
    held = fl.Stream("values", ValueBarrier.value, Frame())
    assert judge(ValueBarrier, [held, BARRIERS], result.committed).right


class Averages(fl.Program):
    real = fl.Tag("x double NOT NULL")
    depends = fl.depends((real, real))
    output = "total double"
    tolerance = 1e-9
    total = fl.Sum("double")

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        state.total += event.x
        emit(state.total)


REALS = fl.Stream("reals", Averages.real, {"ts": [1, 2], "x": [0.1, 0.2]})
