"""Manifests: what was written is read again, and a field that is wrong is named."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from flumina.checkpoint.store.checkpoints import Checkpoints
from flumina.checkpoint.store.layout import SnapshotId
from flumina.checkpoint.store.manifest import (
    BATCHES,
    BufferedFile,
    EpochManifest,
    EpochOutputs,
    Inputs,
    OwnerRecord,
    SeenTimestamps,
    StateFile,
)
from flumina.errors import CheckpointError
from flumina.storage.checksummed_file import decode, encode
from flumina.storage.json_record import from_json, to_json
from tests.checkpoint.store.support import commit

MANIFEST = EpochManifest(
    number=3,
    end=5,
    inputs=Inputs(BATCHES, {"values": SeenTimestamps(7, -(2**63))}, {"rows": 9}),
    buffered=(BufferedFile("buffered", 100, "00", "values", 2, 3, 6, 7),),
    state=(StateFile("state", 5, "00", (("w1", 2), ("w2", 3)), (0, 64)),),
    outputs=EpochOutputs(None, rows={"letters": 1}, last={"letters": 4}, lineage="abc"),
    dead_letters=EpochOutputs("out/dead"),
    finished=True,
    term=2,
    owner="id",
    run="run",
    parent=SnapshotId(1, 2),
    created=datetime(2026, 1, 2, tzinfo=UTC),
    flumina="1",
    fingerprint={"any": ["thing", None]},
)


def test_what_was_written_is_read_again() -> None:
    content = decode(encode("manifest", MANIFEST.to_json()), "manifest", "f")
    assert EpochManifest.from_json(content, "f") == MANIFEST
    record = OwnerRecord(1, "id", "run", None, MANIFEST.created, "1")
    assert from_json(OwnerRecord, to_json(record), "f") == record


@pytest.mark.parametrize(
    ("path", "wrong", "told"),
    [
        ("number", "3", "expected an integer in field 'number', got '3'"),
        ("number", True, "expected an integer in field 'number', got True"),
        ("created", "yesterday", "expected a time in field 'created'"),
        ("parent", [1], "expected an array of 2 in field 'parent'"),
        ("state", {}, "expected an array in field 'state'"),
        ("state.0.tree_sizes.1.1", None, "expected an integer in field 'state.0.tree_sizes.1.1', got None"),
        ("finished", 1, "expected true or false in field 'finished', got 1"),
        ("inputs.seen.values.newest", "x", "in field 'inputs.seen.values.newest'"),
        ("inputs.totals", [], "expected an object in field 'inputs.totals'"),
        ("outputs.lineage", 1, "expected a text in field 'outputs.lineage'"),
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
        EpochManifest.from_json(content, "f")
    assert caught.value.file == "f"


def test_a_field_that_is_missing_is_named() -> None:
    for name in ("number", "term", "owner", "run", "parent", "created", "flumina"):
        content = MANIFEST.to_json()
        del content[name]
        with pytest.raises(CheckpointError, match=f"expected a value in field '{name}'"):
            EpochManifest.from_json(content, "f")


def test_a_manifest_of_another_shape_is_damage_and_no_crash(tmp_path: Path) -> None:
    """Its checksums are right: a version that forgot to raise the format has written it."""
    store = Checkpoints(tmp_path)
    commit(store.take_over(resumes=None), state=b"x")
    manifest = next(tmp_path.glob("snapshot-*.json"))
    content = decode(manifest.read_bytes(), "manifest", "")
    for file in tmp_path.glob("*.done"):
        file.unlink()
    manifest.write_bytes(encode("manifest", {**content, "events": None}))
    with pytest.raises(CheckpointError, match=r"CHECKPOINT_DAMAGED.*expected an integer in field 'events', got None"):
        store.latest()
