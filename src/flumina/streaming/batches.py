"""Process micro-batches in sequence, each exactly once in spite of failures.

Batch N is epoch N + 1. These are written in this order, each atomically::

    log/watermarks/N  the watermark of batch N, which every attempt uses once it is logged
    staged files      outputs, dead letters, state and buffered rows
    the manifest      from here on the batch counts, and is not processed again
    the sink          outputs and dead letters become visible
    the marker        the batch is visible

An attempt that dies before the manifest leaves nothing; the next one starts from epoch N and the same rows. After the
manifest, the next driver makes the outputs visible that it names (:mod:`flumina.checkpoint.committer`). Epoch 0 is the
initial state. A driver takes ownership of the checkpoint before its first batch, so that a replaced one can't commit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from flumina.checkpoint.committer import Committer
from flumina.checkpoint.fingerprint import program_fingerprint
from flumina.checkpoint.program_compatibility import check_program
from flumina.checkpoint.state_partitions import FinalStatePolicy, PartitionedState
from flumina.checkpoint.store.checkpoints import Checkpoints
from flumina.checkpoint.store.manifest import Epoch, EpochManifest
from flumina.checkpoint.store.snapshot import Snapshot
from flumina.engine.driver import LostSlotsError
from flumina.engine.hooks import BATCH_STEPS, NO_HOOKS, Hooks
from flumina.errors import CheckpointError, FluminaError
from flumina.input.stream import Stream
from flumina.input.watermark_policy import EVERYTHING, NOTHING, ClosedBatches, Seen
from flumina.output.commit import prepare
from flumina.plan.render.json import from_json, to_json
from flumina.program.base import AnyProgram
from flumina.storage.directory import Directory
from flumina.streaming.batch_engine import BatchEngine, BatchRun
from flumina.streaming.batch_log import BatchLog, restoring
from flumina.streaming.batch_watermark import BatchWatermark, check_buffered, choose
from flumina.streaming.buffered_rows import BufferedRows, buffer
from flumina.streaming.dead_letters import dead_letters_of, first_error
from flumina.streaming.epoch_state import EpochState, first_epoch, following, inputs
from flumina.streaming.order import check_order
from flumina.streaming.planner import Change, Planner
from flumina.streaming.progress import ProgressLog, Stopwatch, entry
from flumina.streaming.rows import divide, in_order, placed, split
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
        self._watch = Stopwatch()
        """Measures the phases of the batch that is processed."""
        self._committer: Committer | None = None
        self._last: EpochState | None = None
        """The last epoch, so that it need not be read again."""
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
            newest = owner.mark(owner.write(first_epoch(seen, self._sink_path, self._dead_letters_path)))
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
    def _sink_path(self) -> str | None:
        """Return the folder of the outputs; None for a sink that is a function."""
        return None if self.sink.folder is None else self.sink.folder.path

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
        if sink != self._sink_path and (sink is None or not self.sink.is_of(run)):
            there, here = ("a function" if at is None else at for at in (sink, self._sink_path))
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
            if self._committer is not None:  # a replaced driver reports that, and not that its files are missing
                self._committer.owner.check()
            raise

    def _process(self, batch: int, gather: Gather, *, closed: bool) -> None:
        watch = self._watch = Stopwatch()
        previous = self._begin()
        logged = self.log.watermark(batch)
        ended = logged is not None and logged.closed and not closed
        if batch < previous.epoch.number:
            if ended:
                raise self.log.drained_error(batch)
            if logged is not None:
                rows, digests = _numbers(
                    gather({s.name: RowValidator(s, self.rules.policies[s.name]) for s in self.streams})
                )
                logged.check_same_rows(replace(logged, rows=rows, digests=digests))
            return
        if previous.epoch.finished:
            raise self.log.drained_error(batch)
        if batch > previous.epoch.number:
            raise CheckpointError(
                "MISSING_SNAPSHOT",
                f"expected batch {previous.epoch.number} after the newest snapshot, got batch {batch}",
                file=self.store.folder.path,
                hint="restore the checkpoint, or start with a new one and a new sink",
            )
        if ended:  # without a manifest no reader has seen anything of it
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
            new = {s.name: in_order(s, [placed(validated[s.name].events, batch)]) for s in self.streams}
            rows = {
                s.name: in_order(s, [*(waiting.table for waiting in previous.buffered[s.name]), new[s.name]])
                if s.name in previous.buffered
                else new[s.name]
                for s in self.streams
            }
            watermark = self._watermark(batch, validated, seen, previous.end, closed=closed)
            if logged is None:  # a refused batch must not be logged, so that its rows can still be repaired
                check_order(self.planner.definition, self.streams, rows, validated, batch)
                check_buffered(watermark, rows, self.rules.max_buffered_rows)
            watermark = self.log.decide(watermark)
            ready = {name: split(table, watermark.ts) for name, table in rows.items()}
        self._reached("after-watermark", batch)
        change, ran = self._run(batch, {name: now for name, (now, _) in ready.items()}, previous, watch)
        with watch.phase("stage"):
            after = self._after(batch, watermark, previous, validated, seen, new, ran)
            self._reached("staged", batch)
        with watch.phase("commit"):
            self._last = None  # until it is known how far the commit came
            self._committed(batch).commit(after.epoch)
            self.log.prune(batch)
        self._last = after
        about = entry(batch, watermark, validated, ready, ran, change, after, self.planner, self.rules)
        self.progress.add({**about, "durationMs": watch.milliseconds()})

    def close(self, nothing: Gather) -> None:
        """Process buffered rows as the last batch: the streams are complete."""
        newest = self._newest()
        if newest.manifest.finished:
            self.process(newest.number - 1, nothing, closed=True)
        elif newest.manifest.buffered:
            self.process(newest.number, nothing, closed=True)

    def _reached(self, step: str, batch: int) -> None:
        assert step in BATCH_STEPS, f"{step} is no step of a batch"
        self.hooks.reached(step, batch)

    # -- before ---------------------------------------------------------------------------------------------------

    def _begin(self) -> EpochState:
        """Return the last epoch; the first call takes over the checkpoint, and completes what a driver left undone."""
        if self._last is not None:
            return self._last
        snapshot = self._newest()
        restored = self._restored(snapshot)
        run = snapshot.manifest.run  # allow_code_change=True, since prepare() has checked the code
        owner = self.store.take_over(resumes=snapshot, fingerprint=self.fingerprint, run=run, allow_code_change=True)
        self._committer = Committer(owner, self)
        if not snapshot.visible:
            self._committed(snapshot.number - 1).complete(snapshot)
        self.sink.begin(owner.token)
        self.dead_letters.begin(owner.token)
        self.log.remove_temporary_files()
        self._last = restored
        return restored

    def _newest(self) -> Snapshot:
        newest = self.store.latest()
        assert newest is not None, "prepare() has written snapshot 0"
        return newest

    def _committed(self, batch: int) -> Committer:
        """Return the committer, whose steps are those of a batch."""
        assert self._committer is not None, "taken over before the first batch"
        self._committer.reached = partial(self._reached, batch=batch)
        return self._committer

    def show(self, epoch: EpochManifest) -> None:
        """Make the dead letters and the outputs of a batch visible."""
        with self._watch.phase("sink"):
            self.dead_letters.show(epoch)
            self._reached("dead-letters-shown", epoch.number - 1)
            self.sink.show(epoch)

    def clear(self, epoch: EpochManifest) -> None:
        """Delete the staged files of a batch that is visible; those of earlier drivers are deleted as a whole."""
        if self._committer is not None and epoch.term == self._committer.owner.token.term:
            self.dead_letters.clear(epoch.number - 1)
            self.sink.clear(epoch.number - 1)

    def _restored(self, snapshot: Snapshot) -> EpochState:
        before = snapshot.manifest
        state = (
            PartitionedState.of(snapshot, self.fingerprint) if any(file.tree_sizes for file in before.state) else None
        )
        if state is not None and before.foreign_state:  # no batch has been run with it since
            state = replace(state, foreign=True)
        buffered: dict[str, list[BufferedRows]] = {}
        for file in before.buffered:
            buffered.setdefault(file.stream, []).append(BufferedRows.read(self.store, file))
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
            place = self._committed(batch).owner.snapshot_id(batch + 1)
            final_state_policy = FinalStatePolicy(self.store, place, INLINE_STATE)
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
        new: Mapping[str, pa.Table],
        ran: BatchRun | None,
    ) -> EpochState:
        """Stage everything that the manifest of a batch will name, and return its epoch."""
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
        place = self._committed(batch).owner.snapshot_id(batch + 1)
        buffered = {
            s.name: buffer(self.store, place, s, previous.buffered.get(s.name, ()), new[s.name], watermark.ts)
            for s in self.streams
        }
        files = tuple(rows.file for waiting in buffered.values() for rows in waiting)
        waiting = sum(file.rows for file in files)
        accounted = totals["heartbeats"] + totals["late"] + totals["bad"] + events + waiting
        assert accounted == totals["rows"], f"batch {batch}: {totals}, {waiting} buffered: rows were lost or made up"
        rows = {} if ran is None else ran.rows
        lineage = following(before.outputs.lineage, watermark, rows, self.program)
        written = None if ran is None else prepare(ran.outputs, ran.manifests)
        dead_letters = replace(before.dead_letters, files=())
        if self._dead_letters_path is not None:
            dead_letters = self.dead_letters.stage(batch, self._dead_letters(validated), before.dead_letters, lineage)
        outputs = self.sink.stage(batch, written, before.outputs, lineage)
        state = previous.state if ran is None else ran.state
        stored, state = ((), None) if state is None else state.keep(self.store, place)
        epoch = Epoch(
            number=batch + 1,
            end=None if end == NOTHING else end,
            events=events,
            inputs=inputs(seen, totals),
            buffered=files,
            state=stored,
            plan=before.plan if ran is None or self.planner.plan is None else to_json(self.planner.plan),
            foreign_state=state is not None and state.foreign,
            outputs=outputs,
            dead_letters=dead_letters,
            finished=watermark.closed,
        )
        return EpochState(epoch, state, buffered)

    def _dead_letters(self, validated: Mapping[str, ValidatedRows]) -> pa.Table:
        late, bad = self.rules.late == "dead-letter", self.rules.bad_rows == "dead-letter"
        return pa.concat_tables([dead_letters_of(name, found, late=late, bad=bad) for name, found in validated.items()])


def _numbers(validated: Mapping[str, ValidatedRows]) -> tuple[dict[str, int], dict[str, int]]:
    """Return the number of rows of each stream, and their digests."""
    rows = {name: found.rows for name, found in validated.items()}
    return rows, {name: found.digest for name, found in validated.items()}
