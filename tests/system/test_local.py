import pytest

from flumina import local
from tests.system.agree import assert_agrees
from tests.system.cases import CASES, Case

every = pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)


@every
def test_a_run_in_processes_is_the_sequential_program(case: Case) -> None:
    result = local.run(case.program, case.streams, plan=case.plan, state=True, settings=case.settings, progress=False)
    assert_agrees(case, result, result.outputs, ordered=False)


@every
def test_outputs_come_in_order_where_that_is_asked_for(case: Case) -> None:
    result = local.run(
        case.program, case.streams, plan=case.plan, state=True, order=True, settings=case.settings, progress=False
    )
    assert_agrees(case, result, result.outputs, ordered=True)
