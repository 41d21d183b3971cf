"""Make plans: optimizers behind one small protocol.

An optimizer gets a program, a description of its streams, and how many workers may run side by side; it returns a
valid plan in which every worker has a state type and a place. :func:`make_plan` finds one by name; others are passed as
functions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, Protocol

from flumina.errors import UsageError
from flumina.plan.optimize.greedy import greedy
from flumina.plan.optimize.least_cost import cost
from flumina.plan.optimize.sequential import sequential
from flumina.plan.sources import Inputs, StreamRates, bind
from flumina.plan.state_sizes import StateSize
from flumina.plan.tree import Plan
from flumina.plan.validity import check_valid
from flumina.program.base import AnyProgram


class Optimizer(Protocol):
    """A callable that makes plans."""

    def __call__(self, inputs: Inputs, slots: int | None, /) -> Plan:
        """Return a valid plan with at most this many leaves; None leaves the number to the optimizer."""


OptimizerName = Literal["cost", "greedy", "sequential"]
"""The optimizers that come with Flumina."""

OPTIMIZERS: dict[str, Optimizer] = {"cost": cost, "greedy": greedy, "sequential": sequential}


def make_plan(
    program: AnyProgram,
    streams: Iterable[StreamRates],
    *,
    workers: int | None = None,
    slots: int | None = None,
    optimizer: OptimizerName | Optimizer = "cost",
    states: StateSize | None = None,
) -> Plan:
    """Return a valid plan with a placement.

    ``workers`` is how many workers you want to run side by side, and asking for more than the input can be divided
    into is an error; ``slots`` is how many could, and fewer are fine. A good plan may have fewer of either. ``states``
    is how large states become, where that was sampled (:func:`flumina.plan.sample_states`).
    """
    if workers is not None and slots is not None:
        raise UsageError("WORKERS", "give workers= or slots=, not both")
    leaves = workers if workers is not None else slots
    check_workers(leaves)
    check_optimizer(optimizer)
    chosen = OPTIMIZERS[optimizer] if isinstance(optimizer, str) else optimizer
    inputs = bind(program, streams, states)
    if workers is not None:
        _check_workers(inputs, workers)
    plan = chosen(inputs, leaves)
    check_valid(plan, inputs.definition, inputs.shapes)
    return plan


def _check_workers(inputs: Inputs, workers: int) -> None:
    """Refuse more workers than itags, ticks aside; unknown keys count as one itag for each bucket."""
    available = 0
    for load in (load for load in inputs.loads if load.stream not in inputs.ticks):
        keys = load.profile.keys
        available += len(keys.flips) if keys.is_finite else keys.buckets.bit_count()
    if workers > available:
        raise UsageError(
            "TOO_MANY_WORKERS",
            f"{workers} workers for {available} itags: some would have nothing to do",
            hint=f"give at most workers={available}, streams with more parts, or slots= for 'at most'",
        )


def check_workers(workers: object, plan: object = None) -> None:
    """Refuse an invalid ``workers=``, or one beside ``plan=``."""
    if workers is not None and (isinstance(workers, bool) or not isinstance(workers, int) or workers < 1):
        raise UsageError("WORKERS", f"expected workers= as an integer of at least 1, got {workers!r}")
    if workers is not None and plan is not None:
        raise UsageError("WORKERS", "a plan says how many workers there are; give plan= or workers=, not both")


def check_optimizer(given: object) -> None:
    """Refuse an optimizer that is neither a known name nor a function."""
    if not (callable(given) or (isinstance(given, str) and given in OPTIMIZERS)):
        known = " or ".join(map(repr, OPTIMIZERS))
        raise UsageError("OPTIMIZER", f"expected optimizer= as {known}, or a function, got {given!r}")
