"""Commit snapshots in the driver, once all tasks have sent their checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from flumina.checkpoint.participant import TaskCheckpoint
from flumina.checkpoint.start import Start
from flumina.checkpoint.state_partitions import PartitionedState
from flumina.checkpoint.store.manifest import OutputFile, ResultFiles, RunProgress, StateFile
from flumina.checkpoint.store.owner import CheckpointOwner
from flumina.checkpoint.store.snapshot import Snapshot
from flumina.output.commit import CommittedOutput, prepare
from flumina.output.outputs import Manifest, Outputs, StagedFile
from flumina.plan.render.json import to_json
from flumina.plan.tree import Plan


@dataclass
class Committer:
    """Collects the checkpoints of tasks and commits snapshots; called by the thread of the rendezvous only."""

    owner: CheckpointOwner
    outputs: Outputs
    plan: Plan
    tasks: int
    start: Start
    """The resume point of the first gang."""
    base: CommittedProgress
    """The progress that earlier drivers have committed."""
    _committed: CommittedProgress = field(init=False)
    snapshots: int = field(init=False, default=0)
    """Number of snapshots committed."""
    _waiting: dict[int, dict[int, TaskCheckpoint]] = field(init=False, default_factory=dict)
    _gang_began: CommittedProgress = field(init=False)

    def __post_init__(self) -> None:
        self._committed = self._gang_began = self.base

    def begin(self) -> Start:
        """Return the resume point of a new gang; drop the checkpoints of an incomplete snapshot."""
        self._waiting.clear()
        self._gang_began = self._committed
        return self.start if self._committed is self.base else self._committed.start()

    def add_checkpoint(self, task: int, what: object) -> None:
        """Add the checkpoint of a task that has ended an epoch; commit the snapshot with the last one."""
        assert isinstance(what, TaskCheckpoint)
        parts = self._waiting.setdefault(what.epoch, {})
        parts[task] = what
        if len(parts) == self.tasks:
            del self._waiting[what.epoch]
            self._commit([parts[number] for number in sorted(parts)])

    def _commit(self, parts: Sequence[TaskCheckpoint]) -> None:
        done = self._committed.plus(
            self.outputs,
            [part.manifest for part in parts],
            after=parts[0].after,
            events=self._gang_began.events + sum(part.events for part in parts),
        )
        states = [part.states for part in parts if part.states is not None]
        snapshot = self._write(done, states)
        self._committed = replace(done, snapshot=snapshot)
        self.snapshots += 1

    def finish(self, last: Sequence[Manifest], events: int, state: bytes | None = None) -> dict[str, CommittedOutput]:
        """Commit the outputs of a run that is over, exactly once.

        The ``state`` after the last event is stored for later calls that ask for it.
        """
        self.owner.check()  # before files are merged: a driver that was replaced need not begin
        outputs = self.outputs
        done = self._committed.plus(outputs, last, after=None, events=self._gang_began.events + events)
        output_commit = prepare(outputs, done.manifests(outputs))
        results = ResultFiles(output_commit.files, output_commit.checksums)
        if outputs.location is not None:
            snapshot = self._write(done, [], results, state=state)
            done = replace(done, snapshot=snapshot)
            output_commit.make_visible()
        self._write(done, [], results, state=state, finished=True)
        return output_commit.results()

    def _write(
        self,
        done: CommittedProgress,
        states: Sequence[StateFile],
        results: ResultFiles | None = None,
        *,
        state: bytes | None = None,
        finished: bool = False,
    ) -> Snapshot:
        plan = to_json(self.plan)
        return commit(self.owner, done, results, self.outputs, plan, states=states, state=state, finished=finished)


@dataclass(frozen=True)
class CommittedProgress:
    """Committed progress of a run: the last snapshot, with its events, files and rows."""

    snapshot: Snapshot | None = None
    after: int | None = None
    events: int = 0
    files: tuple[OutputFile, ...] = ()
    rows: Mapping[str, int] = field(default_factory=dict)

    @staticmethod
    def of(snapshot: Snapshot | None) -> CommittedProgress:
        """Return the progress that a snapshot records."""
        if snapshot is None:
            return CommittedProgress()
        manifest = snapshot.manifest
        assert manifest.run_progress is not None, "the snapshot of a whole run"
        return CommittedProgress(
            snapshot, manifest.after, manifest.events, manifest.outputs, manifest.run_progress.rows
        )

    @property
    def number(self) -> int:
        """The number of the next snapshot."""
        return 1 if self.snapshot is None else self.snapshot.manifest.number + 1

    def start(self, fingerprint: Mapping[str, Any] | None = None) -> Start:
        """Return the resume point of a gang; ``fingerprint`` is that of its program, if its code may have changed."""
        if self.snapshot is None:
            return Start(number=self.number)
        return Start(PartitionedState.of(self.snapshot, fingerprint), self.after, self.number)

    def plus(
        self, outputs: Outputs, manifests: Sequence[Manifest], *, after: int | None, events: int
    ) -> CommittedProgress:
        """Return the progress after one more epoch, with the files that the tasks have written in it."""
        rows = {name: self.rows.get(name, 0) + sum(m.rows.get(name, 0) for m in manifests) for name in outputs.names}
        new = [_output(outputs, name, file) for manifest in manifests for name, file in manifest.files.items()]
        return replace(self, after=after, events=events, files=(*self.files, *new), rows=rows)

    def manifests(self, outputs: Outputs) -> list[Manifest]:
        """Return one manifest for each file so far, and one without files for rows that were discarded."""
        made = []
        in_files = dict.fromkeys(outputs.names, 0)
        for number, file in enumerate(self.files):
            assert outputs.location is not None
            staged = StagedFile(f"{outputs.location.staging}/{file.path}", file.rows, file.size, file.runs, file.crc32)
            rows = {name: file.rows if name == file.output else 0 for name in outputs.names}
            made.append(Manifest(outputs.run, number, file.path, rows, {file.output: staged}, {}))
            in_files[file.output] += file.rows
        rest = {name: self.rows[name] - count for name, count in in_files.items()}
        return [*made, Manifest(outputs.run, len(made), "nowhere", rest, {}, {})]


def _output(outputs: Outputs, name: str, file: StagedFile) -> OutputFile:
    assert outputs.location is not None
    assert file.crc is not None, "files that a snapshot refers to have checksums"
    path = file.path.removeprefix(f"{outputs.location.staging}/")
    return OutputFile(name, path, file.size, file.crc, file.rows, file.runs)


def commit(
    owner: CheckpointOwner,
    done: CommittedProgress,
    results: ResultFiles | None,
    outputs: Outputs,
    plan: str | None,
    *,
    states: Sequence[StateFile] = (),
    state: bytes | None = None,
    finished: bool = False,
) -> Snapshot:
    """Commit the next snapshot, with state files that tasks have written or with ``state``."""
    return owner.commit(
        number=done.number,
        state=state,
        state_files=states,
        after=done.after,
        events=done.events,
        outputs=done.files,
        folder=None if outputs.location is None else outputs.location.staging,
        plan=plan,
        progress=RunProgress(done.rows, results),
        finished=finished,
    )
