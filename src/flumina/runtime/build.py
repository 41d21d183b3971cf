"""Build the workers of a plan."""

from __future__ import annotations

from collections.abc import Collection

from flumina.errors import UsageError
from flumina.plan.tree import Plan
from flumina.program.definition import Definition
from flumina.runtime.inner import Inner
from flumina.runtime.keyed_inner import KeyedInner
from flumina.runtime.keyed_leaf import KeyedLeaf
from flumina.runtime.leaf import Leaf
from flumina.runtime.topology import ProtocolOptions, topology
from flumina.runtime.worker import Worker


def refuse_ticks(definition: Definition) -> None:
    """Refuse a program with ticks: engines do not tell workers where the input ends."""
    if definition.ticking is not None:
        ticks = ", ".join(definition.ticking.rules)
        message = f"{definition.name} has ticks ({ticks}), which the simulator runs, but engines do not yet"
        raise UsageError("TICKS_NOT_RUN", message, hint="fl.spec runs it, and fl.check checks it")


def workers(
    plan: Plan, definition: Definition, options: ProtocolOptions | None = None, only: Collection[str] | None = None
) -> dict[str, Worker]:
    """Return the workers of a valid plan, or ``only`` some, by id, in plan order."""
    chosen = ProtocolOptions() if options is None else options
    made: dict[str, Worker] = {}
    for name, shape in topology(plan, definition, chosen).items():
        if only is not None and name not in only:
            continue
        lifted = definition.lifted if chosen.by_key else None
        if lifted is not None and shape.children:
            made[name] = KeyedInner(shape, definition.outputs, chosen, lifted)
        elif lifted is not None:
            made[name] = KeyedLeaf(shape, definition.outputs, lifted)
        elif shape.children:
            made[name] = Inner(shape, definition.outputs, chosen)
        else:
            made[name] = Leaf(shape, definition.outputs, definition.init)
    return made
