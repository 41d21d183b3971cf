"""One batch after the other, each with the effect of exactly one try, whatever fails in between.

::

    log/watermarks/N  the watermark of batch N; once it is there, every try uses it
    snapshot N + 1   state, buffered rows and numbers after batch N
    the sink         the outputs of batch N
    log/commits/N    batch N is done

are written in this order, each at once. A try of batch N begins with snapshot N and the same rows, so it ends with the
same snapshot N + 1 and the same outputs; what is in the sink already is left as it is. Snapshot 0 is the beginning. A
driver claims the snapshots before its first batch, so that one that was replaced writes no more of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from flumina.checkpoint.differences import check_program
from flumina.checkpoint.fingerprint import program_fingerprint
from flumina.checkpoint.state_partitions import FinalStatePolicy, PartitionedState
from flumina.checkpoint.store.checkpoints import Checkpoints
from flumina.checkpoint.store.manifest import BufferedRows
from flumina.checkpoint.store.owner import CheckpointOwner
from flumina.checkpoint.store.snapshot import Snapshot, read_state
from flumina.engine.hooks import BATCH_STEPS, NO_HOOKS, Hooks
from flumina.errors import CheckpointError, FluminaError, InputError, UsageError
from flumina.input.stream import Stream
from flumina.input.watermarks import EVERYTHING, NOTHING, ClosedBatches, Seen
from flumina.plan.render.json import from_json, to_json
from flumina.program.base import AnyProgram
from flumina.storage.directory import Directory
from flumina.streaming import dead_letters as dead
from flumina.streaming.batch_state import BatchState, batch_progress, following, progress_of, was_written
from flumina.streaming.batch_watermark import BatchWatermark, choose, holding
from flumina.streaming.engine import BatchEngine, BatchRun
from flumina.streaming.log import Log, restoring
from flumina.streaming.order import check_order
from flumina.streaming.planner import Change, Planner
from flumina.streaming.progress import ProgressLog, Stopwatch, entry
from flumina.streaming.rows import dealt, from_bytes, in_order, placed, split, to_bytes
from flumina.streaming.rules import Rules
from flumina.streaming.sink import DeadLetters, Sink
from flumina.streaming.validation import RowValidator, ValidatedRows

INLINE_STATE = 1 << 18
"""Up to so many bytes a state goes through the driver, and to all tasks; what is larger, tasks write and read."""


Gather = Callable[[Mapping[str, RowValidator]], Mapping[str, ValidatedRows]]
"""The new rows of a batch, each stream through its row_validator."""


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
        self.log = Log(folder.below("log"))
        self.store = Checkpoints(folder.at("state"), folder.filesystem)
        self.fingerprint = {**program_fingerprint(program, streams), "timestamps": str(ts_type)}
        self.program = {name: self.fingerprint[name] for name in ("parameters", "code")}
        """What may differ with ``allow_code_change``, and makes other rows."""
        self.streams, self.ts_type, self.rules, self.planner = tuple(streams), ts_type, rules, planner
        self.engine, self.sink, self.dead_letters, self.progress = engine, sink, dead_letters, progress
        self.hooks = hooks
        self._owner: CheckpointOwner | None = None
        self._last: tuple[int, BatchState] | None = None
        """What the last batch has left, so that it need not be read."""
        self.waiting = 0
        """How many rows were buffered when the query was started."""

    @restoring
    def prepare(self, *, allow_code_change: bool = False) -> None:
        """Check before the first batch that checkpoint and sink are of this query, and of its code unless told."""
        self.log.create()
        newest = self.store.latest()
        if newest is None:
            owner = self.store.take_over(resumes=None, fingerprint=self.fingerprint)
            left = BatchState(
                None, {}, {s.name: Seen() for s in self.streams}, NOTHING, {}, None, closed=False, lineage="", shown={}
            )
            newest = owner.commit(number=0, progress=progress_of(left, {}, self.sink.place, self._dead_letters_path))
        check_program(
            newest.manifest.fingerprint,
            self.fingerprint,
            allow_code_change=allow_code_change,
            where=self.store.folder.path,
        )
        self.waiting = sum(buffered.rows for buffered in batch_progress(newest).buffered)
        self._check_sink(newest)
        self.sink.prepare(newest.manifest.run, self.program)
        self.dead_letters.prepare(newest.manifest.run, self.program)

    @property
    def _dead_letters_path(self) -> str | None:
        """The folder of dead letters, if there may be any."""
        return self.dead_letters.folder.path if "dead-letter" in (self.rules.late, self.rules.bad_rows) else None

    def _check_sink(self, newest: Snapshot) -> None:
        """Outputs and dead letters go on where they began, or where that was moved."""
        if not newest.number:
            return
        before, run = batch_progress(newest), newest.manifest.run
        sink, dead_letters = before.sink, before.dead_letters
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
            hint=f"pass the same {option}= as before (a folder may be moved as a whole), or begin anew with another "
            "checkpoint",
        )

    @restoring
    def process(self, batch: int, gather: Gather, *, closed: bool = False) -> None:
        """Process a batch, unless that has been done; ``gather`` gives the same rows each time."""
        try:
            self._process(batch, gather, closed=closed)
        except FluminaError:
            if self._owner is not None:  # who was replaced learns that, not what became of its files
                self._owner.check()
            raise

    def _process(self, batch: int, gather: Gather, *, closed: bool) -> None:
        watch = Stopwatch()
        logged = self.log.watermark(batch)
        ended = logged is not None and logged.closed and not closed
        if self.log.committed(batch):
            if ended:
                raise self.log.over(batch)
            if logged is not None:
                rows, digests = _numbers(
                    gather({s.name: RowValidator(s, self.rules.policies[s.name]) for s in self.streams})
                )
                logged.check_same_rows(replace(logged, rows=rows, digests=digests))
            return
        left = self._before(batch, reopened=ended)
        if left.closed:
            raise self.log.over(batch)
        if ended:
            self.log.forget(batch)
            logged = None
        with watch.phase("ingest"):
            validated = gather(
                {s.name: RowValidator(s, self.rules.policies[s.name], self._done(s, left)) for s in self.streams}
            )
            self._refuse(validated)
        self._reached("after-ingest", batch)
        with watch.phase("watermark"):
            seen = {name: left.seen[name].and_then(validated[name].seen) for name in validated}
            rows = {
                s.name: in_order(s, [left.buffered[s.name], placed(validated[s.name].events, batch)])
                if s.name in left.buffered
                else in_order(s, [placed(validated[s.name].events, batch)])
                for s in self.streams
            }
            watermark = self._watermark(batch, validated, seen, left.done, closed=closed)
            if logged is None:  # what is logged counts; what is refused is not logged, so that something can be done
                check_order(self.planner.definition, self.streams, rows, validated, batch)
                self._check_buffered(watermark, rows)
            watermark = self.log.decide(watermark)
            ready = {name: split(table, watermark.ts) for name, table in rows.items()}
            buffered = {name: behind for name, (_, behind) in ready.items()}
        self._reached("after-watermark", batch)
        change, ran = self._run(batch, {name: now for name, (now, _) in ready.items()}, left, watch)
        after = self._after(batch, watermark, left, validated, seen, buffered, ran)
        with watch.phase("deadLetters"):
            dead_letters = self._dead_letters(validated)
            if len(dead_letters) and self._dead_letters_path is not None:
                after.last_dead_letters = batch
        self._make_durable(batch, after, left, ran, dead_letters, watch)
        self._last = (batch, after)
        about = entry(batch, watermark, validated, ready, ran, change, after, self.planner, self.rules)
        self.progress.add({**about, "durationMs": watch.milliseconds()})

    def close(self, nothing: Gather) -> None:
        """The streams are over: process what is buffered, as the batch behind the newest one."""
        newest = self.store.latest()
        assert newest is not None, "there is one from the beginning"
        if batch_progress(newest).closed:
            self.process(newest.number - 1, nothing, closed=True)
        elif batch_progress(newest).buffered:
            self.process(newest.number, nothing, closed=True)

    def finish(self, nothing: Gather) -> None:
        """Before the first batch: bring the last one to its end, if a driver died over it when it may have been seen.

        Spark may ask for new rows under its number, and would then never let it end.
        """
        newest = self.store.latest()
        assert newest is not None, "there is one from the beginning"
        batch = newest.number - 1 if batch_progress(newest).closed else newest.number
        watermark = self.log.watermark(batch)
        if watermark is not None and watermark.closed and not self.log.committed(batch) and was_written(batch, newest):
            self.process(batch, nothing, closed=True)

    def _reached(self, step: str, batch: int) -> None:
        assert step in BATCH_STEPS, f"{step} is no step of a batch"
        self.hooks.reached(step, batch)

    # -- before ---------------------------------------------------------------------------------------------------

    def _before(self, batch: int, *, reopened: bool) -> BatchState:
        """What is left of the batches before; ``reopened`` if this one was to be the last, and now holds rows."""
        if self._last is not None and self._last[0] == batch - 1:
            return self._last[1]
        assert self._owner is None, f"batch {batch} does not follow the last one"
        try:
            snapshot = self.store.at(batch)
        except UsageError as error:
            raise CheckpointError(
                "MISSING_SNAPSHOT",
                f"batch {batch} has no state to begin with: {error.message}",
                file=self.store.folder.path,
                hint="restore the checkpoint, or begin with a new one and a new sink",
            ) from None
        if reopened and was_written(batch, snapshot):
            raise self.log.over(batch)
        if batch and not self.log.committed(batch - 1):
            self._complete(batch - 1, snapshot)
        left = self._restored(snapshot)
        run = snapshot.manifest.run  # whether its code may be another has been asked in prepare()
        self._owner = self.store.take_over(
            resumes=snapshot, fingerprint=self.fingerprint, run=run, allow_code_change=True
        )
        self.sink.begin(self._owner.token)
        self.dead_letters.begin(self._owner.token)
        self.log.remove_temporary_files()
        return left

    def _complete(self, batch: int, snapshot: Snapshot) -> None:
        """A batch whose entry in the commit log is gone, and which nobody asks for again: all must be there."""
        after = batch_progress(snapshot)
        if not self.sink.holds(batch, after.outputs, after.lineage):
            raise CheckpointError(
                "NOT_COMMITTED",
                f"batch {batch} is not committed, and its outputs are not all in the sink; yet batch {batch + 1} is "
                "asked for",
                file=self.log.commits.path,
                hint=f"delete Spark's own commit of batch {batch}, so that it is tried again",
            )
        self.log.commit(batch)

    def _restored(self, snapshot: Snapshot) -> BatchState:
        before = batch_progress(snapshot)
        kept = (
            PartitionedState.of(snapshot, self.fingerprint)
            if any(file.tree_sizes for file in snapshot.manifest.states)
            else None
        )
        if kept is not None and before.foreign_state:  # no batch has been run with it since
            kept = replace(kept, foreign=True)
        blob = memoryview(read_state(self.store.folder, snapshot.manifest.states[-1]) if before.buffered else b"")
        buffered: dict[str, pa.Table] = {}
        for name, size, _ in before.buffered:
            buffered[name], blob = from_bytes(blob[:size]), blob[size:]
        plan = snapshot.manifest.plan
        if plan is not None and self.planner.plan is None:
            self.planner.resume(from_json(plan, f"the plan of snapshot {snapshot.number}"))
        return BatchState(
            kept,
            buffered,
            {name: Seen(*numbers) for name, numbers in before.seen.items()},
            before.done,
            dict(before.totals),
            plan,
            before.closed,
            before.lineage,
            dict(before.last_batches),
            before.last_dead_letters,
        )

    def _done(self, stream: Stream, left: BatchState) -> int:
        return NOTHING if isinstance(self.rules.policies[stream.name], ClosedBatches) else left.done

    def _refuse(self, validated: Mapping[str, ValidatedRows]) -> None:
        """Raise what must not be there."""
        late, bad = self.rules.late == "error", self.rules.bad_rows == "error"
        for name, found in validated.items():
            error = dead.first_error(name, found, late=late, bad=bad)
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

    def _check_buffered(self, watermark: BatchWatermark, rows: Mapping[str, pa.Table]) -> None:
        count = sum(len(split(table, watermark.ts)[1]) for table in rows.values())
        if count > self.rules.max_buffered_rows:
            held = holding(watermark, count)
            raise InputError(
                "STALLED",
                f"{count:,} rows wait for it, more than max_buffered_rows={self.rules.max_buffered_rows:,}: it "
                + (
                    "has not said anything yet"
                    if held.silent
                    else f"has come to {min(watermark.watermarks.values())} only"
                ),
                stream=held.streams[0],
                hint="say how far it is with another policy in watermarks={...}, or allow more to be buffered",
            )

    # -- the run --------------------------------------------------------------------------------------------------

    def _run(
        self, batch: int, ready: Mapping[str, pa.Table], left: BatchState, watch: Stopwatch
    ) -> tuple[Change | None, BatchRun | None]:
        if not any(map(len, ready.values())):
            return None, None
        with watch.phase("plan"):
            self.planner.observe(ready)
            plan, change = self.planner.choose(self.engine.slots())
        with watch.phase("run"):
            parts, single = self.planner.shape, self.planner.single
            streams = [dealt(s, ready[s.name], parts[s.name], single=single[s.name]) for s in self.streams]
            assert self._owner is not None, "taken over before the first batch"
            final_state_policy = FinalStatePolicy(self.store, self._owner.snapshot_id(batch + 1), INLINE_STATE)
            ran = self.engine.run(batch, streams, plan, left.state, final_state_policy, self.sink.staging(batch))
        return change, ran

    # -- after ----------------------------------------------------------------------------------------------------

    def _after(
        self,
        batch: int,
        watermark: BatchWatermark,
        left: BatchState,
        validated: Mapping[str, ValidatedRows],
        seen: dict[str, Seen],
        buffered: dict[str, pa.Table],
        ran: BatchRun | None,
    ) -> BatchState:
        newest = max(s.newest for s in seen.values())
        done = watermark.ts if watermark.ts != EVERYTHING else max(left.done, newest)
        totals = dict(left.totals)
        numbers = {
            "rows": sum(found.rows for found in validated.values()),
            "heartbeats": sum(found.heartbeats for found in validated.values()),
            "late": sum(found.late for found in validated.values()),
            "bad": sum(len(found.bad) - found.late for found in validated.values()),
            "processed": ran.stats.events if ran is not None else 0,
        }
        for name, number in numbers.items():
            totals[name] = totals.get(name, 0) + number
        waiting = sum(map(len, buffered.values()))
        accounted = sum(totals[name] for name in ("heartbeats", "late", "bad", "processed")) + waiting
        assert accounted == totals["rows"], f"batch {batch}: {totals}, {waiting} buffered: rows were lost or made up"
        plan = left.plan if ran is None or self.planner.plan is None else to_json(self.planner.plan)
        outputs = {} if ran is None else ran.rows
        lineage = following(left.lineage, watermark, outputs, self.program)
        shown = {**left.shown, **{name: batch for name, count in outputs.items() if count}}
        state = left.state if ran is None else ran.state
        return BatchState(
            state, buffered, seen, done, totals, plan, watermark.closed, lineage, shown, left.last_dead_letters
        )

    def _dead_letters(self, validated: Mapping[str, ValidatedRows]) -> pa.Table:
        late, bad = self.rules.late == "dead-letter", self.rules.bad_rows == "dead-letter"
        return pa.concat_tables(
            [dead.dead_letters(name, found, late=late, bad=bad) for name, found in validated.items()]
        )

    def _write(self, batch: int, after: BatchState, outputs: Mapping[str, int]) -> PartitionedState | None:
        """Commit the snapshot behind a batch; gives the state as the next batch is to have it."""
        assert self._owner is not None, "taken over before the first batch"
        place = self._owner.snapshot_id(batch + 1)
        blobs = {name: to_bytes(table) for name, table in after.buffered.items() if len(table)}
        written, state = ([], None) if after.state is None else after.state.keep(self.store, place)
        buffered = [BufferedRows(name, len(blob), len(after.buffered[name])) for name, blob in blobs.items()]
        if blobs:
            written.append(self.store.write_state(place, b"".join(blobs.values())))
        self._owner.commit(
            number=batch + 1,
            after=None if after.done == NOTHING else after.done,
            state_files=written,
            events=after.totals["processed"],
            plan=after.plan,
            finished=after.closed,
            progress=progress_of(after, outputs, self.sink.place, self._dead_letters_path, buffered),
        )
        return state

    def _make_durable(
        self,
        batch: int,
        after: BatchState,
        before: BatchState,
        ran: BatchRun | None,
        dead_letters: pa.Table,
        watch: Stopwatch,
    ) -> None:
        """Write snapshot, outputs and commit."""
        results = {} if ran is None else ran.results
        with watch.phase("state"):
            self._reached("before-state", batch)
            after.state = self._write(batch, after, {} if ran is None else ran.rows)
            self._reached("after-state", batch)
        with watch.phase("sink"):
            self._reached("before-sink", batch)
            assert self._owner is not None, "taken over before the first batch"
            self._owner.check()
            if self._dead_letters_path is not None:
                self.dead_letters.commit(batch, dead_letters, after.lineage, before.last_dead_letters)
            self.sink.commit(batch, results, after.lineage, before.shown)
            self._reached("after-sink", batch)
        with watch.phase("commit"):
            self._reached("before-commit", batch)
            self.log.commit(batch)
            self._reached("after-commit", batch)
            self.log.prune(batch)


def _numbers(validated: Mapping[str, ValidatedRows]) -> tuple[dict[str, int], dict[str, int]]:
    """How many rows came of each stream, and their digests."""
    rows = {name: found.rows for name, found in validated.items()}
    return rows, {name: found.digest for name, found in validated.items()}
