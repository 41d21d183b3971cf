"""The plan of a query, and when it changes: at the boundary of two batches, if another one promises enough."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from flumina.errors import PlanError
from flumina.input.stream import Stream
from flumina.input.ties import must_be_one_part
from flumina.model.tag_set import Key
from flumina.plan.cost_model import evaluate
from flumina.plan.optimize import Optimizer, OptimizerName, make_plan
from flumina.plan.sources import bind
from flumina.plan.tree import Plan
from flumina.plan.validity import check_valid
from flumina.program.definition import Definition
from flumina.streaming.observed import Observed

WORTH = 0.2
"""How much less another plan has to cost, by the model, for the plan to change."""


@dataclass(frozen=True)
class Change:
    """A plan that takes the place of another one."""

    reason: str
    saving: float
    leaves: int

    def as_dict(self) -> dict[str, object]:
        """For metrics."""
        return {"reason": self.reason, "expectedSaving": round(self.saving, 3), "leaves": self.leaves}


@dataclass
class Planner:
    """Chooses the plan of every batch from what was observed.

    ``fixed``     a plan that was given, which then never changes
    ``workers``   how many workers may run side by side, if that was said; else it is what the cluster has
    ``parts``     into how many parts a stream is dealt that can be divided
    """

    definition: Definition
    streams: Sequence[Stream]
    parts: int
    workers: int | None = None
    optimizer: OptimizerName | Optimizer = "cost"
    fixed: Plan | None = None
    adaptive: bool = True
    plan: Plan | None = None
    changes: int = 0
    _outline: tuple[object, ...] = ()
    _hot: dict[str, set[Key]] = field(default_factory=dict)
    _shares: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.observed = Observed(self.streams)
        self.single = {stream.name: must_be_one_part(self.definition, stream) for stream in self.streams}
        self.shape = {name: 1 if one else self.parts for name, one in self.single.items()}
        if self.fixed is not None:
            check_valid(self.fixed, self.definition, bind(self.definition, self.observed.sources(self._fixed())).shapes)
            self.shape, self.plan = self._fixed(), self.fixed

    def _fixed(self) -> dict[str, int]:
        """The parts of a plan that was given; a stream that has to be one part is one."""
        assert self.fixed is not None
        found = {stream.name: stream.parts for stream in self.fixed.streams}
        for name, one in self.single.items():
            if one and found.get(name, 1) != 1:
                raise PlanError(
                    "PARTS",
                    f"the plan has {found[name]} parts of stream {name!r}, whose events are ordered by their place "
                    "alone, so that it has one part",
                    hint="give the stream a seq= column, or make the plan for one part",
                )
        return {name: found.get(name, 1) for name in self.single}

    def resume(self, plan: Plan) -> None:
        """Go on with the plan of the last batch, if it still fits the streams as they are dealt now."""
        if self.fixed is None and {s.name: s.parts for s in plan.streams} == self.shape:
            self.plan = plan

    def observe(self, ready: Mapping[str, pa.Table]) -> None:
        """The events of the batch that comes next."""
        self.observed.add(ready)

    def choose(self, slots: int) -> tuple[Plan, Change | None]:
        """The plan for the next batch, and whether it is another one."""
        if self.fixed is not None:
            return self.fixed, None
        outline = (slots, *self.observed.outline())
        if (
            self.plan is not None
            and (not self.adaptive or outline == self._outline)
            and not self._unfit(self.plan, slots)
        ):
            return self.plan, None
        sources = self.observed.sources(self.shape)
        wanted = make_plan(
            self.definition,
            sources,
            workers=self.workers,
            slots=None if self.workers is not None else slots,
            optimizer=self.optimizer,
        )
        change = None if self.plan is None else self._change(self.plan, wanted, slots)
        if self.plan is None or change is not None:
            self.plan = wanted
            self._remember()
        self._outline = outline
        if change is not None:
            self.changes += 1
        return self.plan, change

    def _change(self, now: Plan, wanted: Plan, slots: int) -> Change | None:
        inputs = bind(self.definition, self.observed.sources(self.shape))
        before, after = evaluate(now, inputs).load, evaluate(wanted, inputs).load
        saving = 1 - after / before if before else 0.0
        unfit = self._unfit(now, slots)
        if unfit is None and after > (1 - WORTH) * before:
            return None
        return Change(unfit or self._reason(wanted), saving, len(wanted.leaves))

    def _unfit(self, plan: Plan, slots: int) -> str | None:
        """Why a plan can't be used any more: its tasks can't all run at once, or it has more workers than allowed."""
        if len({worker.place for worker in plan.workers}) > slots:
            return f"there are {slots} slots now"
        if self.workers is not None and len(plan.leaves) > self.workers:
            return f"at most {self.workers} workers may run side by side now"
        return None

    def _remember(self) -> None:
        self._hot = {f"{tag} on {stream}": set(self.observed.hot(stream, tag)) for stream, tag in self.observed.keys}
        self._shares = self.observed.shares()

    def _reason(self, wanted: Plan) -> str:
        """What is different from when the plan was made: a key that has become hot, else the rate that changed most."""
        if not self._shares:
            return "rates are other ones since the query was started again"
        named = {key for worker in wanted.workers for _, keys in worker.tags for key in keys.flips}
        new = [
            (share, key, f"{tag} on {stream}")
            for stream, tag in self.observed.keys
            for key, share in self.observed.hot(stream, tag).items()
            if key in named and key not in self._hot.get(f"{tag} on {stream}", set())
        ]
        if new:
            share, key, what = max(new, key=lambda entry: entry[0])
            return f"key {key!r} has {share:.0%} of {what}"
        shares = self.observed.shares()
        most = max(shares, key=lambda what: abs(shares[what] - self._shares.get(what, 0.0)))
        return f"{most} is {shares[most]:.0%} of all events, was {self._shares.get(most, 0.0):.0%}"
