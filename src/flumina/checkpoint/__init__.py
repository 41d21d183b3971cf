"""Checkpoints: snapshots that outlive their driver, committed by one driver at a time.

::

    store = Checkpoints(path)
    snapshot = store.latest()                            # None: nothing was committed yet
    owner = store.take_over(resumes=snapshot, fingerprint=program_fingerprint(program, streams))
    snapshot_id = owner.snapshot_id(number)              # travels to the task that has the state ...
    file = store.write_state(snapshot_id, state)         # ... and writes it
    snapshot = owner.commit(number=number, after=ts, state_files=[file])
"""

from flumina.checkpoint.differences import check_program, differences
from flumina.checkpoint.fingerprint import input_fingerprint, program_fingerprint
from flumina.checkpoint.store.checkpoints import Checkpoints
from flumina.checkpoint.store.layout import SnapshotId
from flumina.checkpoint.store.manifest import (
    BatchProgress,
    OutputFile,
    ResultFiles,
    RunProgress,
    SnapshotManifest,
    StateFile,
)
from flumina.checkpoint.store.owner import CheckpointOwner
from flumina.checkpoint.store.snapshot import Snapshot
from flumina.checkpoint.store.verify import Finding

__all__ = [
    "BatchProgress",
    "CheckpointOwner",
    "Checkpoints",
    "Finding",
    "OutputFile",
    "ResultFiles",
    "RunProgress",
    "Snapshot",
    "SnapshotId",
    "SnapshotManifest",
    "StateFile",
    "check_program",
    "differences",
    "input_fingerprint",
    "program_fingerprint",
]
