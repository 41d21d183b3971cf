"""Hold the result of a run: outputs, statistics and dead letters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any, Generic

import pyarrow as pa

from flumina.engine.job import TaskReport, TaskStats
from flumina.errors import UsageError
from flumina.input.dead_letters import SCHEMA
from flumina.model.emit import ONLY_OUTPUT
from flumina.output.commit import CommittedOutput
from flumina.output.staged_outputs import DEAD_LETTERS
from flumina.plan.tree import Plan
from flumina.runtime.histogram import Histogram
from flumina.runtime.stats import WorkerStats


@dataclass(frozen=True)
class RunStats:
    """Statistics of a run: of the whole, of every worker and of every task.

    ``events``           processed events
    ``seconds``          time from the first event read to the last output
    ``joins``            number of joins of the states of two children
    ``bytes_between``    bytes sent between tasks: states, requests, and events that another task has read
    ``shuffled_bytes``   bytes moved by Spark before the run; None if Spark no longer knows it
    ``latency``          latency of outputs, from when their events were due; recorded for paced runs
    ``snapshots``        snapshots taken during the run
    ``dead_letters``     rows that could not be read, and were written as dead letters
    """

    workers: Mapping[str, WorkerStats]
    tasks: Mapping[int, TaskStats]
    shuffled_bytes: int | None = 0
    snapshots: int = 0

    @staticmethod
    def of(reports: Mapping[int, TaskReport], shuffled_bytes: int | None = 0, snapshots: int = 0) -> RunStats:
        """Combine the reports of all tasks."""
        tasks = {number: report.stats for number, report in sorted(reports.items())}
        workers = {name: stats for task in tasks.values() for name, stats in task.workers.items()}
        return RunStats(workers, tasks, shuffled_bytes, snapshots)

    @property
    def total(self) -> WorkerStats:
        """The sum over all workers."""
        return reduce(add, self.workers.values(), WorkerStats())

    @property
    def events(self) -> int:
        """The number of processed events."""
        return self.total.events

    @property
    def dead_letters(self) -> int:
        """The number of dead letters."""
        return sum(task.dead_letters for task in self.tasks.values())

    @property
    def joins(self) -> int:
        """The number of joins of the states of two children."""
        return self.total.joins

    @property
    def seconds(self) -> float:
        """The time of the slowest task."""
        return max((task.seconds for task in self.tasks.values()), default=0.0)

    @property
    def state_bytes(self) -> int:
        """The bytes of all states that were sent between tasks."""
        return self.total.state_bytes

    @property
    def bytes_between(self) -> int:
        """The bytes of all messages that were sent between tasks."""
        return sum(task.sent_bytes for task in self.tasks.values())

    @property
    def latency(self) -> Histogram:
        """The latency of outputs, in a paced run."""
        return reduce(add, (task.latency for task in self.tasks.values()), Histogram())

    def __str__(self) -> str:
        rate = self.events / self.seconds if self.seconds else 0.0
        text = f"{self.events:,} events in {self.seconds:.2f} s ({rate:,.0f}/s), {self.joins:,} joins"
        if self.latency.total:
            p50, p99 = (self.latency.percentile(p) * 1e3 for p in (50, 99))
            text += f", latency p50 {p50:.1f} ms, p99 {p99:.1f} ms"
        if self.snapshots:
            text += f", {self.snapshots:,} snapshot{'' if self.snapshots == 1 else 's'}"
        if self.dead_letters:
            text += f", {self.dead_letters:,} dead letter{'' if self.dead_letters == 1 else 's'}"
        return text


class OutputTables(Mapping[str, pa.Table]):
    """The outputs of a run as Arrow tables, each read on access."""

    def __init__(self, committed: Mapping[str, CommittedOutput]) -> None:
        self._committed = committed

    def __getitem__(self, name: str) -> pa.Table:
        if name not in self._committed:
            raise UsageError("NO_OUTPUT", f"expected one of the outputs {list(self)}, got {name!r}")
        return self._committed[name].table()

    def __iter__(self) -> Iterator[str]:
        return iter(self._committed)

    def __len__(self) -> int:
        return len(self._committed)


if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Table = TypeVar("Table", default=pa.Table)
else:
    from typing import TypeVar

    Table = TypeVar("Table")


@dataclass(frozen=True)
class RunResult(Generic[Table]):
    """The result of a run: it was executed once, and can be read any number of times.

    A ``RunResult[Table]`` holds Arrow tables (``flumina.local.run``), a ``RunResult[DataFrame]`` DataFrames of Spark.

    ``outputs`` holds one table for each declared output: the declared columns, then ``event_ts`` and ``event_stream``
    of the event that caused the row. ``state`` is the state after the last event, with ``return_state=True``.
    ``committed`` has the number of rows and the files of each output, ``committed_dead_letters`` those of
    :attr:`dead_letters`.
    """

    outputs: Mapping[str, Table] = field(repr=False)
    plan: Plan = field(repr=False)
    stats: RunStats
    state: Any
    committed: Mapping[str, CommittedOutput] = field(repr=False)
    committed_dead_letters: CommittedOutput = field(repr=False)
    _readable: Callable[[Mapping[str, CommittedOutput]], Mapping[str, Table]] = field(repr=False)

    @staticmethod
    def of(
        committed: Mapping[str, CommittedOutput],
        plan: Plan,
        stats: RunStats,
        state: Any,  # noqa: ANN401 -- whatever the program's state is
        readable: Callable[[Mapping[str, CommittedOutput]], Mapping[str, Table]],
    ) -> RunResult[Table]:
        """Make a result from committed outputs; ``readable`` opens them for the user."""
        dead_letters = committed.get(DEAD_LETTERS, CommittedOutput(0, SCHEMA, held=SCHEMA.empty_table()))
        outputs = {name: one for name, one in committed.items() if name != DEAD_LETTERS}
        return RunResult(readable(outputs), plan, stats, state, outputs, dead_letters, readable)

    @property
    def dead_letters(self) -> Table:
        """The rows that could not be read; empty unless ``bad_rows="dead-letter"``."""
        return self._readable({DEAD_LETTERS: self.committed_dead_letters})[DEAD_LETTERS]

    @property
    def output(self) -> Table:
        """The only output."""
        if ONLY_OUTPUT not in self.outputs:
            raise UsageError("NAMED_OUTPUTS", f"the program has the outputs {list(self.outputs)}; use .outputs[name]")
        return self.outputs[ONLY_OUTPUT]
