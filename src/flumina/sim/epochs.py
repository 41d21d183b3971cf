"""Truncate simulated runs and continue them with new workers, as engines take snapshots.

After some steps the run is truncated at the highest timestamp that any worker has passed: all
workers forget what lies after it, messages that arrive lose it, sources stop there. When the run has ended, its state
is a snapshot, and a new set of workers goes on from it with all that was taken back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from flumina.model.tick import Horizon
from flumina.runtime.messages import Credit, Data, Message
from flumina.runtime.stats import WorkerStats
from flumina.runtime.topology import TREE_ROOT
from flumina.runtime.tree_root import TreeRoot
from flumina.runtime.truncate import after, truncated
from flumina.runtime.worker import Address
from flumina.sim.invariants import Invariants
from flumina.sim.scheduler import Outcome, Simulation
from flumina.sim.snapshot import SimSnapshot
from flumina.state.compare import copied


class EpochSimulation(Simulation):
    """A simulation that is truncated after the given numbers of steps."""

    ends = False

    def __init__(self, *arguments: Any, truncations: Sequence[int], **named: Any) -> None:  # noqa: ANN401
        self.truncations = deque(sorted(truncations))
        self.limit: int | None = None
        self.taken_back: dict[str, list[Data]] = {}
        self.taken: list[SimSnapshot] = []
        self.past: dict[str, WorkerStats] = {}
        self.build = named["build_workers"]
        self.options = named.get("options")
        super().__init__(*arguments, **named)

    @property
    def snapshots(self) -> Sequence[SimSnapshot]:
        return self.taken

    def outcome(self) -> Outcome:
        """Return the outcome so far, over all epochs."""
        last = super().outcome()
        return replace(last, stats={name: self.past.get(name, WorkerStats()) + s for name, s in last.stats.items()})

    def step(self) -> bool:
        """Take one step, and truncate the run where one is due."""
        if self.limit is not None and all(worker.stopped for worker in self.workers.values()):
            self.next_epoch()
        happened = super().step()
        if self.truncations and self.steps >= self.truncations[0]:
            self.truncations.popleft()
            self.truncate()
        return happened

    @property
    def horizon(self) -> Horizon | None:
        return Horizon(self.limit) if self.limit is not None and super().horizon is not None else super().horizon

    def truncate(self) -> None:
        """Choose the timestamp, and truncate all workers and sources there."""
        passed = [worker.passed for worker in self.workers.values() if worker.passed is not None]
        if not passed or self.limit is not None or self.tree_root.ends:
            return
        self.limit = max(passed)
        for source in self.sources.values():
            source.stop_at(after(self.limit))
        for name, worker in self.workers.items():
            effects, found = worker.truncate(self.limit)
            for data in found:
                self.invariants.returned(data.part, name, len(data.run))
            self.taken_back.setdefault(name, []).extend(found)
            self.perform(name, effects)
            self.invariants.check(worker)
        self.ready = [part for part, source in self.sources.items() if source.ready()]

    def arriving(self, receiver: Address, message: Message) -> Message:
        """Return a message as its receiver sees it, truncated."""
        if self.limit is None or receiver not in self.workers:
            return message
        seen, rest = truncated(message, self.limit)
        if rest is not None:
            self.taken_back.setdefault(str(receiver), []).append(rest)
        return seen

    def next_epoch(self) -> None:
        """Continue with new workers from the final state of the epoch."""
        assert self.limit is not None
        states = self.tree_root.final
        self.taken.append(self.case.snapshot(after(self.limit), copied(states)))
        self.past = dict(self.outcome().stats)
        late = self.network.drain()
        for _, receiver, message in late:
            if isinstance(message, Data):
                self.arriving(receiver, message)
        self.workers = dict(self.build(self.case.plan, self.case.definition, self.options))
        used = self.invariants.used
        self.invariants = Invariants(self.workers, self.conditions.credits)
        self.invariants.used = used
        begin, self.limit = after(self.limit), None
        for source in self.sources.values():
            source.go_on()
        self.tree_root = TreeRoot(states, start=begin, ends=False)
        taken_back, self.taken_back = self.taken_back, {}
        for name, found in taken_back.items():
            for data in found:
                self.invariants.arrived(data.part, name, len(data.run))
                self.perform(name, self.workers[name].handle(data.part, data))
            self.invariants.check(self.workers[name])
        self.perform(TREE_ROOT, self.tree_root.begin())
        for sender, _, message in late:
            if isinstance(message, Credit):
                self.refill(message, str(sender))
        self.ready = [part for part, source in self.sources.items() if source.ready()]
