"""Snapshots that outlive their driver: kept in a folder, whole or not at all, of one driver at a time.

::

    store = Checkpoints(path)
    snapshot = store.latest()                            # None: nothing was committed yet
    claim = store.claim(resumes=snapshot, facts=program_facts(program, streams))
    place = claim.place(number)                          # travels to the task that has the state ...
    file = store.write_state(place, state)               # ... and writes it
    snapshot = claim.commit(number=number, after=ts, state_files=[file])
"""

from flumina.checkpoint.differences import check_program, differences
from flumina.checkpoint.fingerprint import input_fingerprint, program_fingerprint
from flumina.checkpoint.store.checkpoints import Checkpoints
from flumina.checkpoint.store.layout import Place
from flumina.checkpoint.store.manifest import (
    BatchProgress,
    OutputFile,
    ResultFiles,
    RunProgress,
    SnapshotManifest,
    StateFile,
)
from flumina.checkpoint.store.owner import Claim
from flumina.checkpoint.store.snapshot import Snapshot
from flumina.checkpoint.store.verify import Finding

__all__ = [
    "BatchProgress",
    "Checkpoints",
    "Claim",
    "Finding",
    "OutputFile",
    "Place",
    "ResultFiles",
    "RunProgress",
    "Snapshot",
    "SnapshotManifest",
    "StateFile",
    "check_program",
    "differences",
    "input_fingerprint",
    "program_fingerprint",
]
