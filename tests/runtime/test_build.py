"""The workers made from a plan are those of the plan."""

from __future__ import annotations

from random import Random

from flumina.program.base import define
from flumina.runtime.build import workers
from flumina.runtime.inner import Inner
from flumina.runtime.leaf import Leaf
from flumina.sim.plans import random_case
from flumina.sim.programs import random_program


def test_workers_are_built_in_the_order_of_the_plan_but_for_its_crown() -> None:
    crowned = 0
    for seed in range(10):
        random = Random(seed)
        case = random_case(random, define(random_program(random)), 0)
        made = workers(case.plan, case.definition)
        trees = {tree.id for tree in case.forest.trees}
        needed = [w for w in case.plan.workers if trees & {w.id, *(above.id for above in case.plan.ancestors(w.id))}]
        assert list(made) == [worker.id for worker in needed]
        assert all(isinstance(made[w.id], Inner if w.children else Leaf) for w in needed)
        crowned += len(needed) < len(case.plan.workers)
    assert 0 < crowned < 10
