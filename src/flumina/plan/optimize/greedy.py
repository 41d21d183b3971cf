"""The paper's optimizer (appendix B): maximize the events handled by leaves.

Remove the itags with the lowest rates until the others fall apart into independent components; the removed ones belong
to a worker above, and every component is divided further in the same way. Ours differs in two things: several
components are spread evenly over the two sides of a worker, where the original makes chains; and where there
are more workers than known components, keys that no source names are divided by hash buckets.
"""

from __future__ import annotations

from flumina.plan.atoms import Graph, InputAtom, affordable, atoms
from flumina.plan.optimize.decomposition import GraphComponent, by_rate, decompose
from flumina.plan.optimize.packing import tree_of, worker_of
from flumina.plan.placement import placed
from flumina.plan.sources import Inputs
from flumina.plan.state_types import assign_state_types
from flumina.plan.tree import Plan


def greedy(inputs: Inputs, slots: int | None = None) -> Plan:
    """Return the plan of appendix B with at most this many leaves; one for each component by default."""
    inputs.require_rates("greedy")
    pieces, components = _divide(inputs, buckets=1)
    most = sum(component.leaves for component in components)
    unbounded = any(not piece.keys.is_finite for piece in pieces)
    if slots is not None and unbounded and (most < slots or _lopsided(components, slots)):
        # Four divisions for each worker, to balance differences between hot keys.
        finer, of_finer = _divide(inputs, buckets=affordable(inputs, 4 * slots))
        if sum(component.leaves for component in of_finer) > most:
            pieces, components = finer, of_finer
    return plan_of(inputs, pieces, components, most if slots is None else slots)


def _lopsided(components: list[GraphComponent], slots: int) -> bool:
    """Return whether something that can't be divided is more than one worker's share."""
    fair = sum(component.rate for component in components) / slots
    return any(component.leaves == 1 and component.rate > 1.25 * fair for component in components)


def _divide(inputs: Inputs, buckets: int) -> tuple[list[InputAtom], list[GraphComponent]]:
    pieces = atoms(inputs, buckets)
    graph = Graph(pieces, inputs.definition.depends)
    return pieces, decompose(graph, by_rate(graph))


def plan_of(inputs: Inputs, pieces: list[InputAtom], components: list[GraphComponent], leaves: int) -> Plan:
    """Return a balanced tree over components, with state types and places."""
    root = assign_state_types(worker_of(tree_of(components, leaves, pieces), pieces), inputs.definition)
    return Plan.of(inputs.definition, inputs.shapes, placed(root, inputs))
