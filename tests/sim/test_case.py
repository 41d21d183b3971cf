"""Outputs are compared as they are written: in the types of their columns, floats within the program's tolerance."""

from __future__ import annotations

import math
from decimal import Decimal
from random import Random
from typing import Any

import pytest

import flumina as fl
from flumina.model.emit import Row
from flumina.program.base import AnyProgram, define
from flumina.sim.case import Case, output_keys
from flumina.sim.invariants import SimulationError
from flumina.sim.plans import random_case
from flumina.sim.scheduler import compare
from flumina.sim.trial import Setting, trial


class Floats(fl.Program):
    pay = fl.Tag("x double NOT NULL")
    show = fl.Tag()
    depends = fl.depends((show, show), (show, pay))
    output = "s double"
    tolerance = 1e-9
    s = fl.Sum("double")

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        if event.tag is self.pay:
            state.s += event.x
        else:
            emit(state.s)


class Decimals(fl.KeyedProgram):
    pay = fl.Tag("x decimal(18,2) NOT NULL", key="k string")
    show = fl.Tag(key="k string")
    depends = fl.depends((show, show), (show, pay))
    output = "k string, balance decimal(18,2)"
    s = fl.Sum("decimal(18,2)")

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        if event.tag is self.pay:
            state.s += event.x
        else:
            emit(event.k, state.s)


@pytest.mark.parametrize("program", [Floats, Decimals])
def test_lawful_programs_over_numbers_pass_the_simulator(program: AnyProgram) -> None:
    setting = Setting(program=define(program), events=40)
    for seed in range(40):
        trial(seed, setting).run()


def shown(program: AnyProgram) -> tuple[Case, list[Row]]:
    """A case, and what its oracle emits."""
    for seed in range(100):
        case = random_case(Random(seed), define(program), 40)
        rows = list(case._oracle[1])
        if len(rows) > 3 and math.isfinite(rows[2].values[-1]):
            return case, rows
    raise AssertionError("no case with outputs")


def changed(rows: list[Row], which: int, *values: Any) -> list[Row]:
    return [*rows[:which], rows[which]._replace(values=values), *rows[which + 1 :]]


def test_floats_differ_within_the_tolerance_and_no_more() -> None:
    case, rows = shown(Floats)
    (value,) = rows[2].values
    near = changed(rows, 2, value + max(1.0, abs(value)) * 1e-12)
    assert output_keys(near) != case.outputs()
    compare(case, near)
    far = changed(rows, 2, value + max(1.0, abs(value)) * 1e-6)
    with pytest.raises(SimulationError, match=r"missing output\(.* by show@.*; surplus output\("):
        compare(case, far)


def test_a_value_of_another_event_is_none() -> None:
    case, rows = shown(Floats)
    with pytest.raises(SimulationError, match=r"missing output.*surplus output"):
        compare(case, [rows[0]._replace(event=rows[1].event), *rows[1:]])


def test_missing_and_surplus_rows_are_told_whatever_the_tolerance() -> None:
    case, rows = shown(Floats)
    with pytest.raises(SimulationError, match="surplus nothing"):
        compare(case, rows[1:])
    with pytest.raises(SimulationError, match="missing nothing"):
        compare(case, [*rows, rows[0]])


def test_decimals_are_those_of_the_column() -> None:
    case, rows = shown(Decimals)
    key, balance = rows[0].values
    other_scale = Decimal(balance).quantize(Decimal("0.0000"))
    assert repr(other_scale) != repr(balance)
    compare(case, changed(rows, 0, key, other_scale))
    with pytest.raises(SimulationError, match="outputs differ"):
        compare(case, changed(rows, 0, key, balance + Decimal("0.01")))


def test_a_value_of_no_type_of_the_output_is_told_as_it_is() -> None:
    case, rows = shown(Decimals)
    with pytest.raises(SimulationError, match=r"surplus output.*'no number'"):
        compare(case, changed(rows, 0, rows[0].values[0], "no number"))
