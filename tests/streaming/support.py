"""Batches without Spark: an engine that folds, and a query that can be stopped anywhere and started again."""

from __future__ import annotations

import zlib
from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import flumina as fl
from flumina.checkpoint.state_partitions import FinalStatePolicy, PartitionedState
from flumina.engine.event_stream import event_stream
from flumina.engine.hooks import NO_HOOKS
from flumina.engine.message_codec import Codec
from flumina.engine.results import RunStats
from flumina.input.decode import Part
from flumina.input.tie_checks import check_ties
from flumina.model.batch import Batch
from flumina.model.emit import ONLY_OUTPUT, Emit
from flumina.output.staged_outputs import Outputs
from flumina.output.writer import OutputWriter
from flumina.plan.forest import Forest
from flumina.plan.tree import Plan
from flumina.program.base import define
from flumina.program.definition import fold, initial_state
from flumina.program.tie_finder import TieFinder, TieRule
from flumina.runtime.stats import WorkerStats
from flumina.storage.directory import Directory
from flumina.storage.output_directory import OutputDirectory
from flumina.streaming.batch_engine import BatchRun
from flumina.streaming.batches import Batches
from flumina.streaming.planner import Planner
from flumina.streaming.progress import ProgressLog
from flumina.streaming.rows import Gathered
from flumina.streaming.rules import Rules
from flumina.streaming.sink import DeadLetters, ParquetSink
from flumina.streaming.validation import PLACE, ROW, RowValidator, ValidatedRows
from tests.streaming.failpoints import At

Given = Mapping[str, Sequence[pa.Table]]
"""The rows of one batch: for each stream its partitions."""


class Folding:
    """Runs a batch as the oracle would, from a state."""

    def __init__(self, program: type[fl.Program]) -> None:
        self.definition = define(program)
        self.plans: list[Plan] = []

    def slots(self) -> int:
        return 4

    def run(
        self,
        batch: int,
        streams: Sequence[fl.Stream],
        plan: Plan,
        state: PartitionedState | None,
        final_state_policy: FinalStatePolicy,
        location: OutputDirectory,
    ) -> BatchRun:
        self.plans.append(plan)
        codec = Codec(self.definition, [s.name for s in streams])
        parts = [
            Part(stream, rank, number, event_batch(stream, rank, number, streams), 0, None)
            for rank, stream in enumerate(streams)
            for number in range(stream.data.parts)
        ]
        check_ties(self.definition, parts)
        for stream, part in [(s, p) for s in streams for p in parts if p.stream is s and isinstance(s.data, Gathered)]:
            finder = TieFinder(TieRule.of(self.definition.depends, stream.tags, sequenced=False))
            finder.look([part.batch], [stream.data.table.column(PLACE).to_numpy()])
        emit = Emit(self.definition.outputs)
        forest = Forest.of(plan.root)
        begin = initial_state(self.definition)
        if state is not None:  # as if each tree were in a task of its own
            each = [state.under(forest, [tree.id], self.definition, codec) for tree in forest.trees]
            begin = forest.unite(self.definition, dict(ChainMap(*each)))
        merged = Batch.merge([part.batch for part in parts if len(part.batch)])
        end = fold(self.definition.kinds[self.definition.initial], begin, merged, emit)
        names = tuple(stream.name for stream in streams)
        outputs = Outputs(self.definition.outputs, pa.int64(), names, location.run, location, checked=True)
        writer = OutputWriter(outputs, 0, "1")
        writer.write(emit.drain())
        stats = RunStats({"w": replace(WorkerStats(), events=len(merged))}, {})
        parts_of = forest.divide(self.definition, end)
        bundles = [final_state_policy.keep({tree: codec.pack(share)}) for tree, share in parts_of.items()]
        return BatchRun(PartitionedState(forest, tuple(bundles)), outputs, [writer.close()], stats)


def event_batch(stream: fl.Stream, rank: int, number: int, streams: Sequence[fl.Stream]) -> Batch:
    """The events of a part, as a task reads them."""
    found = event_stream(stream, rank, number, [s.name for s in streams])
    batches = [arrival.batch for arrival in found if arrival.batch is not None]
    return Batch.merge(batches) if batches else Batch.empty(stream.tags[0])


class Crash(BaseException):
    """The process is gone."""


class Query:
    """A query over batches that are given, which can be started any number of times."""

    def __init__(self, folder: Path, program: type[fl.Program], streams: Sequence[fl.Stream], **rules: Any) -> None:
        self.folder, self.program, self.streams = folder, program, streams
        watermarks = rules.pop("watermarks", {})
        policies = {s.name: watermarks.get(s.name, fl.InOrder()) for s in streams}
        self.rules = Rules(policies, **rules)
        self.adaptive, self.changed = True, False
        self.fixed: Plan | None = None
        self.hooks = NO_HOOKS
        self.out, self.dead_letters = folder / "out", folder / "dead"
        self.start()

    def start(self) -> None:
        """Begin, or begin again: nothing is remembered but what is in files."""
        self.engine = Folding(self.program)
        definition = define(self.program)
        self.progress = ProgressLog("test")
        self.planner = Planner(
            definition, self.streams, 2, optimizer="greedy", fixed=self.fixed, adaptive=self.adaptive
        )
        self.batches = Batches(
            Directory.of(self.folder / "checkpoint", "checkpoint"),
            self.program,
            self.streams,
            pa.int64(),
            self.rules,
            self.planner,
            self.engine,
            ParquetSink(self.out, definition.outputs),
            DeadLetters(self.dead_letters),
            self.progress,
            self.hooks,
        )
        self.batches.prepare(allow_code_change=self.changed)

    def feed(self, number: int, given: Given, *, closed: bool = False) -> None:
        self.batches.process(number, lambda validators: validated(validators, given), closed=closed)

    def output(self, name: str = ONLY_OUTPUT) -> pa.Table:
        return everything(self.out if name == ONLY_OUTPUT else self.out / name)

    def dead(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = everything(self.dead_letters).to_pylist()
        return found

    @property
    def last(self) -> dict[str, Any]:
        return self.progress.recent[-1]


def everything(folder: Path) -> pa.Table:
    """All rows that a reader of Parquet finds in a folder, without the column of the batch."""
    found = [pq.read_table(path) for path in sorted(folder.glob("batch=*/*.parquet"))]
    return pa.concat_tables(found) if found else pa.table({})


def validated(validators: Mapping[str, RowValidator], given: Given) -> dict[str, ValidatedRows]:
    found = {}
    for name, row_validator in validators.items():
        partitions = [
            table.append_column(PLACE, pa.array([number] * len(table), pa.int64())).append_column(
                ROW, pa.array(np.arange(len(table)))
            )
            for number, table in enumerate(given[name])
        ]
        whole = pa.concat_tables(partitions, promote_options="permissive")
        texts = [column.cast(pa.string()).to_pylist() for column in whole.drop_columns([PLACE, ROW]).columns]
        digest = zlib.crc32(repr(sorted(map(repr, zip(*texts, strict=True)))).encode())
        found[name] = replace(row_validator.validate(whole), digest=digest)
    return found


def crash_at(query: Query, point: str, batch: int) -> None:
    """Have a query end at a step, until it is started again."""

    def reached(step: str, now: int) -> None:
        if (step, now) == (point, batch):
            raise Crash(point)

    query.batches.hooks = At(reached)
