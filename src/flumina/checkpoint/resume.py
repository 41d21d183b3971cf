"""A run that keeps snapshots: what there is of it already, and how it goes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from flumina.checkpoint.committer import CommittedProgress, Committer, commit
from flumina.checkpoint.fingerprint import input_fingerprint, program_fingerprint
from flumina.checkpoint.policy import Checkpoint
from flumina.checkpoint.start import Snapshots, Start
from flumina.checkpoint.store.checkpoints import Checkpoints
from flumina.checkpoint.store.owner import CheckpointOwner
from flumina.checkpoint.store.snapshot import Snapshot
from flumina.errors import CheckpointError
from flumina.input.stream import Stream
from flumina.output.commit import CommittedOutput, OutputCommit
from flumina.output.outputs import Outputs
from flumina.plan.tree import Plan
from flumina.program.base import AnyProgram
from flumina.storage.checksum import Checksum, check_files, damaged
from flumina.storage.filesystem import join
from flumina.storage.output_directory import MARKER, OutputDirectory


@dataclass(frozen=True)
class ResumePoint:
    """This driver's claim on a checkpoint, and the snapshot from which it goes on."""

    given: Checkpoint
    store: Checkpoints
    owner: CheckpointOwner
    latest: Snapshot | None

    @staticmethod
    def of(
        given: Checkpoint,
        program: AnyProgram,
        streams: Sequence[Stream],
        snapshot_id: Callable[[str], OutputDirectory | None],
    ) -> ResumePoint:
        """Find out where a run stands, and become the driver that carries it on.

        ``snapshot_id`` tells where the outputs of a run go: an older snapshot is chosen for what lies there, too.
        """
        store = Checkpoints(given.path, filesystem=given.filesystem, keep=given.keep)
        latest = store.latest(
            allow_older=given.allow_older,
            check=lambda snapshot: check_outputs(store, snapshot, snapshot_id(snapshot.manifest.run)),
        )
        fingerprint = {**program_fingerprint(program, streams), "input": input_fingerprint(streams)}
        run = store.begun() if latest is None else latest.manifest.run
        owner = store.take_over(
            resumes=latest, fingerprint=fingerprint, run=run, allow_code_change=given.allow_code_change
        )
        return ResumePoint(given, store, owner, latest)

    @property
    def run(self) -> str:
        """The id of the run, the same for all drivers."""
        return self.owner.token.run

    @property
    def over(self) -> bool:
        """Whether all events have been processed."""
        return self.latest is not None and _is_over(self.latest)

    @property
    def final(self) -> bytes | None:
        """The state of a run that is over, if it was asked for then."""
        return self.latest.state() if self.latest is not None and self.over and self.latest.manifest.states else None

    def resume(self, location: OutputDirectory | None) -> tuple[Start, Snapshots] | None:
        """Return where the run goes on and how it takes snapshots; None if it is over.

        Outputs up to there are checked, and what a driver before this one has moved is staged again.
        """
        if self.latest is not None:
            self._check_folder(self.latest, location)
            if not self.given.allow_older:  # else it was chosen for that
                check_outputs(self.store, self.latest, location)
        if self.over:
            return None
        if self.latest is not None and location is not None:
            location.restage(self.store.names(self.latest.seen, self.latest.manifest.snapshot_id))
        progress = CommittedProgress.of(self.latest)
        snapshots = Snapshots(self.given.policy, self.store, self.owner.token.term)
        return progress.start(self.owner.fingerprint), snapshots

    def committer(self, outputs: Outputs, plan: Plan, tasks: int, start: Start) -> Committer:
        """Return what commits the parts that tasks hand in."""
        return Committer(self.owner, outputs, plan, tasks, start, CommittedProgress.of(self.latest))

    def results(self, outputs: Outputs) -> dict[str, CommittedOutput]:
        """The results of a run that is over: made visible now, if the driver died before it had done so."""
        assert self.latest is not None
        manifest, done = self.latest.manifest, CommittedProgress.of(self.latest)
        assert manifest.results is not None, "the run is over"
        publication = OutputCommit(outputs, done.rows, manifest.results.files)
        if outputs.location is not None:
            if not outputs.location.is_committed:
                publication.make_visible()
            outputs.location.sync_committed()
            outputs.location.discard()
        if not manifest.finished:
            state = self.final
            commit(self.owner, done, manifest.results, outputs, manifest.plan, state=state, finished=True)
        return publication.results()

    def _check_folder(self, latest: Snapshot, location: OutputDirectory | None) -> None:
        """The outputs so far lie where those to come will."""
        before, now = latest.manifest.folder, None if location is None else location.staging
        if before != now:
            raise CheckpointError(
                "CHECKPOINT_OUT",
                f"the outputs of this run so far lie in {before}, not in {now}",
                file=self.store.folder.path,
                hint="pass the same out= as before, or begin anew with another checkpoint",
            )


def check_outputs(store: Checkpoints, snapshot: Snapshot, location: OutputDirectory | None) -> None:
    """What a snapshot says was written is still there, byte for byte, or has been published.

    Outputs that lie in another folder than this run's are not looked at.
    """
    manifest = snapshot.manifest
    if location is None or manifest.folder != location.staging:
        return
    if manifest.results is None:
        written = {f"{location.staging}/{file.path}": Checksum(file.size, file.crc32) for file in manifest.outputs}
    elif location.is_committed:
        return
    elif manifest.finished:
        raise CheckpointError(
            "CHECKPOINT_MISSING_FILE",
            f"{join(location.path, MARKER)} is not there, or of another run, though this run has published its results",
            file=join(location.path, MARKER),
            hint="bring the results back, or begin anew with another checkpoint",
        )
    else:
        written = dict(manifest.results.checksums)
        for path in manifest.results.names:
            if path not in written:
                raise damaged(path, "no checksum was taken when it was written")
    names = store.names(snapshot.seen, manifest.snapshot_id)  # by this one, or a newer one that can't be gone on from
    lie = {path: location.locate(path, names[path]) if path in names else path for path in written}
    check_files(location.filesystem, {lie[path]: checksum for path, checksum in written.items()})


def _is_over(snapshot: Snapshot) -> bool:
    return snapshot.manifest.results is not None
