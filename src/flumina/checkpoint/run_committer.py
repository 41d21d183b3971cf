"""Collect the checkpoints of tasks, and commit the epochs of a whole run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from flumina.checkpoint.committer import Committer
from flumina.checkpoint.participant import TaskCheckpoint
from flumina.checkpoint.resume_point import Start
from flumina.checkpoint.state_partitions import PartitionedState
from flumina.checkpoint.store.checkpoint_owner import CheckpointOwner
from flumina.checkpoint.store.manifest import Epoch, EpochManifest, EpochOutputs, OutputFile
from flumina.checkpoint.store.snapshot import Snapshot
from flumina.output.commit import CommittedOutput, OutputCommit, prepare
from flumina.output.staged_outputs import DEAD_LETTERS, Manifest, Outputs, StagedFile
from flumina.plan.render.json import to_json
from flumina.plan.tree import Plan
from flumina.storage.filesystem import join


@dataclass(frozen=True)
class RunResults:
    """Makes the outputs of a run visible with its last epoch."""

    outputs: Outputs

    def show(self, epoch: EpochManifest) -> None:
        """Commit the files of a run that is over to its output directory, unless they are there."""
        location = self.outputs.location
        if location is None or not epoch.finished:
            return
        if not location.is_committed:
            location.commit({file.name: join(location.staging, file.path) for file in epoch.files if file.name})
        location.sync_committed()

    def clear(self, epoch: EpochManifest) -> None:
        """Delete all staged files of a run that is over."""
        if epoch.finished:
            self.outputs.discard()


@dataclass
class RunCommitter:
    """Collects the checkpoints of tasks and commits epochs; called by the thread of the rendezvous only."""

    owner: CheckpointOwner
    outputs: Outputs
    plan: Plan
    tasks: int
    start: Start
    """The resume point of the first gang."""
    last: Snapshot | None
    """The last snapshot; at first that of an earlier driver."""
    snapshots: int = field(init=False, default=0)
    """Number of snapshots committed."""
    _waiting: dict[int, dict[int, TaskCheckpoint]] = field(init=False, default_factory=dict)
    _events: int = field(init=False)
    """The number of events that were processed when the gang began."""

    def __post_init__(self) -> None:
        self._events = _events(self.last)
        self._committer = Committer(self.owner, RunResults(self.outputs))

    def begin(self) -> Start:
        """Return the resume point of a new gang; drop the checkpoints of an incomplete snapshot."""
        self._waiting.clear()
        self._events = _events(self.last)
        return start_after(self.last) if self.snapshots else self.start

    def add_checkpoint(self, task: int, what: object) -> None:
        """Add the checkpoint of a task that has ended an epoch; commit the snapshot with the last one."""
        assert isinstance(what, TaskCheckpoint)
        parts = self._waiting.setdefault(what.epoch, {})
        parts[task] = what
        if len(parts) == self.tasks:
            del self._waiting[what.epoch]
            self._commit([parts[number] for number in sorted(parts)])

    def _commit(self, parts: Sequence[TaskCheckpoint]) -> None:
        epoch = self._epoch([part.manifest for part in parts], sum(part.events for part in parts))
        state = tuple(part.states for part in parts if part.states is not None)
        self.last = self._committer.commit(replace(epoch, end=parts[0].after, state=state))
        self.snapshots += 1

    def finish(self, last: Sequence[Manifest], events: int, state: bytes | None = None) -> dict[str, CommittedOutput]:
        """Commit the outputs of a run that is over, exactly once.

        The ``state`` after the last event is stored for later calls that ask for it.
        """
        self.owner.check()  # before files are merged: a driver that was replaced need not begin
        epoch = self._epoch(last, events)
        written = prepare(self.outputs, manifests(self.outputs, epoch))
        files = [
            _output(self.outputs, output, file, name)
            for output, named in written.files.items()
            for name, file in named.items()
        ]
        dead_letters = tuple(file for file in files if file.output == DEAD_LETTERS)
        epoch = replace(
            epoch,
            state=() if state is None else (self.owner.write_state(epoch.number, state),),
            outputs=replace(epoch.outputs, files=tuple(file for file in files if file.output != DEAD_LETTERS)),
            dead_letters=EpochOutputs(epoch.outputs.folder, dead_letters),
            finished=True,
        )
        self.last = self._committer.commit(epoch)
        return written.results()

    def _epoch(self, written: Sequence[Manifest], events: int) -> Epoch:
        """Return the epoch after the last one, with the files that the tasks have written in it."""
        outputs, before = self.outputs, _outputs(self.last)
        rows = {name: before.rows.get(name, 0) + sum(m.rows.get(name, 0) for m in written) for name in outputs.names}
        count = Counter(file.output for file in before.files)
        new = []
        for name, file in ((name, file) for manifest in written for name, file in manifest.files.items()):
            new.append(_output(outputs, name, file, None if outputs.ordered else outputs.file_name(name, count[name])))
            count[name] += 1
        folder = None if outputs.location is None else outputs.location.staging
        return Epoch(
            number=next_number(self.last),
            events=self._events + events,
            plan=to_json(self.plan),
            outputs=EpochOutputs(folder, (*before.files, *new), rows),
        )


def next_number(last: Snapshot | None) -> int:
    """Return the number of the snapshot of a run after its last one."""
    return 1 if last is None else last.number + 1


def start_after(last: Snapshot | None, fingerprint: Mapping[str, Any] | None = None) -> Start:
    """Return the resume point after a snapshot; ``fingerprint`` is that of the program, if its code may differ."""
    if last is None:
        return Start()
    return Start(PartitionedState.of(last, fingerprint), last.end, last.number + 1)


def manifests(outputs: Outputs, epoch: Epoch) -> list[Manifest]:
    """Return one manifest for each file so far, and one without files for rows that were discarded."""
    made = []
    in_files = dict.fromkeys(outputs.names, 0)
    for number, file in enumerate(epoch.outputs.files):
        assert outputs.location is not None
        staged = StagedFile(f"{outputs.location.staging}/{file.path}", file.rows, file.size, file.runs, file.crc32)
        rows = {name: file.rows if name == file.output else 0 for name in outputs.names}
        made.append(Manifest(outputs.run, number, file.path, rows, {file.output: staged}, {}))
        in_files[file.output] += file.rows
    rest = {name: epoch.outputs.rows[name] - count for name, count in in_files.items()}
    return [*made, Manifest(outputs.run, len(made), "nowhere", rest, {}, {})]


def _events(last: Snapshot | None) -> int:
    return 0 if last is None else last.manifest.events


def _outputs(last: Snapshot | None) -> EpochOutputs:
    return EpochOutputs() if last is None else last.manifest.outputs


def results(outputs: Outputs, epoch: EpochManifest) -> dict[str, CommittedOutput]:
    """Return the outputs of a run that is over, by its last manifest."""
    files: dict[str, dict[str, StagedFile]] = {} if outputs.location is None else {name: {} for name in outputs.names}
    for file in epoch.files:
        if file.name is not None:
            files[file.output][file.name] = StagedFile(file.path, file.rows, file.size)
    return OutputCommit(outputs, epoch.outputs.rows, files).results()


def _output(outputs: Outputs, name: str, file: StagedFile, final: str | None) -> OutputFile:
    assert outputs.location is not None
    assert file.crc is not None, "files that a snapshot refers to have checksums"
    path = file.path.removeprefix(f"{outputs.location.staging}/")
    return OutputFile(name, path, file.size, file.crc, file.rows, () if final else file.runs, final)
