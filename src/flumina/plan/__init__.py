"""Synchronisation plans: the tree, which trees are valid, how events find their worker, and who makes good ones."""

from flumina.plan.components import components
from flumina.plan.costs import Cost, CostModel, evaluate
from flumina.plan.fingerprint import fingerprint
from flumina.plan.measure import measure
from flumina.plan.optimise import OPTIMISERS, Optimiser, make_plan
from flumina.plan.optimise.cost import with_model
from flumina.plan.rates import HeavyHitters, estimate
from flumina.plan.routing import Router
from flumina.plan.sources import Inputs, Source, bind
from flumina.plan.states import StateSize, sample_states
from flumina.plan.tree import Itag, Plan, StreamShape, Worker
from flumina.plan.validity import Violation, check_valid, validate

__all__ = [
    "OPTIMISERS",
    "Cost",
    "CostModel",
    "HeavyHitters",
    "Inputs",
    "Itag",
    "Optimiser",
    "Plan",
    "Router",
    "Source",
    "StateSize",
    "StreamShape",
    "Violation",
    "Worker",
    "bind",
    "check_valid",
    "components",
    "estimate",
    "evaluate",
    "fingerprint",
    "make_plan",
    "measure",
    "sample_states",
    "validate",
    "with_model",
]
