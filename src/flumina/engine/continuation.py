"""A run that keeps snapshots: what there is of it already, and how it goes on."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from flumina.engine.checkpoint import Checkpoints, Claim, Snapshot, input_facts, program_facts
from flumina.engine.checkpoint.sealed import damaged
from flumina.engine.job import Job, Snapshots
from flumina.engine.outputs import Outputs
from flumina.engine.policy import Checkpoint
from flumina.engine.publish import Publication, Result
from flumina.engine.recorder import FILES, ROWS, Progress, Recorder, commit
from flumina.errors import CheckpointError
from flumina.program import AnyProgram
from flumina.streams import Stream

_PIECE = 1 << 22


@dataclass(frozen=True)
class Continuation:
    """This driver's claim on a checkpoint, and the snapshot from which it goes on."""

    given: Checkpoint
    store: Checkpoints
    claim: Claim
    latest: Snapshot | None

    @staticmethod
    def of(given: Checkpoint, program: AnyProgram, streams: Sequence[Stream]) -> Continuation:
        """Find out where a run stands, and become the driver that carries it on."""
        store = Checkpoints(given.path, filesystem=given.filesystem, keep=given.keep)
        latest = store.latest(older=given.older)
        facts = {**program_facts(program, streams), "input": input_facts(streams)}
        run = None if latest is None else latest.manifest.run
        claim = store.claim(resumes=latest, facts=facts, run=run, changed=given.changed)
        return Continuation(given, store, claim, latest)

    @property
    def run(self) -> str:
        """The id of the run, the same for all drivers."""
        return self.claim.run

    @property
    def over(self) -> bool:
        """Whether all events have been processed."""
        return self.latest is not None and FILES in self.latest.manifest.extra

    @property
    def final(self) -> bytes | None:
        """The state of a run that is over, if it was asked for then."""
        return self.latest.state() if self.latest is not None and self.over and self.latest.manifest.states else None

    def job(self, job: Job) -> Job:
        """The job, so that it takes snapshots and begins where the last one was taken."""
        self._check_outputs(job.outputs)
        if self.over:
            return job
        progress = Progress.of(self.latest)
        snapshots = Snapshots(self.given.policy, self.store, self.claim.epoch)
        return replace(job, start=progress.start(), snapshots=snapshots)

    def recorder(self, job: Job) -> Recorder:
        """Who commits what the tasks hand in."""
        return Recorder(self.claim, job, Progress.of(self.latest))

    def results(self, outputs: Outputs) -> dict[str, Result]:
        """The results of a run that is over: made visible now, if the driver died before it had done so."""
        assert self.latest is not None
        manifest = self.latest.manifest
        publication = Publication(outputs, manifest.extra[ROWS], manifest.extra[FILES])
        if outputs.location is not None:
            if not outputs.location.is_published:
                publication.make_visible()
            outputs.location.settle_published()
            outputs.location.discard()
        if not manifest.finished:
            done, state = Progress.of(self.latest), self.final
            commit(self.claim, done, manifest.extra, outputs, manifest.plan, state=state, finished=True)
        return publication.results()

    def _check_outputs(self, outputs: Outputs) -> None:
        """What the snapshot says was written is still there, byte for byte."""
        if self.latest is None:
            return
        manifest, location = self.latest.manifest, outputs.location
        folder = None if location is None else location.staging
        if manifest.folder != folder:
            raise CheckpointError(
                "CHECKPOINT_OUT",
                f"the outputs of this run so far lie in {manifest.folder}, not in {folder}",
                file=self.store.folder.path,
                hint="pass the same out= as before, or begin anew with another checkpoint",
            )
        if location is None or self.over:
            return
        for file in manifest.outputs:
            path = f"{location.staging}/{file.path}"
            location.check_staged(path, file.size)
            crc = 0
            with location.filesystem.open_input_stream(path) as stream:
                while data := stream.read(_PIECE):
                    crc = zlib.crc32(data, crc)
            if crc != file.crc32:
                raise damaged(path, "its bytes do not have the checksum that the snapshot states")
