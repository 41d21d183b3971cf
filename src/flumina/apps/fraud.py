"""Detect fraud: a model flags transactions, and rules train the next model.

A rule trains the next model from the sum of all transactions since the last one, so it needs all of them; between two
rules, transactions are independent of each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import flumina as fl
from flumina.apps.app import App
from flumina.apps.workload import Columns, Flow, Steady, below, noise, parameter
from flumina.model.order import Ints

MODULO = 1000


class Fraud(fl.Program):
    """A sum that rules read and reset, and a model that transactions read and rules set."""

    transaction = fl.Tag("v long NOT NULL")
    rule = fl.Tag("r long NOT NULL")
    depends = fl.depends((rule, rule), (rule, transaction))
    output = {"flagged": "v long", "aggregate": "total long"}
    total = fl.Sum("long")
    model = fl.Replicated("long")

    def update(self, state: fl.State, event: fl.Event, emit: fl.Emit) -> None:
        """Flag a transaction that the model matches; train the next model at a rule."""
        if event.tag is self.transaction:
            if event.v % MODULO == state.model:
                emit.flagged(event.v)
            state.total += event.v
        else:
            emit.aggregate(state.total)
            state.model = (state.total + event.r) % MODULO
            state.total = 0

    def update_batch(self, state: fl.State, batch: fl.Batch, emit: fl.Emit) -> None:
        """Flag all transactions of a run at once."""
        if batch.tag is self.transaction:
            values = batch["v"]
            if state.model is not None:
                flagged = values % MODULO == state.model
                emit.flagged.columns(values[flagged], at=flagged)
            state.total += fl.total(values)
        elif len(batch):
            totals = [state.total] + [0] * (len(batch) - 1)
            emit.aggregate.columns(totals)
            state.model = (totals[-1] + int(batch["r"][-1])) % MODULO
            state.total = 0


class Account(NamedTuple):
    """The state between two rules: the sum and the model."""

    total: int
    model: int | None


class FraudByHand(fl.Program):
    """The same with a named tuple as state and its own fork and join."""

    transaction = fl.Tag("v long NOT NULL")
    rule = fl.Tag("r long NOT NULL")
    depends = fl.depends((rule, rule), (rule, transaction))
    output = {"flagged": "v long", "aggregate": "total long"}

    def init(self) -> Account:
        """Return the empty sum, and no model."""
        return Account(0, None)

    def update(self, state: Account, event: fl.Event, emit: fl.Emit) -> Account:
        """Flag a transaction that the model matches; train the next model at a rule."""
        if event.tag is self.transaction:
            if event.v % MODULO == state.model:
                emit.flagged(event.v)
            return state._replace(total=state.total + event.v)
        emit.aggregate(state.total)
        return Account(0, (state.total + event.r) % MODULO)

    def fork(self, state: Account, left: fl.TagSet, right: fl.TagSet) -> tuple[Account, Account]:
        """Give the sum to the side with the rules, the model to both."""
        empty = state._replace(total=0)
        return (empty, state) if right.has(self.rule) else (state, empty)

    def join(self, left: Account, right: Account) -> Account:
        """Add the sums; both sides have the same model."""
        return Account(left.total + right.total, left.model)


@dataclass(frozen=True, kw_only=True)
class Payments(Steady):
    """Transactions of which about one in a thousand is flagged, and rules."""

    ratio: int = parameter(10_000, "transactions on each part for one rule")

    def flows(self) -> list[Flow]:
        """Return transactions in parts, and one stream of rules."""
        return [
            self.often("transactions", Fraud.transaction, self._transactions),
            self.rare("rules", Fraud.rule, self._rules, self.ratio),
        ]

    def _transactions(self, numbers: Ints) -> Columns:
        return {"v": below(1 << 32, noise(self.seed, "v", numbers))}

    def _rules(self, numbers: Ints) -> Columns:
        return {"r": below(MODULO, noise(self.seed, "r", numbers))}


APP = App("fraud", Fraud, Payments, by_hand=FraudByHand)
