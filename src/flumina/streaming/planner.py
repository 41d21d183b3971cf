"""Choose the plan of each batch; change it where another costs much less."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from flumina.errors import PlanError
from flumina.input.stream import Stream
from flumina.input.tie_checks import must_be_one_part
from flumina.model.tag_set import Key
from flumina.plan.cost_model import evaluate
from flumina.plan.optimize import Optimizer, OptimizerName, make_plan
from flumina.plan.sources import bind
from flumina.plan.tree import Plan
from flumina.plan.validity import check_valid
from flumina.program.definition import Definition
from flumina.runtime.build import refuse_ticks
from flumina.streaming.recent_rates import RecentRates

WORTH = 0.2
"""The least relative saving, by the cost model, for which the plan changes."""


@dataclass(frozen=True)
class Change:
    """Replacement of the plan of a query by another one."""

    reason: str
    saving: float
    leaves: int

    def as_dict(self) -> dict[str, object]:
        """Return the entry ``planChange`` of the progress of a batch."""
        return {"reason": self.reason, "expectedSaving": round(self.saving, 3), "leaves": self.leaves}


@dataclass
class Planner:
    """Chooses the plan of each batch from the recent rates.

    ``fixed``     the user's plan, which never changes; None: plans are optimized
    ``workers``   the most workers that may run in parallel; None: the slots of the cluster
    ``parts``     the number of parts of each stream that can be divided
    ``shrinks``   plans have no more workers than there are slots, although ``workers`` allows more
    """

    definition: Definition
    streams: Sequence[Stream]
    parts: int
    workers: int | None = None
    optimizer: OptimizerName | Optimizer = "cost"
    fixed: Plan | None = None
    adaptive: bool = True
    shrinks: bool = False
    plan: Plan | None = None
    changes: int = 0
    _outline: tuple[object, ...] = ()
    _hot: dict[str, set[Key]] = field(default_factory=dict)
    _fractions: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        refuse_ticks(self.definition)
        self.rates = RecentRates(self.streams)
        self.single = {stream.name: must_be_one_part(self.definition, stream) for stream in self.streams}
        self.shape = {name: 1 if one else self.parts for name, one in self.single.items()}
        if self.fixed is not None:
            check_valid(self.fixed, self.definition, bind(self.definition, self.rates.sources(self._fixed())).shapes)
            self.shape, self.plan = self._fixed(), self.fixed

    def _fixed(self) -> dict[str, int]:
        """Return the parts of each stream in the user's plan.

        Raises PlanError if a stream that can't be divided has several.
        """
        assert self.fixed is not None
        found = {stream.name: stream.parts for stream in self.fixed.streams}
        for name, one in self.single.items():
            if one and found.get(name, 1) != 1:
                raise PlanError(
                    "PARTS",
                    f"expected one part of stream {name!r}, which has no seq= column, got {found[name]} in the plan",
                    hint="give the stream a seq= column, or make the plan for one part",
                )
        return {name: found.get(name, 1) for name in self.single}

    def resume(self, plan: Plan) -> None:
        """Resume with the plan of the last batch, if the streams are still divided in the same way."""
        if self.fixed is None and {s.name: s.parts for s in plan.streams} == self.shape:
            self.plan = plan

    def observe(self, ready: Mapping[str, pa.Table]) -> None:
        """Count the events of the next batch."""
        self.rates.add(ready)

    def choose(self, slots: int) -> tuple[Plan, Change | None]:
        """Return the plan for the next batch, and the change if it replaces another plan."""
        if self.fixed is not None:
            return self.fixed, None
        outline = (slots, *self.rates.outline())
        if (
            self.plan is not None
            and (not self.adaptive or outline == self._outline)
            and not self._unfit(self.plan, slots)
        ):
            return self.plan, None
        sources = self.rates.sources(self.shape)
        proposed = make_plan(
            self.definition,
            sources,
            workers=self.workers if self.workers is None or not self.shrinks else min(self.workers, slots),
            slots=None if self.workers is not None else slots,
            optimizer=self.optimizer,
        )
        change = None if self.plan is None else self._change(self.plan, proposed, slots)
        if self.plan is None or change is not None:
            self.plan = proposed
            self._remember()
        self._outline = outline
        if change is not None:
            self.changes += 1
        return self.plan, change

    def _change(self, now: Plan, proposed: Plan, slots: int) -> Change | None:
        inputs = bind(self.definition, self.rates.sources(self.shape))
        before, after = evaluate(now, inputs).load, evaluate(proposed, inputs).load
        saving = 1 - after / before if before else 0.0
        unfit = self._unfit(now, slots)
        if unfit is None and after > (1 - WORTH) * before:
            return None
        return Change(unfit or self._reason(proposed), saving, len(proposed.leaves))

    def _unfit(self, plan: Plan, slots: int) -> str | None:
        """Return why a plan can't be used any more: it has more tasks than slots, or too many workers; else None."""
        if len({worker.place for worker in plan.workers}) > slots:
            return f"there are {slots} slots now"
        if self.workers is not None and len(plan.leaves) > self.workers:
            return f"at most {self.workers} workers may run in parallel now"
        return None

    def _remember(self) -> None:
        self._hot = {f"{tag} on {stream}": set(self.rates.hot(stream, tag)) for stream, tag in self.rates.keys}
        self._fractions = self.rates.fractions()

    def _reason(self, proposed: Plan) -> str:
        """Return what has changed since the plan was chosen: a new hot key, else the rate that changed most."""
        if not self._fractions:
            return "rates have changed since the query was restarted"
        named = {key for worker in proposed.workers for _, keys in worker.tags for key in keys.flips}
        new = [
            (fraction, key, f"{tag} on {stream}")
            for stream, tag in self.rates.keys
            for key, fraction in self.rates.hot(stream, tag).items()
            if key in named and key not in self._hot.get(f"{tag} on {stream}", set())
        ]
        if new:
            fraction, key, what = max(new, key=lambda entry: entry[0])
            return f"key {key!r} has {fraction:.0%} of {what}"
        now, before = self.rates.fractions(), self._fractions
        most = max(now, key=lambda what: abs(now[what] - before.get(what, 0.0)))
        return f"{most} is {now[most]:.0%} of all events, was {before.get(most, 0.0):.0%}"
