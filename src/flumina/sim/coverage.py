"""Count the kinds of plans and runs that were simulated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations

from flumina.plan.tree import Plan
from flumina.program.definition import Definition
from flumina.runtime.stats import WorkerStats
from flumina.sim.case import Case

SINGLE = "a single leaf"
TAGGED_INNER = "tagged inner workers below the root"
UNTAGGED_ROOT = "a root without tags"
INDEPENDENT_CHILD = "an inner worker independent of a child"

TIES = "with events that share a point"
BY_KEY = "of programs for single keys"
HOT = "with a hot key on several workers"
COLD = "with cold keys in several shards"


def traits(plan: Plan, definition: Definition) -> frozenset[str]:
    """Return the traits of a plan."""
    found = set()
    if plan.root.is_leaf:
        found.add(SINGLE)
    elif not plan.root.itags:
        found.add(UNTAGGED_ROOT)
    for worker in plan.workers:
        if worker.is_leaf or not worker.itags:
            continue
        if worker is not plan.root:
            found.add(TAGGED_INNER)
        if not all(definition.depends.between(worker.tags, child.subtree_tags) for child in worker.children):
            found.add(INDEPENDENT_CHILD)
    if definition.lifted is not None:
        found |= {BY_KEY, *_hot_and_cold(plan)}
    return frozenset(found)


def _hot_and_cold(plan: Plan) -> set[str]:
    """Return how a plan divides keys: hot ones on both sides of a worker, cold ones in shards."""
    found = set()
    named = {key for worker in plan.workers for _, keys in worker.tags for key in keys.flips if key in keys}
    for worker in plan.workers:
        sides = [child.subtree_tags for child in worker.children]
        if sides and any(all(side.has_key(key) for side in sides) for key in named):
            found.add(HOT)
    shards = [keys for leaf in plan.leaves for _, keys in leaf.tags if not keys.is_finite]
    if any(not one.buckets & other.buckets for one, other in combinations(shards, 2)):
        found.add(COLD)
    return found


@dataclass
class Coverage:
    """Counts of plans by trait, and of runs by what happened in them."""

    plans: Counter[str] = field(default_factory=Counter)
    runs: Counter[str] = field(default_factory=Counter)
    work: WorkerStats = field(default_factory=WorkerStats)
    steps: int = 0

    def add_case(self, case: Case) -> None:
        """Count a plan and its input."""
        self.plans["all"] += 1
        self.plans.update(traits(case.plan, case.definition))
        if len({point for point, _ in case.in_order}) < len(case.in_order):
            self.plans[TIES] += 1

    def add_run(self, plan: Plan, outputs: int, stats: Mapping[str, WorkerStats], steps: int) -> None:
        """Count a run."""
        self.steps += steps
        for one in stats.values():
            self.work += one
        happened = {"all", "with outputs"} if outputs else {"all"}
        if len(plan) > 1:
            happened.add("several workers")
            busy = {name for name, one in stats.items() if one.events}
            sides = [{worker.id for worker in child.walk()} & busy for child in plan.root.children]
            happened.update({"joined"} if any(one.joins > 1 for one in stats.values()) else ())
            happened.update({"two or more at work"} if len(busy) > 1 else ())
            happened.update({"both sides at work"} if all(sides) else ())
        self.runs.update(happened)

    def share(self, trait: str) -> float:
        """Return the share of the plans with a trait."""
        return self.plans[trait] / max(1, self.plans["all"])

    def __str__(self) -> str:
        plans, runs = self.plans["all"], self.runs["all"]
        lines = [f"{plans} plans:"]
        lines += [f"  {self.share(t):4.0%} {t}" for t in (SINGLE, TAGGED_INNER, UNTAGGED_ROOT, INDEPENDENT_CHILD)]
        lines += [f"  {self.share(TIES):4.0%} {TIES}", f"  {self.share(BY_KEY):4.0%} {BY_KEY}; of these"]
        lines += [f"    {self.plans[t] / max(1, self.plans[BY_KEY]):4.0%} {t}" for t in (HOT, COLD)]
        several = max(1, self.runs["several workers"])
        lines.append(f"{runs} runs, {self.runs['with outputs'] / max(1, runs):.0%} with outputs;")
        lines.append(f"{self.runs['several workers']} of them with several workers:")
        lines += [
            f"  {self.runs[w] / several:4.0%} {w}" for w in ("joined", "two or more at work", "both sides at work")
        ]
        lines.append(f"{self.steps} steps, {self.work.events} events, {self.work.joins} joins")
        return "\n".join(lines)
