"""Which kinds of plans and runs the simulator has seen: easy ones find nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from flumina.definition import Definition
from flumina.plan.tree import Plan
from flumina.runtime.stats import WorkerStats

SINGLE = "a single leaf"
TAGGED_INNER = "tagged inner workers below the root"
UNTAGGED_ROOT = "a root without tags"
INDEPENDENT_CHILD = "an inner worker independent of a child"


def traits(plan: Plan, definition: Definition) -> frozenset[str]:
    """What is special about a plan."""
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
    return frozenset(found)


@dataclass
class Coverage:
    """Counts of plans by trait, and of runs by what happened in them."""

    plans: Counter[str] = field(default_factory=Counter)
    runs: Counter[str] = field(default_factory=Counter)
    work: WorkerStats = field(default_factory=WorkerStats)
    steps: int = 0

    def add_plan(self, plan: Plan, definition: Definition) -> None:
        """Count a plan."""
        self.plans["all"] += 1
        self.plans.update(traits(plan, definition))

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
        """How many of the plans have a trait."""
        return self.plans[trait] / max(1, self.plans["all"])

    def __str__(self) -> str:
        plans, runs = self.plans["all"], self.runs["all"]
        lines = [f"{plans} plans:"]
        lines += [f"  {self.share(t):4.0%} {t}" for t in (SINGLE, TAGGED_INNER, UNTAGGED_ROOT, INDEPENDENT_CHILD)]
        several = max(1, self.runs["several workers"])
        lines.append(f"{runs} runs, {self.runs['with outputs'] / max(1, runs):.0%} with outputs;")
        lines.append(f"{self.runs['several workers']} of them with several workers:")
        lines += [
            f"  {self.runs[w] / several:4.0%} {w}" for w in ("joined", "two or more at work", "both sides at work")
        ]
        lines.append(f"{self.steps} steps, {self.work.events} events, {self.work.joins} joins")
        return "\n".join(lines)
