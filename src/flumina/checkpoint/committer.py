"""The driver's side of snapshots: what the tasks hand in becomes a snapshot as soon as it is whole."""

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
    """Collects what the tasks of one driver's run hand in, and commits it; called by the rendezvous' thread alone."""

    owner: CheckpointOwner
    outputs: Outputs
    plan: Plan
    tasks: int
    start: Start
    """Where the first gang begins."""
    base: CommittedProgress
    """What was committed before this driver began."""
    _committed: CommittedProgress = field(init=False)
    snapshots: int = field(init=False, default=0)
    """How many have been committed."""
    _waiting: dict[int, dict[int, TaskCheckpoint]] = field(init=False, default_factory=dict)
    _gang_began: CommittedProgress = field(init=False)

    def __post_init__(self) -> None:
        self._committed = self._gang_began = self.base

    def begin(self) -> Start:
        """A gang goes on from the last snapshot; what was handed in for the next one is not whole any more."""
        self._waiting.clear()
        self._gang_began = self._committed
        return self.start if self._committed is self.base else self._committed.start()

    def hand_in(self, task: int, what: object) -> None:
        """A task has ended a segment; the last one to do so makes the snapshot whole."""
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

    def publish(self, last: Sequence[Manifest], events: int, state: bytes | None = None) -> dict[str, CommittedOutput]:
        """The run is over: make its outputs visible, once, whatever happens in between.

        The ``state`` after the last event is kept for who asks again.
        """
        self.owner.check()  # before anything is merged: who was replaced need not begin
        outputs = self.outputs
        done = self._committed.plus(outputs, last, after=None, events=self._gang_began.events + events)
        publication = prepare(outputs, done.manifests(outputs))
        results = ResultFiles(publication.files, publication.checksums)
        if outputs.location is not None:
            snapshot = self._write(done, [], results, state=state)
            done = replace(done, snapshot=snapshot)
            publication.make_visible()
        self._write(done, [], results, state=state, finished=True)
        return publication.results()

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
    """How far a run has come for good: the last snapshot, and everything that it stands for."""

    snapshot: Snapshot | None = None
    after: int | None = None
    events: int = 0
    files: tuple[OutputFile, ...] = ()
    rows: Mapping[str, int] = field(default_factory=dict)

    @staticmethod
    def of(snapshot: Snapshot | None) -> CommittedProgress:
        """What a snapshot says."""
        if snapshot is None:
            return CommittedProgress()
        manifest = snapshot.manifest
        assert manifest.run_progress is not None, "the snapshot of a whole run"
        return CommittedProgress(
            snapshot, manifest.after, manifest.events, manifest.outputs, manifest.run_progress.rows
        )

    @property
    def number(self) -> int:
        """That of the next snapshot."""
        return 1 if self.snapshot is None else self.snapshot.manifest.number + 1

    def start(self, fingerprint: Mapping[str, Any] | None = None) -> Start:
        """Where a gang goes on; ``fingerprint`` are those of the program that does, if it need not be the same."""
        if self.snapshot is None:
            return Start(number=self.number)
        return Start(PartitionedState.of(self.snapshot, fingerprint), self.after, self.number)

    def plus(
        self, outputs: Outputs, manifests: Sequence[Manifest], *, after: int | None, events: int
    ) -> CommittedProgress:
        """With what the tasks have written in one more segment."""
        rows = {name: self.rows.get(name, 0) + sum(m.rows.get(name, 0) for m in manifests) for name in outputs.names}
        new = [_output(outputs, name, file) for manifest in manifests for name, file in manifest.files.items()]
        return replace(self, after=after, events=events, files=(*self.files, *new), rows=rows)

    def manifests(self, outputs: Outputs) -> list[Manifest]:
        """All files so far, as if one task had written each; rows that went nowhere are told by one without files."""
        made = []
        told = dict.fromkeys(outputs.names, 0)
        for number, file in enumerate(self.files):
            assert outputs.location is not None
            staged = StagedFile(f"{outputs.location.staging}/{file.path}", file.rows, file.size, file.runs, file.crc32)
            rows = {name: file.rows if name == file.output else 0 for name in outputs.names}
            made.append(Manifest(outputs.run, number, file.path, rows, {file.output: staged}, {}))
            told[file.output] += file.rows
        rest = {name: self.rows[name] - count for name, count in told.items()}
        return [*made, Manifest(outputs.run, len(made), "nowhere", rest, {}, {})]


def _output(outputs: Outputs, name: str, file: StagedFile) -> OutputFile:
    assert outputs.location is not None
    assert file.crc is not None, "files that a snapshot names have checksums"
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
    """Write the next snapshot; its state was written by a task, or is given."""
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
