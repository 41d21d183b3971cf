"""Synchronization plans: trees of workers, their validity, routing, and optimizers."""

from flumina.plan.components import components
from flumina.plan.cost_model import Cost, CostModel, evaluate
from flumina.plan.fingerprint import fingerprint
from flumina.plan.heavy_hitters import HeavyHitters
from flumina.plan.measure import measure
from flumina.plan.optimize import OPTIMIZERS, Optimizer, make_plan
from flumina.plan.optimize.least_cost import with_model
from flumina.plan.routing import Router
from flumina.plan.sources import Inputs, StreamRates, bind
from flumina.plan.state_sizes import StateSize, sample_states
from flumina.plan.survey import estimate
from flumina.plan.tree import Itag, Plan, PlanWorker, StreamShape
from flumina.plan.validity import Violation, check_valid, validate

__all__ = [
    "OPTIMIZERS",
    "Cost",
    "CostModel",
    "HeavyHitters",
    "Inputs",
    "Itag",
    "Optimizer",
    "Plan",
    "PlanWorker",
    "Router",
    "StateSize",
    "StreamRates",
    "StreamShape",
    "Violation",
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
