"""Runs with parts so long that only columns carry them: no choice of schedule, only credits hold a source back."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from flumina.model.batch import Batch
from flumina.model.emit import Chunk, Row
from flumina.model.order import END, START, Point
from flumina.model.tag import Tag
from flumina.plan.forest import Forest
from flumina.plan.tree import Plan
from flumina.program.definition import Definition
from flumina.runtime.build import workers
from flumina.runtime.messages import Credit, Data, Message, PartId
from flumina.runtime.run import EMPTY, Run
from flumina.runtime.topology import TREE_ROOT, ProtocolOptions
from flumina.runtime.tree_root import TreeRoot
from flumina.runtime.worker import Address, Effects


def column_part(tag: Tag, names: Sequence[str], first: int, last: int, **values: int) -> Batch:
    """One event of a stream with the tag's name at each timestamp from first to last, with the same values."""
    ts = np.arange(first, last + 1)
    columns = [pa.array(np.full(len(ts), values[field.name])) for field in tag.schema]
    table = pa.record_batch(columns, schema=tag.schema) if columns else _no_columns(len(ts))
    return Batch.one_tag(tag, table, ts, list(names).index(tag.name), np.zeros(len(ts), np.int64), names)


def _no_columns(rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))


@dataclass
class BatchSource:
    """A part whose events all go to one worker."""

    batch: Batch
    receiver: str
    credits: int
    sent: int = 0
    frontier: Point = START

    def next(self) -> tuple[Run, Point] | None:
        """As many events as there are credits for, and the end after the last; None if nothing can be sent."""
        count = min(self.credits, len(self.batch) - self.sent)
        if self.frontier == END or (not count and self.sent < len(self.batch)):
            return None
        run = Run(batch=self.batch.slice(self.sent, self.sent + count)) if count else EMPTY
        self.sent += count
        self.credits -= count
        self.frontier = END if self.sent == len(self.batch) else run.last
        return run, self.frontier


class Bulk:
    """Lets every source send all it may, then delivers everything, until the run is over."""

    def __init__(
        self,
        definition: Definition,
        plan: Plan,
        parts: Mapping[PartId, tuple[Batch, str]],
        credits_: int,
        options: ProtocolOptions | None = None,
    ) -> None:
        self.workers = workers(plan, definition, options)
        self.tree_root = TreeRoot(Forest.of(plan.root).divide(definition, definition.init()))
        self.sources = {part: BatchSource(batch, receiver, credits_) for part, (batch, receiver) in parts.items()}
        self.sent: deque[tuple[Address, Address, Message]] = deque()
        self.outputs: list[Row | Chunk] = []
        self.messages = 0
        self.perform(TREE_ROOT, self.tree_root.begin())

    def perform(self, sender: Address, effects: Effects) -> None:
        self.outputs += effects.outputs
        for receiver, message in effects.sends:
            if isinstance(message, Credit):
                self.sources[message.part].credits += message.events
            else:
                self.sent.append((sender, receiver, message))

    def drain(self) -> None:
        while self.sent:
            sender, receiver, message = self.sent.popleft()
            self.messages += 1
            if receiver == TREE_ROOT:
                self.perform(TREE_ROOT, self.tree_root.handle(sender, message))
            else:
                assert isinstance(receiver, str)
                self.perform(receiver, self.workers[receiver].handle(sender, message))

    def run(self) -> None:
        self.drain()
        while not self.tree_root.finished:
            moved = False
            for part, source in self.sources.items():
                news = source.next()
                if news is not None:
                    moved = True
                    self.sent.append((part, source.receiver, Data(part, *news)))
                    self.drain()
            assert moved or self.tree_root.finished, [str(worker.stall()) for worker in self.workers.values()]
