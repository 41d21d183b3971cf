"""Manifests: what was written is read again, and a field that is wrong is named."""

from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from flumina.checkpoint.store.checkpoints import Checkpoints
from flumina.checkpoint.store.layout import SnapshotId
from flumina.checkpoint.store.manifest import (
    BatchProgress,
    BufferedRows,
    OwnerRecord,
    SeenTimestamps,
    SnapshotManifest,
    StateFile,
)
from flumina.errors import CheckpointError
from flumina.storage.checksummed_file import decode, encode
from flumina.storage.record import from_json, to_json

PROGRESS = BatchProgress(
    done=5,
    seen={"values": SeenTimestamps(7, -(2**63))},
    buffered=(BufferedRows("values", 100, 3),),
    totals={"rows": 9},
    outputs={"letters": 1},
    last_batches={"letters": 4},
    last_dead_letters=None,
    lineage="abc",
    sink=None,
    dead_letters="out/dead",
    foreign_state=False,
    closed=True,
)
MANIFEST = SnapshotManifest(
    number=3,
    term=2,
    owner="id",
    run="run",
    created=datetime(2026, 1, 2, tzinfo=UTC),
    flumina="1",
    states=(StateFile("state", 5, "00", (("w1", 2), ("w2", 3))),),
    resumes=SnapshotId(1, 2),
    batch_progress=PROGRESS,
    fingerprint={"any": ["thing", None]},
)


def test_what_was_written_is_read_again() -> None:
    content = decode(encode("manifest", MANIFEST.to_json()), "manifest", "f")
    assert SnapshotManifest.from_json(content, "f") == MANIFEST
    record = OwnerRecord(1, "id", "run", None, MANIFEST.created, "1")
    assert from_json(OwnerRecord, to_json(record), "f") == record


@pytest.mark.parametrize(
    ("path", "wrong", "told"),
    [
        ("number", "3", "expected an integer in field 'number', got '3'"),
        ("number", True, "expected an integer in field 'number', got True"),
        ("created", "yesterday", "expected a time in field 'created'"),
        ("resumes", [1], "expected an array of 2 in field 'resumes'"),
        ("states", {}, "expected an array in field 'states'"),
        ("states.0.tree_sizes.1.1", None, "expected an integer in field 'states.0.tree_sizes.1.1', got None"),
        ("batch_progress.closed", 1, "expected true or false in field 'batch_progress.closed', got 1"),
        ("batch_progress.seen.values.newest", "x", "in field 'batch_progress.seen.values.newest'"),
        ("batch_progress.totals", [], "expected an object in field 'batch_progress.totals'"),
        ("batch_progress.lineage", 1, "expected a text in field 'batch_progress.lineage'"),
    ],
)
def test_a_field_that_is_wrong_is_named(path: str, wrong: Any, told: str) -> None:
    content = MANIFEST.to_json()
    *way, last = path.split(".")
    snapshot_id: Any = content
    for step in way:
        snapshot_id = snapshot_id[int(step)] if isinstance(snapshot_id, list) else snapshot_id[step]
    if isinstance(snapshot_id, list):
        snapshot_id[["newest", "heard"].index(last) if last in ("newest", "heard") else int(last)] = wrong
    else:
        snapshot_id[last] = wrong
    with pytest.raises(CheckpointError, match="CHECKPOINT_DAMAGED.*" + told.replace("[", "\\[")) as caught:
        SnapshotManifest.from_json(content, "f")
    assert caught.value.file == "f"


def test_a_field_that_is_missing_is_named() -> None:
    for field in fields(BatchProgress):
        content = MANIFEST.to_json()
        del content["batch_progress"][field.name]
        with pytest.raises(CheckpointError, match=f"expected a value in field 'batch_progress.{field.name}'"):
            SnapshotManifest.from_json(content, "f")


def test_a_manifest_of_another_shape_is_damage_and_no_crash(tmp_path: Path) -> None:
    """Its checksums are right: a version that forgot to raise the format has written it."""
    store = Checkpoints(tmp_path)
    store.take_over(resumes=None).commit(state=b"x")
    manifest = next(tmp_path.glob("snapshot-*.json"))
    content = decode(manifest.read_bytes(), "manifest", "")
    for file in tmp_path.glob("*.done"):
        file.unlink()
    manifest.write_bytes(encode("manifest", {**content, "events": None}))
    with pytest.raises(CheckpointError, match=r"CHECKPOINT_DAMAGED.*expected an integer in field 'events', got None"):
        store.latest()
