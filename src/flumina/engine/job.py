"""Describe a run for its tasks, and the reports that tasks return."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from flumina.checkpoint.resume_point import Snapshots, Start
from flumina.checkpoint.state_partitions import FinalStatePolicy, StatePartition
from flumina.engine.liveness import Liveness
from flumina.engine.options import EngineOptions
from flumina.engine.placement import Placement
from flumina.input.stream import Stream
from flumina.model.tag import Tag
from flumina.output.staged_outputs import Manifest, Outputs
from flumina.plan.tree import Plan
from flumina.program.base import AnyProgram
from flumina.program.definition import Definition
from flumina.runtime.histogram import Histogram
from flumina.runtime.stats import WorkerStats


@dataclass(frozen=True)
class StreamDescription:
    """A declared stream with its tags by name, so that every process finds its own program's tags in it."""

    stream: Stream
    tags: Mapping[Any, str] | str

    @staticmethod
    def of(stream: Stream) -> StreamDescription:
        """Return the description of a stream, without its data."""
        names = stream.tag.name if isinstance(stream.tag, Tag) else {v: tag.name for v, tag in stream.tag.items()}
        return StreamDescription(replace(stream, data=None), names)

    def bind(self, definition: Definition, data: object) -> Stream:
        """Return the stream with data, and with the tags of this process's program."""
        tags = definition.tags
        bound = tags[self.tags] if isinstance(self.tags, str) else {v: tags[name] for v, name in self.tags.items()}
        return replace(self.stream, tag=bound, data=data)


@dataclass(frozen=True)
class Job:
    """All that the tasks of a run have in common."""

    program: AnyProgram
    plan: Plan
    stream_descriptions: tuple[StreamDescription, ...]
    outputs: Outputs
    placement: Placement
    settings: EngineOptions
    paced: bool = False
    """Whether events are due at their timestamps (microseconds after the start), so that latency can be measured."""
    start: Start = field(default_factory=Start)
    snapshots: Snapshots | None = None
    final_state_policy: FinalStatePolicy | None = None
    """How final states are passed to the driver; None if they are not used."""
    liveness: Liveness = field(default_factory=Liveness)

    @property
    def term(self) -> int:
        """The term of the driver."""
        return 0 if self.snapshots is None else self.snapshots.term

    @property
    def names(self) -> Sequence[str]:
        """The names of streams by rank."""
        return [description.stream.name for description in self.stream_descriptions]


@dataclass(frozen=True)
class TaskStats:
    """Statistics of one task.

    ``seconds``         time from the first event read to the last output
    ``idle_seconds``    time of these in which the task waited
    ``cpu_seconds``     processor time of the task, ``loop_seconds`` that of its loop alone: the rest is reading ahead
                        and writing
    ``peak_memory``     memory of the process in bytes, since it was started; it may have run other tasks before
    ``sent_bytes``      bytes sent to other tasks: states and events
    ``latency``         latency of outputs, from when their events were due; for paced runs
    ``dead_letters``    rows that could not be read, and were written as dead letters
    """

    workers: Mapping[str, WorkerStats]
    read: int
    rows: int
    seconds: float
    idle_seconds: float
    cpu_seconds: float
    loop_seconds: float
    peak_memory: int
    sent_bytes: int
    sent_messages: int
    latency: Histogram
    dead_letters: int = 0


@dataclass(frozen=True)
class TaskReport:
    """The report of a task: manifest of outputs, statistics and, if requested, the final states of its trees.

    States are packed by the codec: their classes may be defined in a script.
    """

    manifest: Manifest
    stats: TaskStats
    final: StatePartition | None = None
