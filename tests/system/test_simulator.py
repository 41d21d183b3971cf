from dataclasses import replace
from random import Random

import pytest

from flumina.program.base import define
from flumina.runtime.messages import PartId
from flumina.sim.case import Case as SimulatedCase
from flumina.sim.case import Entry, output_keys
from flumina.sim.conditions import Conditions
from flumina.sim.scheduler import Simulation, judge
from flumina.spec import read
from tests.system.cases import CASES, Case

SIMULATED = [case for case in CASES if case.input.rows < 1000]


def simulated(case: Case) -> SimulatedCase:
    """The same program, plan and input for the simulator, which sends events one by one."""
    definition = define(case.program)
    shapes = case.plan.streams
    parts: dict[PartId, list[Entry]] = {(shape.name, part): [] for shape in shapes for part in range(shape.parts)}
    for part in read(definition, case.streams):
        parts[part.stream.name, part.number] = [(part.batch.point(n), event) for n, event in enumerate(part.batch)]
    return SimulatedCase(definition, case.plan, parts)


@pytest.mark.parametrize("case", SIMULATED, ids=lambda case: case.id)
def test_a_random_schedule_is_the_sequential_program(case: Case) -> None:
    model = simulated(case)
    conditions = Conditions(credits=case.engine_options.window, most_events=min(20, case.engine_options.window))
    options = replace(case.engine_options.protocol, final=True)
    outcome = Simulation(model, Random(case.id), options=options, conditions=conditions).run()
    assert outcome.outputs == output_keys(case.expected.rows)
    judge(model, outcome)
