"""Find the resume point of a run, and take over as its driver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from flumina.checkpoint.committer import Committer
from flumina.checkpoint.fingerprint import input_fingerprint, program_fingerprint
from flumina.checkpoint.policy import Checkpoint
from flumina.checkpoint.resume_point import Snapshots, Start
from flumina.checkpoint.run_committer import RunCommitter, RunResults, results, start_after
from flumina.checkpoint.store.checkpoint_owner import CheckpointOwner
from flumina.checkpoint.store.checkpoints import Checkpoints
from flumina.checkpoint.store.snapshot import Snapshot
from flumina.errors import CheckpointError
from flumina.input.stream import Stream
from flumina.output.commit import CommittedOutput
from flumina.output.staged_outputs import Outputs
from flumina.plan.tree import Plan
from flumina.program.base import AnyProgram
from flumina.storage.checksum import check_files
from flumina.storage.filesystem import join
from flumina.storage.output_directory import MARKER, OutputDirectory


@dataclass(frozen=True)
class ResumePoint:
    """A checkpoint that this driver owns, and the snapshot from which the run resumes."""

    given: Checkpoint
    store: Checkpoints
    owner: CheckpointOwner
    latest: Snapshot | None

    @staticmethod
    def of(
        given: Checkpoint,
        program: AnyProgram,
        streams: Sequence[Stream],
        location: Callable[[str], OutputDirectory | None],
    ) -> ResumePoint:
        """Find the latest snapshot of a checkpoint, and take over as its owner.

        ``location`` returns the output directory of a run by its id: with ``allow_older``, a snapshot is chosen whose
        outputs there are undamaged.
        """
        store = Checkpoints(given.path, filesystem=given.filesystem, keep=given.keep)
        latest = store.latest(
            allow_older=given.allow_older,
            check=lambda snapshot: check_outputs(store, snapshot, location(snapshot.manifest.run)),
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
        """Tell whether all events have been processed."""
        return self.latest is not None and self.latest.manifest.finished

    @property
    def final(self) -> bytes | None:
        """The final state of a run that is over, if it was stored."""
        return self.latest.state() if self.latest is not None and self.over and self.latest.manifest.state else None

    def resume(self, location: OutputDirectory | None) -> tuple[Start, Snapshots] | None:
        """Return the resume point of the run and how it takes snapshots; None if the run is over.

        Checks the outputs up to the resume point, and stages files again that an earlier driver has moved.
        """
        if self.latest is not None:
            self._check_folder(self.latest, location)
            if not self.given.allow_older:  # else of() has checked them
                check_outputs(self.store, self.latest, location)
        if self.over:
            return None
        if self.latest is not None and location is not None:
            location.restage(self.store.names(self.latest.seen, self.latest.manifest.snapshot_id))
        snapshots = Snapshots(self.given.policy, self.store, self.owner.token.term)
        return start_after(self.latest, self.owner.fingerprint), snapshots

    def committer(self, outputs: Outputs, plan: Plan, tasks: int, start: Start) -> RunCommitter:
        """Return the committer of this run's snapshots."""
        return RunCommitter(self.owner, outputs, plan, tasks, start, self.latest)

    def results(self, outputs: Outputs) -> dict[str, CommittedOutput]:
        """Return the results of a run that is over; complete their commit if the driver died before it."""
        assert self.latest is not None
        if not self.latest.visible:
            Committer(self.owner, RunResults(outputs)).complete(self.latest)
        return results(outputs, self.latest.manifest)

    def _check_folder(self, latest: Snapshot, location: OutputDirectory | None) -> None:
        """Raise if the outputs so far are in another directory than the outputs to come."""
        before, now = latest.manifest.outputs.folder, None if location is None else location.staging
        if before != now:
            raise CheckpointError(
                "CHECKPOINT_OUT",
                f"expected the output directory of this run, {before}, got {now}",
                file=self.store.folder.path,
                hint="pass the same out= as before, or begin anew with another checkpoint",
            )


def check_outputs(store: Checkpoints, snapshot: Snapshot, location: OutputDirectory | None) -> None:
    """Check that the output files of a snapshot are unchanged, or have been committed.

    Outputs in another directory than this run's are not checked.
    """
    manifest = snapshot.manifest
    if location is None or manifest.outputs.folder != location.staging:
        return
    if manifest.finished and location.is_committed:
        return
    if manifest.finished and snapshot.visible:
        raise CheckpointError(
            "CHECKPOINT_MISSING_FILE",
            f"{join(location.path, MARKER)} is missing, or of another run, though this run has committed its results",
            file=join(location.path, MARKER),
            hint="restore the results from a copy, or begin anew with another checkpoint",
        )
    written = {f"{location.staging}/{file.path}": file.checksum for file in manifest.files}
    names = store.names(snapshot.seen, manifest.snapshot_id)  # of this one, or of a newer one that is damaged
    current = {path: location.locate(path, names[path]) if path in names else path for path in written}
    check_files(location.filesystem, {current[path]: checksum for path, checksum in written.items()})
