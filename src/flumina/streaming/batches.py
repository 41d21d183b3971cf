"""Process micro-batches in sequence, each exactly once in spite of failures.

::

    log/watermarks/N  the watermark of batch N, which every attempt uses once it is logged
    snapshot N + 1    state, buffered rows and counts after batch N
    the sink          the outputs of batch N
    log/commits/N     batch N is committed

are written in this order, each atomically. An attempt of batch N starts from snapshot N and the same rows, so it ends
with the same snapshot N + 1 and the same outputs; outputs that are in the sink already stay. Snapshot 0 is the initial
state. A driver takes ownership of the checkpoint before its first batch, so that a replaced driver can't commit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from flumina.checkpoint.differences import check_program
from flumina.checkpoint.fingerprint import program_fingerprint
from flumina.checkpoint.state_partitions import FinalStatePolicy, PartitionedState
from flumina.checkpoint.store.checkpoints import Checkpoints
from flumina.checkpoint.store.manifest import BufferedRows, Epoch, EpochOutputs
from flumina.checkpoint.store.owner import CheckpointOwner
from flumina.checkpoint.store.snapshot import Snapshot, read_state
from flumina.engine.driver import LostSlotsError
from flumina.engine.hooks import BATCH_STEPS, NO_HOOKS, Hooks
from flumina.errors import CheckpointError, FluminaError, UsageError
from flumina.input.stream import Stream
from flumina.input.watermarks import EVERYTHING, NOTHING, ClosedBatches, Seen
from flumina.output.outputs import DEAD_LETTERS
from flumina.plan.render.json import from_json, to_json
from flumina.program.base import AnyProgram
from flumina.storage.directory import Directory
from flumina.streaming.batch_log import BatchLog, restoring
from flumina.streaming.batch_watermark import BatchWatermark, check_buffered, choose
from flumina.streaming.dead_letters import dead_letters_of, first_error
from flumina.streaming.engine import BatchEngine, BatchRun
from flumina.streaming.epoch_state import EpochState, first_epoch, following, inputs, was_written
from flumina.streaming.order import check_order
from flumina.streaming.planner import Change, Planner
from flumina.streaming.progress import ProgressLog, Stopwatch, entry
from flumina.streaming.rows import divide, from_bytes, in_order, placed, split, to_bytes
from flumina.streaming.rules import Rules
from flumina.streaming.sink import DeadLetters, Sink
from flumina.streaming.validation import RowValidator, ValidatedRows

log = logging.getLogger("flumina")

INLINE_STATE = 1 << 18
"""The most bytes of a state that goes through the driver to all tasks; tasks write and read larger states as files."""


Gather = Callable[[Mapping[str, RowValidator]], Mapping[str, ValidatedRows]]
"""Returns the new rows of a batch, each stream validated by its row validator."""


class Batches:
    """Processes the batches of one query."""

    def __init__(
        self,
        folder: Directory,
        program: AnyProgram,
        streams: Sequence[Stream],
        ts_type: pa.DataType,
        rules: Rules,
        planner: Planner,
        engine: BatchEngine,
        sink: Sink,
        dead_letters: DeadLetters,
        progress: ProgressLog,
        hooks: Hooks = NO_HOOKS,
    ) -> None:
        self.log = BatchLog(folder.below("log"))
        self.store = Checkpoints(folder.at("state"), folder.filesystem)
        self.fingerprint = {**program_fingerprint(program, streams), "timestamps": str(ts_type)}
        self.program = {name: self.fingerprint[name] for name in ("parameters", "code")}
        """The part of the fingerprint that may differ with ``allow_code_change``, and then changes the rows."""
        self.streams, self.ts_type, self.rules, self.planner = tuple(streams), ts_type, rules, planner
        self.engine, self.sink, self.dead_letters, self.progress = engine, sink, dead_letters, progress
        self.hooks = hooks
        self._owner: CheckpointOwner | None = None
        self._last: tuple[int, EpochState] | None = None
        """The last batch and the state after it, so that it need not be read again."""
        self.waiting = 0
        """The number of buffered rows when the query was started."""

    @restoring
    def prepare(self, *, allow_code_change: bool = False) -> None:
        """Check that checkpoint and sink belong to this query, and to its code unless ``allow_code_change``."""
        self.log.create()
        newest = self.store.latest()
        if newest is None:
            owner = self.store.take_over(resumes=None, fingerprint=self.fingerprint)
            seen = {s.name: Seen() for s in self.streams}
            newest = owner.commit(first_epoch(seen, self.sink.place, self._dead_letters_path))
        check_program(
            newest.manifest.fingerprint,
            self.fingerprint,
            allow_code_change=allow_code_change,
            where=self.store.folder.path,
        )
        self.waiting = sum(buffered.rows for buffered in newest.manifest.buffered)
        self._check_sink(newest)
        self.sink.prepare(newest.manifest.run, self.program)
        self.dead_letters.prepare(newest.manifest.run, self.program)

    @property
    def _dead_letters_path(self) -> str | None:
        """Return the folder of dead letters; None if the rules make none."""
        return self.dead_letters.folder.path if "dead-letter" in (self.rules.late, self.rules.bad_rows) else None

    def _check_sink(self, newest: Snapshot) -> None:
        """Raise if outputs or dead letters would go to another folder than before; it may have been moved."""
        if not newest.number:
            return
        before, run = newest.manifest, newest.manifest.run
        sink, dead_letters = before.outputs.folder, before.dead_letters.folder
        if sink != self.sink.place and (sink is None or not self.sink.is_of(run)):
            there, here = ("a function" if at is None else at for at in (sink, self.sink.place))
            raise self._elsewhere(f"the outputs of this query so far went to {there}, not to {here}", "sink")
        if (
            None not in (dead_letters, self._dead_letters_path)
            and dead_letters != self._dead_letters_path
            and not self.dead_letters.is_of(run)
        ):
            what = f"the dead letters of this query so far went to {dead_letters}, not to {self._dead_letters_path}"
            raise self._elsewhere(what, "dead_letters")

    def _elsewhere(self, what: str, option: str) -> CheckpointError:
        return CheckpointError(
            "CHECKPOINT_OUT",
            what,
            file=self.store.folder.path,
            hint=f"pass the same {option}= as before (the folder may be moved), or start with a new checkpoint",
        )

    @restoring
    def process(self, batch: int, gather: Gather, *, closed: bool = False) -> None:
        """Process a batch, unless it is committed; ``gather`` returns the same rows in every attempt."""
        try:
            self._process(batch, gather, closed=closed)
        except FluminaError:
            if self._owner is not None:  # a replaced driver reports that, and not that its files are missing
                self._owner.check()
            raise

    def _process(self, batch: int, gather: Gather, *, closed: bool) -> None:
        watch = Stopwatch()
        logged = self.log.watermark(batch)
        ended = logged is not None and logged.closed and not closed
        if self.log.committed(batch):
            if ended:
                raise self.log.drained_error(batch)
            if logged is not None:
                rows, digests = _numbers(
                    gather({s.name: RowValidator(s, self.rules.policies[s.name]) for s in self.streams})
                )
                logged.check_same_rows(replace(logged, rows=rows, digests=digests))
            return
        previous = self._before(batch, reopened=ended)
        if previous.epoch.finished:
            raise self.log.drained_error(batch)
        if ended:
            self.log.forget(batch)
            logged = None
        with watch.phase("ingest"):
            validated = gather(
                {s.name: RowValidator(s, self.rules.policies[s.name], self._done(s, previous)) for s in self.streams}
            )
            self._refuse(validated)
        self._reached("after-ingest", batch)
        with watch.phase("watermark"):
            seen = {name: previous.seen[name].and_then(validated[name].seen) for name in validated}
            rows = {
                s.name: in_order(s, [previous.buffered[s.name], placed(validated[s.name].events, batch)])
                if s.name in previous.buffered
                else in_order(s, [placed(validated[s.name].events, batch)])
                for s in self.streams
            }
            watermark = self._watermark(batch, validated, seen, previous.end, closed=closed)
            if logged is None:  # a refused batch must not be logged, so that its rows can still be repaired
                check_order(self.planner.definition, self.streams, rows, validated, batch)
                check_buffered(watermark, rows, self.rules.max_buffered_rows)
            watermark = self.log.decide(watermark)
            ready = {name: split(table, watermark.ts) for name, table in rows.items()}
            buffered = {name: later for name, (_, later) in ready.items()}
        self._reached("after-watermark", batch)
        change, ran = self._run(batch, {name: now for name, (now, _) in ready.items()}, previous, watch)
        with watch.phase("deadLetters"):
            dead_letters = self._dead_letters(validated)
        after = self._after(batch, watermark, previous, validated, seen, buffered, ran, dead_letters)
        self._make_durable(batch, after, previous, ran, dead_letters, watch)
        self._last = (batch, after)
        about = entry(batch, watermark, validated, ready, ran, change, after, self.planner, self.rules)
        self.progress.add({**about, "durationMs": watch.milliseconds()})

    def close(self, nothing: Gather) -> None:
        """Process buffered rows as the last batch: the streams are complete."""
        newest = self.store.latest()
        assert newest is not None, "prepare() has written snapshot 0"
        if newest.manifest.finished:
            self.process(newest.number - 1, nothing, closed=True)
        elif newest.manifest.buffered:
            self.process(newest.number, nothing, closed=True)

    def finish(self, nothing: Gather) -> None:
        """Complete the last batch of a drained query, if a driver failed after its snapshot was written.

        Called before the first batch: Spark may request a batch of new rows with the same number.
        """
        newest = self.store.latest()
        assert newest is not None, "prepare() has written snapshot 0"
        batch = newest.number - 1 if newest.manifest.finished else newest.number
        watermark = self.log.watermark(batch)
        if watermark is not None and watermark.closed and not self.log.committed(batch) and was_written(batch, newest):
            self.process(batch, nothing, closed=True)

    def _reached(self, step: str, batch: int) -> None:
        assert step in BATCH_STEPS, f"{step} is no step of a batch"
        self.hooks.reached(step, batch)

    # -- before ---------------------------------------------------------------------------------------------------

    def _before(self, batch: int, *, reopened: bool) -> EpochState:
        """Return the state before a batch; ``reopened`` if it was logged as the last one, and has rows now."""
        if self._last is not None and self._last[0] == batch - 1:
            return self._last[1]
        assert self._owner is None, f"batch {batch} does not follow the last one"
        try:
            snapshot = self.store.at(batch)
        except UsageError as error:
            raise CheckpointError(
                "MISSING_SNAPSHOT",
                f"there is no snapshot for batch {batch} to start from: {error.message}",
                file=self.store.folder.path,
                hint="restore the checkpoint, or start with a new one and a new sink",
            ) from None
        if reopened and was_written(batch, snapshot):
            raise self.log.drained_error(batch)
        if batch and not self.log.committed(batch - 1):
            self._complete(batch - 1, snapshot)
        previous = self._restored(snapshot)
        run = snapshot.manifest.run  # allow_code_change=True, since prepare() has checked the code
        self._owner = self.store.take_over(
            resumes=snapshot, fingerprint=self.fingerprint, run=run, allow_code_change=True
        )
        self.sink.begin(self._owner.token)
        self.dead_letters.begin(self._owner.token)
        self.log.remove_temporary_files()
        return previous

    def _complete(self, batch: int, snapshot: Snapshot) -> None:
        """Restore the missing commit of a batch that Spark does not retry; raise unless its outputs are complete."""
        after = snapshot.manifest.outputs
        rows = {name: 1 for name, last in after.last.items() if last == batch}
        if not self.sink.holds(batch, rows, after.lineage):
            raise CheckpointError(
                "NOT_COMMITTED",
                f"batch {batch} is not committed, and its outputs are not all in the sink, but Spark requests batch "
                f"{batch + 1}",
                file=self.log.commits.path,
                hint=f"delete Spark's own commit of batch {batch}, so that Spark retries it",
            )
        self.log.commit(batch)

    def _restored(self, snapshot: Snapshot) -> EpochState:
        before = snapshot.manifest
        state = (
            PartitionedState.of(snapshot, self.fingerprint) if any(file.tree_sizes for file in before.state) else None
        )
        if state is not None and before.foreign_state:  # no batch has been run with it since
            state = replace(state, foreign=True)
        blob = memoryview(read_state(self.store.folder, before.state[-1]) if before.buffered else b"")
        buffered: dict[str, pa.Table] = {}
        for name, size, _ in before.buffered:
            buffered[name], blob = from_bytes(blob[:size]), blob[size:]
        if before.plan is not None and self.planner.plan is None:
            self.planner.resume(from_json(before.plan, f"the plan of snapshot {snapshot.number}"))
        return EpochState(before, state, buffered)

    def _done(self, stream: Stream, previous: EpochState) -> int:
        return NOTHING if isinstance(self.rules.policies[stream.name], ClosedBatches) else previous.end

    def _refuse(self, validated: Mapping[str, ValidatedRows]) -> None:
        """Raise the error of the first late or bad row, where the rules make it one."""
        late, bad = self.rules.late == "error", self.rules.bad_rows == "error"
        for name, found in validated.items():
            error = first_error(name, found, late=late, bad=bad)
            if error is not None:
                raise error

    def _watermark(
        self, batch: int, validated: Mapping[str, ValidatedRows], seen: Mapping[str, Seen], done: int, *, closed: bool
    ) -> BatchWatermark:
        rows, digests = _numbers(validated)
        good = {name: len(found.events) for name, found in validated.items()}
        return choose(
            batch, self.rules.policies, seen, done, self.ts_type, rows=rows, good=good, digests=digests, closed=closed
        )

    # -- the run --------------------------------------------------------------------------------------------------

    def _run(
        self, batch: int, ready: Mapping[str, pa.Table], previous: EpochState, watch: Stopwatch
    ) -> tuple[Change | None, BatchRun | None]:
        if not any(map(len, ready.values())):
            return None, None
        self.planner.observe(ready)
        while True:
            try:
                return self._try(batch, ready, previous, watch)
            except LostSlotsError as lost:
                if not self.planner.shrinks or not lost.slots:
                    raise lost.gang from None
                log.warning("batch %d: %s: it is processed with %d, under a new plan", batch, lost, lost.slots)

    def _try(
        self, batch: int, ready: Mapping[str, pa.Table], previous: EpochState, watch: Stopwatch
    ) -> tuple[Change | None, BatchRun]:
        """Run a batch with a plan for the available slots."""
        with watch.phase("plan"):
            plan, change = self.planner.choose(self.engine.slots())
        with watch.phase("run"):
            parts, single = self.planner.shape, self.planner.single
            streams = [divide(s, ready[s.name], parts[s.name], single=single[s.name]) for s in self.streams]
            assert self._owner is not None, "taken over before the first batch"
            final_state_policy = FinalStatePolicy(self.store, self._owner.snapshot_id(batch + 1), INLINE_STATE)
            ran = self.engine.run(batch, streams, plan, previous.state, final_state_policy, self.sink.staging(batch))
        return change, ran

    # -- after ----------------------------------------------------------------------------------------------------

    def _after(
        self,
        batch: int,
        watermark: BatchWatermark,
        previous: EpochState,
        validated: Mapping[str, ValidatedRows],
        seen: dict[str, Seen],
        buffered: dict[str, pa.Table],
        ran: BatchRun | None,
        dead_letters: pa.Table,
    ) -> EpochState:
        before = previous.epoch
        newest = max(s.newest for s in seen.values())
        end = watermark.ts if watermark.ts != EVERYTHING else max(previous.end, newest)
        numbers = {
            "rows": sum(found.rows for found in validated.values()),
            "heartbeats": sum(found.heartbeats for found in validated.values()),
            "late": sum(found.late for found in validated.values()),
            "bad": sum(len(found.bad) - found.late for found in validated.values()),
        }
        totals = {name: before.inputs.totals.get(name, 0) + number for name, number in numbers.items()}
        events = before.events + (0 if ran is None else ran.stats.events)
        waiting = sum(map(len, buffered.values()))
        accounted = totals["heartbeats"] + totals["late"] + totals["bad"] + events + waiting
        assert accounted == totals["rows"], f"batch {batch}: {totals}, {waiting} buffered: rows were lost or made up"
        state = previous.state if ran is None else ran.state
        epoch = Epoch(
            number=batch + 1,
            end=None if end == NOTHING else end,
            events=events,
            inputs=inputs(seen, totals),
            plan=before.plan if ran is None or self.planner.plan is None else to_json(self.planner.plan),
            foreign_state=state is not None and state.foreign,
            outputs=self._outputs(batch, watermark, before.outputs, {} if ran is None else ran.rows),
            dead_letters=self._dead_letters_after(batch, before.dead_letters, len(dead_letters)),
            finished=watermark.closed,
        )
        return EpochState(epoch, state, buffered)

    def _outputs(
        self, batch: int, watermark: BatchWatermark, before: EpochOutputs, rows: Mapping[str, int]
    ) -> EpochOutputs:
        return EpochOutputs(
            self.sink.place,
            rows={name: before.rows.get(name, 0) + rows.get(name, 0) for name in {**before.rows, **rows}},
            last={**before.last, **{name: batch for name, count in rows.items() if count}},
            lineage=following(before.lineage, watermark, rows, self.program),
        )

    def _dead_letters_after(self, batch: int, before: EpochOutputs, rows: int) -> EpochOutputs:
        if self._dead_letters_path is None:
            return before
        new = {DEAD_LETTERS: batch} if rows else {}
        total = before.rows.get(DEAD_LETTERS, 0) + rows
        return EpochOutputs(self._dead_letters_path, rows={DEAD_LETTERS: total}, last={**before.last, **new})

    def _dead_letters(self, validated: Mapping[str, ValidatedRows]) -> pa.Table:
        late, bad = self.rules.late == "dead-letter", self.rules.bad_rows == "dead-letter"
        return pa.concat_tables([dead_letters_of(name, found, late=late, bad=bad) for name, found in validated.items()])

    def _write(self, batch: int, after: EpochState) -> PartitionedState | None:
        """Commit the epoch of a batch, and return the state for the next batch."""
        assert self._owner is not None, "taken over before the first batch"
        place = self._owner.snapshot_id(batch + 1)
        blobs = {name: to_bytes(table) for name, table in after.buffered.items() if len(table)}
        written, state = ([], None) if after.state is None else after.state.keep(self.store, place)
        buffered = [BufferedRows(name, len(blob), len(after.buffered[name])) for name, blob in blobs.items()]
        if blobs:
            written.append(self.store.write_state(place, b"".join(blobs.values())))
        self._owner.commit(replace(after.epoch, state=tuple(written), buffered=tuple(buffered)))
        return state

    def _make_durable(
        self,
        batch: int,
        after: EpochState,
        before: EpochState,
        ran: BatchRun | None,
        dead_letters: pa.Table,
        watch: Stopwatch,
    ) -> None:
        """Write the snapshot, the dead letters, the outputs and the commit, in this order."""
        results = {} if ran is None else ran.results
        with watch.phase("state"):
            self._reached("before-state", batch)
            after.state = self._write(batch, after)
            self._reached("after-state", batch)
        with watch.phase("sink"):
            self._reached("before-sink", batch)
            assert self._owner is not None, "taken over before the first batch"
            self._owner.check()
            if self._dead_letters_path is not None:
                last = before.epoch.dead_letters.last.get(DEAD_LETTERS)
                self.dead_letters.commit(batch, dead_letters, after.epoch.outputs.lineage, last)
            self.sink.commit(batch, results, after.epoch.outputs.lineage, before.epoch.outputs.last)
            self._reached("after-sink", batch)
        with watch.phase("commit"):
            self._reached("before-commit", batch)
            self.log.commit(batch)
            self._reached("after-commit", batch)
            self.log.prune(batch)


def _numbers(validated: Mapping[str, ValidatedRows]) -> tuple[dict[str, int], dict[str, int]]:
    """Return the number of rows of each stream, and their digests."""
    rows = {name: found.rows for name, found in validated.items()}
    return rows, {name: found.digest for name, found in validated.items()}
