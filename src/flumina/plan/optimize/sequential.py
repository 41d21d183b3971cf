"""Plan one worker that handles everything: always valid, the baseline."""

from __future__ import annotations

from flumina.plan.placement import placed
from flumina.plan.sources import Inputs
from flumina.plan.tree import Itag, Plan, PlanWorker, merged


def sequential(inputs: Inputs, slots: int | None = None) -> Plan:  # noqa: ARG001 -- it never needs more than one
    """Return the plan with one worker."""
    itags = merged(Itag(load.stream, frozenset({load.part}), load.events) for load in inputs.loads)
    root = placed(PlanWorker("w1", inputs.definition.initial, itags), inputs)
    return Plan.of(inputs.definition, inputs.shapes, root)
