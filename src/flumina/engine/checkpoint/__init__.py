"""Snapshots that outlive their driver: kept in a folder, whole or not at all, of one driver at a time.

::

    store = Checkpoints(path)
    snapshot = store.latest()                            # None: nothing was committed yet
    claim = store.claim(resumes=snapshot, facts=program_facts(program, streams))
    place = claim.place(number)                          # travels to the task that has the state ...
    file = store.write_state(place, state)               # ... and writes it
    snapshot = claim.commit(number=number, after=ts, state_files=[file])
"""

from flumina.engine.checkpoint.checksum import Checksum, check_files
from flumina.engine.checkpoint.claim import Claim
from flumina.engine.checkpoint.differences import check_program, differences
from flumina.engine.checkpoint.facts import input_facts, program_facts
from flumina.engine.checkpoint.folder import Place
from flumina.engine.checkpoint.manifest import OutputFile, SnapshotManifest, StateFile
from flumina.engine.checkpoint.snapshot import Snapshot
from flumina.engine.checkpoint.store import Checkpoints
from flumina.engine.checkpoint.verify import Finding

__all__ = [
    "Checkpoints",
    "Checksum",
    "Claim",
    "Finding",
    "OutputFile",
    "Place",
    "Snapshot",
    "SnapshotManifest",
    "StateFile",
    "check_files",
    "check_program",
    "differences",
    "input_facts",
    "program_facts",
]
